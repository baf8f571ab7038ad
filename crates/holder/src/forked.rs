//! A child that a fork server has made: the process that becomes this holder is its parent, so it
//! is owned as any other child. It waits for a byte before it does anything.

use std::os::fd::OwnedFd;

use rustix::process::Pid;

use crate::clock::start_ticks;
use crate::generation::{Generation, Program, Streams};
use crate::launch::take_fd;
use crate::ring::Stream;

#[derive(Debug)]
pub struct Forked {
    pub pid: Pid,
    out: OwnedFd,
    err: OwnedFd,
    go: OwnedFd,
    spawned_ns: u64,
}

impl Forked {
    /// Reads `PID:OUT:ERR:GO:SPAWNED_NS`: the child, the descriptors of its output's pipes and of
    /// the one that lets it go, and when it was forked.
    pub fn take(text: &str) -> Result<Self, String> {
        let wrong = || format!("--forked {text:?}: must be PID:OUT:ERR:GO:SPAWNED_NS");
        let numbers: Vec<i64> = text
            .split(':')
            .map(|part| part.parse().map_err(|_| wrong()))
            .collect::<Result<_, _>>()?;
        let [pid, out, err, go, spawned_ns] = numbers[..] else {
            return Err(wrong());
        };
        let take = |number: i64| {
            let fd = i32::try_from(number).ok().and_then(take_fd);
            fd.ok_or_else(|| format!("--forked {text:?}: descriptor {number} is not open"))
        };
        let pid = i32::try_from(pid).ok().filter(|&pid| pid > 1);
        Ok(Self {
            pid: pid.and_then(Pid::from_raw).ok_or_else(wrong)?,
            out: take(out)?,
            err: take(err)?,
            go: take(go)?,
            spawned_ns: u64::try_from(spawned_ns).map_err(|_| wrong())?,
        })
    }

    /// The first generation, its output, and the pipe that lets it go.
    pub fn into_generation(self, program: Program) -> (Generation, Streams, OwnedFd) {
        let generation = Generation {
            number: 1,
            program,
            pid: self.pid,
            start_ticks: start_ticks(self.pid.as_raw_nonzero().get()).unwrap_or(0),
            spawned_ns: self.spawned_ns,
            exited_ns: None,
            exit: None,
            is_rest_signalled: false,
        };
        let streams = vec![(self.out, Stream::Out), (self.err, Stream::Err)];
        (generation, streams, self.go)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_forked_child_is_refused_with_what_is_wrong() {
        for text in ["", "1:2", "a:5:6:7:8", "7:5:6:7:8:9", "1:900:901:902:8"] {
            assert!(
                Forked::take(text).unwrap_err().contains("PID:OUT"),
                "{text}"
            );
        }
        let error = Forked::take("77:100900:100901:100902:8").unwrap_err();
        assert!(error.contains("descriptor 100900 is not open"), "{error}");
        let error = Forked::take("77:1:2:0:8").unwrap_err();
        assert!(error.contains("descriptor 1 is not open"), "{error}");
    }
}
