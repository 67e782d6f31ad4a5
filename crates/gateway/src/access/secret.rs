//! Secrets of tokens: how they are made, and the hash under which a store keeps them.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error};

/// What every secret begins with, so that a leaked one is recognised.
const PREFIX: &str = "tril_";
const SECRET_BYTES: usize = 32;

/// Makes the secret of a new token: `tril_` and 32 random bytes in base64url, 48 characters in all.
///
/// # Errors
/// `internal` when the system gives no random bytes.
pub fn new_secret() -> Result<String> {
    let mut random = [0; SECRET_BYTES];
    getrandom::fill(&mut random).map_err(|error| {
        Error::new(Code::Internal, format!("the system gives no random bytes: {error}"))
    })?;
    Ok(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(random)))
}

/// The hash under which a store keeps a secret. A secret has 256 random bits, so one round is enough.
pub fn hash_secret(secret: &[u8]) -> [u8; 32] {
    Sha256::digest(secret).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_have_one_form_and_differ() {
        let (one, other) = (new_secret().unwrap(), new_secret().unwrap());
        assert_ne!(one, other);
        for secret in [one, other] {
            let random = secret.strip_prefix("tril_").unwrap();
            assert_eq!(random.len(), 43);
            assert_eq!(URL_SAFE_NO_PAD.decode(random).unwrap().len(), 32);
        }
    }
}
