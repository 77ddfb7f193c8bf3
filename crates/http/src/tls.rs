//! TLS on the listener.
//!
//! Owns: reading certificate and key, taking new ones when their files change, the handshake, and a
//! word to those who speak plain HTTP. Leaves to others: which files (`queen::settings`), HTTP
//! (`server`).

use serde_json::json;
use std::fmt;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::server::TlsStream;
use tracing::{info, warn};

/// Longest time for a handshake; a caller that says nothing is let go.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Between two looks at the files, when somebody connects.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The first byte of a TLS connection: a handshake record (RFC 8446, 5.1).
const HANDSHAKE_RECORD: u8 = 22;

/// The listener's certificate and key, as their files have them.
pub struct Tls {
    cert: PathBuf,
    key: PathBuf,
    current: Mutex<Current>,
}

struct Current {
    acceptor: TlsAcceptor,
    /// The files when they were last read, well or not.
    read: Option<[Seen; 2]>,
    looked: Instant,
}

/// What changes when a file is written, or another takes its name, also behind a symbolic link.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Seen {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl Seen {
    fn of(path: &Path) -> io::Result<Seen> {
        let of = |it: Metadata| Seen {
            device: it.dev(),
            inode: it.ino(),
            bytes: it.len(),
            modified: (it.mtime(), it.mtime_nsec()),
        };
        std::fs::metadata(path).map(of)
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("cert", &self.cert).field("key", &self.key).finish()
    }
}

impl Tls {
    /// Reads both files, in PEM: the certificate with its chain, and its key. The error names the
    /// file and what is wrong with it.
    pub fn new(cert: PathBuf, key: PathBuf) -> Result<Tls, String> {
        let read = seen(&cert, &key);
        let acceptor = acceptor(&cert, &key)?;
        let current = Mutex::new(Current { acceptor, read, looked: Instant::now() });
        Ok(Tls { cert, key, current })
    }

    /// What the next connection is accepted with. Files that changed and are wrong, or are only
    /// half of a change, leave what was there before.
    fn acceptor(&self) -> TlsAcceptor {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.looked.elapsed() >= LOOK_EVERY {
            current.looked = Instant::now();
            // Looked at before they are read: what changes in between is read again.
            let now = seen(&self.cert, &self.key);
            if now != current.read {
                current.read = now;
                match acceptor(&self.cert, &self.key) {
                    Ok(acceptor) => {
                        current.acceptor = acceptor;
                        info!(cert = %self.cert.display(), "took a new certificate");
                    }
                    Err(problem) => {
                        warn!(%problem, "the files of TLS changed; the certificate that was read before stays");
                    }
                }
            }
        }
        current.acceptor.clone()
    }

    /// Shakes hands; an error when there comes no TLS.
    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let acceptor = self.acceptor();
        let shaken = timeout(HANDSHAKE, async {
            let mut first = [0];
            if stream.peek(&mut first).await? == 1 && first[0] != HANDSHAKE_RECORD {
                return Err(turn_away(stream).await);
            }
            acceptor.accept(stream).await
        });
        shaken.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

/// Both files as they are; `None` when one is not there.
fn seen(cert: &Path, key: &Path) -> Option<[Seen; 2]> {
    Some([Seen::of(cert).ok()?, Seen::of(key).ok()?])
}

/// Answers who speaks HTTP in the clear, so that the caller sees why.
async fn turn_away(mut stream: TcpStream) -> io::Error {
    let body = json!({"error": "this port speaks TLS: call it by https://"}).to_string();
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    match stream.write_all(answer.as_bytes()).await {
        Ok(()) => io::Error::new(io::ErrorKind::InvalidData, "not TLS"),
        Err(error) => error,
    }
}

fn acceptor(cert: &Path, key: &Path) -> Result<TlsAcceptor, String> {
    fn unusable(path: &Path, error: impl fmt::Display) -> String {
        format!("cannot use {} for TLS: {error}", path.display())
    }
    let chain: Result<Vec<CertificateDer<'static>>, _> =
        CertificateDer::pem_file_iter(cert).and_then(Iterator::collect);
    let chain = chain.map_err(|error| unusable(cert, error))?;
    if chain.is_empty() {
        return Err(unusable(cert, "it holds no certificate"));
    }
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(key, error))?;
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(|error| unusable(cert, format!("{error} (key: {})", key.display())))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Files {
        folder: tempfile::TempDir,
        tls: Tls,
    }

    fn made() -> (String, String) {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    impl Files {
        fn new() -> Files {
            let folder = tempfile::tempdir().unwrap();
            let (cert, key) = made();
            let [cert_file, key_file] =
                ["cert.pem", "key.pem"].map(|name| folder.path().join(name));
            std::fs::write(&cert_file, cert).unwrap();
            std::fs::write(&key_file, key).unwrap();
            let tls = Tls::new(cert_file, key_file).unwrap();
            Files { folder, tls }
        }

        /// Another file takes the name.
        fn replace(&self, name: &str, text: &str) {
            let new = self.folder.path().join("new");
            std::fs::write(&new, text).unwrap();
            std::fs::rename(new, self.folder.path().join(name)).unwrap();
        }

        /// What a connection gets a second later.
        fn later(&self) -> Arc<ServerConfig> {
            let a_second_ago = Instant::now().checked_sub(LOOK_EVERY).unwrap();
            self.tls.current.lock().unwrap().looked = a_second_ago;
            Arc::clone(self.tls.acceptor().config())
        }
    }

    #[tokio::test]
    async fn a_certificate_that_changed_is_taken_without_a_restart() {
        let files = Files::new();
        let first = files.later();
        assert!(Arc::ptr_eq(&first, &files.later()), "nothing changed");
        let (cert, key) = made();
        files.replace("cert.pem", &cert);
        assert!(Arc::ptr_eq(&first, &files.later()), "its key is not there yet");
        files.replace("key.pem", &key);
        assert!(!Arc::ptr_eq(&first, &files.later()));
    }

    #[tokio::test]
    async fn files_that_are_gone_or_wrong_leave_what_was_there() {
        let files = Files::new();
        let first = files.later();
        files.replace("key.pem", "no key");
        assert!(Arc::ptr_eq(&first, &files.later()));
        std::fs::remove_file(files.folder.path().join("cert.pem")).unwrap();
        assert!(Arc::ptr_eq(&first, &files.later()));
        let (cert, key) = made();
        files.replace("cert.pem", &cert);
        files.replace("key.pem", &key);
        assert!(!Arc::ptr_eq(&first, &files.later()));
    }

    #[test]
    fn a_key_of_another_certificate_is_refused() {
        let files = Files::new();
        files.replace("key.pem", &made().1);
        let file = |name| files.folder.path().join(name);
        let why = Tls::new(file("cert.pem"), file("key.pem")).unwrap_err();
        assert!(why.contains("cert.pem") && why.contains("key.pem"), "{why}");
    }
}
