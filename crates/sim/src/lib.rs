//! Preroll: sim.
