//! What each protocol carries, as data: the source of the documentation's page and of our own face's response.

mod concepts;
mod direction;
mod loss;

use std::fmt::Write as _;

use trilogue_domain::error::Result;
use trilogue_wire::native::{FidelityRow, FidelityVerdict};

use self::Support::{Carried, Extension, Lost};

pub use concepts::rows_of;
pub use loss::{FidelityLoss, LOST, lost_by_prompt};

/// The protocols, in the order of a row's verdicts: the name of the mount, and the title.
const PROTOCOLS: [(&str, &str); 4] = [
    ("native", "The HTTP interface `/api/v1`"),
    ("communication", "The Agent Communication Protocol"),
    ("connect", "The Agent Connect Protocol"),
    ("client", "The Agent Client Protocol"),
];

/// One concept, in neutral words, and each protocol's support of it.
struct Row {
    concept: &'static str,
    verdicts: [Support; PROTOCOLS.len()],
}

/// A protocol's support of a concept. Names of the protocol are in backticks, a type's member is written `Type.member`.
#[derive(Clone, Copy)]
enum Support {
    Carried(&'static str),
    /// In this free member of the protocol.
    Extension(&'static str),
    Lost(&'static str),
}

macro_rules! table {
    ($($concept:literal {
        native: $native:ident $native_text:literal;
        communication: $communication:ident $communication_text:literal;
        connect: $connect:ident $connect_text:literal;
        client: $client:ident $client_text:literal;
    })*) => {
        const TABLE: &[Row] = &[$(Row {
            concept: $concept,
            verdicts: [
                $native($native_text),
                $communication($communication_text),
                $connect($connect_text),
                $client($client_text),
            ],
        }),*];
    };
}

/// Returns the table as a page in Markdown.
pub fn page() -> String {
    let mut page = String::from(
        "<!-- Generated from trilogue_mapping::fidelity by `cargo xtask tidy --bless`. -->\n\n\
         # Fidelity\n\n\
         Look up here what each protocol does with a concept. A running server returns the same table at `/api/v1/fidelity`.\n\n\
         | verdict | meaning |\n|---|---|\n\
         | carried | the protocol has a member for it |\n\
         | extension | it travels in a free member of the protocol, and comes back unchanged |\n\
         | lost | the protocol cannot carry it; the table gives the reason |\n\n\
         The server drops nothing without a row here.\n\n\
         A run says what was lost on the way to its agent: an agent's own update of the kind `fidelity.lost`, once for each concept, with `concept`, `direction`, `protocol` and `because`. \
         Every protocol shows it as it shows such updates; editors show none. It tells of:\n\n\
         - thoughts, tool calls, metadata and further members of messages that a hosted agent is prompted with\n\
         - earlier messages for which a prompt has no room\n\
         - settings for an agent behind a server that takes none\n",
    );
    for (column, (_, title)) in PROTOCOLS.iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = write!(
            page,
            "\n## {title}\n\n| concept | verdict | where, or why not |\n|---|---|---|\n"
        );
        for Row { concept, verdicts } in TABLE {
            let (Carried(text) | Extension(text) | Lost(text)) = verdicts[column];
            let word = verdicts[column].verdict().as_str();
            let _ = writeln!(page, "| {concept} | {word} | {text} |");
        }
    }
    direction::page(&mut page);
    page
}

/// Returns the rows of the directions from one protocol to another; without both parameters, those of each protocol alone, as our own face shows them.
/// Fails with `invalid_request`, naming the parameter and the protocols, for an unknown protocol and for the direction from a protocol to itself.
pub fn rows_between(from: Option<&str>, to: Option<&str>) -> Result<Vec<FidelityRow>> {
    match (from, to) {
        (None, None) => Ok(rows()),
        (from, to) => direction::rows(from, to),
    }
}

/// Returns the rows of every protocol.
fn rows() -> Vec<FidelityRow> {
    let columns = PROTOCOLS.iter().enumerate();
    columns
        .flat_map(|(column, (protocol, _))| {
            TABLE.iter().map(move |row| protocol_row(protocol, row, column))
        })
        .collect()
}

fn protocol_row(protocol: &str, row: &Row, column: usize) -> FidelityRow {
    let support = row.verdicts[column];
    FidelityRow {
        protocol: protocol.to_owned(),
        to: None,
        concept: row.concept.to_owned(),
        verdict: support.verdict(),
        carrier: support.carrier().map(str::to_owned),
        to_carrier: None,
        because: support.reason().map(str::to_owned),
    }
}

// === impl Support ===

impl Support {
    fn verdict(self) -> FidelityVerdict {
        match self {
            Carried(_) => FidelityVerdict::Carried,
            Extension(_) => FidelityVerdict::Extension,
            Lost(_) => FidelityVerdict::Lost,
        }
    }

    /// Returns the carrier of the concept.
    fn carrier(self) -> Option<&'static str> {
        match self {
            Carried(place) | Extension(place) => Some(place),
            Lost(_) => None,
        }
    }

    /// Returns why it is lost.
    fn reason(self) -> Option<&'static str> {
        match self {
            Carried(_) | Extension(_) => None,
            Lost(why) => Some(why),
        }
    }
}

table! {
    "identity" {
        native: Carried "`Agent`: name, version, description, schemas, content types, interrupts, commands";
        communication: Carried "`AgentManifest`; commands as `metadata.capabilities`; version, schemas and a name with dots in `metadata.x_trilogue`";
        connect: Carried "`AgentMetadata.ref` with name, version and address; the descriptor";
        client: Carried "`agentInfo` with name, version and title; `agentCapabilities`; a hosted agent's own";
    }
    "conversation" {
        native: Carried "`Thread`";
        communication: Carried "`Session`";
        connect: Carried "`Thread`";
        client: Carried "a session, whose id is the thread's";
    }
    "list, load, delete, fork" {
        native: Carried "`list_threads`, `list_messages`, `list_thread_events`, `erase_thread`, `copy_thread`";
        communication: Lost "the protocol has no endpoint for them; a session can be read, and replaced by an inline `session`";
        connect: Carried "`/threads/search`, `/threads/{thread_id}` and its `history`, `DELETE`, `copy`";
        client: Carried "`session/list`, `session/load`, `session/resume`, `session/delete`, and the unstable `session/fork`";
    }
    "working directory, MCP servers" {
        native: Lost "a run has no member for them: an agent uses those of its configuration";
        communication: Lost "a run has no member for them: an agent uses those of its configuration";
        connect: Lost "a run has no member for them: an agent uses those of its configuration";
        client: Carried "`cwd`, `additionalDirectories` and `mcpServers` of the session's requests";
    }
    "one execution" {
        native: Carried "`Run`, on a thread or on a new one";
        communication: Carried "`Run`";
        connect: Carried "`Run`, on a thread or stateless";
        client: Carried "a turn: `session/prompt` and its response";
    }
    "its id" {
        native: Carried "`Run.id`, chosen by the client or the server";
        communication: Carried "`Run.run_id`, made by the server; an id that is not a UUID shows as a derived UUID";
        connect: Carried "`Run.run_id`, made by the server";
        client: Lost "a turn has the id of its JSON-RPC request, which only its connection knows";
    }
    "message id" {
        native: Carried "`Message.id`, chosen by the sender or the server";
        communication: Extension "`x_trilogue.message_id` of the message, and in its address in `Session.history`";
        connect: Carried "`Message.id`";
        client: Carried "`messageId` of prompts and chunks, `userMessageId` of the prompt's response";
    }
    "further members of a message" {
        native: Extension "`Part.extra` of the first part; an input message with members that this interface does not have is refused";
        communication: Extension "members of the message, from clients; lost in messages from agents' servers; a mount with `strict = true` refuses them";
        connect: Extension "members of the message, from clients and towards servers of ours; lost in messages from agents' servers";
        client: Lost "a prompt and an update have no message that could have them";
    }
    "several input messages, roles" {
        native: Carried "`RunCreate.input` as an array, `Message.role`";
        communication: Carried "`RunCreateRequest.input`, `Message.role`";
        connect: Carried "`messages` of the input, `Message.role`";
        client: Carried "towards clients `user_message_chunk` and `agent_message_chunk`; towards agents text in front of the prompt";
    }
    "input or output by schema" {
        native: Carried "`RunCreate.input` as a value, `Run.result`";
        communication: Carried "a part `application/json`; its one text, or `message`, before it as `text/plain`";
        connect: Carried "`RunCreate.input`, `RunResult.values`";
        client: Carried "text, or a resource `application/json`, as the value; the result as its text or as JSON in a fence";
    }
    "text" {
        native: Carried "`Part.content`";
        communication: Carried "a part `text/plain`";
        connect: Carried "a string as `Message.content`, or a block `text`";
        client: Carried "a block `text`; longer than 1 MiB as several chunks of one message";
    }
    "image, audio" {
        native: Carried "`Part.content` in base64, `Part.content_url`, or `Part.blob` if it is large";
        communication: Carried "`MessagePart.content` in base64, or `MessagePart.content_url`";
        connect: Extension "a block `image` or `audio` with `metadata.content` or `metadata.content_url`";
        client: Carried "a block `image` or `audio`; a reference as a `resource_link`";
    }
    "embedded resource" {
        native: Extension "`Part.name` and `Part.content`; its URL and other members in `Part.extra`";
        communication: Extension "a part with `name` and content; other members as members of the part";
        connect: Extension "a block with `metadata.name` and `metadata.content`; other members in `metadata`";
        client: Carried "a block `resource`";
    }
    "link" {
        native: Extension "`Part.content_url`; size, title and description in `Part.extra`";
        communication: Extension "`MessagePart.content_url`; size, title and description as members of the part";
        connect: Extension "a block `link` with `metadata.content_url`; size, title and description in `metadata`";
        client: Carried "a block `resource_link`";
    }
    "named artifact" {
        native: Carried "`Part.name`";
        communication: Carried "`MessagePart.name`";
        connect: Extension "a block with `metadata.name`";
        client: Carried "a `resource`, or an `image`, with the address `artifact:NAME`";
    }
    "annotations" {
        native: Extension "`Part.extra`";
        communication: Extension "members of the part";
        connect: Extension "`metadata` of the block";
        client: Carried "`annotations` of a block";
    }
    "streamed text" {
        native: Carried "`message.started`, `message.delta`, `message.part`, `message.completed`";
        communication: Carried "`message.created`, `message.part`, `message.completed`";
        connect: Carried "`values` events, each the whole so far; `custom` events, each a piece";
        client: Carried "`agent_message_chunk`; another `messageId` is another message";
    }
    "thought" {
        native: Carried "`message.thought`, or `Part.metadata` as a `Trajectory`";
        communication: Carried "`MessagePart.metadata` as a trajectory with `message`; the pieces of a thought are one part of the completed message";
        connect: Carried "a `custom` event with `kind: \"message.thought\"`";
        client: Carried "`agent_thought_chunk`; its `messageId` is made of its run and its first event";
    }
    "tool call" {
        native: Carried "`tool.started`, `tool.updated`, `tool.ended`, or `Part.metadata` as a `Trajectory`";
        communication: Carried "`MessagePart.metadata` as one trajectory, at its end; `generic` with `kind: \"tool\"` before";
        connect: Carried "`custom` events with `kind: \"tool.…\"`";
        client: Carried "`tool_call` and `tool_call_update`";
    }
    "kind, locations, diffs and terminals of a tool call" {
        native: Extension "`Event.original`, if a peer sent them";
        communication: Extension "the agent's own update, as `x_trilogue.update` of the trajectory's part, or of `generic`; the part has all updates as one";
        connect: Extension "the agent's own update, as `trilogue.update` of the `custom` event";
        client: Carried "`kind`, `locations` and `content` of a tool call";
    }
    "citation" {
        native: Carried "`Part.metadata` as a `Citation`; members such as an author in `Part.extra`";
        communication: Carried "`MessagePart.metadata` as a citation, with members such as `author` that the protocol does not have";
        connect: Extension "`metadata.citation` of the block, with all its members";
        client: Extension "`_meta.trilogue.citation` of a chunk or block, from agents and towards clients, which see it as a `resource_link` behind the text, or as text if it has no address; towards agents text behind the message, which does not come back, or the same member with `citations = \"meta\"`";
    }
    "plan" {
        native: Carried "`state.plan`";
        communication: Extension "`generic` with `kind: \"plan\"`";
        connect: Carried "a `custom` event with `kind: \"state.plan\"`";
        client: Carried "`plan`; with `medium` priority for every step without one";
    }
    "plan by id" {
        native: Carried "`state.plan_updated`, `state.plan_removed`";
        communication: Extension "`generic` with `kind: \"plan_updated\"` or `\"plan_removed\"`";
        connect: Carried "a `custom` event with `kind: \"state.plan_updated\"` or `\"state.plan_removed\"`";
        client: Carried "`plan_update` and `plan_removed` if the client declares `plan`; otherwise all plans as one `plan`, with the list items of Markdown as entries";
    }
    "sub-agent" {
        native: Carried "`state.subagent`; its conversation is a thread";
        communication: Extension "`generic` with `kind: \"subagent\"`";
        connect: Carried "a `custom` event with `kind: \"state.subagent\"`";
        client: Carried "`subagent_update` and a session of its own if the client declares `subagents`; otherwise one tool call with what it said last";
    }
    "usage, modes, commands" {
        native: Extension "`state.custom`, or `Event.original` if a peer sent them";
        communication: Extension "`generic` with their `kind`";
        connect: Extension "`custom` events with their `kind`";
        client: Carried "`usage_update`, `current_mode_update`, `available_commands_update`, `config_option_update`; also as a native agent's own updates of these kinds";
    }
    "state" {
        native: Carried "`Thread.values`, `state.values`, `Checkpoint.values`";
        communication: Carried "`Session.state`, an address";
        connect: Carried "`Thread.values`, `ThreadState.values`";
        client: Lost "no update carries it; it is kept, and other protocols show it";
    }
    "permission" {
        native: Carried "`Interrupt.options`, `AnswerCreate.option`";
        communication: Carried "`await_request`: the options as text and as JSON; the answer by id, name, yes or no, or JSON";
        connect: Carried "the interrupt type `permission` with its options; resumed by `{\"option_id\": …}`";
        client: Carried "`session/request_permission`";
    }
    "form, url" {
        native: Carried "`Interrupt.prompt`, `Interrupt.schema`, `AnswerCreate.value`";
        communication: Carried "`await_request` with the schema in a part `application/json`; the answer as one";
        connect: Carried "the interrupt types `form` and `url`, with `resume_schema`";
        client: Carried "`elicitation/create`; for clients without it as an agent's own interrupt";
    }
    "an agent's own interrupt" {
        native: Carried "`Interrupt.kind`, `Interrupt.payload`, `AnswerCreate.value`";
        communication: Carried "`await_request` with kind, payload and schema in a part `application/json`";
        connect: Carried "its own interrupt type, by the descriptor's schemas";
        client: Carried "a form if the client shows forms and the schema is flat; a permission if the answer is one of a few values; otherwise the turn ends with the question, and the next prompt is the answer";
    }
    "several interrupts at once" {
        native: Carried "`Run.interrupts`; each is answered by its own `Interrupt.id`";
        communication: Carried "one at a time, the oldest first; each names itself in `x_trilogue.interrupt_id`";
        connect: Carried "one at a time, the oldest first; each names itself in `interrupt_id`";
        client: Carried "requests at the same time";
    }
    "client's files and terminals" {
        native: Lost "an agent cannot call a client of this face";
        communication: Lost "an agent cannot call a client of this face";
        connect: Lost "an agent cannot call a client of this face";
        client: Carried "`fs/*` and `terminal/*`, to the client that prompted last";
    }
    "end" {
        native: Carried "`Run.outcome`, `run.ended`";
        communication: Carried "`Run.status`";
        connect: Carried "`Run.status`";
        client: Carried "`stopReason`";
    }
    "a peer's own end reason" {
        native: Extension "`Event.original`";
        communication: Extension "`generic` with `kind: \"turn_result\"`";
        connect: Extension "a `custom` event with `kind: \"turn_result\"`";
        client: Carried "`stopReason` where the protocol has the word";
    }
    "cancel" {
        native: Carried "`cancel_run`, `run.cancelling`; the cause in `Outcome.reason`";
        communication: Carried "`cancelling`, then `cancelled`; the cause is lost, because `Run` has no member for it";
        connect: Carried "`cancel`; the run ends with `errcode` 5, the cause in `RunError.data`";
        client: Carried "`session/cancel`, then `cancelled`; the cause is lost, because a stop reason is one word";
    }
    "failure" {
        native: Carried "`Outcome.error`: code, message, whether it is transient, the agent's details";
        communication: Carried "`Run.error`: one of three codes; our code, whether it is transient, and the agent's details in `data`";
        connect: Carried "`RunError`: number, code, whether it is transient, the agent's details in `data`";
        client: Carried "the prompt's error: its number, and our code and the details in `data`; an agent's own error unchanged";
    }
    "busy or waiting thread" {
        native: Carried "`RunCreate.strategy`, `RunCreate.when_waiting`";
        communication: Carried "runs wait their turn; 400 with `data.reason` where a run waits and keeps the turn";
        connect: Carried "`RunCreate.multitask_strategy`";
        client: Carried "prompts wait their turn; the configuration can refuse them, or end the turn";
    }
    "settings of a run" {
        native: Carried "`RunCreate.config`";
        communication: Extension "`config` of the request and of agents at servers of ours";
        connect: Carried "`RunCreate.config`, a configured instance";
        client: Carried "`session/set_config_option`, `session/set_mode`";
    }
    "schedule" {
        native: Carried "`RunCreate.not_before`";
        communication: Lost "`RunCreateRequest` has no member for it";
        connect: Carried "`RunCreate.after_seconds`";
        client: Lost "a prompt has no member for it";
    }
    "webhook" {
        native: Lost "a run has no member for one; clients read its end from its events";
        communication: Lost "`RunCreateRequest` has no member for one: a run's end is read from its events";
        connect: Carried "`RunCreate.webhook`, or `callback` to say of what";
        client: Lost "a prompt has no member for one; its response is its end";
    }
    "end on disconnect" {
        native: Lost "a client that hangs up does not end its run, and has to cancel it";
        communication: Lost "a client that hangs up does not end its run, and has to cancel it";
        connect: Carried "`RunCreate.on_disconnect`";
        client: Lost "a client that hangs up does not end its turn, and has to cancel it";
    }
    "checkpoints" {
        native: Carried "`Checkpoint`, `ThreadPatch.from`";
        communication: Lost "a session has one history and one state, those of the head";
        connect: Carried "`ThreadState.checkpoint`, `ThreadPatch.checkpoint`";
        client: Lost "a session has one history, that of the head";
    }
    "live, replay" {
        native: Carried "`list_run_events`, `list_thread_events`: one log, resumed by `Event.id`";
        communication: Carried "server-sent events with ids, resumed by `Last-Event-ID`; the same as JSON";
        connect: Carried "server-sent events with ids, resumed by `Last-Event-ID`; join";
        client: Carried "updates as they happen; `session/load` repeats all of them with the same ids";
    }
    "unknown variants" {
        native: Extension "`opaque`, with `Event.original`";
        communication: Extension "`generic` with `kind: \"opaque\"` and the original";
        connect: Extension "a `custom` event with `kind: \"opaque\"` and the original";
        client: Carried "unchanged, with the server's session id";
    }
    "trace context" {
        native: Carried "the header `traceparent`, into the server's log and back in the response";
        communication: Carried "the header `traceparent`, also to an agent's server";
        connect: Carried "the header `traceparent`, also to an agent's server";
        client: Extension "`_meta.traceparent`";
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_concept_stands_once_and_each_protocol_says_where_or_why() {
        let page = page();
        let mut seen = HashSet::new();
        for Row { concept, verdicts } in TABLE {
            assert!(seen.insert(concept), "{concept} stands twice");
            for verdict in verdicts {
                let (Carried(text) | Extension(text) | Lost(text)) = verdict;
                assert!(!text.is_empty(), "{concept}");
                assert!(!concept.contains('|') && !text.contains('|'), "{concept} breaks its row");
            }
            let lines = page.matches(&format!("\n| {concept} | ")).count();
            // One line for each protocol, and one for the directions.
            assert_eq!(lines, PROTOCOLS.len() + 1, "{concept}");
        }
    }
}
