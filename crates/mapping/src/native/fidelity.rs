//! What our own face carries, and the whole table as it is shown.

use trilogue_wire::native::{FidelityRow, FidelityVerdict};

use crate::fidelity::Verdict::{Carried, Extension, Lost};
use crate::fidelity::{Row, TABLE, Verdict};

/// What becomes of each concept here. A type's member is written `Type.member`.
pub const ROWS: &[Row] = &[
    row(
        "identity",
        Carried("`Agent`: name, version, description, schemas, content types, interrupts"),
    ),
    row("conversation", Carried("`Thread`")),
    row(
        "list, load, delete, fork",
        Carried(
            "`list_threads`, `list_messages`, `list_thread_events`, `erase_thread`, `copy_thread`",
        ),
    ),
    row(
        "working directory, MCP servers",
        Lost("a run has no member for them: an agent uses those of its configuration"),
    ),
    row("one execution", Carried("`Run`, on a thread or on a new one")),
    row("its id", Carried("`Run.id`, chosen by the client or the server")),
    row("message id", Carried("`Message.id`, chosen by the sender or the server")),
    row("several input messages, roles", Carried("`RunCreate.input` as an array, `Message.role`")),
    row("input or output by schema", Carried("`RunCreate.input` as a value, `Run.result`")),
    row("text", Carried("`Part.content`")),
    row(
        "image, audio",
        Carried("`Part.content` in base64, `Part.content_url`, or `Part.blob` if it is large"),
    ),
    row(
        "embedded resource",
        Extension("`Part.name` and `Part.content`; its URL and other members in `Part.extra`"),
    ),
    row("link", Extension("`Part.content_url`; size, title and description in `Part.extra`")),
    row("named artifact", Carried("`Part.name`")),
    row("annotations", Extension("`Part.extra`")),
    row(
        "streamed text",
        Carried("`message.started`, `message.delta`, `message.part`, `message.completed`"),
    ),
    row("thought", Carried("`message.thought`, or `Part.metadata` as a `Trajectory`")),
    row(
        "tool call",
        Carried(
            "`tool.started`, `tool.updated`, `tool.ended`, or `Part.metadata` as a `Trajectory`",
        ),
    ),
    row(
        "kind, locations, diffs and terminals of a tool call",
        Extension("`Event.original`, if a peer sent them"),
    ),
    row("citation", Carried("`Part.metadata` as a `Citation`")),
    row("plan", Carried("`state.plan`")),
    row(
        "usage, modes, commands",
        Extension("`state.custom`, or `Event.original` if a peer sent them"),
    ),
    row("state", Carried("`Thread.values`, `state.values`, `Checkpoint.values`")),
    row("permission", Carried("`Interrupt.options`, `AnswerCreate.option`")),
    row("form, url", Carried("`Interrupt.prompt`, `Interrupt.schema`, `AnswerCreate.value`")),
    row(
        "an agent's own interrupt",
        Carried("`Interrupt.kind`, `Interrupt.payload`, `AnswerCreate.value`"),
    ),
    row(
        "several interrupts at once",
        Carried("`Run.interrupts`; each is answered by its own `Interrupt.id`"),
    ),
    row("client's files and terminals", Lost("an agent cannot call a client of this face")),
    row("end", Carried("`Run.outcome`, `run.ended`")),
    row("a peer's own end reason", Extension("`Event.original`")),
    row("cancel", Carried("`cancel_run`, `run.cancelling`; the cause in `Outcome.reason`")),
    row(
        "failure",
        Carried("`Outcome.error`: code, message, whether it is transient, the agent's details"),
    ),
    row("busy or waiting thread", Carried("`RunCreate.strategy`, `RunCreate.when_waiting`")),
    row("schedule", Carried("`RunCreate.not_before`")),
    row("webhook", Lost("a run has no member for one; clients read its end from its events")),
    row(
        "end on disconnect",
        Lost("a client that hangs up does not end its run, and has to cancel it"),
    ),
    row("checkpoints", Carried("`Checkpoint`, `ThreadPatch.from`")),
    row(
        "live, replay",
        Carried("`list_run_events`, `list_thread_events`: one log, resumed by `Event.id`"),
    ),
    row("unknown variants", Extension("`opaque`, with `Event.original`")),
    row(
        "trace context",
        Carried("the header `traceparent`, into the server's log and back in the response"),
    ),
];

const fn row(concept: &'static str, verdict: Verdict) -> Row {
    Row { concept, verdict }
}

/// The rows of every protocol, as our own face shows them.
#[must_use]
pub fn rows() -> Vec<FidelityRow> {
    let rows =
        TABLE.iter().flat_map(|protocol| protocol.rows.iter().map(|row| shown(protocol.name, row)));
    rows.collect()
}

fn shown(protocol: &str, row: &Row) -> FidelityRow {
    let (verdict, carrier, because) = match row.verdict {
        Carried(place) => (FidelityVerdict::Carried, Some(place), None),
        Extension(place) => (FidelityVerdict::Extension, Some(place), None),
        Lost(why) => (FidelityVerdict::Lost, None, Some(why)),
    };
    FidelityRow {
        protocol: protocol.to_owned(),
        concept: row.concept.to_owned(),
        verdict,
        carrier: carrier.map(str::to_owned),
        because: because.map(str::to_owned),
    }
}
