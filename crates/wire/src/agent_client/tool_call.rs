use super::object::object;
use super::tagged::tagged;
use super::{ContentBlock, Json};
use crate::json::words::words;

object! {
    /// A tool call that is sent again replaces the earlier one.
    pub struct ToolCall {
        /// Unique in the session.
        tool_call_id: String = "toolCallId";
        /// For people.
        title: String = "title";
    } may {
        name: Option<String> = "name";
        /// Absent means [`ToolKind::Other`].
        kind: Option<ToolKind> = "kind";
        /// Absent means [`ToolCallStatus::Pending`].
        status: Option<ToolCallStatus> = "status";
        content: Vec<ToolCallContent> = "content" as fitting;
        locations: Vec<ToolCallLocation> = "locations" as fitting;
        raw_input: Option<Json> = "rawInput";
        raw_output: Option<Json> = "rawOutput";
    }

    /// A change of a tool call. Absent members stay unchanged; lists are replaced as a whole.
    pub struct ToolCallUpdate {
        /// An unknown id begins a new tool call.
        tool_call_id: String = "toolCallId";
    } may {
        /// For people.
        title: Option<String> = "title";
        name: Option<String> = "name";
        kind: Option<ToolKind> = "kind";
        status: Option<ToolCallStatus> = "status";
        content: Option<Vec<ToolCallContent>> = "content" as optional_fitting;
        locations: Option<Vec<ToolCallLocation>> = "locations" as optional_fitting;
        raw_input: Option<Json> = "rawInput";
        raw_output: Option<Json> = "rawOutput";
    }
}

words! {
    pub enum ToolKind {
        Read = "read";
        Edit = "edit";
        Delete = "delete";
        Move = "move";
        Search = "search";
        Execute = "execute";
        Think = "think";
        Fetch = "fetch";
        SwitchMode = "switch_mode";
        Other = "other";
    }

    pub enum ToolCallStatus {
        /// The input is still streaming, or the call waits for a permission.
        Pending = "pending";
        InProgress = "in_progress";
        Completed = "completed";
        Failed = "failed";
    }
}

tagged! {
    pub enum ToolCallContent by "type" {
        Content(Box<ToolContent>) = "content";
        Diff(Diff) = "diff";
        /// A terminal, whose output is shown live.
        Terminal(ToolTerminal) = "terminal";
        /// Another session, such as a sub-agent's. Only for clients with `subagents`.
        Session(ToolSession) = "session";
    }
}

object! {
    pub struct ToolContent {
        content: ContentBlock = "content";
    }

    pub struct Diff {
        /// An absolute path.
        path: String = "path";
        new_text: String = "newText";
    } may {
        /// Absent for a new file.
        old_text: Option<String> = "oldText";
    }

    pub struct ToolTerminal {
        terminal_id: String = "terminalId";
    }

    pub struct ToolSession {
        session_id: String = "sessionId";
    }

    pub struct ToolCallLocation {
        /// An absolute path.
        path: String = "path";
    } may {
        line: Option<u32> = "line";
    }
}

// === impl ToolCallUpdate ===

impl From<ToolCall> for ToolCallUpdate {
    fn from(call: ToolCall) -> Self {
        Self {
            tool_call_id: call.tool_call_id,
            title: Some(call.title),
            name: call.name,
            kind: Some(call.kind.unwrap_or(ToolKind::Other)),
            status: Some(call.status.unwrap_or(ToolCallStatus::Pending)),
            content: Some(call.content),
            locations: Some(call.locations),
            raw_input: call.raw_input,
            raw_output: call.raw_output,
            meta: call.meta,
            extra: call.extra,
        }
    }
}
