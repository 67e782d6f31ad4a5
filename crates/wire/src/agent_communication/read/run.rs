use serde::Deserialize;

use super::super::{AwaitRequest, ErrorBody, Message, Run, RunStatus, Uuid};
use super::given::Given;
use super::leaf::{List, Moment, Object, Text};
use super::message::each;
use super::request::optional_id;
use super::{At, Read, Violation, quoted};

/// A run as it was sent.
#[derive(Debug, Deserialize)]
pub struct Draft {
    #[serde(default)]
    run_id: Given<Text>,
    #[serde(default)]
    agent_name: Given<Text>,
    #[serde(default)]
    session_id: Given<Text>,
    #[serde(default)]
    status: Given<Text>,
    #[serde(default)]
    await_request: Given<<AwaitRequest as Read>::Draft>,
    #[serde(default)]
    output: Given<List<<Message as Read>::Draft>>,
    #[serde(default)]
    error: Given<<ErrorBody as Read>::Draft>,
    #[serde(default)]
    created_at: Given<Moment>,
    #[serde(default)]
    finished_at: Given<Moment>,
}

// === impl Run ===

impl Read for Run {
    type Draft = Object<Draft>;
    fn finish(Object(draft): Object<Draft>, at: &At<'_>) -> Result<Self, Violation> {
        let run_id = at.key("run_id");
        let status = at.key("status");
        let output = at.key("output");
        Ok(Self {
            run_id: Uuid::parse_at(&draft.run_id.required(&run_id)?.0, &run_id)?,
            agent_name: draft.agent_name.required(&at.key("agent_name"))?.0,
            session_id: optional_id(draft.session_id, &at.key("session_id"))?,
            status: status_of(&draft.status.required(&status)?.0, &status)?,
            await_request: match draft.await_request.optional() {
                Some(asked) => Some(AwaitRequest::finish(asked, &at.key("await_request"))?),
                None => None,
            },
            output: match draft.output.unless_absent(&output)? {
                Some(messages) => each(messages, &output)?,
                None => Vec::new(),
            },
            error: match draft.error.optional() {
                Some(error) => Some(ErrorBody::finish(error, &at.key("error"))?),
                None => None,
            },
            created_at: draft.created_at.required(&at.key("created_at"))?.0,
            finished_at: draft.finished_at.optional().map(|moment| moment.0),
        })
    }
}

fn status_of(text: &str, at: &At<'_>) -> Result<RunStatus, Violation> {
    RunStatus::parse(text).ok_or_else(|| {
        let known = RunStatus::ALL.map(RunStatus::as_str).join(", ");
        at.violation(format!("must be one of {known}, not {}", quoted(text)))
    })
}
