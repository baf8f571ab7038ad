//! A connection's bytes, plain or through TLS.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use serde::Deserialize;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::verify_tls13_signature;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

use crate::net;

/// How the server's certificate is checked.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    pub server_name: String,
    /// PEM certificates that are trusted; the system's bundle when left out.
    #[serde(default)]
    pub ca_file: Option<String>,
    /// Takes any certificate.
    #[serde(default)]
    pub insecure: bool,
}

const SYSTEM_BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";

/// What every connection to one server shares.
pub struct TlsClient {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl TlsClient {
    pub fn new(tls: &Tls) -> Result<Self, String> {
        let name = ServerName::try_from(tls.server_name.clone())
            .map_err(|e| format!("tls.server_name '{}': {e}", tls.server_name))?;
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|e| format!("tls: {e}"))?;
        let config = if tls.insecure {
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
                .with_no_client_auth()
        } else {
            builder
                .with_root_certificates(roots(tls.ca_file.as_deref().unwrap_or(SYSTEM_BUNDLE))?)
                .with_no_client_auth()
        };
        Ok(Self {
            config: Arc::new(config),
            name,
        })
    }

    fn connection(&self) -> Result<Box<ClientConnection>, String> {
        ClientConnection::new(Arc::clone(&self.config), self.name.clone())
            .map(Box::new)
            .map_err(|e| format!("tls: {e}"))
    }
}

fn roots(path: &str) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    let found = CertificateDer::pem_file_iter(path)
        .map_err(|e| format!("tls.ca_file '{path}': {e}; give --cacert FILE or --insecure"))?;
    store.add_parsable_certificates(found.flatten());
    if store.is_empty() {
        return Err(format!("tls.ca_file '{path}': no certificate in it"));
    }
    Ok(store)
}

/// A socket, with TLS where the target has it.
pub struct Transport {
    pub fd: OwnedFd,
    tls: Option<Box<ClientConnection>>,
}

impl Transport {
    pub fn new(fd: OwnedFd, tls: Option<&TlsClient>) -> Result<Self, String> {
        let tls = tls.map(TlsClient::connection).transpose()?;
        Ok(Self { fd, tls })
    }

    /// Takes bytes to send: what the kernel took, or with TLS what was encrypted for it.
    pub fn send(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        let Some(tls) = &mut self.tls else {
            return net::send(&self.fd, bytes);
        };
        flush(tls, &self.fd)?;
        let taken = tls.writer().write(bytes).map_err(|_| Errno::AGAIN)?;
        match flush(tls, &self.fd) {
            Err(Errno::AGAIN) | Ok(()) if taken > 0 => Ok(taken),
            Ok(()) => Err(Errno::AGAIN),
            Err(error) => Err(error),
        }
    }

    /// Encrypted bytes still wait for the kernel.
    pub fn wants_write(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Sends what waits, the handshake's own messages too.
    pub fn flush(&mut self) -> Result<(), Errno> {
        match &mut self.tls {
            Some(tls) => flush(tls, &self.fd),
            None => Ok(()),
        }
    }

    /// Takes from the kernel once; `read` then gives what that was worth. 0: the peer has ended.
    pub fn receive(&mut self, buffer: &mut [u8]) -> Result<Received, String> {
        let Some(tls) = &mut self.tls else {
            return match net::recv(&self.fd, buffer) {
                Ok(0) => Ok(Received::End),
                Ok(count) => Ok(Received::Bytes(count)),
                Err(Errno::AGAIN | Errno::INTR) => Ok(Received::Nothing),
                Err(error) => Err(error.to_string()),
            };
        };
        let ended = match tls.read_tls(&mut Socket(&self.fd)) {
            Ok(count) => count == 0,
            Err(error) if is_not_now(&error) => false,
            Err(error) => return Err(error.to_string()),
        };
        tls.process_new_packets().map_err(|e| format!("tls: {e}"))?;
        // A handshake answer, if any; what does not fit goes when the socket is writable.
        let _ = flush(tls, &self.fd);
        match tls.reader().read(buffer) {
            Ok(0) => Ok(Received::End),
            Ok(count) => Ok(Received::Bytes(count)),
            Err(error) if is_not_now(&error) && ended => Ok(Received::End),
            Err(error) if is_not_now(&error) => Ok(Received::Nothing),
            Err(error) => Err(error.to_string()),
        }
    }

    /// More of what `receive` took from the kernel already; with epoll alone it would never be seen.
    pub fn more(&mut self, buffer: &mut [u8]) -> usize {
        match &mut self.tls {
            Some(tls) => tls.reader().read(buffer).unwrap_or(0),
            None => 0,
        }
    }
}

pub enum Received {
    Nothing,
    Bytes(usize),
    End,
}

fn is_not_now(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

fn flush(tls: &mut ClientConnection, fd: &OwnedFd) -> Result<(), Errno> {
    while tls.wants_write() {
        if let Err(error) = tls.write_tls(&mut Socket(fd)) {
            return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
        }
    }
    Ok(())
}

struct Socket<'a>(&'a OwnedFd);

impl Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(net::recv(self.0, buffer)?)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(net::send(self.0, bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// `--insecure`: signatures are checked, who signed is not.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
