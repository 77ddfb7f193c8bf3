//! Ports that nobody listens on.
//!
//! Owns: finding them below the range from which the system takes ports for outgoing connections,
//! so that a restarted server finds its port free. Leaves to others: the race for a port between
//! finding and using it, which the starters win by trying another.

use crate::chance::Chance;
use std::net::TcpListener;

const FIRST: u16 = 12_000;
const LAST: u16 = 22_000;

fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}

/// A free port.
pub fn free_port() -> u16 {
    find(is_free)
}

/// A port that is free, and whose neighbour 10,000 above is free too.
pub fn free_port_pair() -> u16 {
    find(|port| is_free(port) && is_free(port + 10_000))
}

fn find(fits: impl Fn(u16) -> bool) -> u16 {
    // Drawn, not counted up: tests that run at once should not meet.
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seed = clock.map(|d| d.as_nanos() as u64).unwrap_or_default();
    let mut chance = Chance::new(seed ^ u64::from(std::process::id()) << 32);
    let mut draw = || FIRST + chance.below(u64::from(LAST - FIRST)) as u16;
    let mut port = draw();
    for _ in 0..1000 {
        if fits(port) {
            break;
        }
        port = draw();
    }
    port
}
