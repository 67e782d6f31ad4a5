use super::Id;
use super::object::object;

object! {
    pub struct CancelNotification {
        session_id: String = "sessionId";
    }

    pub struct CancelRequestNotification {
        request_id: Id<'static> = "requestId";
    }
}
