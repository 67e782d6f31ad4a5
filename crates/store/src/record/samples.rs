//! One value of every kind, for the tests of the persisted form.

use std::sync::Arc;
use std::time::Duration;

use trilogue_domain::content::BlobRef;
use trilogue_domain::event::{
    Body, InterruptEvent, MessageEvent, PlanContent, PlanEntry, RunEvent, StateEvent, Subagent,
    SubagentState, ThreadEvent, ToolEvent, ToolStatus,
};
use trilogue_domain::interrupt::{Effect, PermissionOption};
use trilogue_domain::{
    Answer, Citation, ClientHistory, Code, Content, Failure, HeadMove, Interrupt, InterruptKind,
    Json, Outcome, Part, PartMetadata, Reference, RequestSource, Resolution, Role, RuleOrigin,
    RunAudit, Survives, Times, Timestamp, TokenId, Trajectory,
};

pub(super) use crate::fixtures::{
    agent, checkpoint_id, interrupt_id, message_id, principal, run_id, thread_id,
};

pub(super) fn json(text: &'static str) -> Json {
    Json::parse(text).unwrap()
}

pub(super) fn blob() -> BlobRef {
    BlobRef { hash: [0xab; 32], length: 1 << 20, is_text: true }
}

/// A part with each kind of content and metadata.
pub(super) fn parts() -> Vec<Part> {
    vec![
        Part::text("héllo"),
        Part::bytes("image/png", &b"\x89PNG"[..]).with_name("a.png"),
        Part::url("text/html", "https://example.com/ä"),
        Part::new("text/plain", Content::Blob(blob())),
        Part::annotation(PartMetadata::Citation(Citation {
            start_index: Some(1),
            end_index: Some(i64::MIN),
            url: Some("https://example.com".to_owned()),
            title: None,
            description: Some(String::new()),
        })),
        Part::annotation(PartMetadata::Trajectory(Trajectory {
            message: Some("thinking".to_owned()),
            tool_name: Some("search".to_owned()),
            tool_input: Some(json("{\"q\":1}")),
            tool_output: None,
        })),
        Part { extra: Some(json("{\"x\":[]}")), ..Part::json(&json("[1]")) }
            .with_metadata(PartMetadata::Other(json("7"))),
    ]
}

pub(super) fn interrupt(kind: InterruptKind) -> Interrupt {
    Interrupt {
        id: interrupt_id("i-1"),
        kind,
        prompt: parts(),
        payload: json("{\"a\":null}"),
        options: vec![
            PermissionOption {
                id: "y".to_owned(),
                name: "Yes".to_owned(),
                effect: Effect::Allow,
                always: true,
            },
            PermissionOption::once("n", "No", Effect::Reject),
        ],
        schema: Some(json("true")),
        survives: Survives::Restart,
        patience: Some(Duration::new(600, 1)),
    }
}

/// A history with each kind of reference.
pub(super) fn client_history() -> ClientHistory {
    ClientHistory {
        entries: vec![
            Reference::Message { thread: None, id: message_id("m") },
            Reference::Message { thread: Some(thread_id("t")), id: message_id("m") },
            Reference::Result(run_id("r")),
            Reference::Address(Arc::from("https://example.com/resources/1")),
        ],
        state: Some(Arc::from("https://example.com/state")),
    }
}

pub(super) fn outcomes() -> Vec<Outcome> {
    vec![
        Outcome::Completed,
        Outcome::Failed(Failure {
            data: Some(json("{}")),
            ..Failure::of(Code::AgentFailed, "it broke")
        }),
        Outcome::Cancelled { reason: None },
        Outcome::Cancelled { reason: Some(Code::RunSuperseded) },
        Outcome::TimedOut { reason: Code::AwaitTimeout },
    ]
}

pub(super) fn resolutions() -> Vec<Resolution> {
    let answered = |answer, extra| Resolution::Answered {
        by: principal("p"),
        answer,
        digest: "00ff".to_owned(),
        extra,
    };
    vec![
        answered(Answer::Option("y".to_owned()), None),
        answered(Answer::Option("y".to_owned()), Some(json("{\"why\":1.50}"))),
        answered(Answer::Json(json("[true]")), None),
        answered(Answer::Message(parts()), None),
        Resolution::TimedOut { option: Some("n".to_owned()) },
        Resolution::TimedOut { option: None },
        Resolution::Cancelled,
        Resolution::Withdrawn { reason: Code::AgentLost },
    ]
}

/// A body of every variant, with every variant of its content.
pub(super) fn bodies() -> Vec<Body> {
    let mut bodies = vec![Body::Opaque];
    bodies.extend(run_events().into_iter().map(Body::Run));
    bodies.extend(message_events().into_iter().map(Body::Message));
    bodies.extend(tool_events().into_iter().map(Body::Tool));
    bodies.extend(interrupt_events().into_iter().map(Body::Interrupt));
    bodies.extend([
        Body::State(StateEvent::Values(json("{}"))),
        Body::State(StateEvent::Output(json("[1]"))),
        Body::State(StateEvent::Plan(vec![
            PlanEntry { content: "look".to_owned(), status: "completed".to_owned() },
            PlanEntry { content: String::new(), status: "pending".to_owned() },
        ])),
        Body::State(StateEvent::Custom { kind: "k".to_owned(), data: json("null") }),
        Body::State(StateEvent::PlanUpdated {
            plan: "p".to_owned(),
            content: PlanContent::Entries(vec![PlanEntry {
                content: "look".to_owned(),
                status: "in_progress".to_owned(),
            }]),
        }),
        Body::State(StateEvent::PlanUpdated {
            plan: "q".to_owned(),
            content: PlanContent::Markdown {
                text: "# Look".to_owned(),
                path: Some("/plan.md".to_owned()),
            },
        }),
        Body::State(StateEvent::PlanRemoved { plan: "p".to_owned() }),
    ]);
    bodies.extend(subagents().into_iter().map(|it| Body::State(StateEvent::Subagent(it))));
    bodies.extend(thread_events().into_iter().map(Body::Thread));
    bodies
}

/// A sub-agent in every state.
fn subagents() -> Vec<Subagent> {
    let idle =
        |reason: Option<&str>| SubagentState::Idle { stop_reason: reason.map(str::to_owned) };
    let unset = Subagent {
        thread: thread_id("t"),
        title: None,
        description: None,
        state: None,
        can_cancel: false,
    };
    let states = [
        SubagentState::Running,
        idle(None),
        idle(Some("end_turn")),
        SubagentState::RequiresAction,
        SubagentState::Unknown,
    ];
    let described = states.map(|state| Subagent {
        title: Some("Reads".to_owned()),
        description: Some("Reads the files".to_owned()),
        state: Some(state),
        can_cancel: true,
        ..unset.clone()
    });
    described.into_iter().chain([unset]).collect()
}

pub(super) fn audit(source: RequestSource) -> Box<RunAudit> {
    Box::new(RunAudit {
        principal: principal("p"),
        thread: thread_id("t"),
        token: (source == RequestSource::Network).then(|| TokenId::parse("k").unwrap()),
        source,
        can_answer: source != RequestSource::Agent,
    })
}

fn created(input: Option<Json>, audit: Option<Box<RunAudit>>) -> RunEvent {
    RunEvent::Created { run: run_id("r"), agent: agent("echo"), input, audit }
}

fn run_events() -> Vec<RunEvent> {
    let mut events = vec![
        created(Some(json("1")), None),
        created(None, None),
        created(None, Some(audit(RequestSource::Network))),
        created(Some(json("1")), Some(audit(RequestSource::Agent))),
        RunEvent::Started,
        RunEvent::Resumed,
        RunEvent::Cancelling { reason: Some(Code::RunSuperseded) },
        RunEvent::Cancelling { reason: None },
        RunEvent::Result(json("\"x\"")),
    ];
    events.extend(outcomes().into_iter().map(RunEvent::Ended));
    events
}

fn message_events() -> Vec<MessageEvent> {
    let message = message_id("m");
    let mut events: Vec<_> = [Role::User, Role::Agent, Role::NamedAgent(Arc::from("a-b"))]
        .into_iter()
        .map(|role| MessageEvent::Started { message: message.clone(), role, times: None })
        .collect();
    let stated = [
        Times::default(),
        Times { created_at: Some(Timestamp::from_micros(-1)), completed_at: None },
        Times {
            created_at: Some(Timestamp::from_micros(1)),
            completed_at: Some(Timestamp::from_micros(i64::MAX)),
        },
    ];
    events.extend(stated.map(|times| MessageEvent::Started {
        message: message.clone(),
        role: Role::User,
        times: Some(times),
    }));
    events.push(MessageEvent::Delta { message: message.clone(), text: Arc::from("grüß") });
    events.extend(
        parts().into_iter().map(|part| MessageEvent::Part { message: message.clone(), part }),
    );
    events.push(MessageEvent::Completed { message });
    for message in [None, Some(message_id("t"))] {
        events.push(MessageEvent::Thought { message, text: Arc::from("hm") });
    }
    events
}

fn tool_events() -> Vec<ToolEvent> {
    let call = "c-1".to_owned();
    let ended = |status, output| ToolEvent::Ended { call: "c-1".to_owned(), status, output };
    vec![
        ToolEvent::Started {
            call: call.clone(),
            tool: "search".to_owned(),
            title: "Search".to_owned(),
            input: Some(json("{}")),
            message: None,
        },
        ToolEvent::Started {
            call: call.clone(),
            tool: String::new(),
            title: String::new(),
            input: None,
            message: Some(message_id("m")),
        },
        ToolEvent::Updated { call, content: parts() },
        ended(ToolStatus::Completed, Some(json("0"))),
        ended(ToolStatus::Failed, None),
    ]
}

fn interrupt_events() -> Vec<InterruptEvent> {
    let kinds = [
        InterruptKind::Permission,
        InterruptKind::Message,
        InterruptKind::Form,
        InterruptKind::Url,
        InterruptKind::Custom("approval".to_owned()),
    ];
    let mut events: Vec<_> =
        kinds.map(|kind| InterruptEvent::Raised(Box::new(interrupt(kind)))).into();
    events.push(InterruptEvent::Raised(Box::new(Interrupt {
        schema: None,
        survives: Survives::Process,
        patience: None,
        ..interrupt(InterruptKind::Form)
    })));
    events.extend(
        resolutions().into_iter().map(|resolution| InterruptEvent::Resolved {
            interrupt: interrupt_id("i-1"),
            resolution,
        }),
    );
    for origin in [None, Some(RuleOrigin::Settings), Some(RuleOrigin::Run)] {
        events.push(InterruptEvent::RuleApplied {
            rule: "reads".to_owned(),
            allowed: true,
            origin,
        });
    }
    events
}

fn thread_events() -> Vec<ThreadEvent> {
    let moves = [
        HeadMove::Completion,
        HeadMove::Patch,
        HeadMove::Rollback,
        HeadMove::Copy,
        HeadMove::Replacement,
    ];
    let mut events: Vec<_> = moves
        .map(|by| ThreadEvent::HeadMoved { checkpoint: checkpoint_id("k"), by })
        .into_iter()
        .collect();
    events.extend([
        ThreadEvent::Created {
            thread: thread_id("t"),
            metadata: json("{}"),
            copied_from: Some(thread_id("s")),
        },
        ThreadEvent::Metadata(json("{\"a\": 1}")),
        ThreadEvent::RunRemoved { run: run_id("r"), reason: "erased".to_owned() },
    ]);
    events
}
