use std::borrow::Cow;

use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, Timestamp, limits};

/// The longest part of an invalid id that a message repeats, in characters.
const MAX_SHOWN_CHARS: usize = 64;

/// Reads a time in RFC 3339; fails with `invalid_request`, naming the member.
pub fn read_time(text: &str, name: &str) -> Result<Timestamp> {
    Timestamp::parse(text).ok_or_else(|| {
        Error::new(
            Code::InvalidRequest,
            format!("'{name}': invalid time '{}'", escape_for_message(text)),
        )
        .hint("a time is RFC 3339, such as 2026-01-31T12:00:00Z")
    })
}

pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| char::from(DIGITS[usize::from(value & 15)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

pub fn read_sha256(text: &str) -> Option<[u8; 32]> {
    let mut hash = [0_u8; 32];
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
        let pair = std::str::from_utf8(pair).ok().filter(|pair| !pair.starts_with('+'))?;
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    Some(hash)
}

/// Returns a client's text for a message: bounded and without control characters.
pub fn escape_for_message(text: &str) -> Cow<'_, str> {
    if text.len() <= limits::MAX_ID_BYTES && !text.chars().any(char::is_control) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().take(MAX_SHOWN_CHARS).flat_map(char::escape_debug).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_comes_back_from_its_digits_and_from_nothing_else() {
        let hash: [u8; 32] = std::array::from_fn(|index| u8::try_from(index * 8).unwrap());
        let text = hex(&hash);
        assert_eq!(read_sha256(&text), Some(hash));
        assert_eq!(read_sha256(&text.to_ascii_uppercase()), Some(hash));
        let signed = format!("+1{}", &text[2..]);
        for bad in ["", &text[1..], signed.as_str(), &"é".repeat(32)] {
            assert_eq!(read_sha256(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_is_repeated_is_bounded_and_has_no_control_characters() {
        assert_eq!(escape_for_message("thread-1"), "thread-1");
        assert_eq!(escape_for_message("a\u{1b}[2J"), "a\\u{1b}[2J");
        let long = "x".repeat(limits::MAX_ID_BYTES + 1);
        assert_eq!(escape_for_message(&long).len(), MAX_SHOWN_CHARS);
        let time = read_time("soon\n", "not_before").unwrap_err();
        assert_eq!(time.message(), "'not_before': invalid time 'soon\\n'");
    }
}
