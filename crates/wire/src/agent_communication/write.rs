use serde::Serialize;

pub(super) fn json(out: &mut Vec<u8>, value: &impl Serialize) {
    // Writing to memory cannot fail, and every type of this protocol has string keys only.
    let _ = serde_json::to_writer(out, value);
}
