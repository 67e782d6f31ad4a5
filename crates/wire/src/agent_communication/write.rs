use serde::Serialize;

pub(super) fn json(out: &mut Vec<u8>, value: &impl Serialize) {
    // Writing to memory cannot fail, and every type of this protocol has only string keys.
    let _ = serde_json::to_writer(out, value);
}
