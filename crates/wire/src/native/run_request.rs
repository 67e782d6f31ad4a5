use crate::json::record::record;

record! {
    /// The request of a run as code that creates a similar run.
    pub written struct RunRequests {
        /// One item for each protocol and client.
        items: Vec<RequestCode>,
    }

    /// A request as code. It reads the token from `TRILOGUE_TOKEN`.
    pub written struct RequestCode {
        /// The protocol, as in the fidelity table.
        protocol: String,
        /// The client: `curl`, the name of a package, or the form of a message.
        name: String,
        /// What the request does, for people.
        about: String,
        /// The code.
        code: String,
    }
}
