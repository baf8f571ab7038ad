//! The requests of the control socket and what is answered at once.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::conn::{Conn, Cursor, Job};
use crate::holder::Holder;
use crate::poll::Poll;

#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
enum Request {
    Status,
    Lines {
        #[serde(default)]
        since: u64,
        #[serde(default)]
        follow: bool,
        limit: Option<u64>,
    },
    Wait,
    Signal {
        signal: i32,
    },
    Stop {
        grace_ms: Option<u64>,
    },
    Kill,
    Upgrade {
        argv: Vec<String>,
        env: Option<BTreeMap<String, String>>,
    },
    Retire,
    Release,
}

/// What a reply asks of the server.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    Serve,
    End,
}

/// Answers one request, or leaves the connection a job that will.
pub fn handle(line: &[u8], conn: &mut Conn, holder: &mut Holder, poll: &mut Poll) -> Next {
    let request = match crate::spec::parse(line) {
        Ok(request) => request,
        Err(error) => {
            conn.reply(&refusal(&format!("request: {error}")));
            return Next::Serve;
        }
    };
    match request {
        Request::Release if holder.has_exited() => {
            conn.reply(&json!({"ok": true}));
            return Next::End;
        }
        Request::Release => conn.reply(&refusal("release: the process has not ended: stop it")),
        Request::Status => reply_status(conn, holder),
        Request::Lines {
            since,
            follow,
            limit,
        } => {
            // `since` is the last line that the caller has.
            let left = if follow {
                u64::MAX
            } else {
                limit.unwrap_or(u64::MAX)
            };
            conn.job = Job::Lines(Cursor {
                next: since.saturating_add(1),
                left,
                follow,
                dropped: 0,
            });
        }
        Request::Wait => conn.job = Job::Settled,
        Request::Stop { grace_ms } => {
            holder.stop(grace_ms);
            conn.job = Job::Settled;
        }
        Request::Kill => {
            holder.kill();
            conn.job = Job::Settled;
        }
        Request::Signal { signal } => {
            conn.reply(&answer(holder.signal(signal).map(|()| json!({}))))
        }
        Request::Upgrade { argv, env } => {
            let pid = holder.upgrade(poll, argv, env);
            conn.reply(&answer(pid.map(|pid| json!({ "pid": pid }))));
        }
        Request::Retire => conn.reply(&answer(holder.retire().map(|pid| json!({ "pid": pid })))),
    }
    Next::Serve
}

/// Goes on with the connection's job; true when it is done and the next request may come.
pub fn advance(conn: &mut Conn, holder: &Holder) -> bool {
    match &conn.job {
        Job::Idle => true,
        Job::Settled if holder.has_exited() => {
            reply_status(conn, holder);
            conn.job = Job::Idle;
            true
        }
        Job::Settled => false,
        Job::Lines(_) => {
            if !conn.pump(&holder.output.ring, holder.has_exited()) {
                return false;
            }
            if let Job::Lines(cursor) = std::mem::replace(&mut conn.job, Job::Idle) {
                conn.reply(
                    &json!({"ok": true, "next": cursor.next - 1, "dropped": cursor.dropped}),
                );
            }
            true
        }
    }
}

fn reply_status(conn: &mut Conn, holder: &Holder) {
    conn.reply(&json!({"ok": true, "status": holder.status(true)}));
}

fn answer(result: Result<Value, String>) -> Value {
    match result {
        Ok(mut value) => {
            value["ok"] = true.into();
            value
        }
        Err(error) => refusal(&error),
    }
}

fn refusal(error: &str) -> Value {
    json!({"ok": false, "error": error})
}
