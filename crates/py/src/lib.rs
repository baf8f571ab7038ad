//! The extension module `preroll._core`: conversions and errors only; the work is in the pure crates.

mod simulation;

use pyo3::prelude::*;

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("DEBUG_BUILD", cfg!(debug_assertions))?;
    module.add_class::<simulation::Simulation>()?;
    Ok(())
}
