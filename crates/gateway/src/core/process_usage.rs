//! The resource use of this process, from the system.

use std::fs;

/// Clock ticks per second in `/proc`: the same on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;
/// The position of user time (field 14) in `/proc/self/stat`, counted after the name in parentheses, which can contain spaces; system time follows.
const TIMES_AT: usize = 11;

/// Returns the memory of this process in bytes, or `None` if the system does not report it.
pub(crate) fn resident_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kibibytes.saturating_mul(1024))
}

/// Returns the processor time of this process in seconds, or `None` if the system does not report it.
pub(crate) fn cpu_seconds() -> Option<f64> {
    let text = fs::read_to_string("/proc/self/stat").ok()?;
    let (_, rest) = text.rsplit_once(") ")?;
    let mut times = rest.split(' ').skip(TIMES_AT);
    let ticks = |text: &str| text.parse::<f64>().ok();
    Some((ticks(times.next()?)? + ticks(times.next()?)?) / TICKS_PER_SECOND)
}
