use super::object::object;

object! {
    pub struct SessionModeState {
        current_mode_id: String = "currentModeId";
        available_modes: Vec<SessionMode> = "availableModes" as fitting_there;
    }

    pub struct SessionMode {
        id: String = "id";
        /// For people.
        name: String = "name";
    } may {
        description: Option<String> = "description";
    }

    pub struct CurrentModeUpdate {
        current_mode_id: String = "currentModeId";
    }

    pub struct SetSessionModeRequest {
        session_id: String = "sessionId";
        mode_id: String = "modeId";
    }

    pub struct SetSessionModeResponse;
}
