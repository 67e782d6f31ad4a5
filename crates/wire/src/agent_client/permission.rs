use super::ToolCallUpdate;
use super::object::object;
use super::tagged::tagged;
use crate::json::words::words;

object! {
    pub struct RequestPermissionRequest {
        session_id: String = "sessionId";
        /// The tool call may be new.
        tool_call: ToolCallUpdate = "toolCall";
        /// The kind of an option is its meaning; its order and id have none.
        options: Vec<PermissionOption> = "options";
    }

    pub struct PermissionOption {
        option_id: String = "optionId";
        /// For people.
        name: String = "name";
        kind: PermissionOptionKind = "kind";
    }
}

words! {
    pub enum PermissionOptionKind {
        AllowOnce = "allow_once";
        AllowAlways = "allow_always";
        RejectOnce = "reject_once";
        RejectAlways = "reject_always";
    }
}

object! {
    pub struct RequestPermissionResponse {
        outcome: RequestPermissionOutcome = "outcome";
    }
}

tagged! {
    /// An unknown kind allows nothing.
    pub enum RequestPermissionOutcome by "outcome" {
        /// The turn was cancelled before a decision.
        Cancelled(CancelledPermission) = "cancelled";
        Selected(SelectedPermission) = "selected";
    }
}

object! {
    pub struct CancelledPermission;

    pub struct SelectedPermission {
        option_id: String = "optionId";
    }
}

// === impl PermissionOptionKind ===

impl PermissionOptionKind {
    pub const fn allows(self) -> bool {
        matches!(self, Self::AllowOnce | Self::AllowAlways)
    }
}

// === impl RequestPermissionRequest ===

impl RequestPermissionRequest {
    pub fn option(&self, kind: PermissionOptionKind) -> Option<&PermissionOption> {
        self.options.iter().find(|option| option.kind == kind)
    }

    /// Returns the option that an answer chooses. `None` if the answer chooses no offered option, which allows nothing.
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
    pub fn selected(option_id: impl Into<String>) -> Self {
        Self::new(RequestPermissionOutcome::Selected(SelectedPermission::new(option_id)))
    }

    pub fn cancelled() -> Self {
        Self::new(RequestPermissionOutcome::Cancelled(CancelledPermission::new()))
    }
}
