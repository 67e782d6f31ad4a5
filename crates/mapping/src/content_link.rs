//! Which paths are links to stored content, so that no other path is requested with a credential because a message names it.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// The session or thread whose content a path below a mount names: `/sessions/ID/blobs/SHA256` of the Agent Communication Protocol, `/threads/ID/blobs/SHA256` of the Agent Connect Protocol.
/// `None` for any other path.
#[must_use]
pub fn linked_conversation(path: &str) -> Option<Cow<'_, str>> {
    let segments: Vec<_> = path.strip_prefix('/')?.splitn(5, '/').collect();
    let &["sessions" | "threads", conversation, "blobs", hash] = &segments[..] else { return None };
    let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_hash = hash.len() == 64 && hash.bytes().all(is_digit);
    let conversation = percent_decode_str(conversation).decode_utf8().ok()?;
    (is_hash && !conversation.is_empty()).then_some(conversation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_links_to_stored_content_name_a_conversation() {
        let hash = "0f".repeat(32);
        for (path, conversation) in [
            (format!("/sessions/s/blobs/{hash}"), Some("s")),
            (format!("/threads/a%2Fb/blobs/{hash}"), Some("a/b")),
            (format!("/threads//blobs/{hash}"), None),
            (format!("/threads/s/blobs/{hash}0"), None),
            (format!("/threads/s/blobs/{hash}/"), None),
            (format!("/threads/s/blobs/{}", hash.to_uppercase()), None),
            (format!("/api/v1/threads/s/blobs/{hash}"), None),
            (format!("threads/s/blobs/{hash}"), None),
            ("/threads/s/blobs/..".to_owned(), None),
            ("/threads/s/messages".to_owned(), None),
            ("/threads".to_owned(), None),
            (String::new(), None),
        ] {
            assert_eq!(linked_conversation(&path).as_deref(), conversation, "{path}");
        }
    }
}
