use super::object::object;
use super::tagged::tagged;
use super::{ContentBlock, Json};
use crate::json::words::words;

object! {
    /// A tool that the agent uses. One that is sent again replaces what was known of it.
    pub struct ToolCall {
        /// Its id in the session.
        tool_call_id: String = "toolCallId" as required;
        /// What it does, for people.
        title: String = "title" as required;
    } may {
        /// The tool's name, for programs.
        name: Option<String> = "name" as lenient;
        /// What kind of tool it is; [`ToolKind::Other`] where nobody says.
        kind: Option<ToolKind> = "kind" as lenient;
        /// Where it stands; [`ToolCallStatus::Pending`] where nobody says.
        status: Option<ToolCallStatus> = "status" as lenient;
        /// What it made.
        content: Vec<ToolCallContent> = "content" as fitting;
        /// The files that it works with.
        locations: Vec<ToolCallLocation> = "locations" as fitting;
        /// What it was given.
        raw_input: Option<Json> = "rawInput" as lenient;
        /// What it gave back.
        raw_output: Option<Json> = "rawOutput" as lenient;
    }
}

object! {
    /// What changed of a tool call. Everything that is not there stays as it was; lists are replaced as a whole.
    pub struct ToolCallUpdate {
        /// Its id in the session. One that was not known is a new tool call.
        tool_call_id: String = "toolCallId" as required;
    } may {
        /// What it does, for people.
        title: Option<String> = "title" as lenient;
        /// The tool's name, for programs.
        name: Option<String> = "name" as lenient;
        /// What kind of tool it is.
        kind: Option<ToolKind> = "kind" as lenient;
        /// Where it stands.
        status: Option<ToolCallStatus> = "status" as lenient;
        /// What it made.
        content: Option<Vec<ToolCallContent>> = "content" as optional_fitting;
        /// The files that it works with.
        locations: Option<Vec<ToolCallLocation>> = "locations" as optional_fitting;
        /// What it was given.
        raw_input: Option<Json> = "rawInput" as lenient;
        /// What it gave back.
        raw_output: Option<Json> = "rawOutput" as lenient;
    }
}

words! {
    /// What kind of tool it is.
    pub enum ToolKind {
        /// It reads files or data.
        Read = "read";
        /// It changes files or data.
        Edit = "edit";
        /// It removes files or data.
        Delete = "delete";
        /// It moves or renames files.
        Move = "move";
        /// It searches.
        Search = "search";
        /// It runs a command or code.
        Execute = "execute";
        /// It thinks or plans.
        Think = "think";
        /// It fetches something from outside.
        Fetch = "fetch";
        /// It changes the session's mode.
        SwitchMode = "switch_mode";
        /// Anything else.
        Other = "other";
    }
}

words! {
    /// Where a tool call stands.
    pub enum ToolCallStatus {
        /// It has not begun: its input streams in, or somebody has to allow it.
        Pending = "pending";
        /// It runs.
        InProgress = "in_progress";
        /// It is done.
        Completed = "completed";
        /// It failed, or was cancelled.
        Failed = "failed";
    }
}

tagged! {
    /// What a tool call made.
    pub enum ToolCallContent by "type" {
        /// A content block.
        Content(Box<ToolContent>) = "content";
        /// A change of a file.
        Diff(Diff) = "diff";
        /// A terminal, whose output is shown live.
        Terminal(ToolTerminal) = "terminal";
    }
}

object! {
    /// A content block that a tool call made.
    pub struct ToolContent {
        /// The block.
        content: ContentBlock = "content" as required;
    } may {
    }
}

object! {
    /// A change of a file.
    pub struct Diff {
        /// The file, as an absolute path.
        path: String = "path" as required;
        /// Its text afterwards.
        new_text: String = "newText" as required;
    } may {
        /// Its text before; absent for a new file.
        old_text: Option<String> = "oldText" as lenient;
    }
}

object! {
    /// A terminal that `terminal/create` made.
    pub struct ToolTerminal {
        /// Its id.
        terminal_id: String = "terminalId" as required;
    } may {
    }
}

object! {
    /// A file that a tool call works with.
    pub struct ToolCallLocation {
        /// The file, as an absolute path.
        path: String = "path" as required;
    } may {
        /// The line.
        line: Option<u32> = "line" as lenient;
    }
}

// === impl ToolCallUpdate ===

impl From<ToolCall> for ToolCallUpdate {
    /// A change that makes any tool call of that id the given one.
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
