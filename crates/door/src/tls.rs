//! Optional TLS: rustls with ring, certificates from PEM files.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::door::Door;
use crate::io::sock::Sock;

/// Makes TLS of plain TCP connections.
pub type Acceptor = TlsAcceptor;

/// Reads certificate chain and key; HTTP/1.1 is the one protocol offered.
///
/// # Errors
/// The file and what is wrong with it.
pub fn load(cert: &Path, key: &Path) -> Result<Acceptor, String> {
    let chain = CertificateDer::pem_file_iter(cert)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| format!("--tls-cert {}: {error}", cert.display()))?;
    if chain.is_empty() {
        return Err(format!(
            "--tls-cert {}: it holds no certificate",
            cert.display()
        ));
    }
    let key_der = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| format!("--tls-key {}: {error}", key.display()))?;
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, key_der)
        .map_err(|error| format!("--tls-cert {}: {error}", cert.display()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// The handshake, where there is one, within the time of a head; None: it failed.
pub async fn accept(tls: Option<Acceptor>, sock: Sock, door: &Rc<Door>) -> Option<Sock> {
    match (tls, sock) {
        (Some(acceptor), Sock::Tcp(stream)) => {
            let limit = Duration::from_millis(door.routing().tables.limits.head_timeout_ms);
            // Boxed: most connections have no handshake, and each would hold room for one.
            let accepting = Box::pin(acceptor.accept(stream));
            let accepted = tokio::time::timeout(limit, accepting).await.ok()?;
            Some(Sock::Tls(Box::new(accepted.ok()?)))
        }
        (_, sock) => Some(sock),
    }
}
