//! Certificate authorities in addition to those of the system.

use reqwest::Certificate;

/// Authorities whose certificates a client accepts, in addition to those of the system.
#[derive(Clone, Debug, Default)]
pub struct Authorities(Vec<Certificate>);

/// The text has no certificates.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadAuthorities(String);

// === impl Authorities ===

impl Authorities {
    /// Reads the certificates of a PEM file.
    ///
    /// # Errors
    /// If the text has no certificate, or one that is damaged.
    pub fn from_pem(text: &[u8]) -> Result<Self, BadAuthorities> {
        let found = Certificate::from_pem_bundle(text)
            .map_err(|error| BadAuthorities(format!("a certificate is damaged: {error}")))?;
        if found.is_empty() {
            return Err(BadAuthorities("it has no certificate in PEM form".to_owned()));
        }
        Ok(Self(found))
    }

    pub(crate) fn certificates(&self) -> impl Iterator<Item = Certificate> {
        self.0.clone().into_iter()
    }
}
