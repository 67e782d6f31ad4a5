//! Answers an agent's requests: by a permission rule, a person, the workspace, or the client that prompts.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use trilogue_domain::{Answer, Interrupt, InterruptId, Json, Resolution};
use trilogue_mapping::agent_client::{
    KnownCall, ToolSubject, elicitation_outcome, interrupt_of_elicitation, interrupt_of_permission,
    permission_outcome, subject, subject_of_method,
};
use trilogue_runtime::{EmitError, RunContext};
use trilogue_sdk::agent_client::peer::{RawJson, Request};
use trilogue_wire::agent_client::{
    CreateElicitationRequest, Read, RequestPermissionRequest, Rules as Reading, ToolCallContent,
    read_params, splice,
};
use trilogue_wire::jsonrpc::{Code, ErrorObject};

use crate::agent_client::failure::error_object;
use crate::agent_client::launch::{ClientTools, Launch};
use crate::agent_client::meta::for_agent;
use crate::agent_client::routing::{TurnEnd, cancelled_elicitation, cancelled_permission};
use crate::permission::{RuleDecision, Rules, Subject, Verdict};
use crate::workspace::Workspace;
use crate::workspace::lease::WorkspaceLease;

pub(super) const PERMISSION_METHOD: &str = "session/request_permission";
/// The deadline of an interrupt without a deadline: longer than any server runs.
const NO_DEADLINE: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
/// The most bytes that a permission request may have with its omitted members added.
const MAX_COMPLETED_BYTES: usize = 15 * 1024 * 1024;
const TOOL_METHODS: [&str; 2] = ["fs/", "terminal/"];
/// The options of a question about a call of files or terminals. Each id equals its kind.
const ALLOW: &str = "allow_once";
const REJECT: &str = "reject_once";

#[derive(Debug)]
pub(super) struct RequestAnswerer {
    pub(super) launch: Arc<Launch>,
    pub(super) rules: Arc<Rules>,
    pub(super) workspace: Option<Workspace>,
    pub(super) root: PathBuf,
    pub(super) workspace_lease: Option<Arc<WorkspaceLease>>,
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
}

// === impl RequestAnswerer ===

impl RequestAnswerer {
    /// Answers a request in a task. `known` is the known state of the tool call of a permission request.
    pub(super) fn answer(
        self: Arc<Self>,
        request: Request,
        known: KnownCall,
        turn: Option<(RunContext, TurnScope)>,
    ) {
        let (method, params) = (request.method().to_owned(), request.params().clone());
        request.answer(async move { self.respond(&method, &params, &known, turn).await });
    }

    async fn respond(
        &self,
        method: &str,
        params: &RawJson,
        known: &KnownCall,
        turn: Option<(RunContext, TurnScope)>,
    ) -> Result<RawJson, ErrorObject> {
        // If the lease is lost, the agent is killed. Until then it must not do anything more.
        if let Some(lease) = &self.workspace_lease
            && !lease.is_held().await
        {
            return Err(ErrorObject::of(Code::REQUEST_CANCELLED));
        }
        match method {
            PERMISSION_METHOD => match turn {
                Some((context, _)) => self.permission(params, known, &context).await,
                None => Ok(RawJson::of(&cancelled_permission())),
            },
            "elicitation/create" => match turn {
                Some((context, _)) => self.elicitation(params, &context).await,
                None => Ok(RawJson::of(&cancelled_elicitation())),
            },
            _ => {
                let scope = turn.as_ref().map(|(_, scope)| scope.clone()).unwrap_or_default();
                // The agent may wait for a terminal of this server beyond the turn, but not for a client.
                let end = if self.serves(method) { scope.aborted } else { scope.ended };
                tokio::select! {
                    biased;
                    answer = self.call(method, params, turn) => answer,
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
        context: &RunContext,
    ) -> Result<RawJson, ErrorObject> {
        let completed = known.complete(params.as_str());
        let request: RequestPermissionRequest = read(&completed)?;
        // The added members never make a request too large to be shown.
        let fits = completed.len() <= MAX_COMPLETED_BYTES;
        let raw = without_session(if fits { &completed } else { params.as_str() });
        let mut interrupt = interrupt_of_permission(&request, &raw, InterruptId::generate());
        let is_known = !known.is_partial() && is_read(&request, &completed);
        if let Some(resolution) = self.decide(&request, is_known, &interrupt, context).await {
            return Ok(RawJson::of(&permission_outcome(&interrupt, &resolution)));
        }
        let resolution = self.ask(&mut interrupt, context).await;
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
        context: Option<&RunContext>,
    ) -> Result<(), ErrorObject> {
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
            Ok(Some(rule)) => match (rule.verdict(), context) {
                (Verdict::Ask, Some(context)) => {
                    match self.ask_for_tool(method, params, &call, context).await {
                        true => Ok(()),
                        false => refused(format!("{method} was not allowed")),
                    }
                }
                (Verdict::Ask, None) => refused(format!(
                    "the permission rule '{}' asks a person about {method}, which needs a turn",
                    rule.name()
                )),
                (verdict, context) => {
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
        context: &RunContext,
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
        let option = |id: &str, name: &str| json!({ "optionId": id, "name": name, "kind": id });
        let raw = json!({
            "toolCall": {
                "toolCallId": id.as_str(), "title": format!("The agent calls {method}"),
                "name": method, "kind": call.kind, "status": "pending",
                "locations": locations, "rawInput": input,
            },
            "options": [option(ALLOW, "Allow"), option(REJECT, "Reject")],
        });
        let raw = raw.to_string();
        let whole = splice::set_text(&raw, &["sessionId"], "").unwrap_or_default();
        let Ok(request) = read::<RequestPermissionRequest>(&whole) else { return false };
        let mut interrupt = interrupt_of_permission(&request, &raw, id);
        let resolution = self.ask(&mut interrupt, context).await;
        let answer = match resolution {
            Some(Resolution::Answered { answer, .. }) => answer,
            _ => return false,
        };
        matches!(answer, Answer::Option(option) if option == ALLOW)
    }

    async fn elicitation(
        &self,
        params: &RawJson,
        context: &RunContext,
    ) -> Result<RawJson, ErrorObject> {
        let request: CreateElicitationRequest = read(params.as_str())?;
        let raw = without_session(params.as_str());
        let mut interrupt = interrupt_of_elicitation(&request, &raw, InterruptId::generate());
        let resolution = self.ask(&mut interrupt, context).await;
        Ok(match resolution {
            Some(resolution) => {
                self.for_agent(RawJson::of(&elicitation_outcome(&interrupt, &resolution)))
            }
            None => RawJson::of(&cancelled_elicitation()),
        })
    }

    /// Raises an interrupt. `None` if no answer can arrive any more.
    async fn ask(&self, interrupt: &mut Interrupt, context: &RunContext) -> Option<Resolution> {
        // `None` uses the server's own deadline.
        interrupt.patience = self.launch.hold.then_some(NO_DEADLINE);
        match context.ask(interrupt.clone()).await {
            Ok(resolution) => Some(resolution),
            Err(EmitError::Stopped) => None,
            Err(EmitError::Refused(error)) => {
                let run = context.run();
                tracing::warn!(%run, %error, "an agent's interrupt was refused");
                None
            }
        }
    }

    /// Any other request: the workspace answers the methods that it serves, the prompting client all others.
    async fn call(
        &self,
        method: &str,
        params: &RawJson,
        turn: Option<(RunContext, TurnScope)>,
    ) -> Result<RawJson, ErrorObject> {
        let is_tool = TOOL_METHODS.iter().any(|prefix| method.starts_with(prefix));
        if is_tool {
            let context = turn.as_ref().map(|(context, _)| context);
            self.check_tool(method, params.as_str(), context).await?;
        }
        if let Some(workspace) = self.workspace.as_ref().filter(|_| self.serves(method)) {
            let result = workspace.call(method, params.as_str()).await?;
            return RawJson::parse(result).map_err(|_| ErrorObject::of(Code::INTERNAL_ERROR));
        }
        let may_forward = !is_tool || self.launch.client_tools == ClientTools::Forward;
        let context = turn.map(|(context, _)| context);
        let context = context.filter(|context| may_forward && context.client().is_some());
        let Some(context) = context else { return Err(ErrorObject::method_not_found(method)) };
        // The id is cut out of the text, so that everything else is forwarded unchanged.
        let cut = splice::cut_session(params.as_str()).map(|(cut, _)| cut.into_bytes().into());
        let params = Json::parse(cut.unwrap_or_else(|| params.as_bytes().clone()))
            .map_err(|error| ErrorObject::new(Code::INVALID_PARAMS, error.message().to_owned()))?;
        match context.call_client(method, params).await {
            Ok(result) => RawJson::parse(result.as_bytes().clone())
                .map(|result| self.for_agent(result))
                .map_err(|_| ErrorObject::of(Code::INTERNAL_ERROR)),
            Err(error) => Err(error_object(error)),
        }
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
            ToolCallContent::Content(_) | ToolCallContent::Diff(_) | ToolCallContent::Terminal(_)
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
