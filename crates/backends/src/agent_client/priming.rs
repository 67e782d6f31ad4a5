//! What an agent is told that does not remember what was said before: as much of it as fits into a prompt.

use trilogue_domain::{Error, Message};
use trilogue_mapping::agent_client::blocks_of_message;
use trilogue_sdk::agent_client::peer::RawJson;

/// What stands in front where not all of it fits.
pub(super) const LEFT_OUT: &str =
    "What was said first in this conversation is left out here, because all of it is too long.\n\n";
/// What stands around a message, in bytes: who said it.
const AROUND_BYTES: usize = 512;

/// The request with all that was missed; with the newest of it that fits where that is more than `limit` bytes. What is too long without any of it stays so.
///
/// `request` makes it of messages, and says in it that others are left out.
pub(super) fn newest_that_fit(
    missed: &[Message],
    limit: usize,
    request: impl Fn(&[Message], bool) -> Result<RawJson, Error>,
) -> Result<RawJson, Error> {
    let whole = request(missed, false)?;
    if whole.as_bytes().len() <= limit || missed.is_empty() {
        return Ok(whole);
    }
    drop(whole);
    let alone = request(&[], true)?;
    let mut room = limit.saturating_sub(alone.as_bytes().len());
    let fit = missed.iter().rev().take_while(|message| {
        let blocks = serde_json::to_string(&blocks_of_message(message)).unwrap_or_default();
        let bytes = blocks.len() + AROUND_BYTES;
        let fits = bytes <= room;
        room = room.saturating_sub(bytes);
        fits
    });
    let mut count = fit.count();
    while count > 0 {
        let newest = missed.get(missed.len() - count..).unwrap_or_default();
        let request = request(newest, true)?;
        if request.as_bytes().len() <= limit {
            return Ok(request);
        }
        // It became longer by what the agent takes instead.
        count /= 2;
    }
    Ok(alone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use trilogue_domain::{MessageId, Part, Role};

    fn message(text: &str) -> Message {
        let id = MessageId::generate();
        let parts = vec![Part::text(text)];
        Message { id, role: Role::User, parts, created_at: None, completed_at: None }
    }

    #[test]
    fn the_newest_that_fit_are_told() {
        let missed: Vec<_> = ["a", "b", "c"].map(|text| message(&text.repeat(10_000))).into();
        let request = |told: &[Message], is_cut: bool| {
            let blocks: Vec<_> = told.iter().flat_map(blocks_of_message).collect();
            Ok(RawJson::of(&serde_json::json!({ "prompt": blocks, "isCut": is_cut })))
        };
        for (limit, told, is_cut) in
            [(50_000, "abc", false), (25_000, "bc", true), (12_000, "c", true), (5_000, "", true)]
        {
            let made = newest_that_fit(&missed, limit, request).unwrap();
            assert!(made.as_bytes().len() <= limit);
            let has = |text: &str| made.as_str().contains(&text.repeat(10_000));
            let said: String = ["a", "b", "c"].into_iter().filter(|text| has(text)).collect();
            assert_eq!((said.as_str(), made.as_str().contains("true")), (told, is_cut));
        }
        assert!(newest_that_fit(&missed, 10, request).unwrap().as_bytes().len() > 10);
    }
}
