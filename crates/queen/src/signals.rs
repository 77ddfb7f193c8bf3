//! SIGTERM and Ctrl-C: the first asks for a clean end, the second ends at once.
//!
//! Owns: listening for both. Leaves to others: what a clean end is (`node`).

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Listens for the signals that end the process.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Begins to listen; from here on the signals no longer end the process by themselves.
    pub fn listen() -> std::io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the first signal, says so, and leaves a watch behind for which the next one is
    /// the end of the process, with the shell's exit code for it.
    pub async fn stop_asked(mut self) {
        let (name, _) = self.next().await;
        println!("queen: {name}, stopping; once more to stop at once");
        tokio::spawn(async move {
            let (name, code) = self.next().await;
            println!(
                "queen: {name} again, stopped at once; the log is safe, a start will replay it"
            );
            std::process::exit(code);
        });
    }

    async fn next(&mut self) -> (&'static str, i32) {
        tokio::select! {
            _ = self.terminate.recv() => ("SIGTERM", 128 + libc::SIGTERM),
            _ = self.interrupt.recv() => ("Ctrl-C", 128 + libc::SIGINT),
        }
    }
}
