//! What to run and how: the holder's one input, checked before anything starts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// The version of the specification that this program reads.
pub const VERSION: u32 = 1;
/// Longest path of a Unix socket (`sun_path` less its final NUL).
const MAX_SOCKET_PATH: usize = 107;

#[derive(Debug, Deserialize)]
pub struct Spec {
    pub version: u32,
    pub id: String,
    pub dir: PathBuf,
    pub socket: PathBuf,
    pub argv: Vec<String>,
    pub env: BTreeMap<String, String>,
    #[serde(default = "root")]
    pub cwd: PathBuf,
    #[serde(default)]
    pub stdio: Stdio,
    #[serde(default)]
    pub listen: Vec<Listen>,
    #[serde(default)]
    pub limits: Limits,
    #[serde(default)]
    pub log: Log,
    #[serde(default = "tail_lines")]
    pub tail_lines: usize,
    #[serde(default)]
    pub restart: Option<Restart>,
    #[serde(default)]
    pub stop: Stop,
    #[serde(default)]
    pub orphans: Orphans,
    /// Every line is stamped as it comes, however many there are; costs more processor time.
    #[serde(default)]
    pub exact_stamps: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stdio {
    #[default]
    Pipes,
    Pty,
}

/// What becomes of the processes that the direct child leaves behind when it ends.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Orphans {
    #[default]
    Kill,
    Wait,
    /// They are not this holder's: it is no subreaper, makes no control groups, and ends its direct
    /// child only. For a fork server, whose children have holders of their own.
    Free,
}

#[derive(Debug, Clone, Deserialize, serde::Serialize)]
pub struct Listen {
    pub name: String,
    pub address: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Limits {
    pub memory_bytes: Option<u64>,
    pub cpus: Option<Vec<usize>>,
    pub nice: Option<i32>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(default)]
pub struct Log {
    pub max_bytes: u64,
    pub files: u32,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            max_bytes: 16 << 20,
            files: 4,
        }
    }
}

#[derive(Debug, Clone, Copy, Deserialize)]
pub struct Restart {
    pub min_ms: u64,
    pub max_ms: u64,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(default)]
pub struct Stop {
    pub signal: i32,
    pub grace_ms: u64,
}

impl Default for Stop {
    fn default() -> Self {
        Self {
            signal: 15,
            grace_ms: 10_000,
        }
    }
}

fn root() -> PathBuf {
    PathBuf::from("/")
}

fn tail_lines() -> usize {
    1000
}

/// Reads JSON; the error names the key path.
pub fn parse<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, String> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        let prefix = if path == "." {
            String::new()
        } else {
            format!("{path}: ")
        };
        format!("{prefix}{}", error.into_inner())
    })?;
    reader.end().map_err(|error| error.to_string())?;
    Ok(value)
}

/// Checks what execve could not take.
pub fn check_program(argv: &[String], env: &BTreeMap<String, String>) -> Result<(), String> {
    if argv.first().is_none_or(String::is_empty) {
        return Err("argv is empty: it needs the program to run".to_owned());
    }
    let nul = |text: &String| text.contains('\0');
    if argv.iter().any(nul) || env.iter().any(|(key, value)| nul(key) || nul(value)) {
        return Err("argv or env has a NUL byte: no program can receive one".to_owned());
    }
    if let Some(key) = env.keys().find(|key| key.is_empty() || key.contains('=')) {
        return Err(format!(
            "env has the name {key:?}: a name is not empty and has no '='"
        ));
    }
    Ok(())
}

impl Spec {
    /// Reads and checks a specification; the error is one line that names the key and the value.
    pub fn load(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let spec: Self = parse(text.as_bytes()).map_err(|e| format!("{}: {e}", path.display()))?;
        spec.check()
            .map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(spec)
    }

    fn check(&self) -> Result<(), String> {
        if self.version != VERSION {
            return Err(format!(
                "version {} is not readable, this holder reads {VERSION}: install the matching \
                 preroll-bin",
                self.version
            ));
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if self.id.is_empty() || self.id.starts_with('.') || !self.id.chars().all(plain) {
            return Err(format!(
                "id {:?}: letters, digits, - _ . are allowed",
                self.id
            ));
        }
        self.check_process()?;
        self.check_numbers()
    }

    fn check_process(&self) -> Result<(), String> {
        check_program(&self.argv, &self.env)?;
        let length = self.socket.as_os_str().len();
        if length > MAX_SOCKET_PATH {
            return Err(format!(
                "socket {} has {length} bytes, {MAX_SOCKET_PATH} are allowed: use a shorter path",
                self.socket.display()
            ));
        }
        Ok(())
    }

    fn check_numbers(&self) -> Result<(), String> {
        if !(1..=64).contains(&self.stop.signal) {
            return Err(format!(
                "stop.signal {} is not a signal (1 to 64)",
                self.stop.signal
            ));
        }
        if self.log.files == 0 || self.log.max_bytes < 4096 {
            return Err("log needs files >= 1 and max_bytes >= 4096".to_owned());
        }
        if self
            .restart
            .is_some_and(|r| r.min_ms == 0 || r.max_ms < r.min_ms)
        {
            return Err("restart needs 0 < min_ms <= max_ms".to_owned());
        }
        if self.limits.memory_bytes == Some(0) {
            return Err("limits.memory_bytes is 0: null is no limit".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(change: impl FnOnce(&mut serde_json::Value)) -> Result<Spec, String> {
        let mut value = serde_json::json!({
            "version": 1, "id": "a", "dir": "/d", "socket": "/s", "argv": ["true"], "env": {},
        });
        change(&mut value);
        let spec: Spec = serde_json::from_value(value).map_err(|e| e.to_string())?;
        spec.check().map(|()| spec)
    }

    #[test]
    fn defaults_are_those_of_the_protocol() {
        let spec = spec(|_| ()).unwrap();
        assert_eq!(
            (spec.log.max_bytes, spec.log.files, spec.tail_lines),
            (16_777_216, 4, 1000)
        );
        assert_eq!((spec.stop.signal, spec.stop.grace_ms), (15, 10_000));
        assert_eq!((spec.stdio, spec.orphans), (Stdio::Pipes, Orphans::Kill));
    }

    #[test]
    fn unknown_fields_are_ignored_and_missing_ones_named() {
        assert!(spec(|v| v["later"] = 1.into()).is_ok());
        let error = spec(|v| drop(v.as_object_mut().unwrap().remove("argv"))).unwrap_err();
        assert!(error.contains("argv"), "{error}");
    }

    #[test]
    fn every_wrong_value_is_refused_with_its_key() {
        let cases: [(&str, serde_json::Value); 8] = [
            ("version", 2.into()),
            ("id", "a/b".into()),
            ("argv", serde_json::json!([])),
            ("env", serde_json::json!({"A=B": "c"})),
            ("socket", format!("/{}", "x".repeat(107)).into()),
            ("stop", serde_json::json!({"signal": 0})),
            ("log", serde_json::json!({"files": 0})),
            ("restart", serde_json::json!({"min_ms": 5, "max_ms": 1})),
        ];
        for (key, value) in cases {
            let error = spec(|v| v[key] = value).unwrap_err();
            assert!(error.contains(key), "{key}: {error}");
        }
    }
}
