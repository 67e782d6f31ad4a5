//! What the Agent Client Protocol carries.

use crate::fidelity::Verdict::{Carried, Extension, Lost};
use crate::fidelity::{Row, Verdict};

/// What becomes of each concept here. A type's member is written `Type.member`.
pub const ROWS: &[Row] = &[
    row(
        "identity",
        Carried(
            "`agentInfo` with name, version and title; `agentCapabilities`; a hosted agent's own",
        ),
    ),
    row("conversation", Carried("a session, whose id is the thread's")),
    row(
        "list, load, delete, fork",
        Carried("`session/list`, `session/load`, `session/resume`, `session/delete`; no fork"),
    ),
    row(
        "working directory, MCP servers",
        Carried("`cwd`, `additionalDirectories` and `mcpServers` of the session's requests"),
    ),
    row("one execution", Carried("a turn: `session/prompt` and its response")),
    row(
        "its id",
        Lost("a turn has the id of its JSON-RPC request, which only its connection knows"),
    ),
    row(
        "message id",
        Carried("`messageId` of prompts and chunks, `userMessageId` of the prompt's response"),
    ),
    row(
        "several input messages, roles",
        Carried(
            "towards clients `user_message_chunk` and `agent_message_chunk`; towards agents text in front of the prompt",
        ),
    ),
    row(
        "input or output by schema",
        Carried(
            "text, or a resource `application/json`, as the value; the result as its text or as JSON in a fence",
        ),
    ),
    row("text", Carried("a block `text`; longer than 1 MiB as several chunks of one message")),
    row("image, audio", Carried("a block `image` or `audio`; a reference as a `resource_link`")),
    row("embedded resource", Carried("a block `resource`")),
    row("link", Carried("a block `resource_link`")),
    row("named artifact", Carried("a `resource`, or an `image`, with the address `artifact:NAME`")),
    row("annotations", Carried("`annotations` of a block")),
    row("streamed text", Carried("`agent_message_chunk`; another `messageId` is another message")),
    row(
        "thought",
        Carried("`agent_thought_chunk`; its `messageId` is made of its run and its first event"),
    ),
    row("tool call", Carried("`tool_call` and `tool_call_update`")),
    row(
        "kind, locations, diffs and terminals of a tool call",
        Carried("`kind`, `locations` and `content` of a tool call"),
    ),
    row(
        "citation",
        Extension(
            "a `resource_link` behind the text; its range only under `_meta`, if that is turned on",
        ),
    ),
    row("plan", Carried("`plan`; with `medium` priority for every step without one")),
    row(
        "usage, modes, commands",
        Carried(
            "`usage_update`, `current_mode_update`, `available_commands_update`, `config_option_update`; also as a native agent's own updates of these kinds",
        ),
    ),
    row("state", Lost("no update carries it; it is kept, and other protocols show it")),
    row("permission", Carried("`session/request_permission`")),
    row(
        "form, url",
        Carried("`elicitation/create`; for clients without it as an agent's own interrupt"),
    ),
    row(
        "an agent's own interrupt",
        Carried(
            "a form if the client shows forms and the schema is flat; a permission if the answer is one of a few values; otherwise the turn ends with the question, and the next prompt is the answer",
        ),
    ),
    row("several interrupts at once", Carried("requests at the same time")),
    row(
        "client's files and terminals",
        Carried("`fs/*` and `terminal/*`, to the client that prompted last"),
    ),
    row("end", Carried("`stopReason`")),
    row("a peer's own end reason", Carried("`stopReason` where the protocol has the word")),
    row(
        "cancel",
        Carried(
            "`session/cancel`, then `cancelled`; the cause is lost, because a stop reason is one word",
        ),
    ),
    row(
        "failure",
        Carried(
            "the prompt's error: its number, and our code and the details in `data`; an agent's own error unchanged",
        ),
    ),
    row(
        "busy or waiting thread",
        Carried("prompts wait their turn; the configuration can refuse them, or end the turn"),
    ),
    row("schedule", Lost("a prompt has no member for it")),
    row("webhook", Lost("a prompt has no member for one; its response is its end")),
    row(
        "end on disconnect",
        Lost("a client that hangs up does not end its turn, and has to cancel it"),
    ),
    row("checkpoints", Lost("a session has one history, that of the head")),
    row(
        "live, replay",
        Carried("updates as they happen; `session/load` repeats all of them with the same ids"),
    ),
    row("unknown variants", Carried("unchanged, with the server's session id")),
    row("trace context", Extension("`_meta.traceparent`")),
];

const fn row(concept: &'static str, verdict: Verdict) -> Row {
    Row { concept, verdict }
}
