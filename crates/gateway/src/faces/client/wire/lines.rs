//! Lines for one client.

use std::io::Write;

use serde_json::value::RawValue;
use trilogue_wire::jsonrpc::{
    ErrorObject, Id, Payload, write_error, write_notification, write_request, write_response,
};
use trilogue_wire::native::local::Control;

/// The response to a request: the JSON of its result, or an error.
pub(crate) type MethodResult = Result<Vec<u8>, ErrorObject>;

/// The same for a request that the pump may respond to later: then the result is `None`.
pub(crate) type DeferredResult = Result<Option<Vec<u8>>, ErrorObject>;

/// Lines that are sent together, each with its line end.
#[derive(Debug, Default)]
pub(crate) struct OutgoingLines {
    pub(crate) bytes: Vec<u8>,
    /// How many of the lines are messages of the protocol.
    pub(crate) messages: usize,
}

// === impl OutgoingLines ===

impl OutgoingLines {
    pub(crate) fn response(&mut self, id: &Id<'static>, result: &MethodResult) {
        match result {
            Ok(result) => match serde_json::from_slice::<&RawValue>(result) {
                Ok(raw) => write_response(&mut self.bytes, id, raw),
                Err(_) => write_response(&mut self.bytes, id, &()),
            },
            Err(error) => write_error(&mut self.bytes, id, error),
        }
        self.end();
    }

    pub(crate) fn request<P: Payload + ?Sized>(&mut self, number: u64, method: &str, params: &P) {
        write_request(&mut self.bytes, &Id::number(number), method, params);
        self.end();
    }

    pub(crate) fn notification<P: Payload + ?Sized>(&mut self, method: &str, params: &P) {
        write_notification(&mut self.bytes, method, params);
        self.end();
    }

    /// Tells the client that its response to request `number` is no longer needed.
    pub(crate) fn withdrawal(&mut self, number: u64) {
        let params = serde_json::json!({ "requestId": number });
        self.notification("$/cancel_request", &params);
    }

    /// Adds a control line, which the proxy does not pass on to the editor.
    pub(crate) fn control(&mut self, control: &Control<'_>) {
        // Writing to memory cannot fail.
        let _ = writeln!(self.bytes, "{control}");
    }

    fn end(&mut self) {
        self.bytes.push(b'\n');
        self.messages += 1;
    }
}
