//! Secrets that sign callbacks.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use super::list::Item;

/// The prefix of every secret. It makes a leaked secret recognisable.
const PREFIX: &str = "whsec_";
/// The shortest secret, in bytes.
const MIN_BYTES: usize = 24;
/// The longest secret, in bytes.
const MAX_BYTES: usize = 64;
/// The length of a generated secret, in bytes.
const MADE_BYTES: usize = 32;

/// A secret. Neither logs nor lists of settings show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Bytes);

/// A text that is not a secret.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotASecret;

// === impl Secret ===

impl Secret {
    /// Generates a secret. `None` if the system provides no random bytes.
    #[must_use]
    pub fn generate() -> Option<Self> {
        let mut random = vec![0; MADE_BYTES];
        getrandom::fill(&mut random).ok()?;
        Some(Self(random.into()))
    }

    /// The key itself.
    #[must_use]
    pub fn key(&self) -> Bytes {
        self.0.clone()
    }

    /// The secret in the form for receivers.
    #[must_use]
    pub fn reveal(&self) -> String {
        format!("{PREFIX}{}", STANDARD.encode(&self.0))
    }
}

impl FromStr for Secret {
    type Err = NotASecret;

    fn from_str(text: &str) -> Result<Self, NotASecret> {
        let encoded = text.trim().strip_prefix(PREFIX).ok_or(NotASecret)?;
        let key = STANDARD.decode(encoded).map_err(|_| NotASecret)?;
        let fits = (MIN_BYTES..=MAX_BYTES).contains(&key.len());
        if fits { Ok(Self(key.into())) } else { Err(NotASecret) }
    }
}

/// Hides the value.
impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}(hidden)")
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Item for Secret {
    const EXPECTED: &'static str = "a secret: \"whsec_\" and 24 to 64 bytes in base64";
    const IS_SECRET: bool = true;
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_secret_reads_back_and_is_never_shown() {
        let secret = Secret::generate().unwrap();
        let text = secret.reveal();
        assert_eq!(text.parse(), Ok(secret.clone()));
        assert_ne!(Some(&secret), Secret::generate().as_ref());
        for shown in [format!("{secret}"), format!("{secret:?}")] {
            assert!(!shown.contains(text.strip_prefix(PREFIX).unwrap()), "{shown}");
        }
        for bad in ["", "whsec_", "whsec_MfKQ9r8G", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_ä"]
        {
            assert_eq!(bad.parse::<Secret>(), Err(NotASecret), "{bad}");
        }
    }

    #[test]
    fn settings_and_errors_do_not_repeat_it() {
        let good = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let text = format!("[callbacks]\nsecrets = \"{good}\"\n");
        let options = super::super::parse(Path::new("t.toml"), &text).unwrap().options;
        let settings = super::super::settings(&options, None, &[]);
        assert!(!format!("{settings:?} {options:?}").contains("MfKQ"));
        let bad = text.replace("LaLaSw", "LaLaSw!");
        let error = super::super::parse(Path::new("t.toml"), &bad).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("MfKQ"), "{error:?}");
        assert!(error.to_string().contains("a secret"), "{error}");
    }
}
