//! What an agent asks of its client, and who answers it: a rule, a person, our workspace, or the client that prompts.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use trilogue_domain::{Interrupt, InterruptId, Json, Resolution};
use trilogue_mapping::agent_client::{
    elicitation_outcome, interrupt_of_elicitation, interrupt_of_permission, permission_outcome,
    subject,
};
use trilogue_runtime::{EmitError, RunContext};
use trilogue_sdk::agent_client::peer::{RawJson, Request};
use trilogue_wire::agent_client::{
    CreateElicitationRequest, RequestPermissionRequest, Rules as Reading, ToolCallContent,
    read_params, splice,
};
use trilogue_wire::jsonrpc::{Code, ErrorObject};

use super::calls::Known;
use super::inbox::Finish;
use super::meta::passed;
use super::router::cancelled_permission;
use super::session::Opener;
use super::trouble::error_object;
use super::{ClientTools, Launch};
use crate::permission::{Rules, Subject};
use crate::workspace::Workspace;

/// The method by which an agent asks for permission.
pub(super) const PERMISSION_METHOD: &str = "session/request_permission";
/// How long a question waits that is held: longer than any server runs.
const HELD: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
/// How long a request for permission may become by what it leaves out, in bytes.
const MAX_WHOLE_BYTES: usize = 15 * 1024 * 1024;
/// What only a client with files and terminals answers.
const TOOLS: [&str; 2] = ["fs/", "terminal/"];

/// Answers what an agent asks in a session.
#[derive(Debug)]
pub(super) struct Answering {
    launch: Arc<Launch>,
    rules: Arc<Rules>,
    workspace: Option<Workspace>,
    root: PathBuf,
}

/// How long what is asked in a turn waits at most. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Waits {
    /// Cancelled when the turn is over: the client that prompted has nothing more to do with it.
    over: CancellationToken,
    /// Cancelled when the turn broke off: nothing that the agent waited for matters any more.
    broken: CancellationToken,
}

// === impl Waits ===

impl Waits {
    /// The turn is over.
    pub(super) fn end(&self, how: Finish) {
        if how == Finish::Broken {
            self.broken.cancel();
        }
        self.over.cancel();
    }
}

// === impl Answering ===

impl Answering {
    pub(super) fn new(opener: &Opener, workspace: Option<Workspace>) -> Self {
        Self {
            launch: Arc::clone(&opener.launch),
            rules: Arc::clone(&opener.rules),
            workspace,
            root: opener.site.cwd.clone(),
        }
    }

    /// Answers a request in a task of its own. `known` is what is known of the tool call that it asks about, `at_work` the run that is at work.
    pub(super) fn answer(
        self: Arc<Self>,
        request: Request,
        known: Known,
        at_work: Option<(RunContext, Waits)>,
    ) {
        let (method, params) = (request.method().to_owned(), request.params().clone());
        request.answer(async move { self.respond(&method, &params, &known, at_work).await });
    }

    async fn respond(
        &self,
        method: &str,
        params: &RawJson,
        known: &Known,
        at_work: Option<(RunContext, Waits)>,
    ) -> Result<RawJson, ErrorObject> {
        match method {
            PERMISSION_METHOD => match at_work {
                Some((context, _)) => self.permission(params, known, &context).await,
                None => Ok(RawJson::of(&cancelled_permission())),
            },
            "elicitation/create" => match at_work {
                Some((context, _)) => self.elicitation(params, &context).await,
                None => Ok(RawJson::of(&serde_json::json!({ "action": "cancel" }))),
            },
            _ => {
                let waits = at_work.as_ref().map(|(_, waits)| waits.clone()).unwrap_or_default();
                let is_ours =
                    self.workspace.as_ref().is_some_and(|workspace| workspace.serves(method));
                // A terminal of ours may be waited for beyond the turn, a client may not.
                let end = if is_ours { waits.broken } else { waits.over };
                tokio::select! {
                    biased;
                    answer = self.call(method, params, at_work) => answer,
                    () = end.cancelled() => Err(ErrorObject::of(Code::REQUEST_CANCELLED)),
                }
            }
        }
    }

    async fn permission(
        &self,
        params: &RawJson,
        known: &Known,
        context: &RunContext,
    ) -> Result<RawJson, ErrorObject> {
        let whole = known.complete(params.as_str());
        let read: RequestPermissionRequest = read(&whole)?;
        // What is added never makes a question too large to be asked.
        let fits = whole.len() <= MAX_WHOLE_BYTES;
        let raw = without_session(if fits { &whole } else { params.as_str() });
        let mut interrupt = interrupt_of_permission(&read, &raw, InterruptId::generate());
        let is_known = !known.is_partial() && is_read(&read, &whole);
        if let Some(resolution) = self.ruled(&read, is_known, &interrupt, context).await {
            return Ok(RawJson::of(&permission_outcome(&interrupt, &resolution)));
        }
        let resolution = self.ask(&mut interrupt, context).await;
        Ok(match resolution {
            Some(resolution) => {
                self.passed(RawJson::of(&permission_outcome(&interrupt, &resolution)))
            }
            None => RawJson::of(&cancelled_permission()),
        })
    }

    /// What a client answers, as the agent gets it.
    fn passed(&self, answer: RawJson) -> RawJson {
        passed(answer, self.launch.client_meta)
    }

    /// What a rule decides. None allows what is not wholly known.
    async fn ruled(
        &self,
        request: &RequestPermissionRequest,
        is_known: bool,
        interrupt: &Interrupt,
        context: &RunContext,
    ) -> Option<Resolution> {
        let (kind, tool, paths) = subject(request);
        let subject = Subject { kind, tool, paths, root: Some(&self.root) };
        let applied = self.rules.answer(&subject, interrupt).await?;
        if applied.allowed && !is_known {
            return None;
        }
        // Where that cannot be logged the run has been stopped.
        context.emit(applied.event(), None).await.ok()?;
        applied.resolution(interrupt).ok()
    }

    async fn elicitation(
        &self,
        params: &RawJson,
        context: &RunContext,
    ) -> Result<RawJson, ErrorObject> {
        let read: CreateElicitationRequest = read(params.as_str())?;
        let raw = without_session(params.as_str());
        let mut interrupt = interrupt_of_elicitation(&read, &raw, InterruptId::generate());
        let resolution = self.ask(&mut interrupt, context).await;
        Ok(match resolution {
            Some(resolution) => {
                self.passed(RawJson::of(&elicitation_outcome(&interrupt, &resolution)))
            }
            None => RawJson::of(&serde_json::json!({ "action": "cancel" })),
        })
    }

    /// Asks whoever may answer. `None` where nobody can any more.
    async fn ask(&self, interrupt: &mut Interrupt, context: &RunContext) -> Option<Resolution> {
        // The server's default is as it is configured.
        interrupt.patience = self.launch.hold.then_some(HELD);
        match context.ask(interrupt.clone()).await {
            Ok(resolution) => Some(resolution),
            Err(EmitError::Stopped) => None,
            Err(EmitError::Refused(error)) => {
                let run = context.run();
                tracing::warn!(%run, %error, "a question of an agent could not be asked");
                None
            }
        }
    }

    /// Everything else: our workspace where it serves that, else the client that prompts.
    async fn call(
        &self,
        method: &str,
        params: &RawJson,
        at_work: Option<(RunContext, Waits)>,
    ) -> Result<RawJson, ErrorObject> {
        if let Some(workspace) =
            self.workspace.as_ref().filter(|workspace| workspace.serves(method))
        {
            let result = workspace.call(method, params.as_str()).await?;
            return RawJson::parse(result).map_err(|_| ErrorObject::of(Code::INTERNAL_ERROR));
        }
        let is_tool = TOOLS.iter().any(|tool| method.starts_with(tool));
        let may_forward = !is_tool || self.launch.client_tools == ClientTools::Forward;
        let context = at_work.map(|(context, _)| context);
        let context = context.filter(|context| may_forward && context.client().is_some());
        let Some(context) = context else { return Err(ErrorObject::method_not_found(method)) };
        // Emptied where it stands, so that all else comes as it was sent.
        let cut = splice::cut_session(params.as_str()).map(|(cut, _)| cut.into_bytes().into());
        let params = Json::parse(cut.unwrap_or_else(|| params.as_bytes().clone()))
            .map_err(|error| ErrorObject::new(Code::INVALID_PARAMS, error.message().to_owned()))?;
        match context.call_client(method, params).await {
            Ok(result) => RawJson::parse(result.as_bytes().clone())
                .map(|result| self.passed(result))
                .map_err(|_| ErrorObject::of(Code::INTERNAL_ERROR)),
            Err(error) => Err(error_object(error)),
        }
    }
}

/// Whether all was read that a rule looks at: an item that does not fit is left out by the reader.
fn is_read(request: &RequestPermissionRequest, whole: &str) -> bool {
    let call = &request.tool_call;
    let written = |name: &str| {
        splice::get(whole, &["toolCall", name]).map_or(0, |list| splice::items(list).count())
    };
    let is_one = |item: &ToolCallContent| {
        matches!(
            item,
            ToolCallContent::Content(_) | ToolCallContent::Diff(_) | ToolCallContent::Terminal(_)
        )
    };
    written("locations") == call.locations.iter().flatten().count()
        && written("content") == call.content.iter().flatten().count()
        && call.content.iter().flatten().all(is_one)
}

fn read<T: trilogue_wire::agent_client::Read>(params: &str) -> Result<T, ErrorObject> {
    let raw: &RawValue =
        serde_json::from_str(params).map_err(|_| ErrorObject::of(Code::INVALID_PARAMS))?;
    read_params(Some(raw), Reading::Lenient)
        .map_err(|error| ErrorObject::new(Code::INVALID_PARAMS, error.to_string()))
}

/// The params without their session's id, which nobody but the agent knows.
fn without_session(params: &str) -> String {
    splice::remove(params, &["sessionId"]).into_owned()
}
