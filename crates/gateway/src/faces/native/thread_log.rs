//! The contents of a thread's log: events, messages, checkpoints, blobs.

use trilogue_domain::error::Result;
use trilogue_domain::{CheckpointKey, Code, Error, Event, MessageId, RunId, Transcript, limits};
use trilogue_mapping::native::{self as mapping, escape_for_message, read_sha256};
use trilogue_store::rows::{CheckpointRow, ThreadRow};
use trilogue_wire::native::{Checkpoint, List, Message};

use super::named_message::{find_message, message_of};
use super::page::RunNames;
use super::threads::{checkpoint_id, no_checkpoint};
use super::{
    AFTER, EVENTS, EVENTS_AFTER, FROM_MESSAGE, LAST_EVENT, LIMIT, NativeCall, NativeRoute,
    events_after, rows, thread,
};
use crate::core::log_ref::LogRef;
use crate::faces::common::cursors::{after, position};
use crate::faces::common::path::{self, PathPage};
use crate::http::reply::Reply;
use crate::route::{ResponseContent, RouteResponse, json_response, of};
use crate::stream::cursor::Cursor;
use crate::stream::log_reader::LogReader;

const BASE: NativeRoute = NativeRoute::base(|call| Box::pin(list_events(call)))
    .path("/api/v1/threads/{thread_id}/events")
    .query(&[LIMIT, AFTER])
    .errors(&[Code::ThreadNotFound, Code::InvalidCursor, Code::ThreadQuarantined]);

pub(crate) const ROUTES: &[NativeRoute] = &[
    BASE.describe(
        "list_thread_events",
        "The events of a thread, as a page or as a stream that continues",
    )
    .query(&[LIMIT, EVENTS_AFTER, FROM_MESSAGE])
    .headers(&[LAST_EVENT])
    .answers(&[EVENTS, super::EVENT_STREAM])
    .errors(&[
        Code::ThreadNotFound,
        Code::NotFound,
        Code::InvalidCursor,
        Code::ThreadQuarantined,
    ]),
    BASE.at("/api/v1/threads/{thread_id}/messages", |call| Box::pin(list_messages(call)))
        .describe(
            "list_messages",
            "The messages on the path to the thread's head, newest first; a page holds whole \
             runs and may be longer than its limit",
        )
        .answers(&[json_response(200, "A page.", of::<List<Message>>)]),
    BASE.at("/api/v1/threads/{thread_id}/checkpoints", |call| Box::pin(list_checkpoints(call)))
        .describe(
            "list_checkpoints",
            "The checkpoints on the path to the thread's head, newest first",
        )
        .answers(&[json_response(200, "A page.", of::<List<Checkpoint>>)]),
    BASE.at("/api/v1/threads/{thread_id}/blobs/{sha256}", |call| Box::pin(get_blob(call)))
        .describe("get_blob", "Large content that a part of this thread links to")
        .query(&[])
        .answers(&[RouteResponse {
            status: 200,
            about: "The bytes.",
            content: ResponseContent::Other("application/octet-stream"),
        }])
        .errors(&[Code::ThreadNotFound, Code::NotFound, Code::ThreadQuarantined]),
];

async fn list_events(call: NativeCall) -> Result<Reply> {
    let row = thread(&call).await?;
    let cursor = match (position(&call), call.query("from_message")) {
        (None, Some(message)) => Cursor::after(begin_of(&call, &row, message).await? - 1),
        _ => after(&call)?,
    };
    events_after(&call, &LogRef::from(&row), None, cursor).await
}

/// Returns the number of the event that begins a message of the thread; the message is named by its id, its agent's id for it, or the UUID that clients are shown for it.
/// Errors: `not_found`.
async fn begin_of(call: &NativeCall, thread: &ThreadRow, text: &str) -> Result<u64> {
    let missing = || {
        Error::new(
            Code::NotFound,
            format!("message '{}' not found in the thread", escape_for_message(text)),
        )
    };
    let id = MessageId::parse(text).map_err(|_| missing())?;
    let row = find_message(&call.state.read, thread, &id).await?.ok_or_else(missing)?;
    let begins = |event: &&Event| message_of(event) == Some(&row.id);
    let read = call.state.read.as_ref();
    let mut log = LogReader::new(read, thread.key, Some(row.run));
    while let Some(page) = log.next().await? {
        if let Some(event) = page.events()?.into_iter().find(begins) {
            return Ok(event.number.max(1));
        }
    }
    // A message outside of runs is in no run's log; the row has its position in the thread's.
    let mut log = LogReader::new(read, thread.key, None).after(row.position.saturating_sub(1));
    for frame in log.next().await?.iter().flat_map(|page| &page.frames) {
        if let Some(event) = frame.events()?.iter().find(begins) {
            return Ok(event.number.max(1));
        }
    }
    Err(missing())
}

async fn list_messages(call: NativeCall) -> Result<Reply> {
    let row = thread(&call).await?;
    let limit = call.limit()?;
    let PathPage { rows: path, next } = path(&call, &row, limit).await?;
    let log = LogRef::from(&row);
    let (mut items, mut names, mut taken, mut size) = (Vec::new(), RunNames::default(), 0, 0);
    for checkpoint in &path {
        if items.len() >= limit || size >= limits::MAX_PAGE_BYTES {
            break;
        }
        taken += 1;
        let Some(name) = names.find(&call.state.read, &log, checkpoint.run).await? else {
            continue;
        };
        let mut said = messages(&call, &row, checkpoint, &name).await?;
        size += said.iter().map(|message| message.text().len()).sum::<usize>();
        said.reverse();
        items.append(&mut said);
    }
    let next = path.get(taken).or(next.as_ref());
    let next = next.map(|checkpoint| checkpoint.id.as_str().to_owned());
    Ok(Reply::ok(&List { items, next }))
}

/// Returns the messages of the run that created a checkpoint, oldest first.
async fn messages(
    call: &NativeCall,
    thread: &ThreadRow,
    checkpoint: &CheckpointRow,
    run: &RunId,
) -> Result<Vec<Message>> {
    let mut transcript = Transcript::default();
    let mut log = LogReader::new(call.state.read.as_ref(), thread.key, checkpoint.run);
    while let Some(page) = log.next().await? {
        page.events()?.into_iter().for_each(|event| transcript.push(event));
        if log.bytes() > call.state.max_output_bytes {
            return Err(too_large(call, run));
        }
    }
    let said = transcript.into_messages();
    Ok(said
        .iter()
        .map(|item| mapping::message::message(item, Some(run.as_str()), &thread.id))
        .collect())
}

fn too_large(call: &NativeCall, run: &RunId) -> Error {
    let most = call.state.max_output_bytes;
    Error::new(
        Code::BodyTooLarge,
        format!("the messages of the run '{run}' have more than {most} bytes"),
    )
    .hint(format!("read its events: GET /api/v1/runs/{run}/events"))
}

async fn list_checkpoints(call: NativeCall) -> Result<Reply> {
    let row = thread(&call).await?;
    let limit = call.limit()?;
    let PathPage { rows: path, next } = path(&call, &row, limit).await?;
    let log = LogRef::from(&row);
    let (mut items, mut names) = (Vec::new(), RunNames::default());
    for (place, checkpoint) in path.iter().enumerate() {
        let parent = path.get(place + 1).or(next.as_ref()).map(|parent| &parent.id);
        let run = names.find(&call.state.read, &log, checkpoint.run).await?;
        items.push(rows::checkpoint(checkpoint, parent, run.as_ref()));
    }
    let next = next.map(|checkpoint| checkpoint.id.as_str().to_owned());
    Ok(Reply::ok(&List { items, next }))
}

/// Returns the path from `after` (inclusive) or from the head.
async fn path(call: &NativeCall, row: &ThreadRow, limit: usize) -> Result<PathPage> {
    let from: Option<CheckpointKey> = match call.query("after") {
        None => None,
        Some(text) => {
            let id = checkpoint_id(text)?;
            let found = call.state.read.checkpoint(&call.scope(), &row.id, &id).await?;
            Some(found.ok_or_else(|| no_checkpoint(text))?.key)
        }
    };
    path::page(call.state.read.as_ref(), &call.scope(), row, from, limit).await
}

async fn get_blob(call: NativeCall) -> Result<Reply> {
    let row = thread(&call).await?;
    let text = call.param("sha256");
    let missing = || {
        Error::new(
            Code::NotFound,
            format!("blob '{}' not found in the thread", escape_for_message(text)),
        )
    };
    let hash = read_sha256(text).ok_or_else(missing)?;
    let (blob, bytes) = call.state.read.blob_by_hash(row.key, &hash).await?.ok_or_else(missing)?;
    Ok(Reply::stored(blob.is_text, bytes))
}
