use crate::json::record::record;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A token, without its secret.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Token {
    /// The id of the token.
    pub id: String,
    /// The name of the token, for people.
    pub label: String,
    /// The principal that uses the token.
    pub principal: String,
    /// The rights of the token.
    pub rights: Vec<RightName>,
    /// Whether the token sees and answers only resources that its principal created.
    pub own: bool,
    /// When the token was created.
    pub created_at: String,
    /// When the token expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// The token that signed a browser in, if this token belongs to the browser's session. Revoking that token ends the session.
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
    /// Create and revoke tokens, erase threads and redeliver callbacks, in one tenant.
    Admin,
    /// Back up the store of all tenants, and see the server's settings.
    Server,
}

record! {
    /// A token to create.
    #[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    pub struct TokenCreate {
        /// The name of the token, for people.
        label: String,
        /// The principal that uses the token. The default is the caller. Tokens of one principal share its resources.
        principal?: String,
        /// The rights of the token. The default is `read`, `run` and `answer`. The caller needs each of these rights.
        rights?: Vec<RightName>,
        /// Whether the token sees and answers only resources that its principal created. Excludes the right `server`.
        #[serde(default)]
        own: bool,
        /// When the token expires (RFC 3339).
        expires_at?: String,
    }
}

/// A link that signs a browser in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SignInLink {
    /// The URL to open in a browser. It works once. If the server requires no token, it is the plain address of the inspector.
    pub url: String,
    /// When the link expires. Absent if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
}

record! {
    /// Signs a browser in.
    #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    pub struct SignIn {
        /// The part of the link after `sign-in=`.
        code: String,
    }
}

/// The principal as which a link signs in.
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
    /// The value that the page sends in `trilogue-page` with every request. The session needs both this value and the cookie.
    pub page_secret: String,
}

/// The caller of a request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Caller {
    /// The tenant of the caller.
    pub tenant: String,
    /// The principal of the caller.
    pub principal: String,
    /// The rights of the caller.
    pub rights: Vec<RightName>,
    /// Whether the caller sees and answers only resources that its principal created.
    pub own: bool,
    /// When the session of a signed-in browser expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_expires_at: Option<String>,
}

/// A created token. This response is the only place where its secret is shown.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TokenCreated {
    /// The token.
    pub token: Token,
    /// The value that the client sends as `Authorization: Bearer …` or `x-api-key: …`.
    pub secret: String,
}
