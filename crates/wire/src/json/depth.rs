use memchr::memchr2_iter;

/// Returns `true` if arrays and objects are nested more than this many levels. The text must be JSON.
pub(crate) fn is_deeper(json: &str, max: usize) -> bool {
    let bytes = json.as_bytes();
    // Most messages have fewer brackets than the limit has levels, and counting brackets is much cheaper than tracking the depth.
    if memchr2_iter(b'{', b'[', bytes).nth(max).is_none() {
        return false;
    }
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in bytes {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => {
                depth += 1;
                if depth > max {
                    return true;
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}
