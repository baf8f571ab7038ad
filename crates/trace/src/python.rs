//! Which Python functions a thread is in, read out of its process's memory while it runs.
//!
//! Nothing is stopped and nothing runs in the process, so what is read may change meanwhile: every
//! object is checked for its type, and what does not hold is no sample.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use serde::Serialize;

use crate::elf::{symbols, u64_at};
use crate::event::Tid;
use crate::python_layout::{
    CODE_BYTES, FILE_NAME, FRAME_BYTES, LENGTH, Layout, NEXT_THREAD, OF_C_STACK, OF_GENERATOR,
    QUALIFIED_NAME, STATE, TEXT_BYTES, THREAD_BYTES, TYPE, of_version,
};

/// Innermost frames that are kept; recursion goes no deeper either.
const MAX_DEPTH: usize = 48;
const MAX_THREADS: usize = 4096;
const MAX_CHUNK: u64 = 64 << 10;
const MAX_TEXT: u64 = 4096;
/// Frames that are looked at for one stack, at about half a microsecond each.
const MAX_STEPS: usize = 160;
const SYMBOLS: [&str; 4] = ["_PyRuntime", "Py_Version", "PyCode_Type", "PyUnicode_Type"];

/// A function as its code object names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Function {
    pub name: String,
    pub file: String,
    pub line: u32,
}

impl Function {
    /// Code of the interpreter's own, which it runs around calls (3.12: a file `<shim>`; 3.13:
    /// named like its file).
    fn is_shim(&self) -> bool {
        self.file == "<shim>" || self.line == 0 && self.file == self.name
    }
}

/// What tells one code object from another that got its memory: its strings' addresses and line.
type Identity = (u64, u64, u64, u32);

/// Why the functions of a process are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// It is no Python (yet), or one of another version.
    NoPython,
    /// Its memory may not be read.
    Refused,
}

/// One frame of a stack: its function, unless it is the interpreter's own, and its caller's frame.
struct Step {
    function: Option<u32>,
    caller: u64,
    is_generator: bool,
}

/// One interpreter, seen through its memory.
#[derive(Debug)]
pub struct Interpreter {
    memory: File,
    layout: &'static Layout,
    runtime: u64,
    code_type: u64,
    text_type: u64,
    /// Where the state of each thread is, as of the last walk over them all, and when that was.
    threads: HashMap<Tid, u64>,
    walked_ns: u64,
    known: HashMap<Identity, u32>,
}

/// Functions of all interpreters by number.
#[derive(Debug, Default)]
pub struct Functions {
    pub all: Vec<Function>,
    numbers: HashMap<Function, u32>,
}

impl Functions {
    fn number(&mut self, function: Function) -> u32 {
        let next = self.all.len() as u32;
        *self.numbers.entry(function).or_insert_with_key(|function| {
            self.all.push(function.clone());
            next
        })
    }
}

/// Lines of /proc/PID/maps that may hold an interpreter: the start of the file's mapping, its path.
fn candidates(maps: &str) -> Vec<(u64, &str)> {
    let parse = |line: &'_ str| -> Option<(u64, usize)> {
        let mut parts = line.split_ascii_whitespace();
        let range = parts.next()?;
        let offset = parts.nth(1)?;
        let path = line.find('/')?;
        let start = u64::from_str_radix(range.split_once('-')?.0, 16).ok()?;
        let name = line.rsplit('/').next()?;
        let is_python = name.starts_with("libpython3.") || name.starts_with("python");
        (is_python && offset.bytes().all(|b| b == b'0')).then_some((start, path))
    };
    let mut found: Vec<(u64, &str)> = maps
        .lines()
        .filter_map(|line| parse(line).map(|(start, path)| (start, &line[path..])))
        .collect();
    found.sort_by_key(|(_, path)| !path.contains("/libpython3."));
    found.dedup_by_key(|(_, path)| *path);
    found
}

impl Interpreter {
    /// The interpreter of a process.
    pub fn open(pid: Tid) -> Result<Self, Closed> {
        let maps = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
        let maps = String::from_utf8_lossy(&maps);
        let found = candidates(&maps).into_iter().find_map(|(start, path)| {
            let file = File::open(format!("/proc/{pid}/root{path}")).ok()?;
            let (places, is_absolute) = symbols(&file, SYMBOLS)?;
            Some(places.map(|place| if is_absolute { place } else { start + place }))
        });
        let [runtime, version, code_type, text_type] = found.ok_or(Closed::NoPython)?;
        let memory = File::open(format!("/proc/{pid}/mem")).map_err(|_| Closed::Refused)?;
        let layout = number(&memory, version).and_then(of_version);
        Ok(Self {
            memory,
            layout: layout.ok_or(Closed::NoPython)?,
            runtime,
            code_type,
            text_type,
            threads: HashMap::new(),
            walked_ns: 0,
            known: HashMap::new(),
        })
    }

    /// Whether its memory is still there: it is not once the process runs another program.
    pub fn lives(&self) -> bool {
        number(&self.memory, self.runtime + self.layout.main_interpreter).is_some()
    }

    /// The functions that `tid` is in, innermost first. None: nothing that holds, or no Python.
    pub fn stack(&mut self, tid: Tid, t_ns: u64, functions: &mut Functions) -> Option<Vec<u32>> {
        let state = self.thread(tid, t_ns)?;
        let first = self.current(&state)?;
        let mut chunk = self.chunk(&state);
        let mut place = first;
        let mut stack = Vec::new();
        // The last generator: its frame, itself, and how many functions were found before it.
        let mut again = None;
        for _ in 0..MAX_STEPS {
            if place == 0 || stack.len() == MAX_DEPTH {
                return (!stack.is_empty()).then_some(stack);
            }
            let Some(step) = self.step(place, &chunk, functions) else {
                let (generator, _, depth) = again?;
                place = generator;
                stack.truncate(depth);
                chunk = (0, Vec::new()); // what was copied is of another moment
                continue;
            };
            if step.is_generator {
                again = Some((place, step.function, stack.len()));
                // One that has yielded since has no caller until it is called again. Left out,
                // those that yield all the time would be seen less than they run.
                if step.caller == 0 {
                    chunk = (0, Vec::new());
                    continue;
                }
            }
            stack.extend(step.function);
            place = step.caller;
        }
        // Or it is the thread's first function: then the thread is still in it.
        let (_, function, depth) = again?;
        let now = self.thread(tid, t_ns)?;
        let is_first = stack.len() == depth && self.current(&now) == Some(first);
        stack.extend(function);
        (is_first && !stack.is_empty()).then_some(stack)
    }

    /// Where the innermost frame of a thread is.
    fn current(&self, state: &[u8]) -> Option<u64> {
        let first = u64_at(state, self.layout.frame)?;
        match self.layout.through {
            Some(offset) => number(&self.memory, first.checked_add(offset)?),
            None => Some(first),
        }
    }

    /// The frame at `place`. None: it does not hold.
    fn step(
        &mut self,
        place: u64,
        chunk: &(u64, Vec<u8>),
        functions: &mut Functions,
    ) -> Option<Step> {
        let frame = self.frame(place, chunk)?;
        let owner = frame[self.layout.owner];
        let mut function = None;
        if owner != OF_C_STACK {
            let code = u64_at(&frame, self.layout.code)?;
            let number = self.function(code, functions)?;
            function = (!functions.all[number as usize].is_shim()).then_some(number);
        }
        Some(Step {
            function,
            caller: u64_at(&frame, self.layout.previous)?,
            is_generator: owner == OF_GENERATOR,
        })
    }

    /// The state of a thread, checked to be its own. All are walked over once at a time `t_ns`.
    fn thread(&mut self, tid: Tid, t_ns: u64) -> Option<[u8; THREAD_BYTES]> {
        if let Some(place) = self.threads.get(&tid)
            && let Some(state) = bytes::<THREAD_BYTES>(&self.memory, *place)
            && u64_at(&state, self.layout.native_id) == Some(tid as u64)
        {
            return Some(state);
        }
        if std::mem::replace(&mut self.walked_ns, t_ns) == t_ns {
            return None;
        }
        self.threads.clear();
        let main = number(&self.memory, self.runtime + self.layout.main_interpreter)?;
        let mut place = number(&self.memory, main.checked_add(self.layout.threads)?)?;
        let mut found = None;
        for _ in 0..MAX_THREADS {
            if place == 0 {
                break;
            }
            let state = bytes::<THREAD_BYTES>(&self.memory, place)?;
            let owner = u64_at(&state, self.layout.native_id)? as Tid;
            self.threads.insert(owner, place);
            found = if owner == tid { Some(state) } else { found };
            place = u64_at(&state, NEXT_THREAD)?;
        }
        found
    }

    /// The stack of frames that grows in one piece: its place and content; most frames are in it.
    fn chunk(&self, state: &[u8]) -> (u64, Vec<u8>) {
        let at = |offset| u64_at(state, offset).unwrap_or(0);
        let (start, end) = (at(self.layout.chunk), at(self.layout.chunk + 8));
        let length = end.saturating_sub(start).min(MAX_CHUNK);
        let mut content = vec![0; length as usize];
        match self.memory.read_exact_at(&mut content, start) {
            Ok(()) if start != 0 => (start, content),
            _ => (0, Vec::new()),
        }
    }

    fn frame(&self, place: u64, (start, content): &(u64, Vec<u8>)) -> Option<[u8; FRAME_BYTES]> {
        let offset = usize::try_from(place.wrapping_sub(*start)).ok()?;
        let end = offset.checked_add(FRAME_BYTES);
        match end.and_then(|end| content.get(offset..end)) {
            Some(inside) => inside.try_into().ok(),
            None => bytes(&self.memory, place),
        }
    }

    fn function(&mut self, place: u64, functions: &mut Functions) -> Option<u32> {
        let code = bytes::<CODE_BYTES>(&self.memory, place)?;
        if u64_at(&code, TYPE)? != self.code_type {
            return None;
        }
        let (name, file) = (u64_at(&code, QUALIFIED_NAME)?, u64_at(&code, FILE_NAME)?);
        let line = u32::from_le_bytes(code.get(self.layout.line..)?.get(..4)?.try_into().ok()?);
        let identity = (place, name, file, line);
        if let Some(known) = self.known.get(&identity) {
            return Some(*known);
        }
        let function = Function {
            name: self.text(name)?,
            file: self.text(file)?,
            line,
        };
        let number = functions.number(function);
        self.known.insert(identity, number);
        Some(number)
    }

    fn text(&self, place: u64) -> Option<String> {
        let head = bytes::<TEXT_BYTES>(&self.memory, place)?;
        let (length, state) = (u64_at(&head, LENGTH)?, u64_at(&head, STATE)? as u32);
        let (kind, is_compact, is_ascii) =
            (state >> 2 & 7, state >> 5 & 1 == 1, state >> 6 & 1 == 1);
        if u64_at(&head, TYPE)? != self.text_type || !is_compact || length > MAX_TEXT {
            return None;
        }
        let [ascii, other] = self.layout.text;
        let start = place + if is_ascii { ascii } else { other };
        let mut data = vec![0; length as usize * kind as usize];
        self.memory.read_exact_at(&mut data, start).ok()?;
        let point = |unit: &[u8]| {
            let value = unit
                .iter()
                .rev()
                .fold(0, |value, byte| value << 8 | u32::from(*byte));
            char::from_u32(value).unwrap_or(char::REPLACEMENT_CHARACTER)
        };
        match kind {
            1 | 2 | 4 => Some(data.chunks_exact(kind as usize).map(point).collect()),
            _ => None,
        }
    }
}

fn bytes<const N: usize>(memory: &File, at: u64) -> Option<[u8; N]> {
    let mut data = [0; N];
    memory.read_exact_at(&mut data, at).ok()?;
    Some(data)
}

fn number(memory: &File, at: u64) -> Option<u64> {
    bytes(memory, at).map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interpreter_is_looked_for_in_its_library_first() {
        let maps = "\
55d0-55d1 r--p 00000000 fe:00 11   /opt/a b/bin/python3.11
55d1-55d2 r-xp 00001000 fe:00 11   /opt/a b/bin/python3.11
7f00-7f01 r--p 00000000 fe:00 12   /opt/a b/lib/libpython3.11.so.1.0
7f02-7f03 r--p 00000000 fe:00 13   /usr/lib/libc.so.6
7f04-7f05 rw-p 00000000 00:00 0    [stack]
";
        let found = candidates(maps);
        assert_eq!(
            found,
            [
                (0x7f00, "/opt/a b/lib/libpython3.11.so.1.0"),
                (0x55d0, "/opt/a b/bin/python3.11"),
            ]
        );
    }

    #[test]
    fn a_process_without_an_interpreter_has_none() {
        for pid in [std::process::id() as Tid, -1] {
            assert_eq!(Interpreter::open(pid).err(), Some(Closed::NoPython));
        }
    }

    #[test]
    fn code_around_calls_is_no_function_of_the_program() {
        let is_shim = |name: &str, file: &str, line| {
            let (name, file) = (name.to_owned(), file.to_owned());
            Function { name, file, line }.is_shim()
        };
        assert!(is_shim("<interpreter trampoline>", "<shim>", 1));
        assert!(is_shim("__init__", "__init__", 0));
        assert!(!is_shim("__init__", "__init__", 1));
        assert!(!is_shim("A.__init__", "a.py", 0));
    }

    #[test]
    fn a_function_has_one_number() {
        let mut functions = Functions::default();
        let one = |line| Function {
            name: "f".to_owned(),
            file: "f.py".to_owned(),
            line,
        };
        assert_eq!(functions.number(one(1)), 0);
        assert_eq!(functions.number(one(2)), 1);
        assert_eq!(functions.number(one(1)), 0);
        assert_eq!(functions.all, [one(1), one(2)]);
    }
}
