//! JSON for the protocol's event streams.

/// Makes JSON safe for one `data:` line that every client can read. Line breaks between tokens become spaces.
/// U+0085, U+2028 and U+2029 are escaped, because some clients treat them as line ends.
pub fn safe(json: &mut Vec<u8>) {
    let Some(first) = next_unsafe(json, 0) else { return };
    let mut out = Vec::with_capacity(json.len() + 64);
    let mut done = 0;
    let mut at = Some(first);
    while let Some((place, length, instead)) = at {
        out.extend_from_slice(json.get(done..place).unwrap_or_default());
        out.extend_from_slice(instead);
        done = place + length;
        at = next_unsafe(json, done);
    }
    out.extend_from_slice(json.get(done..).unwrap_or_default());
    *json = out;
}

/// Returns the next change after `from`: its position, the number of bytes to replace, and the replacement.
fn next_unsafe(json: &[u8], from: usize) -> Option<(usize, usize, &'static [u8])> {
    let mut from = from;
    loop {
        let rest = json.get(from..)?;
        let step = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r' | 0xC2 | 0xE2))?;
        let found: (usize, &'static [u8]) = match rest.get(step..)? {
            [b'\n' | b'\r', ..] => (1, b" "),
            [0xC2, 0x85, ..] => (2, b"\\u0085"),
            [0xE2, 0x80, 0xA8, ..] => (3, b"\\u2028"),
            [0xE2, 0x80, 0xA9, ..] => (3, b"\\u2029"),
            _ => {
                from += step + 1;
                continue;
            }
        };
        return Some((from + step, found.0, found.1));
    }
}
