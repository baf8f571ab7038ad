//! Keys, the admin guard and request ids.

use proptest::prelude::*;

use super::*;

fn keys(secrets: &[(&str, &str)]) -> Keys {
    let table = |(id, secret): &(&str, &str)| KeyTable {
        id: (*id).to_owned(),
        sha256: Sha256::digest(secret.as_bytes())
            .iter()
            .map(|byte| format!("{byte:02X}"))
            .collect(),
    };
    Keys::new(&secrets.iter().map(table).collect::<Vec<_>>())
}

#[test]
fn without_keys_everybody_may() {
    assert_eq!(Keys::default().check(None), Ok(None));
}

#[test]
fn a_key_is_known_by_its_hash() {
    let keys = keys(&[("a", "sk-one"), ("b", "sk-two")]);
    assert_eq!(keys.check(Some(b"Bearer sk-one")), Ok(Some("a")));
    assert_eq!(keys.check(Some(b"  bearer   sk-two ")), Ok(Some("b")));
}

#[test]
fn everything_else_is_refused() {
    let keys = keys(&[("a", "sk-one")]);
    assert_eq!(keys.check(None), Err(AuthError::Missing));
    for malformed in [
        "",
        "Bearer",
        "Bearer ",
        "Basic sk-one",
        "sk-one",
        "Bearer sk one",
        "Bearer \u{e9}",
    ] {
        assert_eq!(
            keys.check(Some(malformed.as_bytes())),
            Err(AuthError::Malformed),
            "{malformed}"
        );
    }
    let long = format!("Bearer {}", "x".repeat(2000));
    assert_eq!(keys.check(Some(long.as_bytes())), Err(AuthError::Malformed));
    for unknown in [
        "Bearer sk-on",
        "Bearer sk-onee",
        "Bearer SK-ONE",
        "Bearer '--",
        "Bearer *",
    ] {
        assert_eq!(
            keys.check(Some(unknown.as_bytes())),
            Err(AuthError::Unknown),
            "{unknown}"
        );
    }
}

#[test]
fn a_socket_in_a_private_directory_asks_nothing() {
    assert_eq!(
        AdminGuard::new(AdminListener::Unix, None).check(None, None, None),
        Ok(())
    );
}

#[test]
fn loopback_checks_host_and_origin() {
    let guard = AdminGuard::new(AdminListener::Loopback, None);
    let host = |host: &str| guard.check(Some(host.as_bytes()), None, None);
    for good in [
        "localhost",
        "LOCALHOST:8080",
        "127.0.0.1:1",
        "[::1]:65535",
        "[::1]",
    ] {
        assert_eq!(host(good), Ok(()), "{good}");
    }
    for bad in [
        "evil.example",
        "localhost.evil.example",
        "localhost:",
        "localhost:80:80",
        "127.0.0.1.evil",
        "localhost:x",
        "",
        "127.0.0.2",
        "localhost@evil",
    ] {
        assert_eq!(host(bad), Err(AdminError::Host), "{bad}");
    }
    assert_eq!(guard.check(None, None, None), Err(AdminError::Host));
    let origin = |origin: &str| guard.check(Some(b"localhost:9"), Some(origin.as_bytes()), None);
    assert_eq!(origin("http://localhost:9"), Ok(()));
    for bad in [
        "http://evil",
        "null",
        "",
        "http://localhost:8",
        "ftp://localhost:9",
        "localhost:9",
    ] {
        assert_eq!(origin(bad), Err(AdminError::Origin), "{bad}");
    }
}

#[test]
fn a_remote_listener_needs_its_token() {
    let guard = AdminGuard::new(AdminListener::Remote, Some("secret\n"));
    let token = |text: Option<&str>| guard.check(Some(b"door:9"), None, text.map(str::as_bytes));
    assert_eq!(token(Some("Bearer secret")), Ok(()));
    for bad in [
        None,
        Some("Bearer other"),
        Some("secret"),
        Some("Basic secret"),
    ] {
        assert_eq!(token(bad), Err(AdminError::Token), "{bad:?}");
    }
    let cross = guard.check(
        Some(b"door:9"),
        Some(b"http://evil"),
        Some(b"Bearer secret"),
    );
    assert_eq!(cross, Err(AdminError::Origin));
    let without = AdminGuard::new(AdminListener::Remote, None);
    assert_eq!(
        without.check(Some(b"door:9"), None, Some(b"Bearer x")),
        Err(AdminError::Token)
    );
    let loopback = AdminGuard::new(AdminListener::Loopback, Some("secret"));
    assert_eq!(
        loopback.check(Some(b"localhost"), None, None),
        Err(AdminError::Token)
    );
    assert_eq!(
        (AdminError::Token.status(), AdminError::Host.status()),
        (401, 403)
    );
}

#[test]
fn request_ids_carry_nothing_harmful() {
    assert_eq!(request_id(b"req-1.a_B:c"), Some("req-1.a_B:c"));
    for bad in [
        "",
        "a b",
        "a\r\nx: y",
        "../x",
        "a/b",
        "\u{e9}",
        "<script>",
        "http://x/",
        &"x".repeat(129),
    ] {
        assert_eq!(request_id(bad.as_bytes()), None, "{bad:?}");
    }
}

proptest! {
    #[test]
    fn no_header_opens_the_door_but_the_key(value in proptest::collection::vec(any::<u8>(), 0..80)) {
        let keys = keys(&[("a", "sk-one")]);
        prop_assert!(keys.check(Some(&value)).is_err());
    }

    #[test]
    fn no_host_but_loopback_gets_in(host in "(localhost|127\\.0\\.0\\.1|\\[::1\\])?[a-z.:@/]{1,9}") {
        let guard = AdminGuard::new(AdminListener::Loopback, None);
        prop_assert_eq!(guard.check(Some(host.as_bytes()), None, None), Err(AdminError::Host));
    }
}
