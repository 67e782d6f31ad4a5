use super::object::object;

object! {
    pub struct ReadTextFileRequest {
        session_id: String = "sessionId";
        /// An absolute path.
        path: String = "path";
    } may {
        /// The first line to read, from 1.
        line: Option<u32> = "line" as optional;
        limit: Option<u32> = "limit" as optional;
    }

    pub struct ReadTextFileResponse {
        content: String = "content";
    }

    /// Creates the file if it does not exist.
    pub struct WriteTextFileRequest {
        session_id: String = "sessionId";
        /// An absolute path.
        path: String = "path";
        content: String = "content";
    }

    pub struct WriteTextFileResponse;
}
