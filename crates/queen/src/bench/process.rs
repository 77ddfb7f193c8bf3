//! What the broker's process used, read from /proc.
//!
//! Owns: finding the process behind a port, its CPU time, memory and writes, and the size of its
//! directory. Leaves to others: the differences and their meaning (`report`).

use anyhow::{Context, bail};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What a process has used until now.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// User and system time, seconds.
    pub cpu_seconds: f64,
    /// Memory in RAM now, bytes.
    pub rss_bytes: u64,
    /// Bytes sent towards the disk.
    pub written_bytes: u64,
}

impl Usage {
    /// Of a live process.
    pub fn of(pid: u32) -> anyhow::Result<Usage> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))
            .with_context(|| format!("no process {pid}"))?;
        // The second field is the name in parentheses and may hold anything.
        let after_name = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
        let field = |index: usize| -> u64 {
            after_name.split_whitespace().nth(index).and_then(|n| n.parse().ok()).unwrap_or(0)
        };
        // SAFETY: sysconf takes a constant and touches no memory of ours.
        let (ticks, page) =
            unsafe { (libc::sysconf(libc::_SC_CLK_TCK), libc::sysconf(libc::_SC_PAGESIZE)) };
        let written = fs::read_to_string(format!("/proc/{pid}/io")).ok().and_then(|io| {
            io.lines().find_map(|line| line.strip_prefix("write_bytes: ")?.trim().parse().ok())
        });
        Ok(Usage {
            cpu_seconds: (field(11) + field(12)) as f64 / ticks.max(1) as f64,
            rss_bytes: field(21) * page.max(0) as u64,
            written_bytes: written.unwrap_or(0),
        })
    }
}

/// The process that listens on `port` of this machine; `None` when it is not ours to see.
pub fn listening_on(port: u16) -> anyhow::Result<Option<u32>> {
    let mut sockets = Vec::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        if let Ok(text) = fs::read_to_string(table) {
            sockets.extend(listeners(&text, port));
        }
    }
    if sockets.is_empty() {
        bail!("nothing listens on port {port} of this machine; give --pid if it runs elsewhere");
    }
    let wanted: Vec<String> = sockets.iter().map(|inode| format!("socket:[{inode}]")).collect();
    for entry in fs::read_dir("/proc").context("read /proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(open) = fs::read_dir(entry.path().join("fd")) else { continue };
        let holds = open.flatten().any(|file| {
            fs::read_link(file.path()).is_ok_and(|target| {
                wanted.iter().any(|socket| target.as_os_str() == socket.as_str())
            })
        });
        if holds {
            return Ok(Some(pid));
        }
    }
    Ok(None)
}

/// Inodes of the sockets that listen on `port`, from the text of /proc/net/tcp.
fn listeners(table: &str, port: u16) -> Vec<u64> {
    let suffix = format!(":{port:04X}");
    let listens = |line: &&str| {
        let mut fields = line.split_whitespace();
        let local = fields.nth(1).unwrap_or_default();
        local.ends_with(&suffix) && fields.nth(1) == Some("0A")
    };
    table
        .lines()
        .skip(1)
        .filter(listens)
        .filter_map(|line| line.split_whitespace().nth(9)?.parse().ok())
        .collect()
}

/// Bytes allocated on disk below a folder; what vanishes meanwhile counts nothing.
pub fn disk_bytes(path: &Path) -> u64 {
    let Ok(metadata) = fs::symlink_metadata(path) else { return 0 };
    let inside: u64 = match fs::read_dir(path) {
        Ok(entries) if metadata.is_dir() => entries.flatten().map(|e| disk_bytes(&e.path())).sum(),
        _ => 0,
    };
    metadata.blocks() * 512 + inside
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_behind_a_port_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(listening_on(port).unwrap(), Some(std::process::id()));
        drop(listener);
        assert!(listening_on(port).is_err());
    }

    #[test]
    fn a_process_has_memory_and_an_absent_one_is_an_error() {
        assert!(Usage::of(std::process::id()).unwrap().rss_bytes > 1 << 20);
        assert!(Usage::of(u32::MAX).is_err());
    }
}
