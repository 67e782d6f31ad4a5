//! How callers of an agent may authenticate.

use std::fmt;
use std::str::FromStr;

use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error};
use trilogue_gateway as gateway;

use super::list::Item;

/// An authentication scheme of the Agent Connect Protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheme {
    /// No authentication.
    None,
    /// The header `x-api-key`.
    ApiKey,
    /// `Authorization: Basic`, the token as password.
    Basic,
    /// `Authorization: Bearer`.
    Bearer,
    /// OAuth 2. This server cannot check it.
    Oauth2,
    /// OpenID Connect. This server cannot check it.
    OpenIdConnect,
    /// Client certificates. This server cannot check them.
    MutualTls,
}

/// A text that is not a scheme.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotAScheme;

// === impl Scheme ===

impl Scheme {
    const ALL: [Self; 7] = [
        Self::None,
        Self::ApiKey,
        Self::Basic,
        Self::Bearer,
        Self::Oauth2,
        Self::OpenIdConnect,
        Self::MutualTls,
    ];

    /// Its name in the file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::ApiKey => "api-key",
            Self::Basic => "basic",
            Self::Bearer => "bearer",
            Self::Oauth2 => "oauth2",
            Self::OpenIdConnect => "openid-connect",
            Self::MutualTls => "mutual-tls",
        }
    }

    /// The gateway's name for it.
    ///
    /// # Errors
    /// `invalid_request` for a scheme that the server cannot check, with the reason.
    pub fn to_gateway(self) -> Result<gateway::Scheme> {
        let why = match self {
            Self::None => return Ok(gateway::Scheme::None),
            Self::ApiKey => return Ok(gateway::Scheme::ApiKey),
            Self::Basic => return Ok(gateway::Scheme::Basic),
            Self::Bearer => return Ok(gateway::Scheme::Bearer),
            Self::Oauth2 | Self::OpenIdConnect => "it knows no issuer whose tokens it could check",
            Self::MutualTls => "it does not end TLS itself and sees no certificate of a client",
        };
        Err(Error::new(
            Code::InvalidRequest,
            format!("this server cannot check the scheme '{self}': {why}"),
        )
        .hint("it checks: api-key, bearer, basic; or none"))
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Scheme {
    type Err = NotAScheme;

    fn from_str(text: &str) -> std::result::Result<Self, NotAScheme> {
        Self::ALL.into_iter().find(|scheme| scheme.as_str() == text).ok_or(NotAScheme)
    }
}

impl Item for Scheme {
    const EXPECTED: &'static str = "\"api-key\", \"bearer\", \"basic\" or \"none\"";
}
