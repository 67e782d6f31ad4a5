/// Writes one event. `data` may contain line breaks. Line breaks in `id` and `event` are removed.
pub fn encode(out: &mut Vec<u8>, id: Option<&str>, event: Option<&str>, data: &[u8]) {
    if let Some(id) = id {
        field(out, b"id: ", id);
    }
    if let Some(event) = event {
        field(out, b"event: ", event);
    }
    for line in lines(data) {
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(line);
        out.push(b'\n');
    }
    out.push(b'\n');
}

fn field(out: &mut Vec<u8>, name: &[u8], value: &str) {
    out.extend_from_slice(name);
    out.extend(value.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n' | 0)));
    out.push(b'\n');
}

/// Splits at CRLF, CR and LF.
fn lines(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(data);
    std::iter::from_fn(move || {
        let data = rest?;
        let Some(end) = data.iter().position(|byte| matches!(byte, b'\r' | b'\n')) else {
            rest = None;
            return Some(data);
        };
        let (line, tail) = data.split_at(end);
        rest = Some(tail.strip_prefix(b"\r\n").or_else(|| tail.get(1..)).unwrap_or_default());
        Some(line)
    })
}
