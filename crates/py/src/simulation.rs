//! `preroll._core.Simulation`: JSON and byte buffers in, control ticks out, JSON back.

use preroll_sim::{Config, Pause, Sim, Trace};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyTuple;

/// Events between two looks at Python's signals: a fraction of a second.
const SLICE: u64 = 4_000_000;

type TraceBytes = (
    PyBackedBytes,
    PyBackedBytes,
    PyBackedBytes,
    PyBackedBytes,
    PyBackedBytes,
);

#[pyclass(module = "preroll._core")]
pub struct Simulation {
    sim: Sim,
}

#[pymethods]
impl Simulation {
    #[new]
    fn new(py: Python<'_>, config: &str, traces: Vec<TraceBytes>) -> PyResult<Self> {
        let wrong = PyValueError::new_err::<String>;
        let traces = traces
            .iter()
            .map(trace)
            .collect::<Result<Vec<_>, _>>()
            .map_err(wrong)?;
        let sim = py.detach(|| {
            let config: Config = serde_json::from_str(config).map_err(|e| e.to_string())?;
            Sim::new(&config, traces)
        });
        Ok(Self {
            sim: sim.map_err(wrong)?,
        })
    }

    /// Runs to the end. `decide(endpoint, now_s, ready, starting, in_flight, queued, arrivals,
    /// concurrency, idle_s, gaps_s, start_s)` gives the replicas that an endpoint should have.
    #[pyo3(signature = (decide = None))]
    fn run(&mut self, py: Python<'_>, decide: Option<Bound<'_, PyAny>>) -> PyResult<String> {
        let mut gaps = Gaps::default();
        loop {
            let sim = &mut self.sim;
            match py.detach(|| sim.run(SLICE)) {
                Pause::Over => break,
                Pause::Slice => {}
                Pause::Tick(index) => {
                    if let Some(decide) = &decide {
                        let wanted = ask(py, sim, index, decide, &mut gaps)?;
                        sim.scale(index, wanted);
                    }
                }
            }
            py.check_signals()?;
        }
        let report = self.sim.report();
        let json = py.detach(|| serde_json::to_string(&report));
        json.map_err(|e| PyRuntimeError::new_err(e.to_string()))
    }
}

/// The gaps of each endpoint as a tuple that is made again only when there are new ones.
#[derive(Default)]
struct Gaps(Vec<(u64, Option<Py<PyTuple>>)>);

impl Gaps {
    fn get<'py>(
        &mut self,
        py: Python<'py>,
        sim: &Sim,
        index: u32,
        num_gaps: u64,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let i = index as usize;
        if self.0.len() <= i {
            self.0.resize_with(i + 1, || (0, None));
        }
        let (seen, tuple) = &mut self.0[i];
        if let (true, Some(tuple)) = (*seen == num_gaps, &tuple) {
            return Ok(tuple.bind(py).clone());
        }
        let made = PyTuple::new(py, sim.gaps_s(index))?;
        (*seen, *tuple) = (num_gaps, Some(made.clone().unbind()));
        Ok(made)
    }
}

fn ask(
    py: Python<'_>,
    sim: &mut Sim,
    index: u32,
    decide: &Bound<'_, PyAny>,
    gaps: &mut Gaps,
) -> PyResult<u32> {
    let seen = sim.observe(index);
    let gaps = gaps.get(py, sim, index, seen.num_gaps)?;
    let counts = (
        seen.num_ready,
        seen.num_starting,
        seen.in_flight,
        seen.queued,
        seen.arrivals,
    );
    let (ready, starting, in_flight, queued, arrivals) = counts;
    let answer = decide.call1((
        index,
        seen.now_s,
        ready,
        starting,
        in_flight,
        queued,
        arrivals,
        seen.concurrency,
        seen.idle_s,
        gaps,
        seen.start_s,
    ))?;
    answer.extract()
}

fn trace(buffers: &TraceBytes) -> Result<Trace, String> {
    let (times, prompts, outputs, offsets, hashes) = buffers;
    let times_ns = words(times, "times_ns")?.map(u64::from_le_bytes).collect();
    let u32s =
        |bytes: &[u8], name| Ok::<_, String>(words(bytes, name)?.map(u32::from_le_bytes).collect());
    Ok(Trace {
        times_ns,
        prompts: u32s(prompts, "prompts")?,
        outputs: u32s(outputs, "outputs")?,
        hash_offsets: u32s(offsets, "hash_offsets")?,
        hashes: u32s(hashes, "hashes")?,
    })
}

fn words<'a, const N: usize>(
    bytes: &'a [u8],
    name: &str,
) -> Result<impl Iterator<Item = [u8; N]> + 'a, String> {
    if !bytes.chunks_exact(N).remainder().is_empty() {
        return Err(format!(
            "trace: {name} has {} bytes, not a multiple of {N}",
            bytes.len()
        ));
    }
    let word = |chunk: &[u8]| std::array::from_fn(|i| chunk[i]);
    Ok(bytes.chunks_exact(N).map(word))
}
