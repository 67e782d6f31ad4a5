//! Events as lines for one client.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use serde_json::json;
use trilogue_domain::content::BlobRef;
use trilogue_domain::error::Result;
use trilogue_domain::event::{Event, InterruptEvent, MessageEvent, RunEvent};
use trilogue_domain::{
    Answer, Body, Interrupt, InterruptId, MessageId, Resolution, Role, RunId, RunKey, ThreadId,
    ThreadKey,
};
use trilogue_mapping::agent_client::{self as mapping, Gate, IdFormat, Update, Updates};
use trilogue_store::rows::{RunRow, ThreadRow};
use trilogue_store::{RawOriginal, Read};
use trilogue_wire::agent_client::{
    ClientCapabilities, ClientGate, ContentBlock, TextContent, UpdateGate,
};
use uuid::Uuid;

use super::super::connection::session::SessionState;
use super::super::thread_metadata::CLIENT;
use super::super::wire::lines::OutgoingLines;
use super::deferred::{Deferral, DeferredEvent, DeferredPrompts};
use super::prompt_echo::PromptEcho;
use crate::stream::inline::inlined;

const UPDATE_METHOD: &str = "session/update";

/// Renders events as lines for one client, without those that the client must not receive.
#[derive(Debug)]
pub(super) struct LineRenderer {
    updates: Updates,
    session: ThreadId,
    options: RenderOptions,
    /// Whether the client receives its own messages.
    pub(super) is_replay: bool,
    /// A run that the client prompted on an earlier connection, until it starts.
    pub(super) own_run: Option<RunKey>,
    /// Whether the client sent the current event itself.
    is_own: bool,
    /// The questions that were asked as text.
    text_questions: HashSet<InterruptId>,
    /// The user's message that is being rendered.
    open_message: Option<MessageId>,
    /// The run whose last event completed a user's message: if an interrupt is resolved next, this message answered it.
    answered_in: Option<RunKey>,
    deferred: DeferredPrompts,
    /// The prompt that the client has, until the agent does something else than to repeat it.
    echo: PromptEcho,
    rendered: Vec<Update>,
}

/// What the client can receive.
#[derive(Debug)]
struct RenderOptions {
    client: ClientCapabilities,
    notices: bool,
    url_visits: bool,
    compaction: bool,
    booleans: bool,
    plans_by_id: bool,
    subagents: bool,
    suggestions: bool,
}

// === impl LineRenderer ===

impl LineRenderer {
    pub(super) fn new(thread: &ThreadId, ids: IdFormat, client: &ClientCapabilities) -> Self {
        let session = client.session.as_ref();
        let options = RenderOptions {
            notices: session.is_some_and(|session| session.notices.is_some()),
            url_visits: ClientGate::ElicitationUrl.is_open(client),
            compaction: session.is_some_and(|session| session.compaction.is_some()),
            booleans: mapping::takes_boolean_options(client),
            plans_by_id: UpdateGate::Plan.is_open(client),
            subagents: UpdateGate::Subagents.is_open(client),
            suggestions: UpdateGate::PromptSuggestions.is_open(client),
            client: client.clone(),
        };
        Self {
            updates: Updates::with_ids(thread, ids),
            session: thread.clone(),
            options,
            is_replay: false,
            own_run: None,
            is_own: false,
            text_questions: HashSet::new(),
            open_message: None,
            answered_in: None,
            deferred: DeferredPrompts::default(),
            echo: PromptEcho::default(),
            rendered: Vec::new(),
        }
    }

    /// Takes the title that a client has set, because the reader begins behind that event.
    pub(super) fn know_title(&mut self, thread: &ThreadRow) {
        self.updates.know_title(&thread.metadata);
    }

    /// Takes an event without rendering it: the client has it, or receives it when its run starts.
    pub(super) fn skip(&mut self, event: &Event, run: Option<&RunId>) {
        let is_sent = self.is_open(Gate::UserMessage);
        let Deferral::Now(prompts) = self.deferred.push(event, run, is_sent) else { return };
        self.updates.push(event, run.map(RunId::as_str), &mut self.rendered);
        for DeferredEvent { event, run, .. } in &prompts {
            self.updates.push(event, run.as_ref().map(RunId::as_str), &mut self.rendered);
        }
        self.rendered.clear();
    }

    /// Whether a run has started and not ended.
    pub(super) fn has_active_run(&self) -> bool {
        self.deferred.has_active_run()
    }

    /// Whether the client receives the prompt of a run when that starts.
    pub(super) fn shows_prompt(&self, run: RunKey) -> bool {
        self.deferred.shows_prompt(run)
    }

    /// Sets who began the turns that are rendered next; `None` if the origin is not shown.
    pub(super) fn set_turn_origin(&mut self, run: Option<&RunRow>) {
        let client = run.and_then(|run| {
            let client = run.metadata.to_value().get(CLIENT)?.as_str()?.to_owned();
            Some(client)
        });
        self.updates.set_turn_origin(run.map(|run| (&run.principal, client.as_deref())));
    }

    /// Whether the client shows sub-agents.
    pub(super) fn shows_subagents(&self) -> bool {
        self.options.subagents
    }

    /// Makes the next tool call refer to the session of the agent that it calls.
    pub(super) fn set_called_agent(&mut self, thread: Option<ThreadId>) {
        self.updates.set_called_agent(thread);
    }

    /// Renders an event again. Its updates must not depend on other events.
    pub(super) fn repeat(&self, event: &Event, lines: &mut OutgoingLines) {
        let (mut updates, mut rendered) = (self.updates.clone(), Vec::new());
        updates.push(event, None, &mut rendered);
        rendered.iter().for_each(|update| self.write(update, lines));
    }

    /// Relays an update of a hosted agent unchanged, unless it repeats a prompt that the client has. Returns `false` if it must be rendered instead.
    pub(super) fn relay(
        &mut self,
        original: &RawOriginal<'_>,
        run: Option<RunKey>,
        lines: &mut OutgoingLines,
    ) -> bool {
        if original.version != mapping::VERSION {
            return false;
        }
        if original.call.is_some() && original.dialect == mapping::UPDATE {
            self.updates.record_relayed_call(run, &original.bytes);
        }
        let (dialect, bytes) = (original.dialect, &original.bytes);
        if self.echo.takes(run, dialect, bytes) {
            return true;
        }
        let start = lines.bytes.len();
        let relay = self.updates.relay();
        let Some(gate) = relay.push_line_into(dialect, bytes, &mut lines.bytes) else {
            return false;
        };
        if matches!(gate, Gate::Plan | Gate::PlanById) {
            self.updates.record_relayed_plan(bytes);
        }
        // An agent's own rendering of a user's message is relayed to every client, also to the one that prompted.
        if gate == Gate::UserMessage || self.is_open(gate) {
            lines.messages += 1;
            return true;
        }
        lines.bytes.truncate(start);
        if let Some(reduce) = gate.reduction() {
            let mut params = Vec::with_capacity(bytes.len() + 64);
            self.updates.relay().push_into(dialect, bytes, &mut params);
            write_update(lines, &reduce(&params));
        } else if matches!(gate, Gate::Plan | Gate::PlanById) {
            write_update(lines, &self.updates.merged_plan());
        }
        true
    }

    /// Records whether the client sent the next event itself.
    pub(super) fn note_own(&mut self, event: &Event, state: &SessionState) {
        if matches!(event.body, Body::Run(RunEvent::Started)) {
            // Later messages of the run may come from other clients.
            self.own_run.take_if(|run| event.run == Some(*run));
        }
        let is_own_message = match &event.body {
            Body::Message(message) => {
                message.message().is_some_and(|id| state.own_messages.contains(id))
            }
            _ => false,
        };
        self.is_own = is_own_message || (event.run.is_some() && event.run == self.own_run);
    }

    /// Renders an event.
    pub(super) async fn event(
        &mut self,
        read: &Arc<dyn Read>,
        thread: ThreadKey,
        event: &Event,
        run: Option<&RunId>,
        lines: &mut OutgoingLines,
    ) -> Result<()> {
        let is_sent = self.is_open(Gate::UserMessage);
        let Deferral::Now(prompts) = self.deferred.push(event, run, is_sent) else {
            return Ok(());
        };
        self.event_now(read, thread, event, run, lines).await?;
        for deferred in prompts {
            let DeferredEvent { event, run, is_sent } = &deferred;
            self.is_own = !is_sent;
            self.event_now(read, thread, event, run.as_ref(), lines).await?;
        }
        Ok(())
    }

    async fn event_now(
        &mut self,
        read: &Arc<dyn Read>,
        thread: ThreadKey,
        event: &Event,
        run: Option<&RunId>,
        lines: &mut OutgoingLines,
    ) -> Result<()> {
        if let Some(original) = &event.original
            && self.echo.takes(event.run, &original.dialect, &original.bytes)
        {
            return Ok(());
        }
        // An original has the content of its blobs.
        let wants = |blob: &BlobRef| event.original.is_none() && self.updates.can_inline(blob);
        let whole = inlined(read, thread, event, wants).await?;
        let mut rendered = std::mem::take(&mut self.rendered);
        let run_id = run.map(RunId::as_str);
        self.updates.push(&whole, run_id, &mut rendered);
        if matches!(whole, Cow::Owned(_)) && !rendered.iter().all(Update::fits_a_line) {
            rendered.clear();
            self.updates.push(event, run_id, &mut rendered);
        }
        let event = whole;
        for update in rendered.drain(..) {
            if update.gate == Gate::UserMessage && self.is_open(Gate::UserMessage) {
                self.echo.show(event.run, &update.params);
            }
            self.write(&update, lines);
        }
        self.rendered = rendered;
        let has_message = self.answered_in.take().is_some_and(|run| event.run == Some(run));
        match &event.body {
            Body::Message(MessageEvent::Started { message, role: Role::User, .. }) => {
                self.open_message = Some(message.clone());
            }
            Body::Message(MessageEvent::Completed { message }) => {
                let is_it = self.open_message.take_if(|open| open == message).is_some();
                self.answered_in = event.run.filter(|_| is_it);
            }
            Body::Interrupt(InterruptEvent::Raised(interrupt)) => {
                let session = self.session.as_str();
                let asking = mapping::client_question(interrupt, session, &self.options.client);
                if let mapping::ClientQuestion::Text(text) = asking {
                    self.question(interrupt, &text, lines);
                }
            }
            Body::Interrupt(InterruptEvent::Resolved { interrupt, resolution }) => {
                let was_asked = self.text_questions.remove(interrupt);
                // An answer that is a message was already rendered as one.
                if let Resolution::Answered { answer, .. } = resolution
                    && was_asked
                    && !has_message
                {
                    self.answer(interrupt, answer, lines);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether this interrupt was asked as text.
    pub(super) fn has_asked(&self, interrupt: &InterruptId) -> bool {
        self.text_questions.contains(interrupt)
    }

    /// Asks as text, in a message of the agent.
    pub(super) fn question(
        &mut self,
        interrupt: &Interrupt,
        text: &str,
        lines: &mut OutgoingLines,
    ) {
        self.text_questions.insert(interrupt.id.clone());
        let block = ContentBlock::Text(TextContent::new(text.to_owned()));
        let id = derived_id(&interrupt.id, "question");
        self.chunk("agent_message_chunk", &block, &id, lines);
    }

    /// Renders an answer without a message as a message of the user.
    fn answer(&self, interrupt: &InterruptId, answer: &Answer, lines: &mut OutgoingLines) {
        if !self.is_open(Gate::UserMessage) {
            return;
        }
        let id = derived_id(interrupt, "answer");
        for block in &mapping::blocks_of_answer(answer) {
            self.chunk("user_message_chunk", block, &id, lines);
        }
    }

    /// Renders a mode or options that another client has set.
    pub(super) fn setting(&self, update: &serde_json::Value, lines: &mut OutgoingLines) {
        let params = json!({ "sessionId": self.session.as_str(), "update": update });
        let params = params.to_string().into_bytes();
        match self.options.booleans {
            true => write_update(lines, &params),
            false => write_update(lines, &mapping::without_booleans(&params)),
        }
    }

    fn chunk(&self, kind: &str, block: &ContentBlock, id: &str, lines: &mut OutgoingLines) {
        let update = json!({ "sessionUpdate": kind, "content": block, "messageId": id });
        let params = json!({ "sessionId": self.session.as_str(), "update": update });
        lines.notification(UPDATE_METHOD, &params);
    }

    fn write(&self, update: &Update, lines: &mut OutgoingLines) {
        if self.is_open(update.gate) {
            update.push_line_into(&mut lines.bytes);
            lines.messages += 1;
            return;
        }
        if let Some(reduce) = update.gate.reduction() {
            write_update(lines, &reduce(&update.params));
        } else if matches!(update.gate, Gate::Plan | Gate::PlanById) {
            write_update(lines, &self.updates.merged_plan());
        }
    }

    /// Whether the client receives updates behind this gate.
    fn is_open(&self, gate: Gate) -> bool {
        let options = &self.options;
        match gate {
            Gate::Always | Gate::Opaque => true,
            Gate::UserMessage => self.is_replay || !self.is_own,
            Gate::Notices => options.notices,
            Gate::NoNotices => !options.notices,
            Gate::Visited => options.url_visits && !self.is_replay,
            Gate::Compaction => options.compaction,
            Gate::BooleanConfig => options.booleans,
            Gate::Plan => options.plans_by_id || !self.updates.merges_plans(),
            Gate::PlanById => options.plans_by_id,
            Gate::Subagents | Gate::ToolSession => options.subagents,
            Gate::PromptSuggestions => options.suggestions && !self.is_replay,
            Gate::AgentCursors => false,
            Gate::Title => !self.updates.has_own_title(),
        }
    }
}

/// Writes an update whose params are JSON.
fn write_update(lines: &mut OutgoingLines, params: &[u8]) {
    if let Ok(params) = serde_json::from_slice::<&serde_json::value::RawValue>(params) {
        lines.notification(UPDATE_METHOD, params);
    }
}

/// Returns the id of a message that renders an interrupt: the same each time.
fn derived_id(interrupt: &InterruptId, name: &str) -> String {
    let namespace = Uuid::new_v5(&Uuid::NAMESPACE_OID, interrupt.as_str().as_bytes());
    Uuid::new_v5(&namespace, name.as_bytes()).to_string()
}
