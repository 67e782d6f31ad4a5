use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::json::Json;

/// A value for the params, result or data of a message. Writing it as JSON must not fail.
pub trait Payload: Serialize {
    fn is_absent(&self) -> bool {
        false
    }

    fn write(&self, out: &mut Vec<u8>) {
        // Writing to memory cannot fail, and all implementers have only string keys.
        let _ = serde_json::to_writer(out, self);
    }
}

// === impl Payload ===

impl Payload for Json {}

impl Payload for Value {}

impl Payload for RawValue {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.get().as_bytes());
    }
}

impl Payload for () {
    fn is_absent(&self) -> bool {
        true
    }
}

impl<P: Payload> Payload for Option<P> {
    fn is_absent(&self) -> bool {
        self.is_none()
    }
}

impl<P: Payload + ?Sized> Payload for &P {
    fn is_absent(&self) -> bool {
        (**self).is_absent()
    }

    fn write(&self, out: &mut Vec<u8>) {
        (**self).write(out);
    }
}
