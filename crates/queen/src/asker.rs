//! Asking a broker: one GET, its status and body.
//!
//! Owns: the address in its short and long form, whom TLS trusts, the limit of time. Leaves to others:
//! what is asked and what an answer means (`health`, `cluster`).

use anyhow::{Context, anyhow};
use std::path::Path;
use std::time::Duration;

/// Longest time for the whole answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Whose certificates are good.
#[derive(Clone, Copy, Debug)]
pub enum Trust<'t> {
    /// Anybody's: for a question without a secret to this machine itself, whose certificate bears
    /// another name.
    Anybody,
    /// Those of this authority, a PEM file.
    Authority(&'t Path),
    /// Those of the authorities that the system trusts.
    System,
}

/// The address without its slash at the end, with the scheme that it has or this one.
pub fn url(addr: &str, scheme: &str) -> String {
    let addr = addr.trim_end_matches('/');
    if addr.contains("://") { addr.to_owned() } else { format!("{scheme}://{addr}") }
}

/// A client of brokers.
pub struct Asker {
    runtime: tokio::runtime::Runtime,
    client: reqwest::Client,
}

impl Asker {
    /// An error names the file that cannot be trusted.
    pub fn new(trust: Trust<'_>) -> anyhow::Result<Asker> {
        // A proxy of the environment is for the bucket, or for others.
        let builder = reqwest::Client::builder().no_proxy().timeout(PATIENCE);
        let builder = match trust {
            Trust::System => builder,
            Trust::Anybody => builder.tls_danger_accept_invalid_certs(true),
            Trust::Authority(file) => {
                let unusable = || format!("cannot use {} as an authority", file.display());
                let pem = std::fs::read(file).with_context(unusable)?;
                let all = reqwest::Certificate::from_pem_bundle(&pem).with_context(unusable)?;
                if all.is_empty() {
                    return Err(anyhow!("it holds no certificate").context(unusable()));
                }
                builder.tls_certs_only(all)
            }
        };
        let client = builder.build().context("set up HTTP")?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Asker { runtime, client })
    }

    /// The status and the body of the answer to a GET that sends this token, if any. An error is
    /// the one at the bottom, such as `Connection refused`.
    pub fn get(&self, url: &str, token: Option<&str>) -> anyhow::Result<(u16, String)> {
        let request = self.client.get(url);
        let request = match token {
            Some(token) => request.bearer_auth(token),
            None => request,
        };
        let answer = self.runtime.block_on(async {
            let answer = request.send().await?;
            Ok::<_, reqwest::Error>((answer.status().as_u16(), answer.text().await?))
        });
        answer.map_err(|error| {
            if error.is_timeout() {
                return anyhow!("it took longer than {PATIENCE:?}");
            }
            anyhow!("{}", anyhow!(error).root_cause())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_keeps_the_scheme_that_it_has() {
        assert_eq!(url("queen-1:6632", "http"), "http://queen-1:6632");
        assert_eq!(url("queen-1:6632", "https"), "https://queen-1:6632");
        assert_eq!(url("https://queen-1:6632/", "http"), "https://queen-1:6632");
    }

    #[test]
    fn an_authority_that_is_none_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        let why = |file: &Path| {
            let asker = Asker::new(Trust::Authority(file));
            format!("{:#}", asker.err().unwrap())
        };
        assert!(why(&file).contains("ca.pem") && why(&file).contains("No such file"));
        std::fs::write(&file, "a text").unwrap();
        assert!(why(&file).contains("ca.pem") && why(&file).contains("no certificate"));
    }
}
