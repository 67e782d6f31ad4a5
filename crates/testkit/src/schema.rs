//! Validates messages of the Agent Client Protocol against its official schema, method by method: the schema as a whole accepts anything.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

use anyhow::{Context, Result, anyhow, bail, ensure};
use jsonschema::Validator;
use serde_json::{Value, json};
use trilogue_domain::lock;

use crate::specs;

/// The schema with everything, stable or not: a client gets what it declares.
const OFFICIAL: &str = "agent_client/v1.20.unstable.schema.json";
const MESSAGE_IDS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../docs/reference/schema/agent-client-message-ids.json"
);
/// The schema's name for methods that both sides have.
const BOTH: &str = "protocol";

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Side {
    /// The client, for example an editor.
    Client,
    /// The agent that the client launched.
    Agent,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// A request; the validated value is its params.
    Request,
    /// A notification; the validated value is its params.
    Notification,
    /// A response; the validated value is its result.
    Response,
}

/// The messages of one connection. One side's messages are validated against the schema.
#[derive(Debug)]
pub struct Conversation {
    held: Side,
    /// The methods of the other side's open requests, by request id.
    asked: HashMap<String, String>,
}

type Key = (String, Side, Kind);

/// Validators by their document's address and their definition's name.
type Made = HashMap<(usize, String), Arc<Validator>>;

// === impl Side ===

impl Side {
    pub fn other(self) -> Self {
        match self {
            Self::Client => Self::Agent,
            Self::Agent => Self::Client,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Agent => "agent",
        }
    }
}

// === impl Conversation ===

impl Conversation {
    pub fn holding(held: Side) -> Self {
        Self { held, asked: HashMap::new() }
    }

    /// Records a message of the other side, valid or not: the response to it is validated against its method.
    pub fn note(&mut self, message: &Value) {
        if let (Some(method), Some(id)) = (message["method"].as_str(), message.get("id")) {
            self.asked.insert(id.to_string(), method.to_owned());
        }
    }

    /// Validates a message of the checked side.
    pub fn hold(&mut self, message: &Value) -> Result<()> {
        ensure!(message["jsonrpc"] == "2.0", "it names no version: {message}");
        if let Some(method) = message["method"].as_str() {
            let kind = if message.get("id").is_some() { Kind::Request } else { Kind::Notification };
            let nothing = json!({});
            let params = message.get("params").unwrap_or(&nothing);
            return hold(method, self.held.other(), kind, params);
        }
        let asked = self.asked.remove(&message["id"].to_string());
        match (message.get("result"), message.get("error")) {
            (Some(result), None) => match asked {
                Some(method) => hold(&method, self.held, Kind::Response, result),
                None => Ok(()),
            },
            (None, Some(error)) => hold_to("Error", error),
            _ => bail!("it is neither an answer nor an error: {message}"),
        }
    }
}

/// Validates a message's content against the official schema of its method, and against our own schema of message ids. `side` is the one that implements the method. Prints a note if the official schema is missing.
pub fn hold(method: &str, side: Side, kind: Kind, carried: &Value) -> Result<()> {
    let Some(document) = official()? else { return Ok(()) };
    match validator(document, method, side, kind)? {
        Some(validator) => keeps(&validator, carried)
            .with_context(|| format!("{method} ({kind:?}) breaks the official schema"))?,
        None => ensure!(
            method.starts_with('_') || !method.contains('/'),
            "no schema knows a {kind:?} {method}"
        ),
    }
    hold_ids(method, kind, carried)
}

/// Validates everything that a client sent to the scripted agent, from the agent's record (`--record FILE`). Returns the number of validated lines. Skips an incomplete last line.
pub fn hold_record(file: &Path) -> Result<usize> {
    let text = std::fs::read_to_string(file)?;
    let mut conversation = Conversation::holding(Side::Client);
    let mut held = 0;
    for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
        let line: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
        match (line["answered"].as_str(), line.get("error")) {
            (None, _) => conversation.hold(&line)?,
            (Some(_), Some(error)) => hold_to("Error", error)?,
            (Some(method), None) => hold(method, Side::Client, Kind::Response, &line["result"])?,
        }
        held += 1;
    }
    Ok(held)
}

/// Validates a value against a definition of the official schema.
fn hold_to(name: &str, value: &Value) -> Result<()> {
    let Some(document) = official()? else { return Ok(()) };
    keeps(&*definition(document, name)?, value)
        .with_context(|| format!("an {name} breaks the official schema"))
}

fn hold_ids(method: &str, kind: Kind, carried: &Value) -> Result<()> {
    static IDS: OnceLock<Value> = OnceLock::new();
    let ids = match IDS.get() {
        Some(ids) => ids,
        None => {
            let read = serde_json::from_slice(&std::fs::read(MESSAGE_IDS)?)?;
            IDS.get_or_init(|| read)
        }
    };
    let update = &carried["update"];
    let (name, value) = match (method, kind) {
        ("session/update", _) => match update["sessionUpdate"].as_str() {
            Some(chunk) if chunk.ends_with("message_chunk") => ("ContentChunk", update),
            _ => return Ok(()),
        },
        ("session/prompt", Kind::Request) => ("PromptRequest", carried),
        ("session/prompt", Kind::Response) => ("PromptResponse", carried),
        _ => return Ok(()),
    };
    keeps(&*definition(ids, name)?, value)
        .with_context(|| format!("{method} breaks the schema of message ids"))
}

fn keeps(validator: &Validator, value: &Value) -> Result<()> {
    validator.validate(value).map_err(|error| anyhow!("{error} at {}", error.instance_path()))?;
    Ok(())
}

fn official() -> Result<Option<&'static Value>> {
    static DOCUMENT: OnceLock<Option<Value>> = OnceLock::new();
    if let Some(document) = DOCUMENT.get() {
        return Ok(document.as_ref());
    }
    let document = match specs::document(OFFICIAL) {
        Some(file) => Some(serde_json::from_slice(&std::fs::read(file)?)?),
        None => None,
    };
    Ok(DOCUMENT.get_or_init(|| document).as_ref())
}

/// The schema of a message's content; `None` if the official schema does not define the method.
fn validator(
    document: &'static Value,
    method: &str,
    side: Side,
    kind: Kind,
) -> Result<Option<Arc<Validator>>> {
    static KNOWN: OnceLock<HashMap<Key, String>> = OnceLock::new();
    let known = KNOWN.get_or_init(|| names(document));
    match known.get(&(method.to_owned(), side, kind)) {
        Some(name) => definition(document, name).map(Some),
        None => Ok(None),
    }
}

fn names(document: &Value) -> HashMap<Key, String> {
    let mut names = HashMap::new();
    for (name, schema) in document["$defs"].as_object().into_iter().flatten() {
        let (Some(method), Some(side)) = (schema["x-method"].as_str(), schema["x-side"].as_str())
        else {
            continue;
        };
        let kind = match name {
            name if name.ends_with("Response") => Kind::Response,
            name if name.ends_with("Notification") => Kind::Notification,
            _ => Kind::Request,
        };
        for one in [Side::Client, Side::Agent] {
            if side == one.name() || side == BOTH {
                names.insert((method.to_owned(), one, kind), name.clone());
            }
        }
    }
    names
}

/// Returns a validator of one of a document's definitions. Built once per definition, because most tests need only a few.
fn definition(document: &'static Value, name: &str) -> Result<Arc<Validator>> {
    static MADE: Mutex<Option<Made>> = Mutex::new(None);
    let key = (std::ptr::from_ref(document).addr(), name.to_owned());
    let mut made = lock(&MADE);
    let made = made.get_or_insert_default();
    if let Some(found) = made.get(&key) {
        return Ok(Arc::clone(found));
    }
    ensure!(document["$defs"][name].is_object(), "definition {name} not found");
    let root = json!({ "$ref": format!("#/$defs/{name}"), "$defs": document["$defs"] });
    let built = jsonschema::options().should_validate_formats(true).build(&root)?;
    let built = Arc::new(built);
    made.insert(key, Arc::clone(&built));
    Ok(built)
}
