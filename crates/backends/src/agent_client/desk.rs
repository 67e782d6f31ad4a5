//! What happens in a session is dealt with here, one thing after the other: logged, or answered.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use tokio::sync::mpsc;
use trilogue_domain::event::{Original, StateEvent};
use trilogue_domain::{Body, Code, Error, Json, MessageId};
use trilogue_runtime::{EmitError, RunContext, ThreadContext};
use trilogue_sdk::agent_client::peer::{Notification, Request};
use trilogue_wire::agent_client::splice;

use super::answer::Answering;
use super::inbox::{Finish, Item};
use super::session::Opener;
use super::speaking::{Pieces, Speaking, Used, kind_of};
use super::{Launch, original};
use crate::workspace::Workspace;

/// The updates that say how a session stands. An agent tells them again whenever it opens one.
const STATES: [&str; 3] =
    ["available_commands_update", "config_option_update", "current_mode_update"];

/// Deals with what happens in a session.
pub(super) struct Desk {
    launch: Arc<Launch>,
    thread: ThreadContext,
    answering: Arc<Answering>,
    run: Option<Run>,
    /// For what is said outside of runs.
    pieces: Pieces,
    used: Used,
    /// The states that were told last, by kind.
    states: HashMap<String, u64>,
    /// How many pieces of the history came, while it is told.
    replaying: Option<usize>,
}

/// The run that is at work.
struct Run {
    context: RunContext,
    speaking: Speaking,
    /// Why it must not go on.
    refused: Option<Error>,
    is_stopped: bool,
}

// === impl Desk ===

impl Desk {
    pub(super) fn new(opener: &Opener, workspace: Option<Workspace>) -> Self {
        Self {
            launch: Arc::clone(&opener.launch),
            thread: opener.thread.clone(),
            answering: Arc::new(Answering::new(opener, workspace)),
            run: None,
            pieces: Pieces::new(opener.launch.assign_message_ids),
            used: Used::default(),
            states: HashMap::new(),
            replaying: None,
        }
    }

    /// Works until the session is closed or its process has ended.
    pub(super) async fn work(mut self, mut items: mpsc::Receiver<Item>) {
        while let Some(item) = items.recv().await {
            match item {
                Item::Said { said, _room } => self.said(said).await,
                Item::Asked(request) => self.asked(request),
                Item::Begin { context, user } => self.begin(context, user),
                Item::Finish { how, done } => drop(done.send(self.finish(how).await)),
                Item::Replay => self.replaying = Some(0),
                Item::Replayed { done } => {
                    // Who does not wait any more need not know.
                    let _: Result<(), usize> = done.send(self.replaying.take().unwrap_or(0));
                }
            }
        }
    }

    fn begin(&mut self, context: RunContext, user: MessageId) {
        let assigns = self.launch.assign_message_ids;
        let agent = context.agent().as_str().to_owned();
        let speaking = Speaking::new(context.run().clone(), &agent, user, assigns);
        self.run = Some(Run { context, speaking, refused: None, is_stopped: false });
    }

    async fn finish(&mut self, how: Finish) -> Result<(), Error> {
        let Some(mut run) = self.run.take() else { return Ok(()) };
        let speaking = run.speaking;
        for body in speaking.finish(how == Finish::Broken, &mut self.used) {
            if run.is_stopped {
                break;
            }
            run.is_stopped = matches!(run.context.emit(body, None).await, Err(EmitError::Stopped));
        }
        run.refused.map_or(Ok(()), Err)
    }

    fn asked(&self, request: Request) {
        let context = self.run.as_ref().map(|run| run.context.clone());
        Arc::clone(&self.answering).answer(request, context);
    }

    async fn said(&mut self, said: Notification) {
        let params = said.params.as_str();
        if said.method != "session/update" {
            let (body, original) = original::of_notification(&said.method, params);
            return self.log(body, Some(original)).await;
        }
        let Some((params, _)) = splice::cut_session(params) else { return };
        let kind = kind_of(&params).map(|kind| kind.into_owned()).unwrap_or_default();
        let is_told = self.is_told(&kind, &params);
        if let Some(pieces) = &mut self.replaying {
            if !STATES.contains(&&*kind) {
                *pieces += 1;
                return;
            }
            if is_told {
                return;
            }
        }
        let Some(run) = &mut self.run else {
            let params = self.pieces.outside(params);
            let body = trilogue_mapping::agent_client::body_of_update(&params);
            return self.log(body, Some(original::of_update(params))).await;
        };
        let heard = run.speaking.hear(params, &self.used);
        if let Some((message, alias)) = &heard.alias {
            run.context.alias(message, alias);
        }
        for (body, original) in heard.events {
            run.log(body, original).await;
        }
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
        let noted = self.thread.note(body.clone(), original.clone()).await;
        let noted = match noted {
            Err(error) if error.code() == Code::EventTooLarge => {
                let (body, original) = smaller(body, original.as_ref());
                self.thread.note(body, original).await
            }
            noted => noted,
        };
        if let Err(error) = noted {
            let thread = self.thread.thread();
            tracing::debug!(%thread, %error, "what an agent said outside of a run is not logged");
        }
    }
}

// === impl Run ===

impl Run {
    async fn log(&mut self, body: Body, original: Option<Original>) {
        if self.is_stopped || self.refused.is_some() {
            return;
        }
        let emitted = match self.context.try_emit(&body, original.as_ref()) {
            Ok(true) => return,
            Ok(false) => self.context.emit(body.clone(), original.clone()).await,
            Err(error) => Err(error),
        };
        let emitted = match emitted {
            Err(EmitError::Refused(error)) if error.code() == Code::EventTooLarge => {
                let (body, original) = smaller(body, original.as_ref());
                self.context.emit(body, original).await
            }
            emitted => emitted,
        };
        match emitted {
            Ok(()) => {}
            Err(EmitError::Stopped) => self.is_stopped = true,
            Err(EmitError::Refused(error)) => self.refused = Some(error),
        }
    }
}

/// What is logged in place of an update that is larger than an event may be: its content, which can lie beside the log, or that there was one.
fn smaller(body: Body, original: Option<&Original>) -> (Body, Option<Original>) {
    match body {
        Body::Message(_) if original.is_some() => (body, None),
        _ => {
            let bytes = original.map_or(0, |original| original.bytes.len());
            let data = Json::from_value(&serde_json::json!({ "bytes": bytes }));
            let kind = "update_too_large".to_owned();
            (Body::State(StateEvent::Custom { kind, data }), None)
        }
    }
}
