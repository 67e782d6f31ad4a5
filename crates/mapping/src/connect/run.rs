//! Writes runs to the wire, spliced from rendered JSON.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use trilogue_domain::{RunStatus, Timestamp};

use super::{phase, status};
use crate::time;

#[derive(Clone, Copy, Debug)]
pub struct RunFields<'a> {
    pub id: &'a str,
    pub thread_id: &'a str,
    /// The agent's id on this face.
    pub agent_id: &'a str,
    pub configuration_id: Option<&'a str>,
    pub status: RunStatus,
    /// Whether it waits for its start time.
    pub is_scheduled: bool,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// The creating request, see [`super::creation`]: a JSON object.
    pub creation: &'a [u8],
}

#[derive(Clone, Copy, Debug)]
pub enum CallbackContent<'a> {
    /// The run has ended or waits; its output, see [`super::Values::output`].
    Status(&'a [u8]),
    /// The output so far, see [`super::Values::partial`].
    Values(&'a [u8]),
    /// A custom update, see [`super::Updates::push`].
    Update(&'a [u8]),
}

pub fn run(of: &RunFields<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(of.creation.len() + 384);
    let mut text =
        |key: &str, value: &str| member(&mut out, key, Value::from(value).to_string().as_bytes());
    text("run_id", of.id);
    text("thread_id", of.thread_id);
    text("agent_id", of.agent_id);
    if let Some(id) = of.configuration_id {
        text("configuration_id", id);
    }
    text("created_at", &time(of.created_at).to_string());
    text("updated_at", &time(of.updated_at).to_string());
    text("status", status(of.status).as_str());
    text("phase", phase(of.status, of.is_scheduled));
    member(&mut out, "creation", of.creation);
    out.push(b'}');
    out
}

/// Returns the response to a wait: the run and its output, if there is one, both rendered, with the members that the protocol's document has at the top.
pub fn wait_response(run: &[u8], output: Option<&[u8]>) -> Vec<u8> {
    let Some(output) = output else {
        let mut out = Vec::with_capacity(run.len() + 16);
        member(&mut out, "run", run);
        out.push(b'}');
        return out;
    };
    let flat = serde_json::from_slice::<Flat<'_>>(output).unwrap_or_default().members();
    let repeated = flat.iter().filter_map(|(_, value)| *value).map(|value| value.get().len());
    // An output can be megabytes: the buffer must not grow.
    let mut out = Vec::with_capacity(run.len() + output.len() + repeated.sum::<usize>() + 160);
    member(&mut out, "run", run);
    member(&mut out, "output", output);
    for (key, value) in flat {
        if let Some(value) = value {
            member(&mut out, key, value.get().as_bytes());
        }
    }
    out.push(b'}');
    out
}

/// Returns the body of a callback: the run, the content, `event` and `delivery_id`.
pub fn callback_body(run: &[u8], what: CallbackContent<'_>, delivery_id: &str) -> Vec<u8> {
    let mut out = run.strip_suffix(b"}").unwrap_or(run).to_vec();
    let event = match what {
        CallbackContent::Status(output) => {
            member(&mut out, "output", output);
            "run.status"
        }
        CallbackContent::Values(output) => {
            member(&mut out, "output", output);
            "run.values"
        }
        CallbackContent::Update(event) => {
            if let Ok(event) = serde_json::from_slice::<CustomUpdate<'_>>(event) {
                member(&mut out, "update", event.update.get().as_bytes());
                if let Some(kind) = event.kind {
                    member(&mut out, "kind", kind.get().as_bytes());
                }
            }
            "run.custom"
        }
    };
    member(&mut out, "event", Value::from(event).to_string().as_bytes());
    member(&mut out, "delivery_id", Value::from(delivery_id).to_string().as_bytes());
    out.push(b'}');
    out
}

/// The members of an output that the document has at the top of a response.
#[derive(Default, Deserialize)]
struct Flat<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    interrupt_type: Option<&'a RawValue>,
    #[serde(borrow)]
    interrupt_payload: Option<&'a RawValue>,
    #[serde(borrow)]
    errcode: Option<&'a RawValue>,
    #[serde(borrow)]
    description: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct CustomUpdate<'a> {
    #[serde(borrow)]
    update: &'a RawValue,
    #[serde(borrow)]
    kind: Option<&'a RawValue>,
}

// === impl Flat ===

impl<'a> Flat<'a> {
    fn members(self) -> [(&'static str, Option<&'a RawValue>); 6] {
        [
            ("type", self.kind),
            ("result", self.result),
            ("interrupt_type", self.interrupt_type),
            ("interrupt_payload", self.interrupt_payload),
            ("errcode", self.errcode),
            ("description", self.description),
        ]
    }
}

/// Adds a member to an object that is being written; the first opens it. `value` is JSON.
pub(super) fn member(out: &mut Vec<u8>, key: &str, value: &[u8]) {
    out.push(if out.is_empty() { b'{' } else { b',' });
    out.push(b'"');
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(b"\":");
    out.extend_from_slice(value);
}
