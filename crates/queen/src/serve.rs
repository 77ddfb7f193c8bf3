//! `queen serve`: the broker, configured by the environment.
//!
//! Owns: what it prints. Leaves to others: starting and stopping (`node`).

use crate::environment::Environment;
use crate::node::{Node, NodeSettings};
use crate::signals::Signals;

/// Runs until a signal asks for the end.
pub async fn run() -> anyhow::Result<()> {
    let settings = NodeSettings::read(&Environment::of_process(), "info")?;
    settings.start_logging();
    let signals = Signals::listen()?;
    let node = Node::start(settings).await?;
    println!("queen: listening on {}", node.url());
    node.run_until(signals.stop_asked()).await?;
    println!("queen: stopped; all that was answered is on disk");
    Ok(())
}
