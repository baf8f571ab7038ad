//! Time that the hypervisor gave to somebody else, from /proc/stat, carved out of running slices.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::cause::Cause;
use crate::critical::Slice;

/// The kernel counts in hundredths of a second on every architecture that Preroll runs on.
const TICK_NS: u64 = 10_000_000;
/// Room for the lines of five hundred processors.
const MAX_BYTES: usize = 64 << 10;

/// Stolen time of one CPU over one interval.
#[derive(Clone, Copy, Debug)]
struct Stolen {
    cpu: u16,
    start_ns: u64,
    end_ns: u64,
    share: f64,
}

/// Samples of /proc/stat's steal column.
#[derive(Debug, Default)]
pub struct Steal {
    last: Option<(u64, Vec<u64>)>,
    intervals: Vec<Stolen>,
}

/// The steal column (ticks) per CPU.
fn parse(stat: &str) -> Vec<u64> {
    stat.lines()
        .filter(|l| l.starts_with("cpu") && !l.starts_with("cpu "))
        .map(|l| {
            l.split_whitespace()
                .nth(8)
                .and_then(|v| v.parse().ok())
                .unwrap_or(0)
        })
        .collect()
}

impl Steal {
    /// Looks at /proc/stat now, at `t_ns`. One read of its beginning: the processors come first.
    pub fn look(&mut self, t_ns: u64) {
        let mut text = vec![0; MAX_BYTES];
        let read = File::open("/proc/stat").and_then(|file| file.read_at(&mut text, 0));
        if let Ok(n) = read {
            self.sample(t_ns, &String::from_utf8_lossy(&text[..n]));
        }
    }

    /// Takes one sample at `t_ns`.
    fn sample(&mut self, t_ns: u64, stat: &str) {
        let now = parse(stat);
        if let Some((start_ns, before)) = self.last.replace((t_ns, now.clone())) {
            let length = t_ns.saturating_sub(start_ns).max(1);
            for (cpu, (new, old)) in now
                .iter()
                .zip(&before)
                .enumerate()
                .filter(|(_, (n, o))| n > o)
            {
                let share = ((new - old) * TICK_NS) as f64 / length as f64;
                let share = share.min(1.0);
                self.intervals.push(Stolen {
                    cpu: cpu as u16,
                    start_ns,
                    end_ns: t_ns,
                    share,
                });
            }
        }
    }

    /// Splits each running slice so that its stolen share is a slice of its own.
    pub fn carve(&self, slices: Vec<Slice>) -> Vec<Slice> {
        let mut out = Vec::with_capacity(slices.len());
        for slice in slices {
            let stolen = self.stolen_ns(&slice).min(slice.end_ns - slice.start_ns);
            let cut = slice.end_ns - stolen;
            if cut > slice.start_ns {
                out.push(Slice {
                    end_ns: cut,
                    ..slice.clone()
                });
            }
            if stolen > 0 {
                out.push(Slice {
                    start_ns: cut,
                    cause: Cause::Stolen,
                    cold_bytes: 0,
                    ..slice
                });
            }
        }
        out
    }

    fn stolen_ns(&self, slice: &Slice) -> u64 {
        let Some(cpu) = slice.cpu else { return 0 };
        let overlaps =
            |s: &&Stolen| s.cpu == cpu && s.start_ns < slice.end_ns && slice.start_ns < s.end_ns;
        let first = self
            .intervals
            .partition_point(|s| s.end_ns <= slice.start_ns);
        self.intervals[first..]
            .iter()
            .take_while(|s| s.start_ns < slice.end_ns)
            .filter(overlaps)
            .map(|s| {
                let overlap = s.end_ns.min(slice.end_ns) - s.start_ns.max(slice.start_ns);
                (overlap as f64 * s.share) as u64
            })
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stolen_share_is_cut_from_running_slices_of_that_cpu_only() {
        let stat = |steal: u64| {
            format!(
                "cpu  1 1 1 1 1 1 1 {steal} 0 0\ncpu0 1 1 1 1 1 1 1 {steal} 0 0\ncpu1 0 0 0 0 0 0 0 0 0 0\n"
            )
        };
        let mut steal = Steal::default();
        steal.sample(0, &stat(0));
        steal.sample(100_000_000, &stat(5));
        let slice = |cpu| Slice {
            start_ns: 0,
            end_ns: 100_000_000,
            tid: 1,
            cause: Cause::Cpu,
            depth: 0,
            cpu,
            file: None,
            cold_bytes: 0,
        };
        let out = steal.carve(vec![slice(Some(0)), slice(Some(1)), slice(None)]);
        let bill: Vec<_> = out
            .iter()
            .map(|s| (s.cause, s.end_ns - s.start_ns))
            .collect();
        let whole = (Cause::Cpu, 100_000_000);
        assert_eq!(
            bill,
            vec![
                (Cause::Cpu, 50_000_000),
                (Cause::Stolen, 50_000_000),
                whole,
                whole
            ]
        );
    }
}
