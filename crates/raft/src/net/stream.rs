//! Streams between nodes: TCP, and TLS over it when the files for it are given.
//!
//! Owns: dialling, accepting, reading the TLS files. Leaves to others: what is said on a stream.

use crate::cluster::TlsFiles;
use crate::host::{Dial, Handshake, Incoming, Network};
use crate::{ClusterOptions, StartError};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

/// A stream, encrypted or not.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {
    /// Lets the runtime that this is called on hear of the stream's bytes, where it can be moved: what
    /// is then said on it wakes no thread of another runtime.
    fn moved_here(self: Box<Self>) -> io::Result<Box<dyn Stream>>;
}

impl Stream for TcpStream {
    fn moved_here(self: Box<Self>) -> io::Result<Box<dyn Stream>> {
        Ok(Box::new(TcpStream::from_std(self.into_std()?)?))
    }
}

impl Stream for TlsStream<TcpStream> {
    fn moved_here(self: Box<Self>) -> io::Result<Box<dyn Stream>> {
        Ok(self)
    }
}

/// Makes streams the way this node is set up.
#[derive(Clone)]
struct Streams(Option<(TlsConnector, TlsAcceptor)>);

impl Streams {
    fn new(tls: Option<&TlsFiles>) -> Result<Self, StartError> {
        tls.map(read_files).transpose().map(Self)
    }

    async fn dial(&self, address: &str) -> io::Result<Box<dyn Stream>> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let Some((connector, _)) = &self.0 else { return Ok(Box::new(stream)) };
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host).map_err(io::Error::other)?;
        Ok(Box::new(TlsStream::from(connector.connect(name, stream).await.map_err(no_handshake)?)))
    }

    async fn accept(&self, stream: TcpStream) -> io::Result<Box<dyn Stream>> {
        stream.set_nodelay(true)?;
        let Some((_, acceptor)) = &self.0 else { return Ok(Box::new(stream)) };
        Ok(Box::new(TlsStream::from(acceptor.accept(stream).await.map_err(no_handshake)?)))
    }
}

/// A failed handshake, with the way out.
fn no_handshake(error: io::Error) -> io::Error {
    let text = format!(
        "no TLS with the other node: {error}; the certificate of each node must come from the authority in \
         QUEEN_RAFT_TLS_CA of the other, be valid now, and name its host"
    );
    io::Error::new(error.kind(), text)
}

/// Nodes with which no TLS comes about, and why.
#[derive(Default)]
pub(crate) struct Unmet(Mutex<BTreeMap<u64, String>>);

impl Unmet {
    /// What came of dialling a node; says once why not, if that is no fault of one connection.
    pub(crate) fn note(&self, id: u64, error: Option<&io::Error>) {
        let why = error.filter(|error| error.kind() == io::ErrorKind::InvalidData);
        let why = why.map(ToString::to_string);
        let mut unmet = self.0.lock();
        match why {
            Some(why) if unmet.get(&id) != Some(&why) => {
                tracing::error!(node = id, %why, "cannot speak to a node");
                unmet.insert(id, why);
            }
            Some(_) => {}
            None => drop(unmet.remove(&id)),
        }
    }
}

impl Dial for Streams {
    fn dial(&self, address: String) -> BoxFuture<'static, io::Result<Box<dyn Stream>>> {
        let streams = self.clone();
        Box::pin(async move { streams.dial(&address).await })
    }
}

/// The listener, bound by the start, used on the network's runtime.
struct Listening {
    bound: Option<std::net::TcpListener>,
    listener: Option<TcpListener>,
    streams: Streams,
}

impl Listening {
    async fn next(&mut self) -> io::Result<(Handshake, String)> {
        if let Some(bound) = self.bound.take() {
            self.listener = Some(TcpListener::from_std(bound)?);
        }
        let Some(listener) = &self.listener else { return Err(io::ErrorKind::NotConnected.into()) };
        let (stream, from) = listener.accept().await?;
        let streams = self.streams.clone();
        Ok((Box::pin(async move { streams.accept(stream).await }), from.to_string()))
    }
}

impl Incoming for Listening {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<(Handshake, String)>> {
        Box::pin(self.next())
    }
}

/// TCP, with TLS when the options say so; the listener is bound.
pub(crate) fn network(options: &ClusterOptions) -> Result<Network, StartError> {
    let streams = Streams::new(options.tls.as_ref())?;
    let listen = options.listen;
    let bound = std::net::TcpListener::bind(listen).and_then(|bound| {
        bound.set_nonblocking(true)?;
        Ok(bound)
    });
    let bound =
        bound.map_err(|error| StartError::Failed(format!("cannot listen on {listen}: {error}")))?;
    let incoming = Listening { bound: Some(bound), listener: None, streams: streams.clone() };
    Ok(Network { dial: Arc::new(streams), incoming: Box::new(incoming) })
}

fn failed(path: &Path, error: impl std::fmt::Display) -> StartError {
    StartError::Failed(format!("cannot use {} for TLS between nodes: {error}", path.display()))
}

fn read_files(files: &TlsFiles) -> Result<(TlsConnector, TlsAcceptor), StartError> {
    let TlsFiles { ca, cert, key } = files;
    let certificates = |path: &Path| -> Result<Vec<CertificateDer<'static>>, StartError> {
        let all = CertificateDer::pem_file_iter(path).map_err(|error| failed(path, error))?;
        let all: Result<Vec<_>, _> = all.collect();
        let all = all.map_err(|error| failed(path, error))?;
        if all.is_empty() {
            return Err(failed(path, "it holds no certificate"));
        }
        Ok(all)
    };
    let mut roots = RootCertStore::empty();
    for root in certificates(ca)? {
        roots.add(root).map_err(|error| failed(ca, error))?;
    }
    let roots = Arc::new(roots);
    let chain = certificates(cert)?;
    let secret = || PrivateKeyDer::from_pem_file(key).map_err(|error| failed(key, error));
    let client = ClientConfig::builder()
        .with_root_certificates(roots.clone())
        .with_client_auth_cert(chain.clone(), secret()?)
        .map_err(|error| failed(cert, error))?;
    let verifier =
        WebPkiClientVerifier::builder(roots).build().map_err(|error| failed(ca, error))?;
    let server = ServerConfig::builder()
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, secret()?)
        .map_err(|error| failed(cert, error))?;
    Ok((TlsConnector::from(Arc::new(client)), TlsAcceptor::from(Arc::new(server))))
}
