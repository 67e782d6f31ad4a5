//! The title of a thread in lists.

use trilogue_domain::event::{MessageEvent, RunEvent};
use trilogue_domain::thread::{AGENT_TITLE_MEMBER, TITLE_MEMBER, title};
use trilogue_domain::{Body, Part};
use trilogue_mapping::shape;
use trilogue_store::rows::ThreadRow;
use trilogue_store::{Range, Read};

/// How much of the beginning of a log is read for a title, in bytes.
const MAX_READ_BYTES: usize = 64 * 1024;

/// Returns the title that a client gave the thread, otherwise the one from its agent.
pub(in crate::faces) fn given_title(thread: &ThreadRow) -> Option<String> {
    let metadata = thread.metadata.to_value();
    let text = |member: &str| metadata.get(member)?.as_str().map(str::to_owned);
    text(TITLE_MEMBER).or_else(|| text(AGENT_TITLE_MEMBER))
}

/// Like [`given_title`]; otherwise returns the first line of the first remaining user message in the log.
pub(in crate::faces) async fn thread_title(read: &dyn Read, thread: &ThreadRow) -> Option<String> {
    match given_title(thread) {
        Some(given) => Some(given),
        None => first_line(read, thread).await,
    }
}

async fn first_line(read: &dyn Read, thread: &ThreadRow) -> Option<String> {
    let range = Range { run: None, after: 0, max_bytes: MAX_READ_BYTES };
    // A list also shows a thread whose log cannot be read.
    let frames = read.frames(thread.key, range).await.ok()?;
    let (mut asked, mut text) = (None, String::new());
    for frame in &frames {
        for event in frame.events().ok()? {
            match &event.body {
                Body::Run(RunEvent::Created { input: Some(value), .. }) => {
                    let parts = shape::output(value);
                    return line_of(parts.first().and_then(Part::as_text)?);
                }
                Body::Message(MessageEvent::Started { message, role, .. }) if role.is_user() => {
                    asked.get_or_insert_with(|| message.clone());
                }
                Body::Message(MessageEvent::Delta { message, text: piece })
                    if asked.as_ref() == Some(message) =>
                {
                    text.push_str(piece);
                }
                Body::Message(MessageEvent::Part { message, part })
                    if asked.as_ref() == Some(message) && part.name.is_none() =>
                {
                    text.push_str(part.as_text().unwrap_or_default());
                }
                Body::Message(MessageEvent::Completed { message })
                    if asked.as_ref() == Some(message) =>
                {
                    return line_of(&text);
                }
                _ => {}
            }
        }
    }
    line_of(&text)
}

fn line_of(text: &str) -> Option<String> {
    text.lines().find_map(title)
}
