//! Events as lines for one client.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::json;
use trilogue_domain::error::Result;
use trilogue_domain::event::{Event, InterruptEvent, MessageEvent, RunEvent};
use trilogue_domain::{
    Answer, Body, Interrupt, InterruptId, Message, MessageId, Resolution, Role, RunId, RunKey,
    ThreadId,
};
use trilogue_mapping::agent_client::{self as mapping, Gate, IdFormat, Update, Updates};
use trilogue_store::rows::ThreadRow;
use trilogue_store::{RawOriginal, Read};
use trilogue_wire::agent_client::{ClientCapabilities, ClientGate, ContentBlock, TextContent};
use uuid::Uuid;

use super::link::Lines;
use super::queued::{Prompted, Queued, When};
use super::said::Said;
use super::session::State;
use crate::stream::inline::inlined;

/// The method of an update.
const UPDATE_METHOD: &str = "session/update";

/// Writes events as lines for one client, and leaves out what is not for it.
#[derive(Debug)]
pub(super) struct Show {
    updates: Updates,
    session: ThreadId,
    ids: IdFormat,
    client: ClientCapabilities,
    notices: bool,
    visits: bool,
    compaction: bool,
    booleans: bool,
    /// Whether the client is told what it said itself.
    pub(super) is_replay: bool,
    /// A run that the client prompted on a connection that has broken since.
    pub(super) own_run: Option<RunKey>,
    /// Whether the event that is shown is what the client said itself.
    is_mine: bool,
    /// The questions that were shown in words.
    in_words: HashSet<InterruptId>,
    /// The messages that may answer questions which are not answered yet, oldest first.
    answers: HashMap<InterruptId, Vec<Said>>,
    /// The message of a user that is told.
    telling: Option<MessageId>,
    /// The run of whose log such a message stood last: an interrupt that is resolved right behind it was answered with it.
    told_in: Option<RunKey>,
    /// What was said in prompts whose turns have not begun.
    queued: Queued,
    made: Vec<Update>,
}

// === impl Show ===

impl Show {
    pub(super) fn new(thread: &ThreadId, ids: IdFormat, client: &ClientCapabilities) -> Self {
        let session = client.session.as_ref();
        let options = session.and_then(|session| session.config_options.as_ref());
        Self {
            updates: Updates::with_ids(thread, ids),
            session: thread.clone(),
            ids,
            notices: session.is_some_and(|session| session.notices.is_some()),
            visits: ClientGate::ElicitationUrl.is_open(client),
            compaction: session.is_some_and(|session| session.compaction.is_some()),
            booleans: options.is_some_and(|options| options.boolean.is_some()),
            client: client.clone(),
            is_replay: false,
            own_run: None,
            is_mine: false,
            in_words: HashSet::new(),
            answers: HashMap::new(),
            telling: None,
            told_in: None,
            queued: Queued::default(),
            made: Vec::new(),
        }
    }

    /// Passes an event that the client has, or will have when its run begins.
    pub(super) fn pass(&mut self, event: &Event, run: Option<&RunId>) {
        let is_told = self.is_open(Gate::UserMessage);
        let When::Now(prompts) = self.queued.push(event, run, is_told) else { return };
        self.updates.push(event, run.map(RunId::as_str), &mut self.made);
        for Prompted { event, run, .. } in &prompts {
            self.updates.push(event, run.as_ref().map(RunId::as_str), &mut self.made);
        }
        self.made.clear();
    }

    /// Whether a turn has begun and not ended.
    pub(super) fn is_at_work(&self) -> bool {
        self.queued.is_at_work()
    }

    /// Shows an event once more that makes updates by itself.
    pub(super) fn again(&self, event: &Event, lines: &mut Lines) {
        let (mut updates, mut made) = (self.updates.clone(), Vec::new());
        updates.push(event, None, &mut made);
        made.iter().for_each(|update| self.update(update, lines));
    }

    /// Gives on what a hosted agent said in a run, as it said it. `false` where it is nothing that clients get as it is.
    pub(super) fn relay(
        &mut self,
        original: &RawOriginal<'_>,
        run: Option<RunKey>,
        lines: &mut Lines,
    ) -> bool {
        if original.version != mapping::VERSION {
            return false;
        }
        if original.call.is_some() && original.dialect == mapping::UPDATE {
            self.updates.heard_call(run, &original.bytes);
        }
        let (dialect, bytes) = (original.dialect, &original.bytes);
        let start = lines.bytes.len();
        let relay = self.updates.relay();
        let Some(gate) = relay.push_line_into(dialect, bytes, &mut lines.bytes) else {
            return false;
        };
        // What an agent says that a user has said is the agent's word, whoever prompted.
        if gate == Gate::UserMessage || self.is_open(gate) {
            lines.messages += 1;
            return true;
        }
        lines.bytes.truncate(start);
        if gate == Gate::BooleanConfig {
            let mut params = Vec::with_capacity(bytes.len() + 64);
            relay.push_into(dialect, bytes, &mut params);
            write_update(lines, &mapping::without_booleans(&params));
        }
        true
    }

    /// Notes whether the next event is what the client said itself.
    pub(super) fn note_mine(&mut self, event: &Event, state: &State) {
        if matches!(event.body, Body::Run(RunEvent::Started)) {
            // What others say in it from here on is theirs.
            self.own_run.take_if(|run| event.run == Some(*run));
        }
        self.is_mine = match &event.body {
            Body::Message(said) => said.message().is_some_and(|id| state.mine.contains(id)),
            _ => false,
        } || (event.run.is_some() && event.run == self.own_run);
    }

    /// Shows an event.
    ///
    /// # Errors
    /// When stored content cannot be read.
    pub(super) async fn event(
        &mut self,
        read: &Arc<dyn Read>,
        thread: &ThreadRow,
        event: &Event,
        run: Option<&RunId>,
        lines: &mut Lines,
    ) -> Result<()> {
        if let Some(said) = Said::read(event) {
            self.answers.entry(said.interrupt.clone()).or_default().push(said);
            return Ok(());
        }
        let is_told = self.is_open(Gate::UserMessage);
        let When::Now(prompts) = self.queued.push(event, run, is_told) else { return Ok(()) };
        self.at_once(read, thread, event, run, lines).await?;
        for prompted in prompts {
            let Prompted { event, run, is_told } = &prompted;
            self.is_mine = !is_told;
            self.at_once(read, thread, event, run.as_ref(), lines).await?;
        }
        Ok(())
    }

    async fn at_once(
        &mut self,
        read: &Arc<dyn Read>,
        thread: &ThreadRow,
        event: &Event,
        run: Option<&RunId>,
        lines: &mut Lines,
    ) -> Result<()> {
        let whole = inlined(read, thread, event, |blob| self.updates.wants(blob)).await?;
        let mut made = std::mem::take(&mut self.made);
        let run_id = run.map(RunId::as_str);
        self.updates.push(&whole, run_id, &mut made);
        if matches!(whole, Cow::Owned(_)) && !made.iter().all(Update::fits_a_line) {
            made.clear();
            self.updates.push(event, run_id, &mut made);
        }
        let event = whole;
        for update in made.drain(..) {
            self.update(&update, lines);
        }
        self.made = made;
        let was_told = self.told_in.take().is_some_and(|run| event.run == Some(run));
        match &event.body {
            Body::Message(MessageEvent::Started { message, role: Role::User, .. }) => {
                self.telling = Some(message.clone());
            }
            Body::Message(MessageEvent::Completed { message }) => {
                let is_it = self.telling.take_if(|telling| telling == message).is_some();
                self.told_in = event.run.filter(|_| is_it);
            }
            Body::Interrupt(InterruptEvent::Raised(interrupt)) => {
                let asking = mapping::asking(interrupt, self.session.as_str(), &self.client);
                if let mapping::Asking::Text(text) = asking {
                    self.question(interrupt, &text, lines);
                }
            }
            Body::Interrupt(InterruptEvent::Resolved { interrupt, resolution }) => {
                let was_asked = self.in_words.remove(interrupt);
                let said = self.answers.remove(interrupt).unwrap_or_default();
                // The message that the answer is stands before it, where it was logged as one.
                if let Resolution::Answered { answer, .. } = resolution
                    && was_asked
                    && !was_told
                {
                    let id = said.iter().find(|said| said.is(answer)).map(|said| &said.message);
                    self.answer(interrupt, answer, id, lines);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether this was asked in words.
    pub(super) fn has_asked(&self, interrupt: &InterruptId) -> bool {
        self.in_words.contains(interrupt)
    }

    /// Asks in words, as the agent's message.
    pub(super) fn question(&mut self, interrupt: &Interrupt, text: &str, lines: &mut Lines) {
        self.in_words.insert(interrupt.id.clone());
        let block = ContentBlock::Text(TextContent::new(text.to_owned()));
        let id = derived(&interrupt.id, "question");
        self.chunk("agent_message_chunk", &block, &id, lines);
    }

    /// An answer in words, as the user's message.
    fn answer(
        &self,
        interrupt: &InterruptId,
        answer: &Answer,
        id: Option<&MessageId>,
        lines: &mut Lines,
    ) {
        if !self.is_open(Gate::UserMessage) {
            return;
        }
        let id = match id {
            Some(id) => mapping::shown_id(self.ids, self.session.as_str(), id.as_str()).into(),
            None => derived(interrupt, "answer"),
        };
        let blocks = match answer {
            Answer::Message(parts) => {
                let Ok(message) = trilogue_domain::MessageId::parse(&id) else { return };
                let message = Message {
                    id: message,
                    role: Role::User,
                    parts: parts.clone(),
                    created_at: None,
                    completed_at: None,
                };
                mapping::blocks_of_message(&message)
            }
            Answer::Json(value) => {
                let text = match value.to_value() {
                    serde_json::Value::String(text) => text,
                    _ => value.as_str().to_owned(),
                };
                vec![ContentBlock::Text(TextContent::new(text))]
            }
            Answer::Option(option) => {
                vec![ContentBlock::Text(TextContent::new(option.clone()))]
            }
        };
        for block in &blocks {
            self.chunk("user_message_chunk", block, &id, lines);
        }
    }

    /// Tells of a mode or of options that another client has set.
    pub(super) fn set(&self, update: &serde_json::Value, lines: &mut Lines) {
        let params = json!({ "sessionId": self.session.as_str(), "update": update });
        let params = params.to_string().into_bytes();
        match self.booleans {
            true => write_update(lines, &params),
            false => write_update(lines, &mapping::without_booleans(&params)),
        }
    }

    fn chunk(&self, kind: &str, block: &ContentBlock, id: &str, lines: &mut Lines) {
        let update = json!({ "sessionUpdate": kind, "content": block, "messageId": id });
        let params = json!({ "sessionId": self.session.as_str(), "update": update });
        lines.notification(UPDATE_METHOD, &params);
    }

    fn update(&self, update: &Update, lines: &mut Lines) {
        if self.is_open(update.gate) {
            update.push_line_into(&mut lines.bytes);
            lines.messages += 1;
        } else if update.gate == Gate::BooleanConfig {
            write_update(lines, &mapping::without_booleans(&update.params));
        }
    }

    /// Whether the client is told.
    fn is_open(&self, gate: Gate) -> bool {
        match gate {
            Gate::Always | Gate::Opaque => true,
            Gate::UserMessage => self.is_replay || !self.is_mine,
            Gate::Notices => self.notices,
            Gate::NoNotices => !self.notices,
            Gate::Visited => self.visits && !self.is_replay,
            Gate::Compaction => self.compaction,
            Gate::BooleanConfig => self.booleans,
        }
    }
}

/// Adds an update whose params are JSON.
fn write_update(lines: &mut Lines, params: &[u8]) {
    if let Ok(params) = serde_json::from_slice::<&serde_json::value::RawValue>(params) {
        lines.notification(UPDATE_METHOD, params);
    }
}

/// The id of a message that an interrupt makes: the same one whenever it is shown.
fn derived(interrupt: &InterruptId, what: &str) -> String {
    let namespace = Uuid::new_v5(&Uuid::NAMESPACE_OID, interrupt.as_str().as_bytes());
    Uuid::new_v5(&namespace, what.as_bytes()).to_string()
}
