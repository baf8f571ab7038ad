//! Arrivals, produced one at a time: nothing is held but the trace itself.

use std::sync::Arc;

use crate::config::{Arrivals, Window};
use crate::dist::{Dist, Sampler, ns};
use crate::rng::{Stream, gamma_function};

/// A recorded trace, sorted by time. `hash_offsets` is empty or one longer than `times_ns`;
/// `hashes` are the prefix block ids of all requests, one after the other.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    pub times_ns: Vec<u64>,
    pub prompts: Vec<u32>,
    pub outputs: Vec<u32>,
    pub hash_offsets: Vec<u32>,
    pub hashes: Vec<u32>,
}

impl Trace {
    /// Says which array does not fit the others, if one does not.
    pub fn check(&self) -> Result<(), String> {
        let n = self.times_ns.len();
        if self.prompts.len() != n || self.outputs.len() != n {
            return Err(format!(
                "trace: {n} times, {} prompts, {} outputs; all must be as many",
                self.prompts.len(),
                self.outputs.len()
            ));
        }
        if !self.times_ns.is_sorted() {
            return Err("trace: times do not rise".to_owned());
        }
        let offsets = &self.hash_offsets;
        let fits = offsets.len() == n + 1
            && offsets.is_sorted()
            && offsets.last().copied() == u32::try_from(self.hashes.len()).ok();
        if offsets.is_empty() || fits {
            return Ok(());
        }
        Err("trace: hash offsets do not fit the requests".to_owned())
    }

    pub fn hashes_of(&self, request: u32) -> &[u32] {
        let i = request as usize;
        match self.hash_offsets.get(i + 1) {
            Some(&end) => &self.hashes[self.hash_offsets[i] as usize..end as usize],
            None => &[],
        }
    }
}

/// One request as it arrives. `trace_index` finds its prefix blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    pub time_ns: u64,
    pub prompt: u32,
    pub output: u32,
    pub trace_index: u32,
}

/// A running source of arrivals.
#[derive(Debug)]
pub struct Source {
    gaps: Gaps,
    lengths: Lengths,
}

#[derive(Debug)]
enum Gaps {
    Renewal(Renewal),
    Windows(Windows),
    Trace(Arc<Trace>, usize),
}

#[derive(Debug)]
struct Lengths {
    prompt: Sampler,
    output: Sampler,
    /// Both lengths where neither varies: nothing is sampled then.
    constant: Option<(u32, u32)>,
    stream: Stream,
}

impl Lengths {
    fn new(prompt: &Dist, output: &Dist, stream: Stream) -> Self {
        let constant = match (prompt, output) {
            (Dist::Constant { value: p }, Dist::Constant { value: o }) => {
                Some((whole(*p), whole(*o)))
            }
            _ => None,
        };
        Self {
            prompt: prompt.sampler(),
            output: output.sampler(),
            constant,
            stream,
        }
    }

    #[inline]
    fn next(&mut self) -> (u32, u32) {
        if let Some(lengths) = self.constant {
            return lengths;
        }
        let prompt = whole(self.prompt.sample(&mut self.stream));
        (prompt, whole(self.output.sample(&mut self.stream)))
    }
}

/// Tokens to the nearest one: a cast saturates, and unlike round() it is one instruction everywhere.
#[inline]
fn whole(tokens: f64) -> u32 {
    (tokens + 0.5) as u32
}

const ARRIVALS: u64 = 1;
const LENGTHS: u64 = 2;

impl Source {
    pub fn new(arrivals: &Arrivals, traces: &[Arc<Trace>], seed: u64, index: u64) -> Self {
        let stream = Stream::new(seed, ARRIVALS, index);
        let (gaps, prompt, output) = match arrivals {
            Arrivals::Renewal {
                gap,
                rates,
                end_s,
                prompt,
                output,
            } => (
                Gaps::Renewal(Renewal::new(gap, rates, *end_s, stream)),
                prompt,
                output,
            ),
            Arrivals::Windows {
                windows,
                window_s,
                prompt,
                output,
            } => (
                Gaps::Windows(Windows::new(windows.clone(), *window_s, stream)),
                prompt,
                output,
            ),
            Arrivals::Trace { trace } => {
                let none = &Dist::Constant { value: 0.0 };
                (Gaps::Trace(traces[*trace].clone(), 0), none, none)
            }
        };
        let stream = Stream::new(seed, LENGTHS, index);
        let lengths = Lengths::new(prompt, output, stream);
        Self { gaps, lengths }
    }

    /// The trace that is replayed, if it is one.
    pub fn trace(&self) -> Option<&Trace> {
        match &self.gaps {
            Gaps::Trace(trace, _) => Some(trace),
            Gaps::Renewal(_) | Gaps::Windows(_) => None,
        }
    }

    /// The next arrival, None after the last.
    #[inline]
    pub fn next_arrival(&mut self) -> Option<Arrival> {
        let time_ns = match &mut self.gaps {
            Gaps::Renewal(renewal) => renewal.next_ns()?,
            Gaps::Windows(windows) => windows.next_ns()?,
            Gaps::Trace(trace, next) => {
                let i = *next;
                *next += 1;
                return Some(Arrival {
                    time_ns: *trace.times_ns.get(i)?,
                    prompt: trace.prompts[i],
                    output: trace.outputs[i],
                    trace_index: i as u32,
                });
            }
        };
        let (prompt, output) = self.lengths.next();
        Some(Arrival {
            time_ns,
            prompt,
            output,
            trace_index: 0,
        })
    }
}

/// A renewal process under a piecewise constant rate (a time change of a process of rate 1).
#[derive(Debug)]
struct Renewal {
    gap: Sampler,
    /// (from, nanoseconds per unit gap; infinite where the rate is 0)
    segments: Vec<(u64, f64)>,
    current: usize,
    now_ns: u64,
    until_ns: u64,
    end_ns: u64,
    stream: Stream,
}

impl Renewal {
    fn new(gap: &Dist, rates: &[(f64, f64)], end_s: f64, stream: Stream) -> Self {
        let scale = 1e9 / gap.mean();
        let segments: Vec<_> = rates
            .iter()
            .map(|&(from, r)| (ns(from), scale / r))
            .collect();
        let until_ns = segments.get(1).map_or(u64::MAX, |s| s.0);
        let end_ns = ns(end_s);
        Self {
            gap: gap.sampler(),
            segments,
            current: 0,
            now_ns: 0,
            until_ns,
            end_ns,
            stream,
        }
    }

    #[inline]
    fn next_ns(&mut self) -> Option<u64> {
        let mut gap = self.gap.sample(&mut self.stream);
        loop {
            let per_gap = self.segments[self.current].1;
            let reached = self.now_ns as f64 + gap * per_gap;
            if reached < self.until_ns as f64 {
                self.now_ns += (gap * per_gap + 0.5) as u64;
                return (self.now_ns < self.end_ns).then_some(self.now_ns);
            }
            if self.until_ns >= self.end_ns {
                return None;
            }
            gap -= (self.until_ns - self.now_ns) as f64 / per_gap;
            self.current += 1;
            self.now_ns = self.until_ns;
            self.until_ns = self
                .segments
                .get(self.current + 1)
                .map_or(u64::MAX, |s| s.0);
        }
    }
}

/// Windows with a given number of arrivals each: gaps of the window's shape, scaled so that they
/// fill it exactly. Two passes over the same random numbers, so that no gap is stored.
#[derive(Debug)]
struct Windows {
    windows: std::vec::IntoIter<Window>,
    window_s: f64,
    gap: Sampler,
    left: u64,
    at_s: f64,
    scale: f64,
    stream: Stream,
}

impl Windows {
    fn new(windows: Vec<Window>, window_s: f64, stream: Stream) -> Self {
        let gap = Sampler::Constant(0.0);
        Self {
            windows: windows.into_iter(),
            window_s,
            gap,
            left: 0,
            at_s: 0.0,
            scale: 0.0,
            stream,
        }
    }

    fn next_ns(&mut self) -> Option<u64> {
        while self.left == 0 {
            let window = self.windows.next()?;
            self.enter(window);
        }
        self.left -= 1;
        self.at_s += self.gap.sample(&mut self.stream) * self.scale;
        if self.left == 0 {
            // the gap that reaches past the window's end belongs to the scale only
            let at_s = self.at_s;
            self.gap.sample(&mut self.stream);
            return Some(ns(at_s));
        }
        Some(ns(self.at_s))
    }

    fn enter(&mut self, window: Window) {
        let spare = window.count.fract();
        let extra = u64::from(spare > 0.0 && self.stream.open01() < spare);
        self.left = window.count as u64 + extra;
        self.at_s = window.start_s;
        self.gap = unit_gap(window);
        let mut ahead = self.stream.clone();
        let total: f64 = (0..=self.left).map(|_| self.gap.sample(&mut ahead)).sum();
        self.scale = if total > 0.0 {
            self.window_s / total
        } else {
            0.0
        };
    }
}

fn unit_gap(window: Window) -> Sampler {
    let shape = window.shape;
    if window.weibull {
        let scale = 1.0 / gamma_function(1.0 + 1.0 / shape);
        return Sampler::Weibull {
            scale,
            power: 1.0 / shape,
        };
    }
    Sampler::Gamma { mean: 1.0, shape }
}
