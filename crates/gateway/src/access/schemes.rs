//! Credentials as headers carry them, and principals of callers without any.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use trilogue_domain::error::Result;
use trilogue_domain::{AgentName, Principal, PrincipalId, Right, Rights, TenantId};

const ANONYMOUS: &str = "anonymous";

/// What an agent takes of a caller that it refused.
#[derive(Clone, Debug)]
pub struct Challenge {
    pub agent: AgentName,
    /// The ways in, one header value each.
    pub ways: Vec<HeaderValue>,
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
