//! The S3 server of `queen dev`: one bucket, kept as a folder of plain files.
//!
//! Owns: the listener, the credentials, and that only the one bucket can be reached. Leaves to
//! others: HTTP, signatures and XML (the s3s library), the operations and the files (the modules below).
//!
//! For trying things out: it does not sync what it stores, and knows what the sink and readers of the
//! lake need of S3 (`protocol`).

mod folder;
mod incoming;
mod listing;
mod protocol;
mod uploads;

use anyhow::Context;
use folder::Folder;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use protocol::Objects;
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::SimpleAuth;
use s3s::path::S3Path;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{S3Result, s3_error};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

/// A bound S3 server.
pub struct S3Server {
    listener: TcpListener,
    service: S3Service,
}

/// The one bucket and who may use it.
#[derive(Clone, Debug)]
pub struct Bucket {
    /// Its name; also the name of its folder.
    pub name: &'static str,
    /// Access key.
    pub access_key: &'static str,
    /// Secret key; it guards nothing but a demo on loopback.
    pub secret_key: &'static str,
}

impl S3Server {
    /// Serves the bucket as the folder of its name in `dir`, which is created.
    pub async fn bind(addr: SocketAddr, dir: &Path, bucket: Bucket) -> anyhow::Result<S3Server> {
        let folder = Folder::open(dir, bucket.name).with_context(|| {
            format!("cannot keep the bucket {} in {}", bucket.name, dir.display())
        })?;
        let mut builder = S3ServiceBuilder::new(Objects(Arc::new(folder)));
        builder.set_auth(SimpleAuth::from_single(bucket.access_key, bucket.secret_key));
        builder.set_access(OnlyBucket(bucket.name));
        let listener = TcpListener::bind(addr).await.map_err(|error| match error.kind() {
            std::io::ErrorKind::AddrInUse => anyhow::anyhow!(
                "port {} is in use by another process; stop that one or give --s3-port another",
                addr.port()
            ),
            _ => anyhow::anyhow!("cannot listen on {addr}: {error}"),
        })?;
        Ok(S3Server { listener, service: builder.build() })
    }

    /// Where it listens.
    pub fn addr(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` is done, then lets open requests end for a moment.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let connections = auto::Builder::new(TokioExecutor::new());
        let graceful = GracefulShutdown::new();
        let mut stop = std::pin::pin!(stop);
        loop {
            let stream = tokio::select! {
                () = &mut stop => break,
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        tracing::warn!(%error, "the S3 server cannot accept a connection");
                        // Out of files or the like: let connections end rather than spin.
                        tokio::time::sleep(Duration::from_millis(50)).await;
                        continue;
                    }
                },
            };
            let connection =
                connections.serve_connection(TokioIo::new(stream), self.service.clone());
            let watched = graceful.watch(connection.into_owned());
            tokio::spawn(async move {
                if let Err(error) = watched.await {
                    tracing::debug!(%error, "an S3 connection ended");
                }
            });
        }
        if tokio::time::timeout(Duration::from_secs(5), graceful.shutdown()).await.is_err() {
            tracing::debug!("S3 connections were cut at the stop");
        }
    }
}

/// Refuses every bucket but one: the broker's folder beside it is no bucket.
struct OnlyBucket(&'static str);

#[async_trait::async_trait]
impl S3Access for OnlyBucket {
    async fn check(&self, request: &mut S3AccessContext<'_>) -> S3Result<()> {
        if request.credentials().is_none() {
            return Err(s3_error!(AccessDenied, "the request is not signed"));
        }
        match request.s3_path() {
            S3Path::Root => Ok(()),
            S3Path::Bucket { bucket } | S3Path::Object { bucket, .. } if **bucket == *self.0 => {
                Ok(())
            }
            _ => Err(s3_error!(NoSuchBucket, "the only bucket here is {}", self.0)),
        }
    }
}

#[cfg(test)]
#[path = "s3_server_tests.rs"]
mod tests;
