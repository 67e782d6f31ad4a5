//! Decodes bytes that peers send as base64: the standard form, and the variants that other decoders accept.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, STANDARD};
use base64::engine::{DecodePaddingMode, GeneralPurposeConfig};

/// Padding may be missing. The unused bits of the last character must be zero.
const UNPADDED: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const WITH_PLUS: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, UNPADDED);
const WITH_MINUS: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, UNPADDED);

/// Decodes base64 (RFC 4648 §4) and its URL-safe alphabet (§5), each with or without padding, and with line breaks (RFC 2045 §6.8). Returns `None` for other text.
#[must_use]
pub fn decode_base64(text: &str) -> Option<Vec<u8>> {
    if let Ok(bytes) = STANDARD.decode(text) {
        return Some(bytes);
    }
    let packed: String = text.trim_matches([' ', '\t', '\r', '\n']).split(['\r', '\n']).collect();
    if packed.is_empty() {
        return None;
    }
    let is_url_safe = packed.contains(['-', '_']);
    let engine = if is_url_safe { &WITH_MINUS } else { &WITH_PLUS };
    engine.decode(packed).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variant_has_the_same_bytes_and_anything_else_has_none() {
        let bytes = [0xfb_u8, 0xff, 0xbf, 0x68];
        for text in ["+/+/aA==", "+/+/aA", "-_-_aA==", "-_-_aA", "+/+/\r\naA==\n", " -_-_\naA "] {
            assert_eq!(decode_base64(text).as_deref(), Some(&bytes[..]), "{text:?}");
        }
        assert_eq!(decode_base64(""), Some(Vec::new()));
        for text in ["%%%", "no base64", "a", "+/-_", "aGl=", "aGk=aGk=", "a,b", " ", "\n", "\u{b}"]
        {
            assert_eq!(decode_base64(text), None, "{text:?}");
        }
    }
}
