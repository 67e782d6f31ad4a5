//! Answers an agent's requests: by a permission rule, a person, the workspace, or the client that prompts.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use trilogue_domain::{
    Answer, Code as ErrorCode, Interrupt, InterruptId, Json, PrincipalId, Resolution, lock,
};
use trilogue_mapping::agent_client::{
    KnownCall, ToolSubject, elicitation_outcome, interrupt_of_elicitation, interrupt_of_permission,
    permission_outcome, subject, subject_of_method,
};
use trilogue_runtime::{ClientProfile, EmitError, RunContext, ThreadContext};
use trilogue_sdk::agent_client::peer::{RawJson, Request};
use trilogue_wire::agent_client::{
    CreateElicitationRequest, Read, RequestPermissionRequest, Rules as Reading, ToolCallContent,
    read_params, splice,
};
use trilogue_wire::jsonrpc::{Code, ErrorObject};

use super::background::OpenRequests;
use crate::agent_client::failure::error_object;
use crate::agent_client::launch::{ClientTools, Launch};
use crate::agent_client::meta::for_agent;
use crate::agent_client::routing::{
    TurnEnd, cancelled_elicitation, cancelled_permission, is_of_workspace,
};
use crate::permission::{RuleDecision, Rules, Subject, Verdict};
use crate::workspace::Workspace;
use crate::workspace::lease::WorkspaceLease;

pub(super) const PERMISSION_METHOD: &str = "session/request_permission";
/// The deadline of an interrupt without a deadline: longer than any server runs.
const NO_DEADLINE: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
/// The most bytes that a permission request may have with its omitted members added.
const MAX_COMPLETED_BYTES: usize = 15 * 1024 * 1024;
const ELICITATION_METHOD: &str = "elicitation/create";
const CREATE_METHOD: &str = "terminal/create";
const RELEASE_METHOD: &str = "terminal/release";
/// How long a client may take to release a terminal in the place of its agent.
const RELEASE_LIMIT: Duration = Duration::from_secs(5);
/// The most terminals of the client that are remembered in a session.
const MAX_TERMINALS: usize = 256;
/// How long a question waits for the next run after the end of its own.
const NEXT_RUN_LIMIT: Duration = Duration::from_secs(60);
/// The options of a question about a call of files or terminals. Each id equals its kind.
const ALLOW: &str = "allow_once";
const REJECT: &str = "reject_once";

#[derive(Debug)]
pub(super) struct RequestAnswerer {
    /// The name of the agent.
    pub(super) agent: Arc<str>,
    pub(super) launch: Arc<Launch>,
    pub(super) rules: Arc<Rules>,
    pub(super) workspace: Option<Workspace>,
    pub(super) root: PathBuf,
    /// Whether its agent can outlive this server.
    pub(super) outlives: bool,
    pub(super) workspace_lease: Option<Arc<WorkspaceLease>>,
    /// The thread whose clients take the calls of a sub-agent: the first one of its tree. `None` for the first one itself.
    pub(super) client_thread: Option<ThreadContext>,
    /// The client's terminals that the agent has not released.
    pub(super) terminals: Mutex<HashSet<String>>,
}

/// A run in which the agent works. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct WorkRun {
    pub(super) context: RunContext,
    pub(super) scope: TurnScope,
}

/// The run of a request, and the runs after it: a question is asked again in the next one if its run ends.
#[derive(Clone, Debug)]
pub(super) struct RequestWork {
    pub(super) run: WorkRun,
    pub(super) next: watch::Receiver<Option<WorkRun>>,
}

/// Ends the requests of a turn when the turn ends. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct TurnScope {
    /// Cancelled when the turn is over: the client that sent the prompt is no longer involved.
    ended: CancellationToken,
    /// Cancelled when the turn breaks off: the agent no longer waits for any answer.
    aborted: CancellationToken,
}

// === impl TurnScope ===

impl TurnScope {
    pub(super) fn end(&self, end: TurnEnd) {
        if end == TurnEnd::Broken {
            self.aborted.cancel();
        }
        self.ended.cancel();
    }

    pub(super) fn is_aborted(&self) -> bool {
        self.aborted.is_cancelled()
    }
}

// === impl RequestWork ===

impl RequestWork {
    /// Waits for the run after the current one. `None` if the agent no longer waits, or none follows.
    async fn follow(&mut self) -> Option<()> {
        let Self { run, next } = self;
        let before = run.context.run().clone();
        let is_next =
            |now: &Option<WorkRun>| now.as_ref().is_some_and(|now| *now.context.run() != before);
        let found = tokio::select! {
            biased;
            () = run.scope.aborted.cancelled() => None,
            found = timeout(NEXT_RUN_LIMIT, next.wait_for(is_next)) => found.ok()?.ok()?.clone(),
        };
        *run = found?;
        Some(())
    }
}

// === impl RequestAnswerer ===

impl RequestAnswerer {
    /// The same for a sub-agent that works in this folder. The clients of the first session take its calls.
    pub(super) fn for_subagent(&self, root: PathBuf, client_thread: ThreadContext) -> Self {
        Self {
            agent: Arc::clone(&self.agent),
            launch: Arc::clone(&self.launch),
            rules: Arc::clone(&self.rules),
            workspace: self.workspace.clone(),
            root,
            workspace_lease: self.workspace_lease.clone(),
            outlives: self.outlives,
            client_thread: Some(client_thread),
            terminals: Mutex::default(),
        }
    }

    /// Answers a request in a task. `params` name threads instead of sessions in what clients see. `known` is the known state of the tool call of a permission request.
    pub(super) fn answer(
        self: Arc<Self>,
        request: Request,
        params: RawJson,
        known: KnownCall,
        work: Option<RequestWork>,
        open: &OpenRequests,
    ) {
        let method = request.method().to_owned();
        let open = open.open(method == PERMISSION_METHOD || method == ELICITATION_METHOD);
        request.answer(async move {
            let answer = self.respond(&method, &params, &known, work).await;
            drop(open);
            answer
        });
    }

    /// Releases the client's terminals in the place of an agent that cannot do it any more. Returns at once.
    pub(super) fn release_terminals(&self, thread: &ThreadContext) {
        for terminal in std::mem::take(&mut *lock(&self.terminals)) {
            let thread = self.client_thread.as_ref().unwrap_or(thread).clone();
            let params = Json::from_value(&json!({ "terminalId": terminal }));
            // Without a runtime, the server is exiting.
            let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
            runtime.spawn(async move {
                let released = thread.call_client(RELEASE_METHOD, params);
                if !matches!(timeout(RELEASE_LIMIT, released).await, Ok(Ok(_))) {
                    let thread = thread.thread();
                    tracing::debug!(%thread, "a terminal of an agent that ended was not released");
                }
            });
        }
    }

    async fn respond(
        &self,
        method: &str,
        params: &RawJson,
        known: &KnownCall,
        work: Option<RequestWork>,
    ) -> Result<RawJson, ErrorObject> {
        // If the lease is lost, the agent is killed. Until then it must not do anything more.
        if let Some(lease) = &self.workspace_lease
            && !lease.is_held().await
        {
            return Err(ErrorObject::of(Code::REQUEST_CANCELLED));
        }
        match method {
            PERMISSION_METHOD => match work {
                Some(work) => self.permission(params, known, work).await,
                None => Ok(RawJson::of(&cancelled_permission())),
            },
            ELICITATION_METHOD => match work {
                Some(work) => self.elicitation(params, work).await,
                None => Ok(RawJson::of(&cancelled_elicitation())),
            },
            _ => {
                let scope = work.as_ref().map(|work| work.run.scope.clone()).unwrap_or_default();
                // The agent may wait for a terminal of this server beyond the turn, but not for a client.
                let end = if self.serves(method) { scope.aborted } else { scope.ended };
                tokio::select! {
                    biased;
                    answer = self.call(method, params, work) => answer,
                    () = end.cancelled() => Err(ErrorObject::of(Code::REQUEST_CANCELLED)),
                }
            }
        }
    }

    fn serves(&self, method: &str) -> bool {
        self.workspace.as_ref().is_some_and(|workspace| workspace.serves(method))
    }

    async fn permission(
        &self,
        params: &RawJson,
        known: &KnownCall,
        work: RequestWork,
    ) -> Result<RawJson, ErrorObject> {
        let completed = known.complete(params.as_str());
        let request: RequestPermissionRequest = read(&completed)?;
        // The added members never make a request too large to be shown.
        let fits = completed.len() <= MAX_COMPLETED_BYTES;
        let raw = without_session(if fits { &completed } else { params.as_str() });
        let mut interrupt = interrupt_of_permission(&request, &raw, InterruptId::generate());
        let is_known = !known.is_partial() && is_read(&request, &completed);
        if let Some(resolution) =
            self.decide(&request, is_known, &interrupt, &work.run.context).await
        {
            return Ok(RawJson::of(&permission_outcome(&interrupt, &resolution)));
        }
        let resolution = self.ask(&mut interrupt, work).await;
        Ok(match resolution {
            Some(resolution) => {
                self.for_agent(RawJson::of(&permission_outcome(&interrupt, &resolution)))
            }
            None => RawJson::of(&cancelled_permission()),
        })
    }

    fn for_agent(&self, answer: RawJson) -> RawJson {
        for_agent(answer, self.launch.client_meta)
    }

    /// The decision of a permission rule. No rule allows a call that is not known completely.
    async fn decide(
        &self,
        request: &RequestPermissionRequest,
        is_known: bool,
        interrupt: &Interrupt,
        context: &RunContext,
    ) -> Option<Resolution> {
        let rules = self.rules.of_run(context.config());
        if rules.is_empty() {
            return None;
        }
        let call = subject(request);
        let applied = rules.answer(&self.subject(&call), interrupt).await?;
        if applied.allowed && (!is_known || call.is_partial) {
            return None;
        }
        // This fails only if the run was stopped.
        context.emit(applied.event(), None).await.ok()?;
        applied.resolution(interrupt).ok()
    }

    fn subject<'a>(&'a self, call: &'a ToolSubject) -> Subject<'a> {
        let texts = |texts: &'a [String]| texts.iter().map(String::as_str).collect();
        Subject {
            kind: call.kind.as_deref(),
            tool: call.name.as_deref(),
            paths: texts(&call.paths),
            mentions: texts(&call.mentions),
            runs_command: call.runs_command,
            root: Some(&self.root),
        }
    }

    /// Lets a call of files or terminals pass, unless a rule denies it. A rule that asks makes this ask a person, because nothing proves that a
    /// person has allowed this call before.
    async fn check_tool(
        &self,
        method: &str,
        params: &str,
        work: Option<&RequestWork>,
    ) -> Result<(), ErrorObject> {
        let context = work.map(|work| &work.run.context);
        let rules = self.rules.of_run(context.and_then(RunContext::config));
        if rules.is_empty() {
            return Ok(());
        }
        let Some(call) = subject_of_method(method, params) else { return Ok(()) };
        let refused = |why: String| Err(ErrorObject::new(Code::INVALID_PARAMS, why));
        let judged = rules.judge(&self.subject(&call)).await;
        match judged {
            Err(error) => refused(format!("{method} is not allowed: {error}")),
            Ok(rule) if call.is_partial && rule.is_none_or(|it| it.verdict() == Verdict::Allow) => {
                refused(format!("{method} names more files than permission rules can look at"))
            }
            Ok(None) => Ok(()),
            Ok(Some(rule)) => match (rule.verdict(), work) {
                (Verdict::Ask, Some(work)) => {
                    match self.ask_for_tool(method, params, &call, work.clone()).await {
                        true => Ok(()),
                        false => refused(format!("{method} was not allowed")),
                    }
                }
                (Verdict::Ask, None) => refused(format!(
                    "the permission rule '{}' asks a person about {method}, which needs a turn",
                    rule.name()
                )),
                (verdict, _) => {
                    let allowed = verdict == Verdict::Allow;
                    let (name, origin) = (rule.name().to_owned(), rule.origin());
                    let decision = RuleDecision { rule: name, origin, allowed, option: None };
                    if let Some(context) = context {
                        // This fails only if the run was stopped.
                        drop(context.emit(decision.event(), None).await);
                    }
                    match allowed {
                        true => Ok(()),
                        false => refused(format!(
                            "the permission rule '{}' denies {method}",
                            rule.name()
                        )),
                    }
                }
            },
        }
    }

    /// Asks a person about a call of files or terminals, in the form of an agent's permission request.
    async fn ask_for_tool(
        &self,
        method: &str,
        params: &str,
        call: &ToolSubject,
        work: RequestWork,
    ) -> bool {
        let input = match method {
            "terminal/create" => &["command", "args", "cwd", "env"][..],
            _ => &["path", "content", "line", "limit"],
        };
        let members = input.iter().filter_map(|name| {
            let value = splice::get(params, &[name])?;
            Some(((*name).to_owned(), serde_json::from_str(value).ok()?))
        });
        let input: serde_json::Map<String, Value> = members.collect();
        let id = InterruptId::generate();
        let locations: Vec<_> = call.paths.iter().map(|path| json!({ "path": path })).collect();
        let tool_call = json!({
            "toolCallId": id.as_str(), "title": format!("The agent calls {method}"),
            "name": method, "kind": call.kind, "status": "pending",
            "locations": locations, "rawInput": input,
        });
        let options =
            [permission_option(ALLOW, ALLOW, "Allow"), permission_option(REJECT, REJECT, "Reject")];
        let Some(mut interrupt) = interrupt_of_server(id, &tool_call, &options) else {
            return false;
        };
        let resolution = self.ask(&mut interrupt, work).await;
        chosen_option(resolution).is_some_and(|(option, _)| option == ALLOW)
    }

    async fn elicitation(
        &self,
        params: &RawJson,
        work: RequestWork,
    ) -> Result<RawJson, ErrorObject> {
        let request: CreateElicitationRequest = read(params.as_str())?;
        let raw = without_session(params.as_str());
        let mut interrupt = interrupt_of_elicitation(&request, &raw, InterruptId::generate());
        let resolution = self.ask(&mut interrupt, work).await;
        Ok(match resolution {
            Some(resolution) => {
                self.for_agent(RawJson::of(&elicitation_outcome(&interrupt, &resolution)))
            }
            None => RawJson::of(&cancelled_elicitation()),
        })
    }

    /// Raises an interrupt, and again in the next run if its run ends while the agent still waits. `None` if no answer can arrive any more.
    pub(super) async fn ask(
        &self,
        interrupt: &mut Interrupt,
        mut work: RequestWork,
    ) -> Option<Resolution> {
        // `None` uses the server's own deadline.
        interrupt.patience = self.launch.hold.then_some(NO_DEADLINE);
        loop {
            match work.run.context.ask(interrupt.clone()).await {
                Ok(resolution) => return Some(resolution),
                Err(EmitError::Stopped) => {}
                Err(EmitError::Refused(error)) if error.code() == ErrorCode::RunEnded => {}
                Err(EmitError::Refused(error)) => {
                    let run = work.run.context.run();
                    tracing::warn!(%run, %error, "an agent's interrupt was refused");
                    return None;
                }
            }
            if self.outlives && work.run.context.is_draining() {
                // Without an answer from this server, the next one asks again.
                return std::future::pending().await;
            }
            if !work.run.context.thread_context().can_run().await {
                return None;
            }
            work.follow().await?;
            // Ids of interrupts are unique, and clients see that it is the same question.
            interrupt.id = interrupt.id.passed_up(work.run.context.run());
        }
    }

    /// Any other request: the workspace answers the methods that it serves, the prompting client all others.
    async fn call(
        &self,
        method: &str,
        params: &RawJson,
        work: Option<RequestWork>,
    ) -> Result<RawJson, ErrorObject> {
        let is_tool = is_of_workspace(method);
        if is_tool {
            self.check_tool(method, params.as_str(), work.as_ref()).await?;
        }
        if let Some(workspace) = self.workspace.as_ref().filter(|_| self.serves(method)) {
            let result = workspace.call(method, params.as_str()).await?;
            return RawJson::parse(result).map_err(|_| ErrorObject::of(Code::INTERNAL_ERROR));
        }
        let may_forward = !is_tool || self.launch.client_tools != ClientTools::None;
        let context = work.map(|work| work.run.context).filter(|_| may_forward);
        let Some(context) = context else { return Err(ErrorObject::method_not_found(method)) };
        let client = self.client_thread.clone().unwrap_or_else(|| context.thread_context());
        let profile = match context.is_started_by_agent() {
            true => client.wait_for_client(self.launch.client_wait).await,
            false => client.client(),
        };
        let forwards = |it: ClientProfile| !is_tool || self.launch.forwards_tools(it.source);
        if !profile.is_some_and(forwards) {
            return Err(ErrorObject::method_not_found(method));
        }
        // The id is cut out of the text, so that everything else is forwarded unchanged.
        let cut = splice::cut_session(params.as_str()).map(|(cut, _)| cut.into_bytes().into());
        let params = Json::parse_mended(cut.unwrap_or_else(|| params.as_bytes().clone()))
            .map_err(|error| ErrorObject::new(Code::INVALID_PARAMS, error.message().to_owned()))?;
        let sent = params.clone();
        match client.call_client(method, params).await {
            Ok(result) => {
                self.note_terminal(method, sent.as_str(), result.as_str());
                RawJson::parse(result.as_bytes().clone())
                    .map(|result| self.for_agent(result))
                    .map_err(|_| ErrorObject::of(Code::INTERNAL_ERROR))
            }
            Err(error) => Err(error_object(error)),
        }
    }
}

impl RequestAnswerer {
    /// Remembers a terminal that the client has created for the agent, until the agent releases it.
    fn note_terminal(&self, method: &str, params: &str, result: &str) {
        let id = |json: &str| splice::get_text(json, &["terminalId"]).map(|id| id.into_owned());
        let mut terminals = lock(&self.terminals);
        match method {
            CREATE_METHOD if terminals.len() < MAX_TERMINALS => terminals.extend(id(result)),
            RELEASE_METHOD => {
                id(params).map(|id| terminals.remove(&id));
            }
            _ => {}
        }
    }
}

/// An option of a question of the server itself.
pub(super) fn permission_option(id: &str, kind: &str, name: &str) -> Value {
    json!({ "optionId": id, "name": name, "kind": kind })
}

/// Returns a question of the server itself, in the form of an agent's permission request: clients show it like one.
pub(super) fn interrupt_of_server(
    id: InterruptId,
    tool_call: &Value,
    options: &[Value],
) -> Option<Interrupt> {
    let raw = json!({ "toolCall": tool_call, "options": options }).to_string();
    let whole = splice::set_text(&raw, &["sessionId"], "").unwrap_or_default();
    let request = read::<RequestPermissionRequest>(&whole).ok()?;
    Some(interrupt_of_permission(&request, &raw, id))
}

/// Returns the option that a person has chosen, with the person.
pub(super) fn chosen_option(resolution: Option<Resolution>) -> Option<(String, PrincipalId)> {
    match resolution? {
        Resolution::Answered { answer: Answer::Option(option), by, .. } => Some((option, by)),
        _ => None,
    }
}

/// Whether the parsed request has all items that rules use: parsing drops items that do not fit.
fn is_read(request: &RequestPermissionRequest, completed: &str) -> bool {
    let call = &request.tool_call;
    let written = |name: &str| {
        splice::get(completed, &["toolCall", name]).map_or(0, |list| splice::items(list).count())
    };
    let is_one = |item: &ToolCallContent| {
        matches!(
            item,
            ToolCallContent::Content(_)
                | ToolCallContent::Diff(_)
                | ToolCallContent::Terminal(_)
                | ToolCallContent::Session(_)
        )
    };
    written("locations") == call.locations.iter().flatten().count()
        && written("content") == call.content.iter().flatten().count()
        && call.content.iter().flatten().all(is_one)
}

fn read<T: Read>(params: &str) -> Result<T, ErrorObject> {
    let raw: &RawValue =
        serde_json::from_str(params).map_err(|_| ErrorObject::of(Code::INVALID_PARAMS))?;
    read_params(Some(raw), Reading::Lenient)
        .map_err(|error| ErrorObject::new(Code::INVALID_PARAMS, error.to_string()))
}

/// The params without the session id, which only the agent and this server know.
fn without_session(params: &str) -> String {
    splice::remove(params, &["sessionId"]).into_owned()
}
