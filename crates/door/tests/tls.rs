//! TLS on the public listener.
//!
//! tests/data holds a self-signed certificate for localhost, made for these tests: `openssl req
//! -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 36500 -subj /CN=localhost …`

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use common::{Dir, Door, Origin, PATIENCE, tables};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

fn data(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

#[test]
fn a_request_passes_over_tls_and_plain_text_gets_nothing() {
    let origin = Origin::start();
    let port = free_port();
    let _door = Door::start_with(Dir::new(), &tables(&[&origin]), |args| {
        args.listen = vec![preroll_door::tables::Address::Tcp("127.0.0.1".into(), port)];
        args.tls_cert = Some(data("localhost.crt"));
        args.tls_key = Some(data("localhost.key"));
    });
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(data("localhost.crt")).unwrap())
        .unwrap();
    let config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = "localhost".try_into().unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut client = StreamOwned::new(connection, socket);
    client
        .write_all(b"GET /x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut server = origin.accept();
    assert_eq!(server.request().start, "GET /x HTTP/1.1");
    server.answer("over tls");
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("\r\n\r\nover tls"), "{answer}");

    let mut plain = TcpStream::connect(("127.0.0.1", port)).unwrap();
    plain.set_read_timeout(Some(PATIENCE)).unwrap();
    plain
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP/"));
}

#[test]
fn a_certificate_that_cannot_be_read_is_named() {
    let dir = Dir::new();
    let args = preroll_door::args::Args {
        listen: vec![preroll_door::tables::Address::Unix(dir.join("public"))],
        tls_cert: Some(dir.join("missing.crt")),
        tls_key: Some(dir.join("missing.key")),
        ..Default::default()
    };
    let error = preroll_door::serve(args).unwrap_err();
    assert!(error.contains("missing.crt"), "{error}");
}
