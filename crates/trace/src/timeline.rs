//! From events to what each thread was doing: contiguous spans per thread, in time order.

use std::collections::HashMap;

use crate::cause::{Call, call};
use crate::event::{Event, FileId, IDLE, Kind, Left, Tid};

/// What a thread was doing during a span.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Doing {
    /// On CPU `cpu`; `reading` while inside a read call.
    Running { cpu: u16, reading: bool },
    /// Waiting for a CPU.
    Runnable,
    /// Off the CPU; `by` ended it (0: an interrupt or a thread outside).
    Asleep {
        call: Option<Call>,
        disk: bool,
        by: Tid,
    },
}

/// One span of one thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    pub start_ns: u64,
    pub end_ns: u64,
    pub doing: Doing,
    /// The file that was read or faulted on.
    pub file: Option<FileId>,
    /// Bytes that this span brought into the page cache.
    pub cold_bytes: u64,
}

/// One thread's life.
#[derive(Debug, Default)]
pub struct Thread {
    pub spans: Vec<Span>,
    /// The thread that created it, and when.
    pub born: Option<(Tid, u64)>,
    open: Option<Span>,
    in_call: Option<(Call, i64)>,
    file: Option<FileId>,
}

impl Thread {
    fn close(&mut self, t_ns: u64) {
        if let Some(mut span) = self.open.take().filter(|s| t_ns > s.start_ns) {
            span.end_ns = t_ns;
            self.spans.push(span);
        }
    }

    fn begin(&mut self, t_ns: u64, doing: Doing) {
        self.close(t_ns);
        let file = self.file.filter(|_| !matches!(doing, Doing::Runnable));
        self.open = Some(Span {
            start_ns: t_ns,
            end_ns: t_ns,
            doing,
            file,
            cold_bytes: 0,
        });
    }

    fn is_reading(&self) -> bool {
        matches!(self.in_call, Some((Call::Read, _)))
    }

    /// Whether this thread runs on another processor than `cpu` by now. The processors' clocks differ by
    /// microseconds: where a thread moved, its arrival may be stamped before its leaving.
    fn runs_elsewhere(&self, cpu: u16) -> bool {
        let doing = self.open.map(|span| span.doing);
        matches!(doing, Some(Doing::Running { cpu: now, .. }) if now != cpu)
    }

    fn switch_out(&mut self, t_ns: u64, left: Left) {
        let call = self.in_call.map(|c| c.0);
        match left {
            Left::Runnable => self.begin(t_ns, Doing::Runnable),
            Left::Gone => self.close(t_ns),
            Left::Sleep | Left::Disk => {
                self.begin(
                    t_ns,
                    Doing::Asleep {
                        call,
                        disk: left == Left::Disk,
                        by: 0,
                    },
                );
            }
        }
    }

    fn waking(&mut self, t_ns: u64, waker: Tid) {
        let Some(span) = self.open.as_mut() else {
            return;
        };
        if let Doing::Asleep { by, .. } = &mut span.doing {
            *by = waker;
            self.begin(t_ns, Doing::Runnable);
        }
    }

    fn enter(&mut self, t_ns: u64, number: i32, arg0: i64) {
        self.in_call = Some((call(number), arg0));
        self.file = None;
        self.reopen_running(t_ns, self.is_reading());
    }

    fn leave(&mut self, t_ns: u64) {
        let was_reading = self.is_reading();
        self.in_call = None;
        self.file = None;
        self.reopen_running(t_ns, was_reading);
    }

    /// Splits a running span where a read call begins or ends.
    fn reopen_running(&mut self, t_ns: u64, at_read: bool) {
        if let Some(Span {
            doing: Doing::Running { cpu, .. },
            ..
        }) = self.open.filter(|_| at_read)
        {
            self.begin(
                t_ns,
                Doing::Running {
                    cpu,
                    reading: self.is_reading(),
                },
            );
        }
    }

    fn touches(&mut self, file: FileId) {
        self.file = Some(file);
        if let Some(span) = self.open.as_mut() {
            span.file = Some(file);
        }
    }

    /// It is on `cpu`, which idled since `idle_ns`: it got it as soon as it wanted one.
    fn took_over(&mut self, cpu: u16, idle_ns: u64) {
        let waits_from = self.open.filter(|span| span.doing == Doing::Runnable);
        if let Some(span) = waits_from {
            let reading = self.is_reading();
            let doing = Doing::Running { cpu, reading };
            self.begin(span.start_ns.max(idle_ns), doing);
        }
    }

    /// It does something on `cpu`: it runs there, whether or not the kernel said that it got it.
    fn seen_on(&mut self, t_ns: u64, cpu: u16) {
        let doing = self.open.map(|span| span.doing);
        if matches!(doing, Some(Doing::Runnable | Doing::Asleep { .. })) {
            let reading = self.is_reading();
            self.begin(t_ns, Doing::Running { cpu, reading });
        }
    }

    /// It leaves a processor that it was not seen to get: the kernel leaves out such moments. As far as
    /// is known it had it while it wanted one.
    fn had_it(&mut self, cpu: u16) {
        let reading = self.is_reading();
        if let Some(span) = self.open.as_mut()
            && span.doing == Doing::Runnable
        {
            span.doing = Doing::Running { cpu, reading };
        }
    }

    fn apply(&mut self, event: &Event) {
        if let Kind::Enter { .. } | Kind::Leave | Kind::Exit | Kind::Fetches { .. } = event.kind {
            self.seen_on(event.t_ns, event.cpu);
        }
        match event.kind {
            Kind::SwitchIn => {
                let doing = Doing::Running {
                    cpu: event.cpu,
                    reading: self.is_reading(),
                };
                self.begin(event.t_ns, doing);
            }
            Kind::SwitchOut(left) => {
                if !self.runs_elsewhere(event.cpu) {
                    self.had_it(event.cpu);
                    self.switch_out(event.t_ns, left);
                }
            }
            Kind::Waking { by } => self.waking(event.t_ns, by),
            Kind::Fork { parent } => {
                self.born = Some((parent, event.t_ns));
                self.begin(event.t_ns, Doing::Runnable);
            }
            Kind::Exit => {}
            Kind::Enter { number, arg0, .. } => self.enter(event.t_ns, number, arg0),
            Kind::Leave => self.leave(event.t_ns),
            Kind::Touches(file) => self.touches(file),
            Kind::Fetches { file, bytes } => {
                self.touches(file);
                if let Some(span) = self.open.as_mut() {
                    span.cold_bytes += bytes;
                }
            }
        }
    }
}

/// Since when each processor idles. The kernel says who takes a processor over from whom, but (6.18) not
/// when the one before was the idle task: that shows when the new one does something.
#[derive(Debug, Default)]
struct Idle {
    since: HashMap<u16, u64>,
}

impl Idle {
    /// Takes the next event; since when its processor idled, where it shows that it does no more.
    fn until(&mut self, event: &Event) -> Option<u64> {
        match event.kind {
            Kind::SwitchIn if event.tid == IDLE => {
                self.since.insert(event.cpu, event.t_ns);
                None
            }
            // Who is seen to take it over follows another thread, which nobody saw take it from idling.
            Kind::SwitchIn => {
                self.since.remove(&event.cpu);
                None
            }
            // Of these the event's thread is another than who has the processor.
            Kind::Waking { .. } | Kind::Fork { .. } => None,
            _ => self.since.remove(&event.cpu),
        }
    }
}

/// All threads seen.
#[derive(Debug, Default)]
pub struct Timeline {
    pub threads: HashMap<Tid, Thread>,
}

impl Timeline {
    /// Builds the timeline of `events`, which must be in time order, until `end_ns`.
    pub fn build(events: &[Event], end_ns: u64) -> Self {
        let mut timeline = Self::default();
        let mut idle = Idle::default();
        for event in events {
            let idle_ns = idle.until(event);
            if event.tid == IDLE {
                continue;
            }
            let thread = timeline.threads.entry(event.tid).or_default();
            if let Some(idle_ns) = idle_ns {
                thread.took_over(event.cpu, idle_ns);
            }
            thread.apply(event);
        }
        for thread in timeline.threads.values_mut() {
            thread.close(end_ns.max(thread.open.map_or(0, |s| s.start_ns)));
        }
        timeline
    }

    /// Adds a finished span, for the sampler. Spans of a thread must come in time order.
    pub fn push(&mut self, tid: Tid, span: Span) {
        self.threads.entry(tid).or_default().spans.push(span);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(t_ns: u64, tid: Tid, kind: Kind) -> Event {
        Event {
            t_ns,
            tid,
            cpu: 0,
            kind,
        }
    }

    #[test]
    fn a_thread_runs_sleeps_is_woken_waits_and_runs() {
        let events = [
            event(10, 7, Kind::SwitchIn),
            event(
                20,
                7,
                Kind::Enter {
                    number: 202,
                    arg0: 0,
                    arg1: 0,
                },
            ),
            event(25, 7, Kind::SwitchOut(Left::Sleep)),
            event(60, 7, Kind::Waking { by: 9 }),
            event(65, 7, Kind::SwitchIn),
            event(70, 7, Kind::Leave),
        ];
        let timeline = Timeline::build(&events, 100);
        let spans: Vec<_> = timeline.threads[&7]
            .spans
            .iter()
            .map(|s| (s.start_ns, s.end_ns, s.doing))
            .collect();
        let running = Doing::Running {
            cpu: 0,
            reading: false,
        };
        let asleep = Doing::Asleep {
            call: Some(Call::Futex),
            disk: false,
            by: 9,
        };
        let expected = vec![
            (10, 25, running),
            (25, 60, asleep),
            (60, 65, Doing::Runnable),
            (65, 100, running),
        ];
        assert_eq!(spans, expected);
    }

    #[test]
    fn a_thread_that_moved_runs_on_though_its_leaving_is_stamped_later() {
        let on = |cpu, event: Event| Event { cpu, ..event };
        let events = [
            on(0, event(10, 7, Kind::SwitchIn)),
            on(1, event(49, 7, Kind::SwitchIn)),
            on(0, event(50, 7, Kind::SwitchOut(Left::Runnable))),
            on(1, event(80, 7, Kind::SwitchOut(Left::Sleep))),
        ];
        let timeline = Timeline::build(&events, 100);
        let spans = &timeline.threads[&7].spans;
        let ran: u64 = spans
            .iter()
            .filter(|s| matches!(s.doing, Doing::Running { .. }))
            .map(|s| s.end_ns - s.start_ns)
            .sum();
        assert_eq!(ran, 70);
        assert!(spans.iter().all(|s| s.doing != Doing::Runnable));
    }

    #[test]
    fn a_thread_runs_though_nobody_said_that_it_got_a_processor() {
        let events = [
            event(0, 7, Kind::Fork { parent: 3 }),
            event(40, 7, Kind::SwitchOut(Left::Runnable)),
            event(45, 7, Kind::SwitchIn),
            event(50, 7, Kind::SwitchOut(Left::Runnable)),
            event(70, 7, Kind::Leave),
            event(90, 7, Kind::SwitchOut(Left::Sleep)),
        ];
        let timeline = Timeline::build(&events, 100);
        let waits: Vec<_> = timeline.threads[&7]
            .spans
            .iter()
            .filter(|s| s.doing == Doing::Runnable)
            .map(|s| (s.start_ns, s.end_ns))
            .collect();
        assert_eq!(waits, [(40, 45), (50, 70)]);
    }

    #[test]
    fn who_is_woken_for_an_idle_processor_has_it() {
        let on = |cpu, event: Event| Event { cpu, ..event };
        let events = [
            event(0, 7, Kind::SwitchIn),
            event(10, 7, Kind::SwitchOut(Left::Disk)),
            event(10, 0, Kind::SwitchIn),
            on(1, event(30, 7, Kind::Waking { by: 0 })),
            event(50, 7, Kind::Leave), // It had it from 30 on.
            event(60, 7, Kind::SwitchOut(Left::Runnable)),
            event(60, 8, Kind::SwitchIn),
            on(1, event(75, 0, Kind::SwitchIn)),
            on(1, event(90, 7, Kind::Leave)), // And this one since the other has left, at 75.
        ];
        let timeline = Timeline::build(&events, 100);
        let spans = &timeline.threads[&7].spans;
        let waits = spans.iter().filter(|s| s.doing == Doing::Runnable);
        let waits: Vec<_> = waits.map(|s| (s.start_ns, s.end_ns)).collect();
        assert_eq!(waits, [(60, 75)]);
        let slept = |s: &&Span| matches!(s.doing, Doing::Asleep { .. });
        let slept: Vec<_> = spans
            .iter()
            .filter(slept)
            .map(|s| (s.start_ns, s.end_ns))
            .collect();
        assert_eq!(slept, [(10, 30)]);
    }

    #[test]
    fn who_follows_a_stranger_on_a_processor_that_idled_has_waited() {
        let events = [
            event(5, IDLE, Kind::SwitchIn),
            // Another command's thread takes over from the idle task: not recorded.
            event(20, 7, Kind::Waking { by: 0 }),
            event(90, 7, Kind::SwitchIn),
            event(95, 7, Kind::SwitchOut(Left::Sleep)),
        ];
        let asleep = [
            event(0, 7, Kind::SwitchIn),
            event(2, 7, Kind::SwitchOut(Left::Sleep)),
        ];
        let timeline = Timeline::build(&[&asleep[..], &events].concat(), 100);
        let spans = &timeline.threads[&7].spans;
        let waits = spans.iter().filter(|s| s.doing == Doing::Runnable);
        let waits: Vec<_> = waits.map(|s| (s.start_ns, s.end_ns)).collect();
        assert_eq!(waits, [(20, 90)]);
    }

    #[test]
    fn reads_split_a_running_span_and_carry_file_and_cold_bytes() {
        let file = FileId {
            device: 1,
            inode: 5,
        };
        let events = [
            event(0, 7, Kind::SwitchIn),
            event(
                10,
                7,
                Kind::Enter {
                    number: 0,
                    arg0: 3,
                    arg1: 0,
                },
            ),
            event(12, 7, Kind::Fetches { file, bytes: 4096 }),
            event(30, 7, Kind::Leave),
        ];
        let spans = &Timeline::build(&events, 40).threads[&7].spans;
        assert_eq!(spans.len(), 3);
        assert_eq!((spans[1].file, spans[1].cold_bytes), (Some(file), 4096));
        assert_eq!(
            spans[1].doing,
            Doing::Running {
                cpu: 0,
                reading: true
            }
        );
        assert_eq!(spans[2].file, None);
    }
}
