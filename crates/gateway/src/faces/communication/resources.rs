//! What lies behind an address of a session's history: one message.

use http::StatusCode;
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, MessageId, RunId, Scope};
use trilogue_mapping::communication::{Kind, RunMessage};
use trilogue_store::rows::{MessageRow, RunRow};
use uuid::Uuid;

use super::log::{self, Log};
use super::request::no_uuid;
use super::{BASE, CommunicationCall, CommunicationRoute};
use crate::core::log_ref::LogRef;
use crate::http::reply::Reply;

pub(crate) const ROUTES: &[CommunicationRoute] = &[BASE
    .at("/resources/{resource_id}", |call| Box::pin(get(call)))
    .named("communication_get_resource", "One message of a session's history")
    .errors(&[Code::InvalidId, Code::NotFound])];

#[derive(Debug)]
pub(super) enum Resource {
    Message(MessageRow),
    /// What the run answered with a value.
    Result(Box<RunRow>),
}

async fn get(call: CommunicationCall) -> Result<Reply> {
    let text = call.param("resource_id");
    let missing = || match Uuid::parse_str(text) {
        Ok(id) => Error::new(Code::NotFound, format!("there is no resource '{id}'")),
        Err(_) => no_uuid(text, "the path parameter 'resource_id'"),
    };
    let (log, wanted) = match find(&call, text).await?.ok_or_else(missing)? {
        Resource::Message(row) => {
            // Who sees the message sees it, whoever its thread belongs to.
            let scope = Scope::of_tenant(&row.tenant);
            let thread = call.state.read.thread_of(&scope, row.thread).await?;
            let thread = thread.ok_or_else(missing)?;
            (Log { thread: LogRef::from(&thread), run: row.run, last: None }, Some(row.id))
        }
        Resource::Result(row) => (Log::of(&row), None),
    };
    let is_it = |message: &RunMessage| match &wanted {
        Some(id) => message.id.as_ref() == Some(id),
        None => message.kind == Kind::Result,
    };
    let mut messages = log::messages(&call, log).await?.into_iter();
    let message = messages.find(|message| message.complete && is_it(message));
    Ok(Reply::json_bytes(StatusCode::OK, message.ok_or_else(missing)?.json))
}

/// What the id names. Ids that clients of other faces chose are found as they are spelled, UUIDs in any of their forms.
pub(super) async fn find(call: &CommunicationCall, text: &str) -> Result<Option<Resource>> {
    let (scope, read) = (call.scope(), &call.state.read);
    let canonical = Uuid::parse_str(text).ok().map(|id| id.as_hyphenated().to_string());
    let other = canonical.as_deref().filter(|canonical| *canonical != text);
    for id in [Some(text), other].into_iter().flatten() {
        if let Ok(id) = MessageId::parse(id)
            && let Some(row) = read.message(&scope, &id).await?
        {
            return Ok(Some(Resource::Message(row)));
        }
        if let Ok(id) = RunId::parse(id)
            && let Some(row) = read.run(&scope, &id).await?
        {
            return Ok(Some(Resource::Result(Box::new(row))));
        }
    }
    Ok(None)
}
