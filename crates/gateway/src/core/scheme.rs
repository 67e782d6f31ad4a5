//! Authentication schemes.

use http::HeaderValue;

/// An authentication scheme.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scheme {
    /// No authentication. All callers without a token are one principal: only unguessable ids separate their data.
    None,
    ApiKey,
    /// `Authorization: Basic`: the password is the token; the user name is ignored.
    Basic,
    Bearer,
}

// === impl Scheme ===

impl Scheme {
    /// The schemes of agents without their own setting.
    pub const DEFAULT: &'static [Self] = &[Self::ApiKey, Self::Bearer];

    /// Returns the `WWW-Authenticate` value of a refusal.
    pub(crate) fn challenge(self) -> Option<HeaderValue> {
        Some(HeaderValue::from_static(match self {
            Self::None => return None,
            Self::ApiKey => "ApiKey realm=\"trilogue\", header=\"x-api-key\"",
            Self::Basic => "Basic realm=\"trilogue\", charset=\"UTF-8\"",
            Self::Bearer => "Bearer realm=\"trilogue\"",
        }))
    }

    /// Describes how a caller sends its credentials.
    pub(crate) fn instructions(self) -> &'static str {
        match self {
            Self::None => "no token at all",
            Self::ApiKey => "'x-api-key: TOKEN'",
            Self::Basic => "'Authorization: Basic' with the token as password",
            Self::Bearer => "'Authorization: Bearer TOKEN'",
        }
    }
}
