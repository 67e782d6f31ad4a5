//! Reads credentials from headers, and makes the principals of callers without credentials.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use trilogue_domain::error::Result;
use trilogue_domain::{AgentName, Principal, PrincipalId, Right, Rights, TenantId};

const ANONYMOUS: &str = "anonymous";

/// The authentication schemes of an agent that refused a caller.
#[derive(Clone, Debug)]
pub struct Challenge {
    pub agent: AgentName,
    /// The accepted schemes, one header value each.
    pub ways: Vec<HeaderValue>,
}

/// Returns the principal of callers without a token: they see only what callers without a token
/// made, and cannot list anything.
///
/// # Errors Never in practice; the principal's name is checked like any other.
pub fn anonymous(tenant: TenantId) -> Result<Principal> {
    let rights: Rights = [Right::Read, Right::Run, Right::Answer].into_iter().collect();
    Ok(Principal { tenant, id: PrincipalId::parse(ANONYMOUS)?, rights, own: true })
}

/// Returns the principal without rights, for public requests only.
pub(crate) fn nobody() -> Result<Principal> {
    let nobody = anonymous(TenantId::parse("nobody")?)?;
    Ok(Principal { rights: Rights::default(), ..nobody })
}

/// Returns the secret after `Bearer`.
pub(crate) fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, secret) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(secret.trim_ascii())
}

/// Returns the password after `Basic`.
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
