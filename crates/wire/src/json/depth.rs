use memchr::memchr2_iter;

/// Whether arrays and objects lie more than this many levels deep in each other. The text is JSON.
pub(crate) fn is_deeper(json: &str, max: usize) -> bool {
    let bytes = json.as_bytes();
    // Most messages have fewer brackets than the limit has levels, and counting them is much cheaper than following them.
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
