//! Size limits of answers to interrupts.

use trilogue_domain::error::Result;
use trilogue_domain::event::{Body, InterruptEvent};
use trilogue_domain::{
    Answer, Code, Error, InterruptId, Json, Principal, Resolution, Timestamp, limits,
};
use trilogue_store::Draft;

/// Checks the size of an answer's additional object; fails with `event_too_large`.
pub(crate) fn check_extra(extra: Option<&Json>) -> Result<()> {
    let bytes = extra.map_or(0, |extra| extra.as_bytes().len());
    if bytes <= limits::MAX_ANSWER_EXTRA_BYTES {
        return Ok(());
    }
    let message = format!(
        "what the answer carries beyond itself has {bytes} bytes; {} is the most",
        limits::MAX_ANSWER_EXTRA_BYTES
    );
    Err(Error::new(Code::EventTooLarge, message).hint("answer without it"))
}

/// Checks that an answer with its additional object fits the log; fails with `event_too_large`, naming the limit.
pub(crate) fn check_logged(by: &Principal, answer: &Answer, extra: Option<&Json>) -> Result<()> {
    let resolution = Resolution::Answered {
        by: by.id.clone(),
        answer: answer.clone(),
        digest: Json::null().digest(),
        extra: extra.cloned(),
    };
    let interrupt = InterruptId::generate();
    let resolved = Body::Interrupt(InterruptEvent::Resolved { interrupt, resolution });
    let mut draft = Draft::default();
    let is_logged = draft.push(Timestamp::from_micros(0), &resolved, None).is_ok();
    if is_logged && draft.bytes() <= limits::MAX_ANSWER_BYTES {
        return Ok(());
    }
    let message = format!(
        "the answer is too large: {} bytes is the most, with what it carries beyond itself",
        limits::MAX_ANSWER_BYTES
    );
    Err(Error::new(Code::EventTooLarge, message).hint("answer with less, or with an address"))
}
