//! Serves the addresses in a session's history: messages of a thread, and values that runs returned.

use http::StatusCode;
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, MessageId, RunId, RunKey, ThreadId};
use trilogue_mapping::communication::{Kind, RunMessage};
use trilogue_mapping::native::escape_for_message;
use trilogue_store::rows::{MessageRow, RunRow};
use uuid::Uuid;

use super::log::{self, Log};
use super::request::no_uuid;
use super::{BASE, CommunicationCall, CommunicationRoute};
use crate::core::log_ref::LogRef;
use crate::http::reply::Reply;
use crate::stream::feed::run_id;

pub(crate) const ROUTES: &[CommunicationRoute] = &[
    BASE.at("/resources/{session_id}/{message_id}", |call| Box::pin(message(call)))
        .describe("communication_get_message", "One message of a session's history")
        .errors(&[Code::NotFound]),
    BASE.at("/resources/{run_id}", |call| Box::pin(result(call)))
        .describe("communication_get_result", "The value that a run of a session answered with")
        .errors(&[Code::InvalidId, Code::NotFound]),
];

async fn message(call: CommunicationCall) -> Result<Reply> {
    let (session, id) = (call.param("session_id"), call.param("message_id"));
    let missing = || {
        let (id, session) = (escape_for_message(id), escape_for_message(session));
        Error::new(Code::NotFound, format!("message '{id}' not found in the session '{session}'"))
    };
    let (thread, row) = find_message(&call, session, id).await?.ok_or_else(missing)?;
    let thread = LogRef { key: row.thread, id: thread, tenant: row.tenant };
    let log = Log { thread, run: row.run, last: None };
    // The history names the open messages of a run that the agent started.
    let shows_open = is_started_by_agent(&call, &log.thread, row.run).await?;
    let is_it = |message: &RunMessage| message.id.as_ref() == Some(&row.id);
    let is_it = |message: &RunMessage| (message.complete || shows_open) && is_it(message);
    resource(&call, log, is_it).await?.ok_or_else(missing)
}

async fn is_started_by_agent(
    call: &CommunicationCall,
    thread: &LogRef,
    run: RunKey,
) -> Result<bool> {
    let Some(id) = run_id(&call.state.read, thread, run).await? else { return Ok(false) };
    let row = call.state.read.run(&call.scope(), &id).await?;
    Ok(row.is_some_and(|row| row.started_by.is_some()))
}

async fn result(call: CommunicationCall) -> Result<Reply> {
    let text = call.param("run_id");
    let missing = || match Uuid::parse_str(text) {
        Ok(id) => Error::new(Code::NotFound, format!("resource '{id}' not found")),
        Err(_) => no_uuid(text, "the path parameter 'run_id'"),
    };
    let row = find_result(&call, text).await?.ok_or_else(missing)?;
    let is_it = |message: &RunMessage| message.complete && message.kind == Kind::Result;
    resource(&call, Log::of(&row), is_it).await?.ok_or_else(missing)
}

async fn resource(
    call: &CommunicationCall,
    log: Log,
    is_it: impl Fn(&RunMessage) -> bool,
) -> Result<Option<Reply>> {
    let mut messages = log::messages(call, log).await?.into_iter();
    let message = messages.find(is_it);
    Ok(message.map(|message| Reply::json_bytes(StatusCode::OK, message.json)))
}

/// Finds the message and the thread's id by the ids. Callers who see the run see its message, even if the thread belongs to another principal.
pub(super) async fn find_message(
    call: &CommunicationCall,
    thread: &str,
    id: &str,
) -> Result<Option<(ThreadId, MessageRow)>> {
    for thread in spellings(thread).filter_map(|id| ThreadId::parse(&id).ok()) {
        for id in spellings(id).filter_map(|id| MessageId::parse(&id).ok()) {
            if let Some(row) = call.state.read.message(&call.scope(), &thread, &id).await? {
                return Ok(Some((thread, row)));
            }
        }
    }
    Ok(None)
}

/// Finds the run whose result has this id.
pub(super) async fn find_result(call: &CommunicationCall, id: &str) -> Result<Option<RunRow>> {
    for id in spellings(id).filter_map(|id| RunId::parse(&id).ok()) {
        if let Some(row) = call.state.read.run(&call.scope(), &id).await? {
            return Ok(Some(row));
        }
    }
    Ok(None)
}

/// Returns the possible spellings of an id: as given, because clients of other faces choose ids, then as a UUID in its usual form.
fn spellings(text: &str) -> impl Iterator<Item = String> {
    let canonical = Uuid::parse_str(text).ok().map(|id| id.as_hyphenated().to_string());
    let other = canonical.filter(|canonical| *canonical != text);
    [text.to_owned()].into_iter().chain(other)
}
