use crate::json::record::record;

record! {
    /// A token, without its secret.
    pub struct Token {
        /// The id of the token.
        id: String,
        /// The name of the token, for people.
        label: String,
        /// The principal that uses the token.
        principal: String,
        /// The rights of the token.
        rights: Vec<RightName>,
        /// Whether the token sees and answers only resources that its principal created.
        own: bool,
        /// When the token was created.
        created_at: String,
        /// When the token expires.
        expires_at?: String,
        /// The token that signed a browser in, if this token belongs to the browser's session. Revoking that token ends the session.
        session_of?: String,
    }

    /// One right.
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

    /// A token to create.
    pub strict struct TokenCreate: Default {
        /// The name of the token, for people.
        label: String,
        /// The principal that uses the token. The default is the caller. Tokens of one principal share its resources.
        principal?: String,
        /// The rights of the token. The default is `read`, `run` and `answer`. The caller needs each of these rights.
        rights?: Vec<RightName>,
        /// Whether the token sees and answers only resources that its principal created. Excludes the right `server`.
        own: bool = default,
        /// When the token expires (RFC 3339).
        expires_at?: String,
    }

    /// A link that signs a browser in.
    pub struct SignInLink {
        /// The URL to open in a browser. It works once. If the server requires no token, it is the plain address of the inspector.
        url: String,
        /// When the link expires. Absent if it does not.
        expires_at?: String,
    }

    /// Signs a browser in.
    pub strict struct SignIn {
        /// The part of the link after `sign-in=`.
        code: String,
    }

    /// The principal as which a link signs in.
    pub struct SignInOwner {
        /// The tenant of the link's token.
        tenant: String,
        /// The principal of the link's token.
        principal: String,
    }

    /// A browser's session, for the page that signed in.
    pub struct PageSession {
        /// The value that the page sends in `trilogue-page` with every request. The session needs both this value and the cookie.
        page_secret: String,
    }

    /// Begins to log in from another machine.
    pub strict struct LoginBegin: Default {
        /// The name of the machine or program, for the person who approves it.
        label?: String,
    }

    /// A login that waits for its approval.
    pub struct LoginBegun {
        /// The code that a person approves on the server, such as `BCDF-GHJK`.
        code: String,
        /// What the program collects the token with. No other program needs it.
        secret: String,
        /// When the login expires.
        expires_at: String,
        /// How long the program should wait between two requests for the token.
        interval_seconds: u64,
    }

    /// Names a login by its code.
    pub strict struct LoginCode {
        /// The code.
        code: String,
    }

    /// A login, as a person sees it before the approval.
    pub struct LoginView {
        /// The name that the program gives itself.
        label: String,
        /// The address from which the program began the login.
        address?: String,
        /// When the login expires.
        expires_at: String,
    }

    /// Approves a login: the token that its program gets.
    pub strict struct LoginApproval: Default {
        /// The code.
        code: String,
        /// The name of the token, for people. The default is that of the login.
        label?: String,
        /// The principal that uses the token. The default is the caller.
        principal?: String,
        /// The rights of the token. The default is `read`, `run` and `answer`. The caller needs each of these rights.
        rights?: Vec<RightName>,
        /// Whether the token sees and answers only resources that its principal created. Excludes the right `server`.
        own: bool = default,
        /// When the token expires (RFC 3339).
        expires_at?: String,
    }

    /// Names a login by its secret.
    pub strict struct LoginSecret {
        /// The secret of the login.
        secret: String,
    }

    /// Whether a login is approved.
    pub struct LoginState: Default {
        /// `pending` or `approved`.
        status: String,
        /// The token, in the only response that has it.
        token?: TokenCreated,
    }

    /// A ticket with which a page opens one WebSocket.
    pub struct Ticket {
        /// The subprotocol with which the page opens the WebSocket. It works once.
        protocol: String,
        /// When the ticket expires.
        expires_at: String,
    }

    /// The caller of a request.
    pub struct Caller {
        /// The tenant of the caller.
        tenant: String,
        /// The principal of the caller.
        principal: String,
        /// The rights of the caller.
        rights: Vec<RightName>,
        /// Whether the caller sees and answers only resources that its principal created.
        own: bool,
        /// When the session of a signed-in browser expires.
        session_expires_at?: String,
    }

    /// A created token. This response is the only place where its secret is shown.
    pub struct TokenCreated {
        /// The token.
        token: Token,
        /// The value that the client sends as `Authorization: Bearer …` or `x-api-key: …`.
        secret: String,
    }
}
