//! What the operating system says of this process.

/// Resident memory in bytes; `None` where the system does not tell.
pub fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * page_bytes())
}

/// User and system time used so far, in seconds; `None` where the system does not tell.
pub fn cpu_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name in parentheses may hold blanks.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    // The kernel's clock ticks for user space are hundredths of a second on every Linux.
    Some((user + system) as f64 / 100.0)
}

fn page_bytes() -> u64 {
    // The auxiliary vector's entry 6 is the page size.
    let auxv = std::fs::read("/proc/self/auxv").unwrap_or_default();
    let word = |bytes: &[u8]| bytes.try_into().map(u64::from_ne_bytes).unwrap_or(0);
    auxv.chunks_exact(16)
        .find(|entry| word(&entry[..8]) == 6)
        .map_or(4096, |entry| word(&entry[8..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_tells_of_this_process() {
        assert!(resident_bytes().unwrap() > 1 << 20);
        assert!(cpu_seconds().is_some());
    }
}
