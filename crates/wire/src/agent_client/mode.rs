use super::object::object;

object! {
    /// The modes that a session has.
    pub struct SessionModeState {
        /// The mode that it is in.
        current_mode_id: String = "currentModeId" as required;
        /// The modes that it can be in.
        available_modes: Vec<SessionMode> = "availableModes" as fitting_there;
    } may {
    }
}

object! {
    /// A mode that a session can be in.
    pub struct SessionMode {
        /// Its id.
        id: String = "id" as required;
        /// What it is called towards people.
        name: String = "name" as required;
    } may {
        /// What it means.
        description: Option<String> = "description" as lenient;
    }
}

object! {
    /// The session has another mode.
    pub struct CurrentModeUpdate {
        /// The mode.
        current_mode_id: String = "currentModeId" as required;
    } may {
    }
}

object! {
    /// Puts a session into a mode.
    pub struct SetSessionModeRequest {
        /// The session.
        session_id: String = "sessionId" as required;
        /// The mode.
        mode_id: String = "modeId" as required;
    } may {
    }
}

object! {
    /// The session is in the mode.
    #[derive(Default)]
    pub struct SetSessionModeResponse {
    } may {
    }
}
