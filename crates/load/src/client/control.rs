//! Commands from outside the loop: standard input and signals, each read by its own thread.

use std::io::BufRead;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use rustix::event::{EventfdFlags, eventfd};
use serde::Deserialize;

/// One command of the controlling process.
#[derive(Debug, Deserialize, PartialEq, Eq)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Command {
    /// So many closed-loop runs at once from now on; records carry `tag`.
    Level { connections: usize, tag: String },
    /// Start nothing new, let what runs finish.
    Stop,
    /// End now: what runs is recorded as aborted.
    Abort,
}

/// The receiving side; `wake` becomes readable when a command is there.
pub struct Commands {
    pub wake: Arc<OwnedFd>,
    queue: Receiver<Command>,
}

impl Commands {
    /// Starts the signal thread and, when `stdin` is set, the one that reads commands.
    pub fn listen(stdin: bool) -> Result<Self, String> {
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        let wake = Arc::new(eventfd(0, flags).map_err(|e| e.to_string())?);
        let (sender, queue) = channel();
        spawn(on_signal, sender.clone(), Arc::clone(&wake))?;
        if stdin {
            spawn(on_stdin, sender, Arc::clone(&wake))?;
        }
        Ok(Self { wake, queue })
    }

    pub fn take(&self) -> Vec<Command> {
        let _ = rustix::io::read(&self.wake, &mut [0_u8; 8]);
        self.queue.try_iter().collect()
    }
}

fn spawn(
    body: fn(&Sender<Command>, &OwnedFd),
    sender: Sender<Command>,
    wake: Arc<OwnedFd>,
) -> Result<(), String> {
    let thread = std::thread::Builder::new().name("control".into());
    thread
        .spawn(move || body(&sender, &wake))
        .map_err(|e| e.to_string())?;
    Ok(())
}

fn post(sender: &Sender<Command>, wake: &OwnedFd, command: Command) {
    if sender.send(command).is_ok() {
        let _ = rustix::io::write(wake, &1_u64.to_ne_bytes());
    }
}

fn on_stdin(sender: &Sender<Command>, wake: &OwnedFd) {
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        match serde_json::from_str(&line) {
            Ok(command) => post(sender, wake, command),
            Err(error) => eprintln!("preroll-load: command '{line}': {error}"),
        }
    }
    // The controlling process is gone: nobody would read the records of more load.
    post(sender, wake, Command::Abort);
}

fn on_signal(sender: &Sender<Command>, wake: &OwnedFd) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let Ok(runtime) = runtime else { return };
    runtime.block_on(async {
        use tokio::signal::unix::{SignalKind, signal};
        let (Ok(mut interrupt), Ok(mut terminate)) = (
            signal(SignalKind::interrupt()),
            signal(SignalKind::terminate()),
        ) else {
            return;
        };
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            post(sender, wake, Command::Abort);
        }
    });
}
