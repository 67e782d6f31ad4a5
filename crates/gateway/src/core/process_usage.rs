//! What this process uses, as the system says it.

use std::fs;

/// Clock ticks of a second in `/proc`: the same on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;
/// The 14th and 15th field of `/proc/self/stat`, counted behind the name in parentheses, which can hold spaces.
const TIMES_AT: usize = 11;

/// The memory of this process in bytes; `None` where the system does not say.
pub(crate) fn resident_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kibibytes.saturating_mul(1024))
}

/// The processor time of this process in seconds; `None` where the system does not say.
pub(crate) fn cpu_seconds() -> Option<f64> {
    let text = fs::read_to_string("/proc/self/stat").ok()?;
    let (_, rest) = text.rsplit_once(") ")?;
    let mut times = rest.split(' ').skip(TIMES_AT);
    let ticks = |text: &str| text.parse::<f64>().ok();
    Some((ticks(times.next()?)? + ticks(times.next()?)?) / TICKS_PER_SECOND)
}
