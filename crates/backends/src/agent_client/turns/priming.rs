//! Primes an agent with the messages that it has missed, as many as fit into a prompt.

use trilogue_domain::{Error, Message};
use trilogue_mapping::agent_client::blocks_of_message;
use trilogue_runtime::NewestMessages;
use trilogue_sdk::agent_client::peer::RawJson;

/// The bytes around a message, which name its author.
const AROUND_BYTES: usize = 512;

/// The request with all missed messages that were read, or with the newest ones that fit into `limit` bytes. If a request is too long even
/// without any of them, it stays too long.
///
/// `request` makes the request from messages; its flag says that others are left out.
pub(super) fn newest_that_fit(
    missed: &NewestMessages,
    limit: usize,
    request: impl Fn(&[Message], bool) -> Result<RawJson, Error>,
) -> Result<RawJson, Error> {
    let NewestMessages { messages: missed, is_cut } = missed;
    let whole = request(missed, *is_cut)?;
    if whole.as_bytes().len() <= limit || missed.is_empty() {
        return Ok(whole);
    }
    // Freed before the shorter request is built, because it can be large.
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
        // Converting blocks that the agent does not accept made the request longer.
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
    fn the_newest_messages_that_fit_are_sent() {
        let messages = ["a", "b", "c"].map(|text| message(&text.repeat(10_000))).into();
        let missed = NewestMessages { messages, is_cut: false };
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
