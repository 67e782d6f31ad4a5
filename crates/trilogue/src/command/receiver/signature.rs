//! Signatures of Standard Webhooks: HMAC-SHA-256 over `id.timestamp.body`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::HeaderMap;
use sha2::Sha256;

pub(super) const ID: &str = "webhook-id";
/// The header of its time, in seconds since 1970.
pub(super) const TIMESTAMP: &str = "webhook-timestamp";
const SIGNATURE: &str = "webhook-signature";
/// The prefix of signatures of this kind.
const VERSION: &str = "v1,";
/// The usual prefix of secrets.
const PREFIX: &str = "whsec_";
/// How far a delivery's time may be from this clock, in seconds.
const TOLERANCE_SECONDS: i64 = 5 * 60;
/// The most signatures of one delivery that are checked.
const MAX_SIGNATURES: usize = 16;

/// A secret that verifies deliveries.
pub(super) struct Key(Hmac<Sha256>);

/// Why a delivery is not genuine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum VerifyError {
    #[error("the header {0} is missing or not text")]
    Missing(&'static str),
    #[error("the timestamp is not a number")]
    Timestamp,
    #[error("the timestamp is more than five minutes old")]
    Old,
    #[error("the timestamp is more than five minutes ahead")]
    Ahead,
    #[error("the signature does not match")]
    Signature,
}

/// The signed headers of a delivery.
#[derive(Clone, Copy, Debug)]
pub(super) struct SignedHeaders<'a> {
    id: &'a str,
    timestamp: &'a str,
    signatures: &'a str,
}

// === impl Key ===

impl Key {
    /// Reads a secret in base64, with or without `whsec_` before it; returns `None` if it is not valid.
    pub(super) fn parse(secret: &str) -> Option<Self> {
        let encoded = secret.trim();
        let key = STANDARD.decode(encoded.strip_prefix(PREFIX).unwrap_or(encoded)).ok()?;
        (!key.is_empty()).then(|| Self::new(&key)).flatten()
    }

    pub(super) fn new(key: &[u8]) -> Option<Self> {
        Hmac::new_from_slice(key).ok().map(Self)
    }

    /// Whether one of the delivery's signatures was made with this key. Takes the same time for every wrong one.
    pub(super) fn verifies(&self, headers: &SignedHeaders<'_>, body: &[u8]) -> bool {
        let mut mac = self.0.clone();
        for piece in [headers.id.as_bytes(), b".", headers.timestamp.as_bytes(), b".", body] {
            mac.update(piece);
        }
        let signatures = headers.signatures.split(' ').take(MAX_SIGNATURES);
        let mut known = signatures.filter_map(|it| STANDARD.decode(it.strip_prefix(VERSION)?).ok());
        known.any(|signature| mac.clone().verify_slice(&signature).is_ok())
    }
}

// === impl SignedHeaders ===

impl<'a> SignedHeaders<'a> {
    /// Reads the headers of a delivery that came at this time, in seconds since 1970.
    pub(super) fn read(headers: &'a HeaderMap, now: i64) -> Result<Self, VerifyError> {
        let field = |name: &'static str| {
            let value = headers.get(name).and_then(|value| value.to_str().ok());
            value.ok_or(VerifyError::Missing(name))
        };
        let signed =
            Self { id: field(ID)?, timestamp: field(TIMESTAMP)?, signatures: field(SIGNATURE)? };
        let sent: i64 = signed.timestamp.parse().map_err(|_| VerifyError::Timestamp)?;
        match now.saturating_sub(sent) {
            age if age > TOLERANCE_SECONDS => Err(VerifyError::Old),
            age if age < -TOLERANCE_SECONDS => Err(VerifyError::Ahead),
            _ => Ok(signed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const NOW: i64 = 1_614_265_330;

    fn headers(at: &str, signatures: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(ID, "msg_p5jXN8AQM9LWM0D4loKWxJek".parse().unwrap());
        headers.insert(TIMESTAMP, at.parse().unwrap());
        headers.insert(SIGNATURE, signatures.parse().unwrap());
        headers
    }

    fn signed(secret: &str, headers: &HeaderMap, body: &[u8]) -> bool {
        Key::parse(secret).unwrap().verifies(&SignedHeaders::read(headers, NOW).unwrap(), body)
    }

    #[test]
    fn a_signature_holds_for_its_secret_id_time_and_body_only() {
        let body = br#"{"test": 2432232314}"#;
        let key = STANDARD.decode(SECRET.strip_prefix(PREFIX).unwrap()).unwrap();
        let id = "msg_p5jXN8AQM9LWM0D4loKWxJek";
        // As the server signs.
        let right = trilogue_gateway::callback::sign(&key, id, NOW, body);
        let at = NOW.to_string();
        let genuine = headers(&at, &format!("v1a,AAAA v1,AAAA {right}"));
        assert!(signed(SECRET, &genuine, body));
        assert!(signed(SECRET.strip_prefix(PREFIX).unwrap(), &genuine, body));
        assert!(!signed("whsec_AAAA", &genuine, body));
        assert!(!signed(SECRET, &genuine, b"{}"));
        assert!(!signed(SECRET, &headers(&(NOW + 1).to_string(), &right), body));
        assert!(!signed(SECRET, &headers(&at, right.strip_prefix(VERSION).unwrap()), body));
        let mut other = genuine;
        other.insert(ID, "another".parse().unwrap());
        assert!(!signed(SECRET, &other, body));
        let many = format!("{}{right}", "v1,AAAA ".repeat(MAX_SIGNATURES));
        assert!(!signed(SECRET, &headers(&at, &many), body), "only so many are checked");
    }

    #[test]
    fn a_signature_by_another_implementation_is_valid() {
        let mut headers = headers("1649367553", "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=");
        headers.insert(ID, "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk".parse().unwrap());
        let signed = SignedHeaders::read(&headers, 1_649_367_553).unwrap();
        let key = Key::parse("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD").unwrap();
        let body = br#"{"email":"test@example.com","username":"test_user"}"#;
        assert!(key.verifies(&signed, body));
    }

    #[test]
    fn a_time_may_be_five_minutes_away() {
        let read = |at: i64| SignedHeaders::read(&headers(&at.to_string(), "v1,AAAA"), NOW).err();
        for near in [-300, 0, 300] {
            assert_eq!(read(NOW + near), None);
        }
        assert_eq!(read(NOW - 301), Some(VerifyError::Old));
        assert_eq!(read(NOW + 301), Some(VerifyError::Ahead));
        assert_eq!(read(i64::MIN), Some(VerifyError::Old));
        assert_eq!(
            SignedHeaders::read(&headers("soon", ""), NOW).err(),
            Some(VerifyError::Timestamp)
        );
        let nothing = SignedHeaders::read(&HeaderMap::new(), NOW).err();
        assert_eq!(nothing, Some(VerifyError::Missing(ID)));
    }

    #[test]
    fn a_secret_must_be_base64() {
        for secret in ["", "whsec_", "whsec_*", "words"] {
            assert!(Key::parse(secret).is_none(), "{secret}");
        }
    }
}
