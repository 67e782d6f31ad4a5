//! What the Agent Connect Protocol carries.

use crate::fidelity::Verdict::{Carried, Extension, Lost};
use crate::fidelity::{Row, Verdict};

/// What becomes of each concept here. A type's member is written `Type.member`.
pub const ROWS: &[Row] = &[
    row("identity", Carried("`AgentMetadata.ref` with name, version and address; the descriptor")),
    row("conversation", Carried("`Thread`")),
    row(
        "list, load, delete, fork",
        Carried("`/threads/search`, `/threads/{thread_id}` and its `history`, `DELETE`, `copy`"),
    ),
    row(
        "working directory, MCP servers",
        Lost("a run has no member for them: an agent uses those of its configuration"),
    ),
    row("one execution", Carried("`Run`, on a thread or stateless")),
    row("its id", Carried("`Run.run_id`, made by the server")),
    row("message id", Carried("`Message.id`")),
    row("several input messages, roles", Carried("`messages` of the input, `Message.role`")),
    row("input or output by schema", Carried("`RunCreate.input`, `RunResult.values`")),
    row("text", Carried("a string as `Message.content`, or a block `text`")),
    row(
        "image, audio",
        Extension("a block `image` or `audio` with `metadata.content` or `metadata.content_url`"),
    ),
    row(
        "embedded resource",
        Extension(
            "a block with `metadata.name` and `metadata.content`; other members in `metadata`",
        ),
    ),
    row(
        "link",
        Extension(
            "a block `link` with `metadata.content_url`; size, title and description in `metadata`",
        ),
    ),
    row("named artifact", Extension("a block with `metadata.name`")),
    row("annotations", Extension("`metadata` of the block")),
    row(
        "streamed text",
        Carried("`values` events, each the whole so far; `custom` events, each a piece"),
    ),
    row("thought", Carried("a `custom` event with `kind: \"message.thought\"`")),
    row("tool call", Carried("`custom` events with `kind: \"tool.…\"`")),
    row(
        "kind, locations, diffs and terminals of a tool call",
        Extension("the agent's own update, as `trilogue.update` of the `custom` event"),
    ),
    row("citation", Extension("`metadata.citation` of the block")),
    row("plan", Carried("a `custom` event with `kind: \"state.plan\"`")),
    row("usage, modes, commands", Extension("`custom` events with their `kind`")),
    row("state", Carried("`Thread.values`, `ThreadState.values`")),
    row(
        "permission",
        Carried(
            "the interrupt type `permission` with its options; resumed by `{\"option_id\": …}`",
        ),
    ),
    row("form, url", Carried("the interrupt types `form` and `url`, with `resume_schema`")),
    row("an agent's own interrupt", Carried("its own interrupt type, by the descriptor's schemas")),
    row(
        "several interrupts at once",
        Carried("one at a time, the oldest first; each names itself in `interrupt_id`"),
    ),
    row("client's files and terminals", Lost("an agent cannot call a client of this face")),
    row("end", Carried("`Run.status`")),
    row("a peer's own end reason", Extension("a `custom` event with `kind: \"turn_result\"`")),
    row("cancel", Carried("`cancel`; the run ends with `errcode` 5, the cause in `RunError.data`")),
    row(
        "failure",
        Carried("`RunError`: number, code, whether it is transient, the agent's details in `data`"),
    ),
    row("busy or waiting thread", Carried("`RunCreate.multitask_strategy`")),
    row("schedule", Carried("`RunCreate.after_seconds`")),
    row("webhook", Carried("`RunCreate.webhook`, or `callback` to say of what")),
    row("end on disconnect", Carried("`RunCreate.on_disconnect`")),
    row("checkpoints", Carried("`ThreadState.checkpoint`, `ThreadPatch.checkpoint`")),
    row("live, replay", Carried("server-sent events with ids, resumed by `Last-Event-ID`; join")),
    row("unknown variants", Extension("a `custom` event with `kind: \"opaque\"` and the original")),
    row("trace context", Carried("the header `traceparent`")),
];

const fn row(concept: &'static str, verdict: Verdict) -> Row {
    Row { concept, verdict }
}
