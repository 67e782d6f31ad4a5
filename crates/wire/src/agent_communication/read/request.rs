use serde::Deserialize;

use super::super::{
    AwaitResume, Message, RunCreateRequest, RunMode, RunResumeRequest, Session, Uuid,
};
use super::given::Given;
use super::leaf::{List, Object, Text};
use super::message::each;
use super::raw::Raw;
use super::{At, Read, Violation, quoted};

/// A request for a run as it was sent.
#[derive(Debug, Deserialize)]
pub struct CreateDraft {
    #[serde(default)]
    agent_name: Given<Text>,
    #[serde(default)]
    session_id: Given<Text>,
    #[serde(default)]
    session: Given<<Session as Read>::Draft>,
    #[serde(default)]
    input: Given<List<<Message as Read>::Draft>>,
    #[serde(default)]
    mode: Given<Text>,
    #[serde(default)]
    config: Given<Raw>,
}

/// An answer to a waiting run as it was sent. Its run is named by the address, whatever the body says.
#[derive(Debug, Deserialize)]
pub struct ResumeDraft {
    #[serde(default)]
    await_resume: Given<<AwaitResume as Read>::Draft>,
    #[serde(default)]
    mode: Given<Text>,
}

// === impl RunCreateRequest ===

impl Read for RunCreateRequest {
    type Draft = Object<CreateDraft>;
    fn finish(Object(draft): Object<CreateDraft>, at: &At<'_>) -> Result<Self, Violation> {
        let input = at.key("input");
        Ok(Self {
            agent_name: draft.agent_name.required(&at.key("agent_name"))?.0,
            session_id: optional_id(draft.session_id, &at.key("session_id"))?,
            session: match draft.session.optional() {
                Some(session) => Some(Session::finish(session, &at.key("session"))?),
                None => None,
            },
            input: each(draft.input.required(&input)?, &input)?,
            mode: mode(draft.mode, &at.key("mode"))?,
            config: draft.config.optional().map(|raw| raw.0),
        })
    }
}

// === impl RunResumeRequest ===

impl Read for RunResumeRequest {
    type Draft = Object<ResumeDraft>;
    fn finish(Object(draft): Object<ResumeDraft>, at: &At<'_>) -> Result<Self, Violation> {
        let await_resume = at.key("await_resume");
        let answer = draft.await_resume.required(&await_resume)?;
        Ok(Self {
            run_id: None,
            await_resume: AwaitResume::finish(answer, &await_resume)?,
            mode: mode(draft.mode, &at.key("mode"))?,
        })
    }
}

fn mode(given: Given<Text>, at: &At<'_>) -> Result<RunMode, Violation> {
    let Some(Text(text)) = given.unless_absent(at)? else { return Ok(RunMode::default()) };
    RunMode::parse(&text).ok_or_else(|| {
        at.violation(format!("must be \"sync\", \"async\" or \"stream\", not {}", quoted(&text)))
    })
}

pub(super) fn optional_id(given: Given<Text>, at: &At<'_>) -> Result<Option<Uuid>, Violation> {
    given.optional().map(|Text(text)| Uuid::parse_at(&text, at)).transpose()
}
