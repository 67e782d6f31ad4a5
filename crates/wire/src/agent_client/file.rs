use super::object::object;

object! {
    /// Reads a text file of the client's.
    pub struct ReadTextFileRequest {
        /// The session.
        session_id: String = "sessionId" as required;
        /// The file, as an absolute path.
        path: String = "path" as required;
    } may {
        /// The first line to read, from 1.
        line: Option<u32> = "line" as optional;
        /// How many lines to read.
        limit: Option<u32> = "limit" as optional;
    }
}

object! {
    /// The text that was read.
    pub struct ReadTextFileResponse {
        /// The text.
        content: String = "content" as required;
    } may {
    }
}

object! {
    /// Writes a text file of the client's, which is made where there is none.
    pub struct WriteTextFileRequest {
        /// The session.
        session_id: String = "sessionId" as required;
        /// The file, as an absolute path.
        path: String = "path" as required;
        /// The text.
        content: String = "content" as required;
    } may {
    }
}

object! {
    /// The file is written.
    #[derive(Default)]
    pub struct WriteTextFileResponse {
    } may {
    }
}
