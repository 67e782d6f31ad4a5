use super::ToolCallUpdate;
use super::object::object;
use super::tagged::tagged;
use crate::json::words::words;

object! {
    /// Asks whether a tool may be used.
    pub struct RequestPermissionRequest {
        /// The session.
        session_id: String = "sessionId" as required;
        /// The tool call. It may be the first that is heard of it.
        tool_call: ToolCallUpdate = "toolCall" as required;
        /// What can be answered. Their kinds say what they mean; their order and their ids do not.
        options: Vec<PermissionOption> = "options" as required;
    } may {
    }
}

object! {
    /// An answer that can be given.
    pub struct PermissionOption {
        /// Its id.
        option_id: String = "optionId" as required;
        /// What it is called towards people.
        name: String = "name" as required;
        /// What it means.
        kind: PermissionOptionKind = "kind" as required;
    } may {
    }
}

words! {
    /// What an answer means.
    pub enum PermissionOptionKind {
        /// Yes, this time.
        AllowOnce = "allow_once";
        /// Yes, from now on.
        AllowAlways = "allow_always";
        /// No, this time.
        RejectOnce = "reject_once";
        /// No, from now on.
        RejectAlways = "reject_always";
    }
}

object! {
    /// The answer.
    pub struct RequestPermissionResponse {
        /// What was decided.
        outcome: RequestPermissionOutcome = "outcome" as required;
    } may {
    }
}

tagged! {
    /// What was decided. A kind that the protocol has no word for allows nothing.
    pub enum RequestPermissionOutcome by "outcome" {
        /// The turn was cancelled before anybody decided.
        Cancelled(CancelledPermission) = "cancelled";
        /// One of the options.
        Selected(SelectedPermission) = "selected";
    }
}

object! {
    /// Nobody decided.
    #[derive(Default)]
    pub struct CancelledPermission {
    } may {
    }
}

object! {
    /// An option was chosen.
    pub struct SelectedPermission {
        /// The option's id.
        option_id: String = "optionId" as required;
    } may {
    }
}

// === impl PermissionOptionKind ===

impl PermissionOptionKind {
    /// Whether the tool may be used.
    #[must_use]
    pub const fn allows(self) -> bool {
        matches!(self, Self::AllowOnce | Self::AllowAlways)
    }
}

// === impl RequestPermissionRequest ===

impl RequestPermissionRequest {
    /// The first option of this kind.
    #[must_use]
    pub fn option(&self, kind: PermissionOptionKind) -> Option<&PermissionOption> {
        self.options.iter().find(|option| option.kind == kind)
    }

    /// The option that an answer chooses. `None` where it chooses none that was offered, which allows nothing.
    #[must_use]
    pub fn chosen(&self, answer: &RequestPermissionResponse) -> Option<&PermissionOption> {
        match &answer.outcome {
            RequestPermissionOutcome::Selected(selected) => {
                self.options.iter().find(|option| option.option_id == selected.option_id)
            }
            _ => None,
        }
    }
}

// === impl RequestPermissionResponse ===

impl RequestPermissionResponse {
    /// This option was chosen.
    #[must_use]
    pub fn selected(option_id: impl Into<String>) -> Self {
        Self::new(RequestPermissionOutcome::Selected(SelectedPermission::new(option_id)))
    }

    /// Nobody decided.
    #[must_use]
    pub fn cancelled() -> Self {
        Self::new(RequestPermissionOutcome::Cancelled(CancelledPermission::new()))
    }
}
