use super::Id;
use super::object::object;

object! {
    pub struct CancelNotification {
        session_id: String = "sessionId";
    }
}

object! {
    /// Asks for a response now, even if it is an error.
    pub struct CancelRequestNotification {
        request_id: Id<'static> = "requestId";
    }
}
