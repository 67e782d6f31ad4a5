//! Errors that a user, an operator or a peer can cause.
//!
//! Each has a stable code, a message that says what happened and why, and a hint that says what to do next.
//! The protocols choose the HTTP status or JSON-RPC code from the [`Class`]. Programs must not parse the message.

use std::borrow::Cow;
use std::fmt;

/// The result of an operation that can fail with an error for the caller.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error for people and for programs.
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<Inner>);

#[derive(Clone, PartialEq, Eq)]
struct Inner {
    code: Code,
    message: Cow<'static, str>,
    hint: Option<Cow<'static, str>>,
    pending: Option<crate::InterruptId>,
    node: Option<NamedNode>,
    missing_agent: Option<String>,
    violations: Vec<Violation>,
}

/// Another node of the cluster.
#[derive(Clone, PartialEq, Eq)]
struct NamedNode {
    name: String,
    address: String,
}

/// One place where a value does not fit its schema.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The place: a JSON Pointer into the value; empty for the whole value.
    pub path: String,
    /// The reason. It does not repeat the value.
    pub message: String,
}

/// What a caller can do about an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// The request is wrong and will stay wrong.
    Invalid,
    /// The caller is unknown.
    Unauthenticated,
    /// The caller may not do this.
    Forbidden,
    /// The resource does not exist in the caller's scope.
    NotFound,
    /// The resource is in another state.
    Conflict,
    /// The request is well formed, but its content breaks a rule.
    Unprocessable,
    /// The request is larger than a limit.
    TooLarge,
    /// The caller is faster than a limit.
    TooMany,
    /// The store has no room.
    NoSpace,
    /// The server cannot serve this now; the same request may succeed later.
    Unavailable,
    /// A server error.
    Internal,
}

macro_rules! codes {
    ($($(#[$meta:meta])* $variant:ident = $text:literal, $class:ident;)*) => {
        /// The stable code of an error.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Code {
            $($(#[$meta])* $variant,)*
        }

        impl Code {
            /// Every code, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the code's text on the wire and in the log.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// Returns the code with this text.
            #[must_use]
            pub fn from_text(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$variant),)* _ => None }
            }

            /// Returns what a caller can do about the error.
            #[must_use]
            pub fn class(self) -> Class {
                match self { $(Self::$variant => Class::$class,)* }
            }
        }
    };
}

codes! {
    /// The request cannot be understood.
    InvalidRequest = "invalid_request", Invalid;
    /// The body is not JSON.
    InvalidJson = "invalid_json", Invalid;
    /// An id is malformed.
    InvalidId = "invalid_id", Invalid;
    /// The input does not fit the agent.
    InvalidInput = "invalid_input", Unprocessable;
    /// The configuration does not fit the agent.
    ConfigInvalid = "config_schema_violation", Unprocessable;
    /// The agent takes no configuration, so it cannot have a configured instance.
    ConfigurationNotSupported = "configuration_not_supported", Unprocessable;
    /// The thread's state does not fit the agent.
    StateIncompatible = "thread_state_incompatible", Unprocessable;
    /// The values do not fit the schema of the thread's state.
    StateInvalid = "thread_state_schema_violation", Unprocessable;
    /// The agent does not run on lasting threads.
    ThreadsNotSupported = "threads_not_supported", Unprocessable;
    /// The agent does not stream in this way.
    StreamModeNotSupported = "stream_mode_not_supported", Unprocessable;
    /// The callback's address cannot be called.
    InvalidWebhook = "invalid_webhook", Unprocessable;
    /// A cursor or `Last-Event-ID` is malformed.
    InvalidCursor = "invalid_cursor", Invalid;
    /// A search filter leaves too many candidates.
    FilterTooBroad = "filter_too_broad", Unprocessable;
    /// No or unknown credentials.
    Unauthenticated = "unauthenticated", Unauthenticated;
    /// The credentials lack a right.
    Forbidden = "forbidden", Forbidden;
    /// The `Host` header names a host that this server does not answer for.
    HostNotAllowed = "host_not_allowed", Forbidden;
    /// The `Origin` header names a page that may not call this server.
    OriginNotAllowed = "origin_not_allowed", Forbidden;
    /// The route or resource does not exist.
    NotFound = "not_found", NotFound;
    /// The route does not support the method.
    MethodNotAllowed = "method_not_allowed", Invalid;
    /// The response would have no type that the client accepts.
    NotAcceptable = "not_acceptable", Invalid;
    /// The body has a type that the route does not read.
    UnsupportedMediaType = "unsupported_media_type", Invalid;
    /// The request must ask for another protocol on its connection.
    UpgradeRequired = "upgrade_required", Invalid;
    /// The server does not have the requested feature of the protocol.
    NotImplemented = "not_implemented", Invalid;
    /// The agent does not exist.
    AgentNotFound = "agent_not_found", NotFound;
    /// The thread does not exist.
    ThreadNotFound = "thread_not_found", NotFound;
    /// The run does not exist.
    RunNotFound = "run_not_found", NotFound;
    /// The interrupt does not exist.
    InterruptNotFound = "interrupt_not_found", NotFound;
    /// The checkpoint does not exist.
    CheckpointNotFound = "checkpoint_not_found", NotFound;
    /// The configured instance does not exist.
    ConfigurationNotFound = "configuration_not_found", NotFound;
    /// Another resource has this id.
    AlreadyExists = "already_exists", Conflict;
    /// A run waits on this thread, and the request cannot start another.
    ThreadWaiting = "thread_waiting", Conflict;
    /// The thread has a run, and the request asked not to queue.
    ThreadBusy = "thread_busy", Conflict;
    /// The thread is a sub-agent's, and only the sub-agent's parent gives it work.
    ThreadOfSubagent = "thread_of_subagent", Conflict;
    /// The sub-agent's work cannot be cancelled alone.
    SubagentNotCancellable = "subagent_not_cancellable", Conflict;
    /// The run has ended, so it cannot be cancelled or answered.
    RunEnded = "run_ended", Conflict;
    /// The run has not ended, so it cannot be removed.
    RunNotEnded = "run_not_ended", Conflict;
    /// The interrupt was resolved before this answer arrived.
    InterruptResolved = "interrupt_resolved", Conflict;
    /// The answer names no interrupt, or one that is not pending, while another is pending.
    InterruptMismatch = "interrupt_mismatch", Conflict;
    /// The answer does not fit the interrupt's schema or options.
    AnswerInvalid = "answer_invalid", Unprocessable;
    /// The idempotency key was used with another request.
    IdempotencyMismatch = "idempotency_mismatch", Unprocessable;
    /// The head would move back, but the agent keeps its own memory.
    AgentMemoryNotRewindable = "agent_memory_not_rewindable", Unprocessable;
    /// The body is larger than `max_body`.
    BodyTooLarge = "body_too_large", TooLarge;
    /// An event is larger than the log accepts.
    EventTooLarge = "event_too_large", TooLarge;
    /// Content is larger than `max_blob`.
    BlobTooLarge = "blob_too_large", TooLarge;
    /// A message has too many parts, or the input too many messages.
    TooManyParts = "too_many_parts", TooLarge;
    /// JSON is nested too deep.
    JsonTooDeep = "json_too_deep", Invalid;
    /// The parsed JSON would need far more memory than its text.
    JsonTooComplex = "json_too_complex", TooLarge;
    /// A queue is full.
    Overloaded = "overloaded", TooMany;
    /// The disk is full.
    DiskFull = "disk_full", NoSpace;
    /// The store had an I/O error and takes no more writes until the next start.
    StoreReadOnly = "store_read_only", Unavailable;
    /// The store's database cannot be reached. Whether a change was stored may be unknown.
    StoreUnavailable = "store_unavailable", Unavailable;
    /// The store's own structures are damaged.
    StoreCorrupt = "store_corrupt", Unavailable;
    /// Another process holds the store.
    StoreLocked = "store_locked", Conflict;
    /// The store was written by a newer version.
    StoreTooNew = "store_too_new", Conflict;
    /// The thread's stored data is damaged; only this thread is affected.
    ThreadQuarantined = "thread_quarantined", Unavailable;
    /// Another node of the cluster owns the thread.
    ThreadElsewhere = "thread_elsewhere", Unavailable;
    /// Another owner has taken the thread over.
    OwnershipLost = "ownership_lost", Unavailable;
    /// The server is shutting down.
    ShuttingDown = "shutting_down", Unavailable;
    /// The agent reported an error.
    AgentFailed = "agent_failed", Internal;
    /// The agent sent output that the strict rules of the mount refuse.
    OutputInvalid = "output_invalid", Internal;
    /// The agent's result does not fit the schema it declares.
    ResultInvalid = "output_schema_violation", Internal;
    /// The agent asked a question that it does not declare.
    InterruptInvalid = "interrupt_schema_violation", Internal;
    /// An update of the agent's own kind does not fit the schema that it declares.
    UpdateInvalid = "stream_update_schema_violation", Internal;
    /// The agent panicked.
    AgentPanicked = "agent_panicked", Internal;
    /// The agent was lost with its process; its last actions are unknown.
    AgentLost = "agent_lost", Unavailable;
    /// The question got no answer in time.
    AwaitTimeout = "await_timeout", Unavailable;
    /// A newer run replaced this run.
    RunSuperseded = "run_superseded", Conflict;
    /// The run was removed together with its results.
    RunRolledBack = "run_rolled_back", Conflict;
    /// The run that called this one has ended, or was lost with its server.
    ParentEnded = "parent_ended", Conflict;
    /// The run had not ended when its store was backed up or copied, and was not to continue in another store.
    RunNotRestored = "run_not_restored", Conflict;
    /// An agent may not call this agent now: the chain of calls is too long, or it already contains the agent.
    CallRefused = "call_refused", Unprocessable;
    /// An outbound address is not allowed.
    EgressRefused = "egress_refused", Unprocessable;
    /// The peer could not be reached.
    PeerUnavailable = "peer_unavailable", Unavailable;
    /// A run at another server sends more than one run may log. A retry does not help.
    RemoteOutputTooLarge = "remote_output_too_large", Internal;
    /// The peer violates its protocol. A retry does not help.
    ProtocolViolation = "protocol_violation", Internal;
    /// A server error; details are in the server's log.
    Internal = "internal", Internal;
}

// === impl Code ===

impl Code {
    /// Returns `true` if the same request may succeed later without a change.
    #[must_use]
    pub fn is_transient(self) -> bool {
        match self {
            // The running run ends at some time.
            Self::ThreadBusy => true,
            Self::StoreCorrupt | Self::ThreadQuarantined => false,
            _ => matches!(self.class(), Class::Unavailable | Class::TooMany | Class::NoSpace),
        }
    }
}

// === impl Error ===

impl Error {
    /// Returns an error with this message: a sentence fragment that names the subject.
    #[must_use]
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Inner {
            code,
            message: message.into(),
            hint: None,
            pending: None,
            node: None,
            missing_agent: None,
            violations: Vec::new(),
        }))
    }

    /// Sets what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Sets the interrupt that is pending instead.
    #[must_use]
    pub fn pending(mut self, interrupt: crate::InterruptId) -> Self {
        self.0.pending = Some(interrupt);
        self
    }

    /// Sets the name and the address of the node that can serve the request.
    #[must_use]
    pub fn node(mut self, name: String, address: String) -> Self {
        self.0.node = Some(NamedNode { name, address });
        self
    }

    /// Sets the agent that this node does not have. Another node may have it and can then serve the request.
    #[must_use]
    pub fn without_agent(mut self, agent: impl Into<String>) -> Self {
        self.0.missing_agent = Some(agent.into());
        self
    }

    /// Sets the places where a value does not fit. Keeps the first [`crate::limits::MAX_VIOLATIONS`].
    #[must_use]
    pub fn violations(mut self, mut violations: Vec<Violation>) -> Self {
        violations.truncate(crate::limits::MAX_VIOLATIONS);
        self.0.violations = violations;
        self
    }

    /// Returns the stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// Returns the message.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns what to do next, if known.
    #[must_use]
    pub fn hint_text(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// Returns the known places where a value does not fit its schema.
    #[must_use]
    pub fn violated(&self) -> &[Violation] {
        &self.0.violations
    }

    /// Returns the pending interrupt, if an answer did not match it.
    #[must_use]
    pub fn pending_interrupt(&self) -> Option<&crate::InterruptId> {
        self.0.pending.as_ref()
    }

    /// Returns the address of the node that can serve the request instead.
    #[must_use]
    pub fn other_node(&self) -> Option<&str> {
        self.0.node.as_ref().map(|node| node.address.as_str())
    }

    /// Returns the name of that node.
    #[must_use]
    pub fn other_node_name(&self) -> Option<&str> {
        self.0.node.as_ref().map(|node| node.name.as_str())
    }

    /// Returns the agent that this node does not have, as the request names it.
    #[must_use]
    pub fn missing_agent(&self) -> Option<&str> {
        self.0.missing_agent.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.code.as_str(), self.0.message)?;
        match &self.0.hint {
            Some(hint) => write!(f, " (hint: {hint})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_read_back() {
        for code in Code::ALL {
            assert_eq!(Code::from_text(code.as_str()), Some(*code));
        }
        assert_eq!(Code::from_text("nonsense"), None);
    }
}
