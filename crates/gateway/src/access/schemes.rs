//! How callers show who they are, and which ways each agent takes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use trilogue_domain::error::Result;
use trilogue_domain::{Principal, PrincipalId, Right, Rights, TenantId};

/// The name of callers without a token.
const ANONYMOUS: &str = "anonymous";

/// A way to show who one is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scheme {
    /// None: callers without a token are taken too. They are one principal, who is kept from others' things by ids that cannot be guessed and by nothing else.
    None,
    /// The header `x-api-key`.
    ApiKey,
    /// `Authorization: Basic`: the password is the token, the user's name is not looked at.
    Basic,
    /// `Authorization: Bearer`.
    Bearer,
}

/// What a caller must show who was refused at an agent.
#[derive(Clone, Debug)]
pub(crate) struct Challenge {
    /// How, one header value each.
    pub(crate) ways: Vec<HeaderValue>,
    /// Where more is said of it: a path below the mount.
    pub(crate) place: String,
}

// === impl Scheme ===

impl Scheme {
    /// The ways of agents that have no say of their own.
    pub const DEFAULT: &'static [Self] = &[Self::ApiKey, Self::Bearer];

    /// What the header of a refusal says of it.
    pub(crate) fn challenge(self) -> Option<HeaderValue> {
        Some(HeaderValue::from_static(match self {
            Self::None => return None,
            Self::ApiKey => "ApiKey realm=\"trilogue\", header=\"x-api-key\"",
            Self::Basic => "Basic realm=\"trilogue\", charset=\"UTF-8\"",
            Self::Bearer => "Bearer realm=\"trilogue\"",
        }))
    }

    /// How a caller sends it.
    pub(crate) fn how(self) -> &'static str {
        match self {
            Self::None => "no token at all",
            Self::ApiKey => "'x-api-key: TOKEN'",
            Self::Basic => "'Authorization: Basic' with the token as password",
            Self::Bearer => "'Authorization: Bearer TOKEN'",
        }
    }
}

/// Who callers without a token are: they see only what their own kind made, and list nothing.
///
/// # Errors
/// Never; its name is checked like any other.
pub fn anonymous(tenant: TenantId) -> Result<Principal> {
    let rights: Rights = [Right::Read, Right::Run, Right::Answer].into_iter().collect();
    Ok(Principal { tenant, id: PrincipalId::parse(ANONYMOUS)?, rights, own: true })
}

/// Who asks what anybody may ask, and may nothing else.
///
/// # Errors
/// As [`anonymous`].
pub(crate) fn nobody() -> Result<Principal> {
    let nobody = anonymous(TenantId::parse("nobody")?)?;
    Ok(Principal { rights: Rights::default(), ..nobody })
}

/// The secret behind `Bearer`.
pub(crate) fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, secret) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(secret.trim_ascii())
}

/// The password behind `Basic`.
pub(crate) fn basic(value: &[u8]) -> Option<Vec<u8>> {
    let (scheme, encoded) = value.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return None;
    }
    let mut decoded = STANDARD.decode(encoded.trim_ascii()).ok()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    Some(decoded.split_off(colon + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_what_follows_the_first_colon() {
        let basic = |text: &str| basic(format!("Basic {}", STANDARD.encode(text)).as_bytes());
        assert_eq!(basic("any:to:ken").as_deref(), Some(&b"to:ken"[..]));
        assert_eq!(basic(":token").as_deref(), Some(&b"token"[..]));
        assert_eq!(basic("token"), None);
        assert_eq!(super::basic(b"Basic !"), None);
        assert_eq!(super::basic(b"Bearer YTpi"), None);
    }
}
