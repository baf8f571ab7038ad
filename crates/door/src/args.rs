//! The command line.

use std::path::PathBuf;
use std::str::FromStr;

use crate::tables::Address;

/// What the door was started with.
#[derive(Debug, Clone, PartialEq)]
pub struct Args {
    /// The tables' file: read at the start, so that a door that comes back alone serves at once.
    pub tables: Option<PathBuf>,
    pub listen: Vec<Address>,
    pub internal: Option<Address>,
    pub admin: Option<Address>,
    pub admin_tcp: Option<Address>,
    pub admin_token_file: Option<PathBuf>,
    pub access_log: Option<PathBuf>,
    /// Share of requests without an error that the access log keeps.
    pub access_sample: f64,
    pub tls_cert: Option<PathBuf>,
    pub tls_key: Option<PathBuf>,
}

impl Default for Args {
    fn default() -> Self {
        Args {
            tables: None,
            listen: Vec::new(),
            internal: None,
            admin: None,
            admin_tcp: None,
            admin_token_file: None,
            access_log: None,
            access_sample: 0.01,
            tls_cert: None,
            tls_key: None,
        }
    }
}

/// What `--help` prints.
pub const USAGE: &str = "\
usage: preroll-door [--tables FILE] [--listen tcp:HOST:PORT]... [--internal unix:PATH] [--admin unix:PATH]
                    [--admin-tcp HOST:PORT [--admin-token-file FILE]] [--access-log FILE] [--access-sample 0.01]
                    [--tls-cert FILE --tls-key FILE]

Listening sockets named public, internal and admin are also taken from LISTEN_FDS. The wire is docs/protocol.md.";

impl Args {
    /// Reads the arguments after the program's name; None means that help was asked for.
    ///
    /// # Errors
    /// One line: the flag, the value, what is allowed.
    pub fn parse(words: impl IntoIterator<Item = String>) -> Result<Option<Args>, String> {
        let mut args = Args::default();
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            if word == "--help" || word == "-h" {
                return Ok(None);
            }
            let (flag, value) = match word.split_once('=') {
                Some((flag, value)) => (flag.to_owned(), Some(value.to_owned())),
                None => (word, words.next()),
            };
            let value = value.ok_or_else(|| format!("{flag} needs a value; see --help"))?;
            args.set(&flag, value)?;
        }
        args.check()?;
        Ok(Some(args))
    }

    fn set(&mut self, flag: &str, value: String) -> Result<(), String> {
        match flag {
            "--tables" => self.tables = Some(value.into()),
            "--listen" => self.listen.push(address(flag, &value)?),
            "--internal" => self.internal = Some(address(flag, &value)?),
            "--admin" => self.admin = Some(address(flag, &value)?),
            "--admin-tcp" => self.admin_tcp = Some(address(flag, &format!("tcp:{value}"))?),
            "--admin-token-file" => self.admin_token_file = Some(value.into()),
            "--access-log" => self.access_log = Some(value.into()),
            "--access-sample" => self.access_sample = share(flag, &value)?,
            "--tls-cert" => self.tls_cert = Some(value.into()),
            "--tls-key" => self.tls_key = Some(value.into()),
            _ => return Err(format!("{flag} is not a flag; see --help")),
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        if self.tls_cert.is_some() != self.tls_key.is_some() {
            return Err("--tls-cert and --tls-key go together: give both or none".to_owned());
        }
        if self.admin_token_file.is_some() && self.admin_tcp.is_none() {
            return Err("--admin-token-file needs --admin-tcp HOST:PORT".to_owned());
        }
        Ok(())
    }
}

fn address(flag: &str, value: &str) -> Result<Address, String> {
    // Port 0 is allowed here, where the kernel picks one; the tables' addresses must be reachable.
    if let Some(host) = value
        .strip_prefix("tcp:")
        .and_then(|rest| rest.strip_suffix(":0"))
    {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        return Ok(Address::Tcp(host.to_owned(), 0));
    }
    Address::try_from(value.to_owned()).map_err(|error| format!("{flag}: {error}"))
}

fn share(flag: &str, value: &str) -> Result<f64, String> {
    match f64::from_str(value) {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err(format!("{flag} {value:?}: must be a number from 0 to 1")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Option<Args>, String> {
        Args::parse(words.iter().map(|word| (*word).to_owned()))
    }

    #[test]
    fn flags_are_read_with_a_space_or_an_equals_sign() {
        let args = parse(&[
            "--listen",
            "tcp:127.0.0.1:0",
            "--listen=unix:/x",
            "--access-sample=1",
        ]);
        let args = args.unwrap().unwrap();
        let expected = [
            Address::Tcp("127.0.0.1".into(), 0),
            Address::Unix("/x".into()),
        ];
        assert_eq!(args.listen, expected);
        assert_eq!(args.access_sample, 1.0);
    }

    #[test]
    fn a_wrong_flag_or_value_is_named() {
        for words in [
            &["--nope", "1"][..],
            &["--listen"],
            &["--listen", "127.0.0.1:80"],
            &["--access-sample", "2"],
            &["--tls-cert", "a"],
            &["--admin-token-file", "a"],
        ] {
            let error = parse(words).unwrap_err();
            assert!(error.contains(words[0]), "{error}");
        }
    }

    #[test]
    fn help_is_no_error() {
        assert_eq!(parse(&["--help"]), Ok(None));
    }
}
