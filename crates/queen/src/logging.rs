//! What the process says on its standard error.
//!
//! Owns: the level and the form of log lines (`LOG_LEVEL`, `RUST_LOG`, `QUEEN_LOG_JSON`). Leaves to
//! others: the lines.

use crate::environment::Environment;
use queen_core::setting::broker;
use tracing_subscriber::EnvFilter;

/// How to log.
#[derive(Debug, Clone)]
pub struct LogSettings {
    filter: String,
    json: bool,
}

impl LogSettings {
    /// `RUST_LOG` holds filter directives and wins over `LOG_LEVEL`, one word; `default` is the
    /// level without either.
    pub fn read(environment: &Environment, default: &'static str) -> LogSettings {
        let level = environment.word(&broker::LOG_LEVEL).unwrap_or(default);
        let json = environment.switch(&broker::LOG_JSON);
        let filter = match environment.get(broker::RUST_LOG.name) {
            None => default_filter(level),
            Some(directives) => directives.to_owned(),
        };
        if let Err(error) = EnvFilter::try_new(&filter) {
            environment.refuse(
                broker::RUST_LOG.name,
                format!("is no filter ({error})"),
                broker::RUST_LOG.example,
            );
        }
        LogSettings { filter, json }
    }

    /// Begins to log. Later calls have no effect.
    pub fn start(&self) {
        let filter = EnvFilter::new(&self.filter);
        let base = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
        let begun = if self.json {
            base.json().flatten_event(true).try_init()
        } else {
            let colours = std::io::IsTerminal::is_terminal(&std::io::stderr());
            base.with_ansi(colours).try_init()
        };
        if begun.is_err() {
            tracing::debug!("logging was begun before");
        }
    }
}

/// The level for what is ours, and no chatter from the libraries below it.
fn default_filter(level: &str) -> String {
    match level {
        "debug" | "trace" => {
            format!("{level},hyper=info,h2=info,fjall=info,lsm_tree=info,s3s=info")
        }
        // The consensus library tells four lines for each try to reach a node that is down, 20 times a
        // second, and calls them errors; what matters of it `queen_raft` says once.
        _ => format!("{level},openraft=off,fjall=warn,lsm_tree=warn,s3s=warn"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_level_or_filter_is_refused_by_name() {
        let pairs = [("LOG_LEVEL", "loud"), ("RUST_LOG", "a=b=c")];
        let pairs = pairs.map(|(n, v)| (n.to_owned(), v.to_owned()));
        let environment = Environment::from_pairs(pairs);
        LogSettings::read(&environment, "info");
        let problems = environment.take_problems();
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[0].starts_with("LOG_LEVEL=loud: not one of error, warn"));
        assert!(problems[1].starts_with("RUST_LOG=a=b=c: is no filter"));
        for level in ["info", "debug"] {
            assert!(EnvFilter::try_new(default_filter(level)).is_ok());
        }
    }
}
