//! Shows a session's log to a client.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use trilogue_domain::error::Result;
use trilogue_domain::event::{Event, InterruptEvent, MessageEvent, RunEvent, ThreadEvent};
use trilogue_domain::{Body, Json, Outcome, Role, RunId, RunKey};
use trilogue_mapping::agent_client as mapping;
use trilogue_store::{Frame, Range, Tail};
use trilogue_wire::agent_client::ClientCapabilities;
use trilogue_wire::native::local::Control;

use super::catch_up::Start;
use super::link::{Lines, Link, Met};
use super::opened::{Opened, Pushed};
use super::question::{self, Asked};
use super::session::{Ended, OpenPrompt, Session};
use super::settings::is_setting;
use super::show::Show;
use crate::core::not_found::no_thread;
use crate::stream::feed::run_id;

/// How much of the log is read at once, in bytes.
pub(super) const READ_BYTES: usize = 64 * 1024;
/// The most run ids that a pump remembers.
const MAX_NAMES: usize = 1_024;

/// Reads a session's log and tells the client what is in it: the one place that updates come from.
pub(super) struct Pump {
    pub(super) link: Arc<Link>,
    pub(super) session: Arc<Session>,
    pub(super) client: ClientCapabilities,
    tail: Tail,
    /// The number of the last event that was shown.
    pub(super) cursor: u64,
    /// Where the client was told last that it is.
    pub(super) placed: u64,
    pub(super) show: Show,
    /// What was seen of the agent's own session.
    pub(super) opened: Opened,
    pub(super) names: HashMap<RunKey, RunId>,
    /// The answers of hosted agents to prompts whose runs have not ended yet.
    pub(super) results: HashMap<RunKey, String>,
    /// What of the log was there before the client asked for it.
    pub(super) catching_up: Option<Start>,
    /// What the client has asked for meanwhile, oldest first.
    pub(super) next: VecDeque<Start>,
    /// Whether anything is shown yet.
    pub(super) is_started: bool,
    /// The options that the thread's runs are given, where they are known so far.
    pub(super) config: Option<Option<Json>>,
    /// Runs that have ended since the last batch went out, and whose prompts were not there.
    unclaimed: Vec<(RunKey, Ended)>,
    /// Likewise those that were removed.
    removed: Vec<RunId>,
    /// Whether nothing happened since the last batch went out but that runs began.
    only_begun: bool,
}

/// What a pump is told.
#[derive(Debug)]
pub(super) enum Order {
    /// Begin here.
    Start(Start),
    /// A prompt waits whose run had ended before.
    Look,
    /// Say when everything before is on its way.
    Pass(oneshot::Sender<()>),
}

/// Why a pump goes on.
enum Woken {
    Committed,
    LogGone,
    Ordered(Option<Order>),
    Stopping,
}

// === impl Pump ===

impl Pump {
    pub(super) fn new(link: Arc<Link>, session: Arc<Session>, met: &Met) -> Self {
        Self {
            client: met.client.clone(),
            tail: link.read().tail(session.thread.key),
            cursor: 0,
            placed: u64::MAX,
            show: Show::new(&session.thread.id, link.id_format(), &met.client),
            opened: Opened::default(),
            names: HashMap::new(),
            results: HashMap::new(),
            catching_up: None,
            next: VecDeque::new(),
            is_started: false,
            config: None,
            unclaimed: Vec::new(),
            removed: Vec::new(),
            only_begun: false,
            session,
            link,
        }
    }

    /// Works until the session is closed, its thread is gone, or the client is.
    pub(super) async fn run(mut self, mut orders: mpsc::Receiver<Order>) {
        let (stop, closed) = (self.session.stop.clone(), self.link.closed.clone());
        let working = self.work(&mut orders);
        let ended = tokio::select! {
            () = closed.cancelled() => return,
            () = stop.cancelled() => Ok(()),
            ended = working => ended,
        };
        let error = match &ended {
            Ok(()) if !stop.is_cancelled() => return,
            Ok(()) => None,
            Err(error) => {
                tracing::debug!(thread = %self.session.thread.id, %error, "a session cannot be shown any more");
                Some(error)
            }
        };
        // Nothing is taken any more that would not be answered.
        orders.close();
        while let Ok(order) = orders.try_recv() {
            if let Order::Start(start) = order {
                self.next.push_back(start);
            }
        }
        self.give_up(error).await;
    }

    async fn work(&mut self, orders: &mut mpsc::Receiver<Order>) -> Result<()> {
        // A thread that was removed before its tail was attached ends no tail.
        let thread = self.session.row(&self.link).await?;
        if thread.key != self.session.thread.key {
            return Err(no_thread(self.session.id()));
        }
        loop {
            while self.is_started && self.step().await? {
                while let Ok(order) = orders.try_recv() {
                    self.take(order).await?;
                }
                self.start_next().await?;
            }
            if self.start_next().await? {
                continue;
            }
            match self.wait(orders).await {
                Woken::Committed => {}
                Woken::Ordered(Some(order)) => self.take(order).await?,
                Woken::Ordered(None) => return Ok(()),
                Woken::LogGone => return Err(no_thread(self.session.id())),
                Woken::Stopping => {
                    // What the shutdown itself brought is shown.
                    while self.is_started && self.step().await? {}
                    return Ok(());
                }
            }
        }
    }

    async fn wait(&mut self, orders: &mut mpsc::Receiver<Order>) -> Woken {
        tokio::select! {
            changed = self.tail.committed.changed() => match changed {
                Ok(()) => Woken::Committed,
                Err(_) => Woken::LogGone,
            },
            order = orders.recv() => Woken::Ordered(order),
            () = self.link.state.streams_end.cancelled() => Woken::Stopping,
        }
    }

    async fn take(&mut self, order: Order) -> Result<()> {
        match order {
            Order::Start(start) => {
                self.next.push_back(start);
                self.start_next().await.map(drop)
            }
            Order::Pass(passed) => {
                // Whoever asked may have gone.
                let _ = passed.send(());
                Ok(())
            }
            Order::Look => {
                let mut lines = Lines::default();
                self.settle_ended(&mut lines);
                self.send(lines).await;
                Ok(())
            }
        }
    }

    /// Shows the next stretch of the log; `false` at its end.
    async fn step(&mut self) -> Result<bool> {
        let range = Range { run: None, after: self.cursor, max_bytes: READ_BYTES };
        let frames = self.link.read().frames(&self.session.thread, range).await?;
        if frames.is_empty() {
            return Ok(false);
        }
        let mut lines = Lines::default();
        // What is given on as it came is copied once, to where it goes out from.
        let stored: usize = frames.iter().map(|frame| frame.bytes().len()).sum();
        lines.bytes.reserve(stored + stored / 2);
        for frame in &frames {
            self.frame(frame, &mut lines).await?;
            if self.catching_up.as_ref().is_some_and(|start| self.cursor >= start.until) {
                self.caught_up(&mut lines).await?;
                // What was there before and its answer end together, and nothing else with them.
                self.flush(&mut lines).await;
            }
            if lines.bytes.len() >= READ_BYTES {
                self.flush(&mut lines).await;
            }
        }
        self.settle_ended(&mut lines);
        self.flush(&mut lines).await;
        Ok(true)
    }

    async fn frame(&mut self, frame: &Frame, lines: &mut Lines) -> Result<()> {
        let mut records = frame.raw()?.peekable();
        while let Some(record) = records.next() {
            let record = record?;
            if record.number <= self.cursor {
                continue;
            }
            self.cursor = record.number;
            match record.original.as_ref() {
                // What an agent said in this protocol is given on without being read.
                Some(original) if self.show.relay(original, frame.run(), lines) => {
                    if self.catching_up.is_some() || is_setting(&original.bytes) {
                        // It was shown.
                        let _ = self.opened.push(&record.event()?);
                    }
                }
                Some(original) if original.dialect == mapping::RESULT => {
                    if let (Some(run), Ok(text)) =
                        (frame.run(), std::str::from_utf8(&original.bytes))
                    {
                        self.results.insert(run, text.to_owned());
                    }
                }
                _ => {
                    let mut event = record.event()?;
                    if let Body::Run(RunEvent::Created { input: input @ Some(_), .. }) =
                        &mut event.body
                        && let Some(Ok(next)) = records.peek()
                        && is_said(&next.event()?)
                    {
                        // The message that it was made of is shown instead.
                        *input = None;
                    }
                    self.event(&event, lines).await?;
                }
            }
        }
        Ok(())
    }

    /// Shows an event that has no words of this protocol.
    async fn event(&mut self, event: &Event, lines: &mut Lines) -> Result<()> {
        self.only_begun = match &event.body {
            Body::Run(RunEvent::Created { .. }) => true,
            Body::Run(_) | Body::Message(_) => self.only_begun,
            _ => false,
        };
        match self.opened.push(event) {
            Pushed::Shown => {}
            Pushed::Hidden => return Ok(()),
            Pushed::Set(update, is_news) => {
                self.was_set(&update, is_news, lines);
                return Ok(());
            }
        }
        if let Body::Thread(
            ThreadEvent::Created { metadata, .. } | ThreadEvent::Metadata(metadata),
        ) = &event.body
        {
            self.configured(metadata, lines);
        }
        let run = match event.run {
            Some(key) => self.name(key, event).await?,
            None => None,
        };
        if let Body::Run(RunEvent::Created { run, .. }) = &event.body
            && self.was_prompted_before(run).await?
        {
            self.show.own_run = event.run;
        }
        self.note_answer(event);
        self.show.note_mine(event, &self.session.state());
        let read = self.link.read();
        let thread = &self.session.thread;
        self.show.event(read, thread, event, run.as_ref(), lines).await?;
        match &event.body {
            Body::Run(RunEvent::Ended(outcome)) => {
                if let Some(key) = event.run {
                    let ended =
                        Ended { outcome: outcome.clone(), result: self.results.remove(&key) };
                    self.ended(key, ended, lines);
                }
            }
            Body::Interrupt(InterruptEvent::Raised(interrupt)) => {
                if let Some(key) = event.run {
                    self.raised(key, interrupt, lines);
                }
            }
            Body::Interrupt(InterruptEvent::Resolved { interrupt, .. }) => {
                let mut state = self.session.state();
                state.asked.take_if(|asked| asked.id == *interrupt);
                drop(state);
                question::withdraw(&self.link, &self.session, interrupt, lines);
            }
            Body::Thread(ThreadEvent::RunRemoved { run, .. }) => self.run_removed(run, lines),
            _ => {}
        }
        Ok(())
    }

    /// Asks the client, unless what was asked here may be answered by now.
    fn raised(&mut self, run: RunKey, interrupt: &trilogue_domain::Interrupt, lines: &mut Lines) {
        if self.catching_up.is_some() {
            return;
        }
        let asking = mapping::asking(interrupt, self.session.id(), &self.client);
        if question::ask(&self.link, &self.session, run, interrupt, asking, lines) == Asked::AsText
        {
            let mut state = self.session.state();
            state.asked = Some(interrupt.clone());
            drop(state);
            self.asked_in_words(run, lines);
        }
    }

    /// The turn ends with the question.
    pub(super) fn asked_in_words(&self, run: RunKey, lines: &mut Lines) {
        let prompts = self.session.state().take_prompts(run);
        let ended = Ended { outcome: Outcome::Completed, result: None };
        self.settle(prompts, &ended, lines);
    }

    /// Answers the prompts of a run that has ended here.
    fn ended(&mut self, run: RunKey, ended: Ended, lines: &mut Lines) {
        let prompts = self.session.state().take_prompts(run);
        if prompts.is_empty() {
            self.unclaimed.push((run, ended));
        } else {
            self.settle(prompts, &ended, lines);
        }
    }

    /// Answers the prompts of a run that was removed: its end went with it.
    fn run_removed(&mut self, run: &RunId, lines: &mut Lines) {
        let found = self.names.iter().find(|(_, name)| *name == run).map(|(key, _)| *key);
        if let Some(key) = found {
            self.names.remove(&key);
            self.results.remove(&key);
        }
        let prompts = self.session.state().claim_removed(run);
        if prompts.is_empty() {
            self.removed.push(run.clone());
        } else {
            self.settle(prompts, &Ended::removed(), lines);
        }
    }

    fn settle(&self, prompts: Vec<OpenPrompt>, ended: &Ended, lines: &mut Lines) {
        self.session.settled.notify_waiters();
        for prompt in prompts {
            if let Some(message) = &prompt.message {
                self.session.state().mine.remove(message);
            }
            tracing::debug!(
                run = %prompt.run_id,
                thread = %self.session.thread.id,
                message_id = prompt.message.as_ref().map(tracing::field::display),
                status = ended.outcome.status().as_str(),
                "a turn of an agent's client is over"
            );
            let user = prompt.user_message_id.as_deref();
            let answer = prompt.answer(ended, user);
            self.link.write_answer(lines, &prompt.request, &answer);
        }
    }

    /// Answers prompts whose runs had ended before the client was told so far.
    fn settle_ended(&self, lines: &mut Lines) {
        let settled = self.session.state().take_ended(self.cursor);
        for (prompt, ended) in settled {
            self.settle(vec![prompt], &ended, lines);
        }
    }

    /// Sends what was shown, and remembers what ended for prompts that are being accepted.
    async fn flush(&mut self, lines: &mut Lines) {
        let is_behind = self.placed != self.cursor;
        if !lines.bytes.is_empty() || is_behind && !self.may_wait() {
            self.send(std::mem::take(lines)).await;
            self.placed = self.cursor;
            self.only_begun = false;
        }
        let unclaimed = std::mem::take(&mut self.unclaimed);
        for (run, ended) in unclaimed {
            let mut lines = Lines::default();
            let prompts = self.session.state().claim(run, &ended);
            self.settle(prompts, &ended, &mut lines);
            if !lines.bytes.is_empty() {
                self.send(lines).await;
            }
        }
        for run in std::mem::take(&mut self.removed) {
            let mut lines = Lines::default();
            let prompts = self.session.state().claim_removed(&run);
            self.settle(prompts, &Ended::removed(), &mut lines);
            if !lines.bytes.is_empty() {
                self.send(lines).await;
            }
        }
    }

    /// Whether a position without lines can wait for the next ones: this client has prompted, and will hear more of that.
    ///
    /// A client that comes back meanwhile is told from the position before, and knows its own prompt by its run.
    fn may_wait(&self) -> bool {
        let state = self.session.state();
        let is_prompting = state.prompts.len() + state.accepting == 1;
        is_prompting && self.only_begun && self.catching_up.is_none() && self.link.client.is_some()
    }

    pub(super) async fn send(&self, lines: Lines) {
        let (session, number) = (self.session.id().into(), self.cursor);
        let says_nothing = lines.bytes.is_empty();
        // A history that is cut is told anew from its beginning: it moves the client nowhere until it is answered.
        let position = match self.show.is_replay {
            true => Control::Boundary,
            false => Control::Position { session, number },
        };
        if !says_nothing || self.link.numbered {
            self.link.send(lines, position).await;
        }
    }

    /// The id of an event's run.
    async fn name(&mut self, key: RunKey, event: &Event) -> Result<Option<RunId>> {
        if let Some(known) = self.names.get(&key) {
            return Ok(Some(known.clone()));
        }
        let name = match &event.body {
            Body::Run(RunEvent::Created { run, .. }) => Some(run.clone()),
            _ => run_id(self.link.read(), &self.session.thread, key).await?,
        };
        if self.names.len() >= MAX_NAMES {
            self.names.clear();
        }
        if let Some(name) = &name {
            self.names.insert(key, name.clone());
        }
        Ok(name)
    }
}

/// Whether a user's message begins.
fn is_said(event: &Event) -> bool {
    matches!(&event.body, Body::Message(MessageEvent::Started { role: Role::User, .. }))
}
