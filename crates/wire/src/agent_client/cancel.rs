use super::Id;
use super::object::object;

object! {
    /// Ends a session's turn.
    pub struct CancelNotification {
        /// The session.
        session_id: String = "sessionId" as required;
    } may {
    }
}

object! {
    /// Asks for an answer now, even if it is none.
    pub struct CancelRequestNotification {
        /// The request, by the id that its sender gave it.
        request_id: Id<'static> = "requestId" as required;
    } may {
    }
}
