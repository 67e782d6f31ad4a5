use serde::Serialize;

use super::{AgentManifest, ErrorBody, Event, Message, MessagePart, Run};

macro_rules! write_as_json {
    ($($type:ty),+ $(,)?) => {$(
        impl $type {
            pub fn write(&self, out: &mut Vec<u8>) {
                json(out, self);
            }
        }
    )+};
}

write_as_json!(AgentManifest, ErrorBody, Event, Message, MessagePart, Run);

pub(super) fn json(out: &mut Vec<u8>, value: &impl Serialize) {
    // Writing to memory cannot fail, and every type of this protocol has only string keys.
    let _ = serde_json::to_writer(out, value);
}
