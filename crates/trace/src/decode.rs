//! Tracepoint payloads to events. Field offsets come from this kernel's own format files.

use std::collections::HashMap;
use std::path::Path;

use crate::event::{Event, FileId, Kind, Left, Tid};

const PAGE_BYTES: u64 = 4096;
/// `common_flags`: in a hard or soft interrupt.
const IN_INTERRUPT: i64 = 0x18;

/// The tracepoints that are recorded, as folders below `events/`: of all threads, and of some.
pub const SWITCHES: [&str; 1] = ["sched/sched_switch"];
pub const OF_THREADS: [&str; 8] = [
    "sched/sched_waking",
    "sched/sched_process_fork",
    "sched/sched_process_exit",
    "raw_syscalls/sys_enter",
    "raw_syscalls/sys_exit",
    "filemap/mm_filemap_add_to_page_cache",
    "filemap/mm_filemap_fault",
    "filemap/mm_filemap_get_pages",
];

/// Offset and size of one field.
type Place = (usize, usize);

/// The layout of one tracepoint.
#[derive(Debug)]
pub struct Format {
    /// The number that begins each record.
    pub id: u16,
    fields: HashMap<String, Place>,
}

impl Format {
    /// Parses the text of a `format` file.
    pub fn parse(text: &str) -> Option<Self> {
        let id = text
            .lines()
            .find_map(|l| l.strip_prefix("ID:"))?
            .trim()
            .parse()
            .ok()?;
        let mut fields = HashMap::new();
        for line in text
            .lines()
            .filter(|l| l.trim_start().starts_with("field:"))
        {
            let mut parts = line.trim().split(';').map(str::trim);
            let name = parts.next()?.rsplit([' ', '*']).next()?.split('[').next()?;
            let offset = parts.next()?.strip_prefix("offset:")?.parse().ok()?;
            let size = parts.next()?.strip_prefix("size:")?.parse().ok()?;
            fields.insert(name.to_owned(), (offset, size));
        }
        Some(Self { id, fields })
    }

    fn place(&self, name: &str) -> Place {
        self.fields.get(name).copied().unwrap_or((0, 0))
    }
}

fn number(data: &[u8], (offset, size): Place) -> i64 {
    let Some(bytes) = data.get(offset..offset + size) else {
        return 0;
    };
    match size {
        1 => i64::from(bytes[0]),
        4 => i64::from(i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])),
        8 => bytes.try_into().map(i64::from_le_bytes).unwrap_or(0),
        _ => 0,
    }
}

/// The places of every field that is read, looked up once.
#[derive(Debug)]
pub struct Decoder {
    kinds: HashMap<u16, usize>,
    current: Place,
    flags: Place,
    switch: [Place; 3],
    waking: Place,
    fork: [Place; 2],
    exit: Place,
    enter: [Place; 2],
    added: [Place; 3],
    fault: [Place; 2],
    get: [Place; 2],
}

impl Decoder {
    /// Reads the formats below `events` of a tracefs instance.
    pub fn open(events: &Path) -> Result<Self, String> {
        let mut formats = Vec::new();
        for name in SWITCHES.iter().chain(&OF_THREADS) {
            let path = events.join(name).join("format");
            let text = std::fs::read_to_string(&path).map_err(|e| {
                format!("{}: {e}: this kernel lacks the tracepoint", path.display())
            })?;
            let format = Format::parse(&text)
                .ok_or_else(|| format!("{}: not a tracepoint format", path.display()))?;
            formats.push(format);
        }
        Ok(Self::from_formats(&formats))
    }

    fn from_formats(formats: &[Format]) -> Self {
        let place = |kind: usize, name: &str| formats[kind].place(name);
        Self {
            kinds: formats
                .iter()
                .enumerate()
                .map(|(kind, f)| (f.id, kind))
                .collect(),
            current: place(0, "common_pid"),
            flags: place(0, "common_flags"),
            switch: [
                place(0, "prev_pid"),
                place(0, "prev_state"),
                place(0, "next_pid"),
            ],
            waking: place(1, "pid"),
            fork: [place(2, "parent_pid"), place(2, "child_pid")],
            exit: place(3, "pid"),
            enter: [place(4, "id"), place(4, "args")],
            added: [place(6, "s_dev"), place(6, "i_ino"), place(6, "order")],
            fault: [place(7, "s_dev"), place(7, "i_ino")],
            get: [place(8, "s_dev"), place(8, "i_ino")],
        }
    }

    /// Appends the events of one record; a switch is two events, an unknown record none.
    pub fn decode(&self, t_ns: u64, cpu: u16, data: &[u8], out: &mut Vec<Event>) {
        let Some(id) = data.get(..2).map(|b| u16::from_le_bytes([b[0], b[1]])) else {
            return;
        };
        let Some(kind) = self.kinds.get(&id) else {
            return;
        };
        let current = number(data, self.current) as Tid;
        let mut push = |tid: Tid, kind: Kind| {
            out.push(Event {
                t_ns,
                tid,
                cpu,
                kind,
            })
        };
        let file = |places: &[Place]| FileId {
            device: number(data, places[0]) as u32,
            inode: number(data, places[1]) as u64,
        };
        match kind {
            0 => {
                let [prev, state, next] = self.switch.map(|place| number(data, place));
                push(prev as Tid, Kind::SwitchOut(left(state)));
                push(next as Tid, Kind::SwitchIn);
            }
            1 => {
                // In an interrupt the current thread is a bystander, not the one that wakes.
                let by = if number(data, self.flags) & IN_INTERRUPT != 0 {
                    0
                } else {
                    current
                };
                push(number(data, self.waking) as Tid, Kind::Waking { by });
            }
            2 => {
                let [parent, child] = self.fork.map(|place| number(data, place) as Tid);
                push(child, Kind::Fork { parent });
            }
            3 => push(number(data, self.exit) as Tid, Kind::Exit),
            4 => {
                let (offset, _) = self.enter[1];
                let [arg0, arg1] = [0, 8].map(|at| number(data, (offset + at, 8)));
                push(
                    current,
                    Kind::Enter {
                        number: number(data, self.enter[0]) as i32,
                        arg0,
                        arg1,
                    },
                );
            }
            5 => push(current, Kind::Leave),
            6 => {
                let bytes = PAGE_BYTES << number(data, self.added[2]).clamp(0, 20);
                push(
                    current,
                    Kind::Fetches {
                        file: file(&self.added),
                        bytes,
                    },
                );
            }
            7 => push(current, Kind::Touches(file(&self.fault))),
            _ => push(current, Kind::Touches(file(&self.get))),
        }
    }
}

/// `prev_state` of sched_switch: bits of the task state; 0 (or the "preempted" bit above) is runnable.
fn left(state: i64) -> Left {
    const INTERRUPTIBLE: i64 = 1;
    const UNINTERRUPTIBLE: i64 = 2;
    const REPORT_MASK: i64 = 0xFF;
    match state & REPORT_MASK {
        0 => Left::Runnable,
        s if s & UNINTERRUPTIBLE != 0 => Left::Disk,
        s if s & INTERRUPTIBLE != 0 => Left::Sleep,
        _ => Left::Gone,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAKING: &str = "name: sched_waking\nID: 375\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\tfield:pid_t pid;\toffset:24;\tsize:4;\tsigned:1;\n";

    #[test]
    fn a_format_file_gives_id_and_places() {
        let format = Format::parse(WAKING).unwrap();
        assert_eq!(format.id, 375);
        assert_eq!(format.place("pid"), (24, 4));
        assert_eq!(format.place("comm"), (8, 16));
        assert_eq!(format.place("common_pid"), (4, 4));
        assert!(Format::parse("nonsense").is_none());
    }

    #[test]
    fn states_of_a_switch_are_told_apart() {
        assert_eq!(left(0), Left::Runnable);
        assert_eq!(left(0x100), Left::Runnable);
        assert_eq!(left(1), Left::Sleep);
        assert_eq!(left(2), Left::Disk);
        assert_eq!(left(0x20), Left::Gone);
    }

    #[test]
    fn a_short_or_unknown_record_gives_no_event() {
        let format = || Format::parse(WAKING).unwrap();
        let decoder = Decoder::from_formats(&(0..9).map(|_| format()).collect::<Vec<_>>());
        let mut out = Vec::new();
        decoder.decode(1, 0, &[1], &mut out);
        decoder.decode(1, 0, &[9, 9, 9, 9], &mut out);
        assert!(out.is_empty());
    }
}
