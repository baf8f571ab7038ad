//! Starts the child: control groups, session, death signal, terminal, sockets from descriptor 3 on.
//!
//! The one module with unsafe code. A child that is born in its control group (clone3) is up 8 ms
//! earlier than one that moves there, and the pid that LISTEN_PID must name is known only after
//! the fork; the standard library offers neither.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, c_char};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal, setsid};

use crate::cgroup::Entrances;

/// First descriptor of the sockets that are passed on, as systemd does it.
pub const FIRST_FD: i32 = 3;
/// linux/sched.h; the libc crate's constant is cut to 32 bits.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
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
    pub groups: Entrances,
}

impl Launch<'_> {
    /// Forks and executes; the error says what could not be executed and why.
    pub fn spawn(self) -> Result<Pid, String> {
        let name = &self.argv[0];
        let program = find(name, self.env.get("PATH").map(String::as_str), self.cwd)?;
        if !self.cwd.is_dir() {
            return Err(format!("cwd {} is not a directory", self.cwd.display()));
        }
        let image = Image::new(&program, self.argv, self.env, !self.listen.is_empty());
        self.run(image)
            .map_err(|error| format!("{}: {error}", program.display()))
    }

    fn run(self, image: Image) -> io::Result<Pid> {
        let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let cwd = CString::new(self.cwd.as_os_str().as_bytes())?;
        let (report, reporter) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let child = Child {
            launch: self,
            image,
            cwd,
            null,
            parent: getpid(),
        };
        let (pid, must_move) = match fork(child.launch.groups.unified_dir.as_ref()) {
            Err(error) if child.launch.groups.unified_dir.is_some() => {
                // An older kernel, or one whose sandbox hides clone3: the child moves itself.
                (fork(None).map_err(|_| error)?, true)
            }
            other => (other?, false),
        };
        let Some(pid) = pid else {
            child.become_program(&reporter, must_move)
        };
        drop(reporter);
        let mut errno = [0; 4];
        match rustix::io::read(&report, &mut errno)? {
            4 => {
                // It has said why and ends: collected here, so that nobody takes it for a child.
                rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty())?;
                Err(io::Error::from_raw_os_error(i32::from_ne_bytes(errno)))
            }
            _ => Ok(pid),
        }
    }
}

/// Takes over a descriptor that was passed on to this program under its number.
pub fn take_fd(number: i32) -> Option<OwnedFd> {
    if number < FIRST_FD {
        return None;
    }
    // SAFETY: only asks; a number that is not open is an error.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return None;
    }
    // SAFETY: it is open, and nothing else in this program knows the number.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Forks, into a v2 control group where one is given; None in the child.
fn fork(group: Option<&OwnedFd>) -> io::Result<Option<Pid>> {
    // SAFETY: all zero is a valid value of this plain struct.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.exit_signal = libc::SIGCHLD as u64;
    if let Some(group) = group {
        arguments.flags = CLONE_INTO_CGROUP;
        arguments.cgroup = group.as_raw_fd() as u64;
    }
    // SAFETY: without CLONE_VM this is a fork; the process has one thread, and the child makes
    // system calls and writes to memory made before, until it executes or exits.
    let pid = unsafe {
        libc::syscall(
            libc::SYS_clone3,
            &raw const arguments,
            size_of::<libc::clone_args>(),
        )
    };
    match i32::try_from(pid) {
        Ok(pid) if pid >= 0 => Ok(Pid::from_raw(pid)),
        _ if group.is_none() => plain_fork(),
        _ => Err(io::Error::last_os_error()),
    }
}

/// For kernels and sandboxes without clone3.
fn plain_fork() -> io::Result<Option<Pid>> {
    // SAFETY: as above.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(Pid::from_raw(pid)),
    }
}

/// The child's side of the fork.
struct Child<'a> {
    launch: Launch<'a>,
    image: Image,
    cwd: CString,
    null: OwnedFd,
    parent: Pid,
}

impl Child<'_> {
    /// Ends in the program, or tells the parent why not.
    fn become_program(mut self, reporter: &OwnedFd, must_move: bool) -> ! {
        let error = match self.prepare(must_move) {
            Ok(()) => self.image.execute(),
            Err(error) => error,
        };
        let errno = error.raw_os_error().unwrap_or(libc::EIO);
        // The parent has gone if it does not read: then there is nobody to tell.
        let _ = rustix::io::write(reporter, &errno.to_ne_bytes());
        // SAFETY: ends the process at once, without the parent's exit handlers.
        unsafe { libc::_exit(127) }
    }

    fn prepare(&self, must_move: bool) -> io::Result<()> {
        let launch = &self.launch;
        setsid()?;
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if getppid() != Some(self.parent) {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        launch.groups.enter(must_move)?;
        rustix::process::chdir(&self.cwd)?;
        for (target, source) in [&self.null, &launch.stdout, &launch.stderr]
            .iter()
            .enumerate()
        {
            copy(source.as_raw_fd(), target as i32)?;
        }
        if launch.is_terminal {
            rustix::process::ioctl_tiocsctty(rustix::stdio::stdout())?;
        }
        for (target, socket) in (FIRST_FD..).zip(launch.listen) {
            copy(socket.as_raw_fd(), target)?;
        }
        // SAFETY: plain numbers. The holder ignores SIGPIPE, and its child must not inherit that.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        unblock_signals()
    }
}

/// What the starter's thread had blocked must not reach an engine.
fn unblock_signals() -> io::Result<()> {
    let mut none = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is initialised by sigemptyset before it is read.
    let done = unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut())
    };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn copy(source: i32, target: i32) -> io::Result<()> {
    // SAFETY: plain numbers; what the target was belongs to the parent's copy.
    if unsafe { libc::dup2(source, target) } < 0 {
        return Err(io::Error::last_os_error());
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
