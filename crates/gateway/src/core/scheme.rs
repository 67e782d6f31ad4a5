//! Ways in which callers show who they are.

use http::HeaderValue;

/// A way to show who one is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scheme {
    /// None: callers without a token are taken too. They are one principal, who is kept from others' things by ids that cannot be guessed and by nothing else.
    None,
    ApiKey,
    /// `Authorization: Basic`: the password is the token, the user's name is not looked at.
    Basic,
    Bearer,
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
