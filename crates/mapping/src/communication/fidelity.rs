//! What the Agent Communication Protocol carries.

use crate::fidelity::Verdict::{Carried, Extension, Lost};
use crate::fidelity::{Row, Verdict};

/// What becomes of each concept here. A type's member is written `Type.member`.
pub const ROWS: &[Row] = &[
    row(
        "identity",
        Carried("`AgentManifest`; version, schemas and a name with dots in `metadata.x_trilogue`"),
    ),
    row("conversation", Carried("`Session`")),
    row(
        "list, load, delete, fork",
        Lost(
            "there is no endpoint for them; a session can be read, and replaced by an inline `session`",
        ),
    ),
    row(
        "working directory, MCP servers",
        Lost("a run has no member for them: an agent uses those of its configuration"),
    ),
    row("one execution", Carried("`Run`")),
    row(
        "its id",
        Carried(
            "`Run.run_id`, made by the server; an id that is not a UUID shows as a derived UUID",
        ),
    ),
    row(
        "message id",
        Extension(
            "`x_trilogue.message_id` of the first part on input; the address in `Session.history` on output",
        ),
    ),
    row("several input messages, roles", Carried("`RunCreateRequest.input`, `Message.role`")),
    row(
        "input or output by schema",
        Carried("a part `application/json`; its one text, or `message`, before it as `text/plain`"),
    ),
    row("text", Carried("a part `text/plain`")),
    row("image, audio", Carried("`MessagePart.content` in base64, or `MessagePart.content_url`")),
    row(
        "embedded resource",
        Extension("a part with `name` and content; other members as members of the part"),
    ),
    row(
        "link",
        Extension("`MessagePart.content_url`; size, title and description as members of the part"),
    ),
    row("named artifact", Carried("`MessagePart.name`")),
    row("annotations", Extension("members of the part")),
    row("streamed text", Carried("`message.created`, `message.part`, `message.completed`")),
    row("thought", Carried("`MessagePart.metadata` as a trajectory with `message`")),
    row(
        "tool call",
        Carried("`MessagePart.metadata` as a trajectory, at its start and at its end"),
    ),
    row(
        "kind, locations, diffs and terminals of a tool call",
        Extension(
            "the agent's own update, as `x_trilogue.update` of the trajectory's part, or of `generic`",
        ),
    ),
    row("citation", Carried("`MessagePart.metadata` as a citation")),
    row("plan", Extension("`generic` with `kind: \"plan\"`")),
    row("usage, modes, commands", Extension("`generic` with their `kind`")),
    row("state", Carried("`Session.state`, an address")),
    row(
        "permission",
        Carried(
            "`await_request`: the options as text and as JSON; the answer by id, name, yes or no, or JSON",
        ),
    ),
    row(
        "form, url",
        Carried("`await_request` with the schema in a part `application/json`; the answer as one"),
    ),
    row(
        "an agent's own interrupt",
        Carried("`await_request` with kind, payload and schema in a part `application/json`"),
    ),
    row(
        "several interrupts at once",
        Carried("one at a time, the oldest first; each names itself in `x_trilogue.interrupt_id`"),
    ),
    row("client's files and terminals", Lost("an agent cannot call a client of this face")),
    row("end", Carried("`Run.status`")),
    row("a peer's own end reason", Extension("`generic` with `kind: \"turn_result\"`")),
    row(
        "cancel",
        Carried(
            "`cancelling`, then `cancelled`; the cause is lost, because `Run` has no member for it",
        ),
    ),
    row(
        "failure",
        Carried(
            "`Run.error`: one of three codes; our code, whether it is transient, and the agent's details in `data`",
        ),
    ),
    row(
        "busy or waiting thread",
        Carried(
            "runs wait their turn; 400 with `data.reason` where a run waits and keeps the turn",
        ),
    ),
    row("schedule", Lost("`RunCreateRequest` has no member for it")),
    row(
        "webhook",
        Lost("`RunCreateRequest` has no member for one: a run's end is read from its events"),
    ),
    row(
        "end on disconnect",
        Lost("a client that hangs up does not end its run, and has to cancel it"),
    ),
    row("checkpoints", Lost("a session has one history and one state, those of the head")),
    row(
        "live, replay",
        Carried("server-sent events with ids, resumed by `Last-Event-ID`; the same as JSON"),
    ),
    row("unknown variants", Extension("`generic` with `kind: \"opaque\"` and the original")),
    row("trace context", Carried("the header `traceparent`")),
];

const fn row(concept: &'static str, verdict: Verdict) -> Row {
    Row { concept, verdict }
}
