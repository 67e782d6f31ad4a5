//! What happens in a session is dealt with here, one thing after the other: logged, or answered.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::Instant;
use trilogue_domain::event::{MessageEvent, Original};
use trilogue_domain::{Body, Error, MessageId, RunId};
use trilogue_mapping::agent_client::{body_of_update, title_of};
use trilogue_runtime::{EmitError, RunContext, ThreadContext};
use trilogue_sdk::agent_client::peer::{Notification, Request};
use trilogue_wire::agent_client::splice;

use super::answer::{Answering, PERMISSION_METHOD, Waits};
use super::calls::{Calls, Known};
use super::inbox::{Finish, Finished, Item, PassedOver};
use super::large::{gap, is_about_size, smaller, too_long};
use super::opened::Opened;
use super::replay::Replay;
use super::session::Opener;
use super::speaking::{Outside, Pieces, Speaking, Used, derived, kind_of};
use super::{Launch, original};
use crate::workspace::Workspace;

/// The method of an update.
const UPDATE_METHOD: &str = "session/update";
/// The updates that say how a session stands. An agent tells them again whenever it opens one.
const STATES: [&str; 3] =
    ["available_commands_update", "config_option_update", "current_mode_update"];
/// What an agent says at any time: it does not show that it has begun to work on a prompt.
const STANDS: [&str; 6] = [
    "available_commands_update",
    "config_option_update",
    "current_mode_update",
    "session_info_update",
    "usage_update",
    "notice",
];

/// Deals with what happens in a session.
pub(super) struct Desk {
    launch: Arc<Launch>,
    thread: ThreadContext,
    answering: Arc<Answering>,
    run: Option<Run>,
    /// For what is said outside of runs.
    pieces: Pieces,
    used: Used,
    calls: Calls,
    /// The run that was at work last.
    last: Option<RunId>,
    /// The message that is said outside of runs.
    late: Option<MessageId>,
    /// The states that were told last, by kind.
    states: HashMap<String, u64>,
    /// While the history is told again.
    replay: Option<Replay>,
    /// The session's modes and options, as the agent says that they are.
    opened: Opened,
}

/// The run that is at work.
struct Run {
    context: RunContext,
    speaking: Speaking,
    waits: Waits,
    /// Whether the agent has worked: it said or asked something of the turn.
    was_at_work: bool,
    /// Why it must not go on.
    refused: Option<Error>,
    is_stopped: bool,
}

// === impl Desk ===

impl Desk {
    pub(super) fn new(opener: &Opener, workspace: Option<Workspace>, opened: Opened) -> Self {
        Self {
            launch: Arc::clone(&opener.launch),
            thread: opener.thread.clone(),
            answering: Arc::new(Answering::new(opener, workspace)),
            run: None,
            pieces: Pieces::new(opener.launch.assign_message_ids),
            used: Used::default(),
            calls: Calls::default(),
            last: None,
            late: None,
            states: HashMap::new(),
            replay: None,
            opened,
        }
    }

    /// Works until the session is closed or its process has ended.
    pub(super) async fn work(mut self, mut items: mpsc::Receiver<Item>) {
        while let Some(item) = items.recv().await {
            match item {
                Item::Said { said, _room } => self.said(said).await,
                Item::Asked(request) => self.asked(request),
                Item::PassedOver(line) => self.passed_over(&line).await,
                Item::Answered => self.opened.answered(),
                Item::Begin { context, user } => {
                    self.end_late().await;
                    self.begin(context, user);
                }
                Item::Finish { how, done } => drop(done.send(self.finish(how).await)),
                Item::Replay => self.replay = Some(Replay::default()),
                Item::Reopened { may_go_on } => {
                    self.replay = self.replay.take().filter(|_| may_go_on);
                    self.replay.iter_mut().for_each(|replay| replay.answered(Instant::now()));
                }
                Item::History { is_expected, ends } => {
                    let until = self.replay.as_ref().and_then(|replay| replay.ends(is_expected));
                    // Who does not wait any more need not know.
                    let _: Result<(), Option<Instant>> = ends.send(until);
                }
            }
        }
        self.end_late().await;
    }

    fn begin(&mut self, context: RunContext, user: MessageId) {
        let assigns = self.launch.assign_message_ids;
        let agent = context.agent().as_str().to_owned();
        let speaking = Speaking::new(context.run().clone(), &agent, user, assigns);
        let waits = Waits::default();
        self.replay = None;
        self.pieces.end();
        self.last = Some(context.run().clone());
        self.run = Some(Run {
            context,
            speaking,
            waits,
            was_at_work: false,
            refused: None,
            is_stopped: false,
        });
    }

    async fn finish(&mut self, how: Finish) -> Finished {
        let Some(mut run) = self.run.take() else { return Finished::default() };
        run.waits.end(how);
        self.calls.turn_over(how == Finish::Broken);
        let speaking = run.speaking;
        for body in speaking.finish(how == Finish::Broken, &mut self.used) {
            if run.is_stopped {
                break;
            }
            run.is_stopped = matches!(run.context.emit(body, None).await, Err(EmitError::Stopped));
        }
        Finished { was_at_work: run.was_at_work, refused: run.refused }
    }

    fn asked(&mut self, request: Request) {
        let at_work = self.run.as_mut().map(|run| {
            run.was_at_work = true;
            (run.context.clone(), run.waits.clone())
        });
        let known = match request.method() {
            PERMISSION_METHOD => self.calls.asked(request.params().as_str()),
            _ => Known::default(),
        };
        Arc::clone(&self.answering).answer(request, known, at_work);
    }

    async fn said(&mut self, said: Notification) {
        let params = said.params.as_str();
        if said.method != UPDATE_METHOD {
            let (body, original) = original::of_notification(&said.method, params);
            return self.log(body, Some(original)).await;
        }
        let Some((params, _)) = splice::cut_session(params) else { return self.calls.lost() };
        let kind = kind_of(&params);
        self.opened.told(kind, &params);
        let is_told = self.is_told(kind, &params);
        if self.replay.as_mut().is_some_and(|replay| replay.takes(kind, Instant::now()))
            && (is_told || !STATES.contains(&kind))
        {
            return self.calls.hear_again(kind, &params);
        }
        self.calls.hear(kind, &params);
        let Some(run) = &mut self.run else {
            return self.said_outside(kind, params).await;
        };
        run.was_at_work |= !STANDS.contains(&kind);
        if let Some(id) = run.speaking.begins(kind, &params, &self.used)
            && run.context.has_message(&id).await.unwrap_or(true)
        {
            self.used.add([id]);
        }
        let heard = run.speaking.hear(kind, params, &self.used);
        for (body, original) in heard.events {
            run.log(body, original).await;
        }
        // Behind the message: the log knows no alias of one that has not begun.
        if let Some((message, alias)) = &heard.alias {
            run.context.alias(message, alias);
        }
    }

    /// What is said outside of runs. Words there are a message of their own.
    async fn said_outside(&mut self, kind: &str, params: String) {
        let Outside { params, message, ends } = self.pieces.outside(kind, params);
        let mut body = body_of_update(&params);
        if ends {
            self.end_late().await;
        }
        if let (Some(id), Some(run)) = (message, self.last.clone())
            && let Body::Message(
                MessageEvent::Delta { message: named, .. }
                | MessageEvent::Part { message: named, .. },
            ) = &mut body
        {
            let message = MessageId::parse(&id).unwrap_or_else(|_| derived(&run, &id));
            *named = message.clone();
            self.turn_to(message, &run).await;
        }
        self.log(body, Some(original::of_update(params))).await;
    }

    /// Begins a message outside of runs, unless it was begun before.
    async fn turn_to(&mut self, message: MessageId, last: &RunId) {
        if self.late.as_ref() == Some(&message) {
            return;
        }
        self.end_late().await;
        if self.used.has(&message) {
            return;
        }
        match self.thread.begin_message(&message, last).await {
            Ok(true) => self.late = Some(message.clone()),
            Ok(false) => {}
            Err(error) => {
                let thread = self.thread.thread();
                tracing::debug!(%thread, %error, "a message outside of a run is not begun");
                return;
            }
        }
        self.used.add([message]);
    }

    async fn end_late(&mut self) {
        if let Some(message) = self.late.take() {
            self.log(Body::Message(MessageEvent::Completed { message }), None).await;
        }
    }

    /// Says in the log that there was something. What is told again stands there as it was told first.
    async fn passed_over(&mut self, line: &PassedOver) {
        let may_be = |name: &str| line.method.as_ref().is_none_or(|method| method == name);
        let may_be_update = may_be(UPDATE_METHOD);
        if may_be_update || may_be(PERMISSION_METHOD) {
            self.calls.lost();
        }
        if !line.is_noted {
            return;
        }
        if may_be_update
            && self.replay.as_mut().is_some_and(|replay| replay.takes_unread(Instant::now()))
        {
            return;
        }
        if let Some(run) = &mut self.run {
            run.was_at_work = true;
        }
        self.log(too_long(line.limit, line.method.as_deref()), None).await;
    }

    /// Whether a state is the one that was told last. Remembers it.
    fn is_told(&mut self, kind: &str, params: &str) -> bool {
        if !STATES.contains(&kind) {
            return false;
        }
        let mut hasher = DefaultHasher::new();
        params.hash(&mut hasher);
        let hash = hasher.finish();
        self.states.insert(kind.to_owned(), hash) == Some(hash)
    }

    async fn log(&mut self, body: Body, original: Option<Original>) {
        if let Some(run) = &mut self.run {
            return run.log(body, original).await;
        }
        let (event, came) = (body.clone(), original.clone());
        let noted = match title_of(&body) {
            Some(title) => self.thread.note_title(event, came, title.as_deref()).await,
            None => self.thread.note(event, came).await,
        };
        let noted = match noted {
            Err(error) if is_about_size(&error) => self.note_less(body, original.as_ref()).await,
            noted => noted,
        };
        if let Err(error) = noted {
            let thread = self.thread.thread();
            tracing::debug!(%thread, %error, "what an agent said outside of a run is not logged");
        }
    }

    /// Notes what is too large in a smaller form.
    async fn note_less(&self, body: Body, original: Option<&Original>) -> Result<(), Error> {
        for body in smaller(body, original) {
            match self.thread.note(body, None).await {
                Err(error) if is_about_size(&error) => {
                    self.thread.note(gap(original), None).await?;
                }
                noted => noted?,
            }
        }
        Ok(())
    }
}

// === impl Run ===

impl Run {
    async fn log(&mut self, body: Body, original: Option<Original>) {
        if self.is_stopped || self.refused.is_some() {
            return;
        }
        if let Some(title) = title_of(&body) {
            self.context.title(title.as_deref());
        }
        let emitted = match self.context.try_emit(&body, original.as_ref()) {
            Ok(true) => return,
            Ok(false) => self.context.emit(body.clone(), original.clone()).await,
            Err(error) => Err(error),
        };
        let emitted = match emitted {
            Err(EmitError::Refused(error)) if is_about_size(&error) => {
                self.log_less(body, original.as_ref()).await
            }
            emitted => emitted,
        };
        match emitted {
            Ok(()) => {}
            Err(EmitError::Stopped) => self.is_stopped = true,
            Err(EmitError::Refused(error)) => self.refused = Some(error),
        }
    }

    /// Logs what is too large in a smaller form: a size never ends a run.
    async fn log_less(&self, body: Body, original: Option<&Original>) -> Result<(), EmitError> {
        for body in smaller(body, original) {
            match self.context.emit(body, None).await {
                Err(EmitError::Refused(error)) if is_about_size(&error) => {
                    self.context.emit(gap(original), None).await?;
                }
                emitted => emitted?,
            }
        }
        Ok(())
    }
}
