use crate::json::record::record;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A token, without its secret.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Token {
    /// Its id.
    pub id: String,
    /// What people call it.
    pub label: String,
    /// Who acts with it.
    pub principal: String,
    /// What it may do.
    pub rights: Vec<RightName>,
    /// Whether it sees and answers only what its principal created.
    pub own: bool,
    /// When it was made.
    pub created_at: String,
    /// When it stops to work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// The token that a browser signed in with, where this one is of its session: revoking that one ends the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_of: Option<String>,
}

/// One right.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RightName {
    /// See agents, threads, runs, events and interrupts.
    Read,
    /// Create and change threads and runs.
    Run,
    /// Answer interrupts.
    Answer,
    /// Make and revoke tokens, erase threads and redeliver callbacks, in one tenant.
    Admin,
    /// Back up the store of all tenants, and see the server's settings.
    Server,
}

record! {
    /// A token to make.
    #[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    pub struct TokenCreate {
        /// What people call it.
        label: String,
        /// Who acts with it; the caller when absent. Tokens of one principal see the same own things.
        principal?: String,
        /// What it may do; `read`, `run` and `answer` when absent. The caller needs each of these rights.
        rights?: Vec<RightName>,
        /// Whether it sees and answers only what its principal created. Excludes the right `server`.
        #[serde(default)]
        own: bool,
        /// When it stops to work (RFC 3339).
        expires_at?: String,
    }
}

/// A link that signs a browser in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SignInLink {
    /// What a browser opens. It works once. Where nobody shows a token, it is the plain address of the inspector.
    pub url: String,
    /// When it stops to work, where it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
}

record! {
    /// Signs a browser in.
    #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    pub struct SignIn {
        /// What the link says behind `sign-in=`.
        code: String,
    }
}

/// In whose name a link signs in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SignInOwner {
    /// The tenant of the link's token.
    pub tenant: String,
    /// The principal of the link's token.
    pub principal: String,
}

/// A browser's session, for the page that signed in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PageSession {
    /// What the page sends in `trilogue-page` with every request. It is worth nothing without the cookie, and the cookie nothing without it.
    pub page_secret: String,
}

/// Who asks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Caller {
    /// The caller's tenant.
    pub tenant: String,
    /// Who the caller is.
    pub principal: String,
    /// What it may do.
    pub rights: Vec<RightName>,
    /// Whether it sees and answers only what its principal created.
    pub own: bool,
    /// When the session of a signed-in browser ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_expires_at: Option<String>,
}

/// A token that was made. The secret is shown this once.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TokenCreated {
    /// The token.
    pub token: Token,
    /// What the client sends as `Authorization: Bearer …` or `x-api-key: …`.
    pub secret: String,
}
