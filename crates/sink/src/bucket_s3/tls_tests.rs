//! Certificates of the endpoint: a private authority with an intermediate one, and those that must
//! be refused with the way out.

use super::*;
use crate::bucket::{Bucket, ErrorKind};
use crate::bucket_s3::S3Bucket;
use crate::bucket_s3::tests::settings;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

struct Server {
    port: u16,
    /// PEM of the root authority.
    authority: tempfile::NamedTempFile,
}

fn authority(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

/// A server whose certificate is made for `name` and good until the year.
async fn server(name: &str, until: i32) -> Server {
    let root = CertifiedIssuer::self_signed(authority("root"), KeyPair::generate().unwrap());
    let root = root.unwrap();
    let key = KeyPair::generate().unwrap();
    let middle = CertifiedIssuer::signed_by(authority("middle"), key, &root).unwrap();
    let mut leaf = CertificateParams::new(vec![name.to_owned()]).unwrap();
    leaf.not_before = date_time_ymd(2020, 1, 1);
    leaf.not_after = date_time_ymd(until, 1, 1);
    let key = KeyPair::generate().unwrap();
    let leaf = leaf.signed_by(&key, &middle).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), root.pem()).unwrap();
    let chain = vec![leaf.der().clone(), middle.der().clone()];
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key);
    let acceptor = TlsAcceptor::from(Arc::new(config.unwrap()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut socket) = acceptor.accept(socket).await else { return };
                let mut buffer = [0; 8192];
                let _ = socket.read(&mut buffer).await;
                let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi";
                let _ = socket.write_all(answer.as_bytes()).await;
                let _ = socket.shutdown().await;
            });
        }
    });
    Server { port, authority: file }
}

async fn get(endpoint: String, ca_file: Option<String>) -> Result<(), (ErrorKind, String)> {
    let settings = BucketSettings { ca_file, ..settings(&endpoint, "lake", "queen", "hush") };
    let bucket = S3Bucket::new(&settings).unwrap();
    bucket.get("a", 9).await.map(drop).map_err(|error| (error.kind, error.text))
}

fn ca(server: &Server) -> Option<String> {
    Some(server.authority.path().display().to_string())
}

#[tokio::test]
async fn an_authority_of_ones_own_is_trusted_when_it_is_named() {
    let server = server("localhost", 2099).await;
    let endpoint = format!("https://localhost:{}", server.port);
    assert_eq!(get(endpoint.clone(), ca(&server)).await, Ok(()));
    let (kind, text) = get(endpoint, None).await.unwrap_err();
    assert_eq!(kind, ErrorKind::Unreachable);
    assert!(text.ends_with("give the authority of its certificate in QUEEN_S3_CA_FILE"), "{text}");
}

#[tokio::test]
async fn certificates_that_have_ended_or_are_for_another_name_are_refused() {
    let ended = server("localhost", 2021).await;
    let (_, text) = get(format!("https://localhost:{}", ended.port), ca(&ended)).await.unwrap_err();
    assert!(text.contains("the certificate has ended: renew it there"), "{text}");
    let other = server("elsewhere", 2099).await;
    let (_, text) = get(format!("https://localhost:{}", other.port), ca(&other)).await.unwrap_err();
    assert!(text.contains("made for another name: correct QUEEN_S3_ENDPOINT"), "{text}");
}

#[tokio::test]
async fn tls_to_a_server_that_speaks_none_is_said() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let (_, text) = get(endpoint, None).await.unwrap_err();
    assert!(text.contains("it speaks no TLS: write http:// in QUEEN_S3_ENDPOINT"), "{text}");
}
