//! Starts the child: session, death signal, terminal, control groups, sockets from descriptor 3 on.
//!
//! The one module with unsafe code. The standard library can run code between fork and exec only
//! through an unsafe method, and the pid that LISTEN_PID must name is known only there.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, c_char};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal, setsid};

/// First descriptor of the sockets that are passed on, as systemd does it.
pub const FIRST_FD: i32 = 3;
const PID_KEY: &[u8] = b"LISTEN_PID=";

/// Everything that the child needs. All descriptors are above `FIRST_FD + listen.len()`.
pub struct Launch<'a> {
    pub argv: &'a [String],
    pub env: &'a BTreeMap<String, String>,
    pub cwd: &'a Path,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
    pub is_terminal: bool,
    pub listen: &'a [OwnedFd],
    pub cgroup_procs: Vec<OwnedFd>,
}

impl Launch<'_> {
    /// Forks and executes; the error says what could not be executed and why.
    pub fn spawn(self) -> Result<Child, String> {
        let name = &self.argv[0];
        let program = find(name, self.env.get("PATH").map(String::as_str), self.cwd)?;
        if !self.cwd.is_dir() {
            return Err(format!("cwd {} is not a directory", self.cwd.display()));
        }
        let mut image = Image::new(&program, self.argv, self.env, !self.listen.is_empty());
        let sockets: Vec<i32> = self.listen.iter().map(AsRawFd::as_raw_fd).collect();
        let (parent, is_terminal, groups) = (getpid(), self.is_terminal, self.cgroup_procs);
        let mut command = Command::new(&program);
        command
            .current_dir(self.cwd)
            .stdin(Stdio::null())
            .stdout(self.stdout)
            .stderr(self.stderr);
        let child_side = move || {
            join(parent, is_terminal, &groups)?;
            pass_on(&sockets)?;
            Err(image.execute())
        };
        // SAFETY: the closure makes system calls and writes to memory made before the fork; it
        // neither allocates nor takes a lock.
        unsafe { command.pre_exec(child_side) };
        command
            .spawn()
            .map_err(|error| format!("{}: {error}", program.display()))
    }
}

fn join(parent: Pid, is_terminal: bool, groups: &[OwnedFd]) -> io::Result<()> {
    setsid()?;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() != Some(parent) {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    if is_terminal {
        rustix::process::ioctl_tiocsctty(rustix::stdio::stdout())?;
    }
    for group in groups {
        rustix::io::write(group, b"0")?;
    }
    Ok(())
}

fn pass_on(sockets: &[i32]) -> io::Result<()> {
    for (target, socket) in (FIRST_FD..).zip(sockets) {
        // SAFETY: plain numbers; what the target was belongs to the parent's copy.
        if unsafe { libc::dup2(*socket, target) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// The arguments of execve, made before the fork.
struct Image {
    program: CString,
    argv: Pointers,
    env: Pointers,
    pid_entry: Option<Box<[u8]>>,
}

/// A NULL-ended vector of C strings, with what it points at.
struct Pointers {
    _owned: Vec<CString>,
    raw: Vec<*const c_char>,
}

// SAFETY: the pointers lead to the strings beside them, which move without moving their bytes and
// are never changed.
unsafe impl Send for Pointers {}
// SAFETY: as above.
unsafe impl Sync for Pointers {}

impl Pointers {
    fn new(texts: impl Iterator<Item = Vec<u8>>) -> Self {
        // The specification was checked for NUL bytes: none is left out here.
        let owned: Vec<CString> = texts.filter_map(|text| CString::new(text).ok()).collect();
        let mut raw: Vec<_> = owned.iter().map(|text| text.as_ptr()).collect();
        raw.push(std::ptr::null());
        Self { _owned: owned, raw }
    }
}

impl Image {
    fn new(
        program: &Path,
        argv: &[String],
        env: &BTreeMap<String, String>,
        has_sockets: bool,
    ) -> Self {
        let argv = Pointers::new(argv.iter().map(|text| text.clone().into_bytes()));
        let mut env = Pointers::new(
            env.iter()
                .map(|(key, value)| [key.as_bytes(), b"=", value.as_bytes()].concat()),
        );
        let pid_entry = has_sockets.then(|| {
            let entry = [PID_KEY, &[0; 12]].concat().into_boxed_slice();
            env.raw.insert(0, entry.as_ptr().cast());
            entry
        });
        let program = CString::new(program.as_os_str().as_bytes()).unwrap_or_default();
        Self {
            program,
            argv,
            env,
            pid_entry,
        }
    }

    /// Replaces this process; comes back only with the reason why not.
    fn execute(&mut self) -> io::Error {
        if let Some(entry) = &mut self.pid_entry {
            write_decimal(&mut entry[PID_KEY.len()..], getpid().as_raw_nonzero().get());
            self.env.raw[0] = entry.as_ptr().cast();
        }
        // SAFETY: NULL-ended vectors of NUL-ended strings that outlive the call.
        unsafe {
            libc::execve(
                self.program.as_ptr(),
                self.argv.raw.as_ptr(),
                self.env.raw.as_ptr(),
            )
        };
        io::Error::last_os_error()
    }
}

/// Writes a positive number and leaves the rest of `place` as it is (NUL).
fn write_decimal(place: &mut [u8], mut number: i32) {
    let (mut digits, mut count) = ([0u8; 10], 0);
    while number > 0 {
        digits[count] = b'0' + (number % 10) as u8;
        number /= 10;
        count += 1;
    }
    for (to, from) in place.iter_mut().zip(digits[..count].iter().rev()) {
        *to = *from;
    }
}

/// Looks a program up as execvp does, in the child's own PATH.
fn find(name: &str, path: Option<&str>, cwd: &Path) -> Result<PathBuf, String> {
    if name.contains('/') {
        // A relative name counts from the child's directory, where execve will run.
        let place = cwd.join(name);
        return if place.exists() {
            Ok(place)
        } else {
            Err(format!("{name}: no such file"))
        };
    }
    let path = path.unwrap_or("/usr/local/bin:/usr/bin:/bin");
    let is_program = |place: &PathBuf| {
        place.is_file() && rustix::fs::access(place, rustix::fs::Access::EXEC_OK).is_ok()
    };
    std::env::split_paths(OsStr::new(path))
        .map(|folder| cwd.join(folder).join(name))
        .find(is_program)
        .ok_or_else(|| format!("{name}: not found in PATH ({path})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_in_the_childs_own_path() {
        assert_eq!(
            find("sh", Some("/nowhere:/bin"), Path::new("/")).unwrap(),
            Path::new("/bin/sh")
        );
        assert_eq!(
            find("bin/sh", None, Path::new("/")).unwrap(),
            Path::new("/bin/sh")
        );
        let error = find("sh", Some("/nowhere"), Path::new("/")).unwrap_err();
        assert!(
            error.contains("sh") && error.contains("/nowhere"),
            "{error}"
        );
        assert!(find("/no/such", None, Path::new("/")).is_err());
    }

    #[test]
    fn a_pid_is_written_in_decimal() {
        let mut place = [0u8; 12];
        write_decimal(&mut place, 40_960);
        assert_eq!(&place, b"40960\0\0\0\0\0\0\0");
    }
}
