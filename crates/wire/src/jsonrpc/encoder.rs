use super::{ErrorObject, Id, Payload};

/// Appends a request, without a line end. It contains no line break.
pub fn write_request<P: Payload + ?Sized>(
    out: &mut Vec<u8>,
    id: &Id<'_>,
    method: &str,
    params: &P,
) {
    whole(out, |out| {
        head(out, Some(id));
        call(out, method, params);
    });
}

pub fn write_notification<P: Payload + ?Sized>(out: &mut Vec<u8>, method: &str, params: &P) {
    whole(out, |out| {
        head(out, None);
        call(out, method, params);
    });
}

/// Appends a response with a result, without a line end. It contains no line break. An absent result is written as `{}`.
pub fn write_response<P: Payload + ?Sized>(out: &mut Vec<u8>, id: &Id<'_>, result: &P) {
    whole(out, |out| {
        head(out, Some(id));
        out.extend_from_slice(br#","result":"#);
        if result.is_absent() {
            out.extend_from_slice(b"{}")
        } else {
            result.write(out)
        }
        out.push(b'}');
    });
}

pub fn write_error(out: &mut Vec<u8>, id: &Id<'_>, error: &ErrorObject) {
    whole(out, |out| {
        head(out, Some(id));
        out.extend_from_slice(br#","error":"#);
        error.write(out);
        out.push(b'}');
    });
}

fn head(out: &mut Vec<u8>, id: Option<&Id<'_>>) {
    out.extend_from_slice(br#"{"jsonrpc":"2.0""#);
    if let Some(id) = id {
        out.extend_from_slice(br#","id":"#);
        out.extend_from_slice(id.as_str().as_bytes());
    }
}

fn call<P: Payload + ?Sized>(out: &mut Vec<u8>, method: &str, params: &P) {
    out.extend_from_slice(br#","method":"#);
    // Writing text to memory cannot fail.
    let _ = serde_json::to_writer(&mut *out, method);
    if !params.is_absent() {
        out.extend_from_slice(br#","params":"#);
        params.write(out);
    }
    out.push(b'}');
}

/// Writes a message and replaces its line breaks. JSON strings contain none, so only white space between tokens of carried JSON is
/// replaced.
fn whole(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    write(out);
    let mut rest = out.get_mut(start..).unwrap_or_default();
    while let Some(at) = memchr::memchr2(b'\n', b'\r', rest) {
        let (_, tail) = rest.split_at_mut(at);
        let Some((byte, tail)) = tail.split_first_mut() else { return };
        *byte = b' ';
        rest = tail;
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Encoder {
    lines: Vec<u8>,
}

// === impl Encoder ===

impl Encoder {
    pub const fn new() -> Self {
        Self { lines: Vec::new() }
    }

    /// Adds a request. Returns its length in bytes, without the line end.
    pub fn request<P: Payload + ?Sized>(&mut self, id: &Id<'_>, method: &str, params: &P) -> usize {
        self.line(|out| write_request(out, id, method, params))
    }

    pub fn notification<P: Payload + ?Sized>(&mut self, method: &str, params: &P) -> usize {
        self.line(|out| write_notification(out, method, params))
    }

    pub fn response<P: Payload + ?Sized>(&mut self, id: &Id<'_>, result: &P) -> usize {
        self.line(|out| write_response(out, id, result))
    }

    pub fn error(&mut self, id: &Id<'_>, error: &ErrorObject) -> usize {
        self.line(|out| write_error(out, id, error))
    }

    /// Adds a rendered message. Only line breaks between its tokens are replaced. Returns its length in bytes, without
    /// the line end.
    pub fn message(&mut self, json: &[u8]) -> usize {
        self.line(|out| whole(out, |out| out.extend_from_slice(json)))
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.lines
    }

    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Returns the length of all lines in bytes. To remove a line that is too long, pass an earlier length to [`Encoder::truncate`].
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Removes everything that was added after the lines had this length in bytes.
    pub fn truncate(&mut self, len: usize) {
        self.lines.truncate(len);
    }

    /// Removes the lines and keeps the buffer.
    pub fn clear(&mut self) {
        self.lines.clear();
    }

    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.lines)
    }

    fn line(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> usize {
        let start = self.lines.len();
        write(&mut self.lines);
        let len = self.lines.len() - start;
        self.lines.push(b'\n');
        len
    }
}
