//! Puts large content back into the events that refer to it.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use trilogue_domain::ThreadKey;
use trilogue_domain::content::{BlobRef, Content, Part};
use trilogue_domain::error::Result;
use trilogue_domain::event::{Body, Event, InterruptEvent, MessageEvent};
use trilogue_store::Read;

/// Returns the event with the wanted large content instead of its reference; a reference to removed content stays.
pub(crate) async fn inlined<'a>(
    read: &Arc<dyn Read>,
    thread: ThreadKey,
    event: &'a Event,
    wants: impl Fn(&BlobRef) -> bool,
) -> Result<Cow<'a, Event>> {
    let wanted = |part: &Part| matches!(&part.content, Content::Blob(blob) if wants(blob));
    if !parts(&event.body).iter().any(wanted) {
        return Ok(Cow::Borrowed(event));
    }
    let mut whole = event.clone();
    for part in parts_mut(&mut whole.body) {
        let Content::Blob(blob) = &part.content else { continue };
        if wants(blob)
            && let Some(bytes) = read.blob(thread, blob).await?
            && let Some(content) = content(blob, bytes)
        {
            part.content = content;
        }
    }
    Ok(Cow::Owned(whole))
}

fn content(blob: &BlobRef, bytes: Bytes) -> Option<Content> {
    if !blob.is_text {
        return Some(Content::Bytes(bytes));
    }
    std::str::from_utf8(&bytes).ok().map(|text| Content::Text(Arc::from(text)))
}

fn parts(body: &Body) -> &[Part] {
    match body {
        Body::Message(MessageEvent::Part { part, .. }) => std::slice::from_ref(part),
        Body::Interrupt(InterruptEvent::Raised(interrupt)) => &interrupt.prompt,
        _ => &[],
    }
}

fn parts_mut(body: &mut Body) -> &mut [Part] {
    match body {
        Body::Message(MessageEvent::Part { part, .. }) => std::slice::from_mut(part),
        Body::Interrupt(InterruptEvent::Raised(interrupt)) => &mut interrupt.prompt,
        _ => &mut [],
    }
}
