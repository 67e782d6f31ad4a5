//! Threads.

use http::StatusCode;
use trilogue_domain::error::Result;
use trilogue_domain::event::{Body, MessageEvent};
use trilogue_domain::{CheckpointId, Code, Error, IdKind, Json, MessageId, Right, ThreadId};
use trilogue_mapping::native::{self as mapping, escape_for_message, read_json, read_object};
use trilogue_runtime::{NewThread, ThreadPatch};
use trilogue_store::PathReader;
use trilogue_store::rows::{ThreadFilter, ThreadRow};
use trilogue_wire::native::{self, List, Thread};

use super::named_message::find_message;
use super::short_ids::{self, SHORT_ID};
use super::{AFTER, LIMIT, METADATA, NativeCall, NativeRoute, rows, thread};
use crate::core::audit::AuditEvent;
use crate::faces::common::thread_title::thread_title;
use crate::http::reply::Reply;
use crate::route::{Access, Verb, json_response, no_content, of};
use crate::stream::log_reader::LogReader;

const BASE: NativeRoute = NativeRoute::base(|call| Box::pin(get(call)))
    .path("/api/v1/threads/{thread_id}")
    .access(Access::Right(Right::Run))
    .errors(&[Code::ThreadNotFound]);

pub(crate) const ROUTES: &[NativeRoute] = &[
    BASE.post("/api/v1/threads", |call| Box::pin(create(call)))
        .describe("create_thread", "Create a thread")
        .request(of::<native::ThreadCreate>)
        .answers(&[json_response(201, "The thread.", of::<Thread>)])
        .errors(&[Code::AlreadyExists]),
    BASE.at("/api/v1/threads", |call| Box::pin(list(call)))
        .access(Access::Right(Right::Read))
        .search()
        .describe("list_threads", "Threads, newest first")
        .query(&[LIMIT, AFTER, METADATA, SHORT_ID])
        .answers(&[json_response(200, "A page.", of::<List<Thread>>)])
        .errors(&[Code::InvalidCursor, Code::FilterTooBroad]),
    BASE.access(Access::Right(Right::Read))
        .describe("get_thread", "One thread, with its head and state")
        .answers(&[json_response(200, "The thread.", of::<Thread>)]),
    BASE.verb(Verb::Patch)
        .handler(|call| Box::pin(patch(call)))
        .describe(
            "patch_thread",
            "Change a thread's metadata, or set its state as a new checkpoint",
        )
        .request(of::<native::ThreadPatch>)
        .answers(&[json_response(200, "The thread as it is now.", of::<Thread>)])
        .errors(&[Code::ThreadNotFound, Code::AgentMemoryNotRewindable]),
    BASE.post("/api/v1/threads/{thread_id}/copy", |call| Box::pin(copy(call)))
        .describe("copy_thread", "Copy a thread with its content, whole or up to a message")
        .request(of::<native::ThreadCopy>)
        .answers(&[json_response(201, "The copy.", of::<Thread>)])
        .errors(&[Code::ThreadNotFound, Code::NotFound, Code::AlreadyExists]),
    BASE.verb(Verb::Delete)
        .handler(|call| Box::pin(erase(call)))
        .access(Access::Right(Right::Admin))
        .describe(
            "erase_thread",
            "Erase a thread with everything of it: events, originals, blobs, search and \
             idempotency rows, deliveries",
        )
        .answers(&[no_content("It is gone.")]),
];

async fn create(call: NativeCall) -> Result<Reply> {
    let body: native::ThreadCreate = call.json()?;
    let new = NewThread {
        id: body.id.as_deref().map(ThreadId::parse).transpose()?,
        metadata: read_object(body.metadata, "metadata")?,
        ..NewThread::default()
    };
    let has_settings = call.check_thread_metadata(new.metadata.as_ref()).await?;
    let row = call.state.runtime.create_thread(call.principal(), new).await?;
    call.audit_editor_settings(has_settings, &row.id);
    Ok(Reply::json(StatusCode::CREATED, &rows::thread(&row)))
}

async fn list(call: NativeCall) -> Result<Reply> {
    if let Some(ids) = short_ids::matching_ids(&call, IdKind::Thread).await? {
        let (mut rows, scope) = (Vec::with_capacity(ids.len()), call.scope());
        for id in ids {
            let Ok(id) = ThreadId::parse(&id) else { continue };
            let found = match call.state.read.thread(&scope, &id).await {
                // The list shows a damaged thread, so that clients can find and erase it.
                Err(error) if error.code() == Code::ThreadQuarantined => {
                    call.state.read.damaged_thread(&scope, &id).await?
                }
                found => found?,
            };
            rows.extend(found);
        }
        let items = listed(&call, &rows).await?;
        return Ok(Reply::ok(&List { items, next: None }));
    }
    let filter = ThreadFilter {
        metadata: call.metadata_filter(),
        with_damaged: true,
        ..ThreadFilter::default()
    };
    let listing = call.state.read.threads(&call.scope(), &filter, &call.page()?).await?;
    let items = listed(&call, &listing.rows).await?;
    Ok(Reply::ok(&List { items, next: listing.next.map(|next| next.to_string()) }))
}

async fn get(call: NativeCall) -> Result<Reply> {
    let row = thread(&call).await?;
    Ok(Reply::ok(&whole(&call, &row).await?))
}

async fn patch(call: NativeCall) -> Result<Reply> {
    let id = call.thread_id()?;
    let body: native::ThreadPatch = call.json()?;
    let metadata = read_object(body.metadata, "metadata")?;
    let values = body.values.map(read_json).transpose()?;
    if metadata.is_none() && values.is_none() {
        return Err(Error::new(Code::InvalidRequest, "the change is empty")
            .hint("give 'metadata', 'values' or both"));
    }
    if body.from.is_some() && values.is_none() {
        return Err(Error::new(Code::InvalidRequest, "'from' is given without 'values'"));
    }
    let from = body.from.as_deref().map(checkpoint_id).transpose()?;
    let has_settings = call.check_thread_metadata(metadata.as_ref()).await?;
    let patch = ThreadPatch { metadata, values, from, ..ThreadPatch::default() };
    let row = call.state.runtime.patch_thread(call.principal(), &id, patch).await?;
    call.audit_editor_settings(has_settings, &row.id);
    Ok(Reply::ok(&whole(&call, &row).await?))
}

async fn copy(call: NativeCall) -> Result<Reply> {
    let id = call.thread_id()?;
    let body: native::ThreadCopy = call.json()?;
    let new = NewThread {
        id: body.id.as_deref().map(ThreadId::parse).transpose()?,
        metadata: read_object(body.metadata, "metadata")?,
        ..NewThread::default()
    };
    let has_settings = call.check_thread_metadata(new.metadata.as_ref()).await?;
    let (runtime, by) = (&call.state.runtime, call.principal());
    let row = match (&body.until_message, body.until_event) {
        (None, None) => runtime.copy_thread(by, &id, new).await?,
        (Some(_), Some(_)) => {
            let message = "'until_message' and 'until_event' are given, and the copy has one end";
            return Err(Error::new(Code::InvalidRequest, message));
        }
        (None, Some(number)) => {
            let until = message_complete_at(&call, number).await?;
            runtime.copy_thread_until(by, &id, &until, new).await?
        }
        (Some(until), None) => {
            let missing = |_| {
                let message =
                    format!("message '{}' not found in the thread", escape_for_message(until));
                Error::new(Code::NotFound, message)
            };
            let until = MessageId::parse(until).map_err(missing)?;
            let source = thread(&call).await?;
            let named = find_message(&call.state.read, &source, &until).await?;
            let until = named.map_or(until, |row| row.id);
            runtime.copy_thread_until(by, &id, &until, new).await?
        }
    };
    call.audit_editor_settings(has_settings, &row.id);
    Ok(Reply::json(StatusCode::CREATED, &whole(&call, &row).await?))
}

/// Returns the last message of the thread that was complete at this event.
async fn message_complete_at(call: &NativeCall, number: u64) -> Result<MessageId> {
    let row = thread(call).await?;
    let mut log = LogReader::new(call.state.read.as_ref(), row.key, None).until(number);
    let mut last = None;
    while let Some(page) = log.next().await? {
        for event in page.events()? {
            if let Body::Message(MessageEvent::Completed { message }) = &event.body {
                last = Some(message.clone());
            }
        }
    }
    last.ok_or_else(|| {
        let message = format!("complete message not found in the thread at event {number}");
        Error::new(Code::NotFound, message).hint("choose a later event")
    })
}

async fn erase(call: NativeCall) -> Result<Reply> {
    let id = call.thread_id()?;
    // A damaged thread cannot be read but can be erased. Programs need no lookup.
    if call.caller.is_page {
        let row = call.state.read.named_thread(&call.scope(), &id).await.ok().flatten();
        call.require_removal_of(row.as_ref().map(|row| &row.owner)).await?;
    }
    call.state.runtime.erase_thread(call.principal(), &id).await?;
    call.audit(AuditEvent::ThreadErased, id.as_str(), "");
    Ok(Reply::no_content())
}

/// Reads a checkpoint's id. Errors: `not_found` if the id is invalid.
pub(crate) fn checkpoint_id(text: &str) -> Result<CheckpointId> {
    CheckpointId::parse(text).map_err(|_| no_checkpoint(text))
}

pub(crate) fn no_checkpoint(id: &str) -> Error {
    Error::new(
        Code::NotFound,
        format!("checkpoint '{}' not found in the thread", escape_for_message(id)),
    )
}

/// Returns threads as a list shows them; lists also show damaged threads.
async fn listed(call: &NativeCall, rows: &[ThreadRow]) -> Result<Vec<Thread>> {
    let keys: Vec<_> = rows.iter().map(|row| row.key).collect();
    let mut owners = call.state.admin.owner_names(&keys).await?;
    let mut threads = Vec::with_capacity(rows.len());
    for row in rows {
        threads.push(match call.state.read.damage(row.key) {
            Some(damage) => Thread { damage: Some(damage), ..rows::thread(row) },
            None => titled(call, row, owners.remove(&row.key)).await,
        });
    }
    Ok(threads)
}

async fn titled(call: &NativeCall, row: &ThreadRow, node: Option<String>) -> Thread {
    let title = thread_title(call.state.read.as_ref(), row).await;
    Thread { title, node, ..rows::thread(row) }
}

/// Returns a thread with its head and the newest state on the path to it, or to callers that may not read, only that it exists.
async fn whole(call: &NativeCall, row: &ThreadRow) -> Result<Thread> {
    if !call.principal().rights.has(Right::Read) {
        let metadata = mapping::json(&Json::empty_object());
        return Ok(Thread { metadata, title: None, ..rows::thread(row) });
    }
    let mut owners = call.state.admin.owner_names(&[row.key]).await?;
    let mut thread = titled(call, row, owners.remove(&row.key)).await;
    thread.clients = call.state.connected_clients.of_thread(row.key);
    if row.head.is_none() {
        return Ok(thread);
    }
    let scope = call.scope();
    let mut path = PathReader::new(call.state.read.as_ref(), &scope, &row.id, row.head);
    while let Some(checkpoint) = path.next().await? {
        thread.head.get_or_insert_with(|| checkpoint.id.as_str().to_owned());
        if let Some(value) = &checkpoint.value {
            thread.values = Some(mapping::json(value));
            break;
        }
    }
    Ok(thread)
}
