use crate::json::record::record;

record! {
    /// An error (RFC 9457, `application/problem+json`).
    pub struct Problem: Default {
        /// The URI of the kind of problem: `urn:trilogue:error:` and the code.
        kind as "type": String,
        /// The title of the kind of problem.
        title: String,
        /// The HTTP status.
        status: u16,
        /// The stable code. Programs should depend only on this member.
        code: String,
        /// What happened. Names its subject.
        detail: String,
        /// What to do next.
        hint?: String,
        /// The pending interrupt, if an answer did not match it.
        interrupt_id?: String,
        /// Whether the same request may succeed later without a change.
        transient: bool = default,
        /// The id of the request in the server's log.
        request_id?: String,
    }
}
