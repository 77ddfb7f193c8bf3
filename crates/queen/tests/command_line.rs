//! The command line from outside: what it refuses in words, and that it ends cleanly.

#![allow(clippy::unwrap_used)]

mod running;

use running::{Running, get, run};

const ANY_PORT: (&str, &str) = ("PORT", "0");
const LOCAL: (&str, &str) = ("QUEEN_BIND_ADDR", "127.0.0.1");

#[test]
fn bad_settings_are_all_reported_and_stop_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let variables = [
        ("PORT", "http"),
        ("QUEEN_LOG_JSON", "perhaps"),
        ("QUEEN_S3_EMBEDDED", "true"),
        ("QUEEN_S3_QUEUES", "orders"),
        ("QUEEN_S3_SECRET_KEY", "not-to-be-seen"),
        ("QUEEN_S3_FORMAT", "avro"),
    ];
    let (success, said) = run(folder.path(), &["serve"], &variables);
    assert!(!success);
    for part in ["PORT=http", "QUEEN_LOG_JSON=perhaps", "QUEEN_S3_FORMAT=avro", "QUEEN_S3_ENDPOINT"]
    {
        assert!(said.contains(part), "{part} is not in:\n{said}");
    }
    assert!(!said.contains("not-to-be-seen"), "{said}");
}

#[test]
fn a_port_in_use_is_one_clear_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let variables = [("PORT", port.as_str()), LOCAL, ("QUEEN_RAFT_DIR", "data")];
    let (success, said) = run(folder.path(), &["serve"], &variables);
    assert!(!success);
    assert!(said.contains(&format!("queen: port {port} is in use by another process")), "{said}");
}

#[test]
fn a_directory_that_cannot_be_one_is_named() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("data"), "a file").unwrap();
    let variables = [ANY_PORT, LOCAL, ("QUEEN_RAFT_DIR", "data")];
    let (success, said) = run(folder.path(), &["serve"], &variables);
    assert!(!success);
    assert!(
        said.lines().any(|line| line.starts_with("queen: ") && line.contains("data")),
        "{said}"
    );
}

#[test]
fn a_broker_behind_tls_is_asked_by_tls() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(folder.path().join("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(folder.path().join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    let cert = ("QUEEN_TLS_CERT", "cert.pem");
    let variables =
        [ANY_PORT, LOCAL, ("QUEEN_RAFT_DIR", "data"), cert, ("QUEEN_TLS_KEY", "key.pem")];
    let mut broker = Running::start(folder.path(), &["serve"], &variables);
    let port = broker.port("listening on https://");
    let own = format!("127.0.0.1:{port}");
    let (well, said) = run(folder.path(), &["health", "--addr", &own], &[cert]);
    assert!(well, "{said}");
    assert!(!run(folder.path(), &["health", "--addr", &own], &[]).0, "in the clear");
    let named = format!("https://localhost:{port}");
    let status = ["cluster", "status", "--addr", &named];
    let trusting = [&status[..], &["--ca", "cert.pem"]].concat();
    let (known, said) = run(folder.path(), &trusting, &[]);
    assert!(known, "{said}");
    let (known, said) = run(folder.path(), &status, &[]);
    assert!(!known && said.contains("no answer at"), "{said}");
}

#[test]
fn a_second_process_on_one_directory_is_refused_and_the_first_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let variables = [ANY_PORT, LOCAL, ("QUEEN_RAFT_DIR", "data")];
    let mut first = Running::start(folder.path(), &["serve"], &variables);
    let port = first.port("listening");
    let (success, said) = run(folder.path(), &[], &variables);
    assert!(!success);
    assert!(said.contains("data") && said.contains("process"), "{said}");
    assert!(get(port, "/health").contains("\"healthy\""));
    let addr = format!("127.0.0.1:{port}");
    assert!(run(folder.path(), &["health", "--addr", &addr], &[]).0);
    first.signal(libc::SIGINT);
    assert!(first.end().success());
    assert!(first.printed.contains("queen: Ctrl-C, stopping"), "{}", first.printed);
    assert!(first.printed.contains("queen: stopped; all that was answered is on disk"));
    assert!(!run(folder.path(), &["health", "--addr", &addr], &[]).0);
}
