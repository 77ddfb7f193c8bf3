//! An S3 server inside the test's process, whose bucket is a folder of files.
//!
//! Owns: the listener. Leaves to others: the protocol (the s3s library) and the files (s3s-fs). It
//! accepts buckets that do not exist and checks less than a real server: for tests in which the
//! bucket is not the point.

use super::{ACCESS_KEY, BUCKET, SECRET_KEY};
use hyper_util::rt::{TokioExecutor, TokioIo};
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use std::path::PathBuf;
use tokio::net::TcpListener;

/// The server; dropped, it stops and its files go.
pub struct FolderS3 {
    root: tempfile::TempDir,
    endpoint: String,
    serving: tokio::task::JoinHandle<()>,
}

impl FolderS3 {
    /// Serves an empty bucket on a free port.
    pub async fn start() -> anyhow::Result<FolderS3> {
        let root = tempfile::Builder::new().prefix("queen-lake-").tempdir()?;
        std::fs::create_dir(root.path().join(BUCKET))?;
        let files = s3s_fs::FileSystem::new(root.path())
            .map_err(|error| anyhow::anyhow!("serve a folder: {error:?}"))?;
        let mut builder = S3ServiceBuilder::new(files);
        builder.set_auth(SimpleAuth::from_single(ACCESS_KEY, SECRET_KEY));
        let service = builder.build();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        let serving = tokio::spawn(async move {
            let connections = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            while let Ok((stream, _)) = listener.accept().await {
                let stream = TokioIo::new(stream);
                let connection = connections.serve_connection(stream, service.clone()).into_owned();
                tokio::spawn(async move {
                    // A client that goes away in the middle is no concern of the test.
                    let _ = connection.await;
                });
            }
        });
        Ok(FolderS3 { root, endpoint, serving })
    }

    /// Where it answers.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The folder that is the bucket.
    pub fn folder(&self) -> PathBuf {
        self.root.path().join(BUCKET)
    }
}

impl Drop for FolderS3 {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
