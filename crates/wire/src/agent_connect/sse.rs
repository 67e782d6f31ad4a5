//! Server-sent events as the protocol's clients read them: one `data:` line of ASCII, LF, and only one event name. Mounts that follow the document exactly also send [`RUN`].

/// The name of every event.
pub const EVENT: &str = "agent_event";

/// The name of the first event of a stream, which contains the run. Only for mounts that follow the document exactly.
pub const RUN: &str = "run";

/// A heartbeat: a comment line. An empty line after it would make the official client fail.
pub const PING: &[u8] = b": ping\n";

/// Renders one event. Line breaks in `id` are removed; `data` must be JSON.
pub fn event(id: &str, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(data.len() + id.len() + 40);
    out.extend_from_slice(b"id: ");
    out.extend(id.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n' | 0)));
    out.extend_from_slice(b"\nevent: agent_event\ndata: ");
    write_ascii(data, &mut out);
    out.extend_from_slice(b"\n\n");
    out
}

/// Renders the run with which a stream begins. It has no id, so that the client's cursor does not change.
pub fn run(data: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(data.len() + 32);
    crate::sse::encode(&mut out, None, Some(RUN), &ascii(data));
    out
}

/// Renders JSON in one line of ASCII. Other characters are escaped, and line breaks between tokens become spaces.
pub fn ascii(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len());
    write_ascii(json, &mut out);
    out
}

fn write_ascii(json: &[u8], out: &mut Vec<u8>) {
    let mut rest = json;
    while let Some(step) = rest.iter().position(|byte| !matches!(byte, 0x20..=0x7e)) {
        let (plain, tail) = rest.split_at(step);
        out.extend_from_slice(plain);
        let odd = tail.iter().position(|byte| byte.is_ascii_graphic()).unwrap_or(tail.len());
        let (odd, tail) = tail.split_at(odd);
        for sign in String::from_utf8_lossy(odd).chars() {
            write_sign(sign, out);
        }
        rest = tail;
    }
    out.extend_from_slice(rest);
}

/// Control characters occur only between tokens, except DEL, which may be in a string.
fn write_sign(sign: char, out: &mut Vec<u8>) {
    match sign {
        ' '..='~' => out.push(u8::try_from(sign).unwrap_or(b' ')),
        '\u{0}'..='\u{1f}' => out.push(b' '),
        _ => {
            for unit in sign.encode_utf16(&mut [0; 2]) {
                out.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
            }
        }
    }
}
