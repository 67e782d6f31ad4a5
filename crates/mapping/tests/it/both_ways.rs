//! From one protocol over HTTP through the other and back: everything that the table marks as carried, or as carried in the extension, is unchanged at the end.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use trilogue_domain::event::{
    InterruptEvent, PlanContent, PlanEntry, RunEvent, StateEvent, Subagent, SubagentState,
};
use trilogue_domain::interrupt::{Effect, PermissionOption};
use trilogue_domain::{
    AgentName, Body, Citation, Code, Content, Failure, Input, Interrupt, InterruptKind, Message,
    Outcome, Part, PartMetadata, Role, RunId, ThreadId, Timestamp, Trajectory,
};
use trilogue_mapping::communication::{self, Projection, ProjectionOptions, RemoteRun};
use trilogue_mapping::connect;
use trilogue_wire::agent_communication as acp;
use trilogue_wire::agent_connect;

use crate::sample::{
    RUN, THREAD, chat, event, interrupt, json_of, links, message_id, raised, run_started,
};

/// The size limit of a part's metadata, in bytes.
const MAX_METADATA: usize = 1 << 20;

fn now() -> Timestamp {
    Timestamp::from_micros(1_000_000)
}

/// Messages in the form of a client of the Agent Communication Protocol.
fn to_communication(messages: &[Message]) -> Value {
    let sent = communication::remote_input(&[], &Input::Messages(messages.to_vec()));
    serde_json::to_value(sent).unwrap()
}

fn of_communication(sent: &Value) -> Vec<Message> {
    let text = serde_json::to_vec(sent).unwrap();
    let read: Vec<acp::Message> = serde_json::from_slice(&text).unwrap();
    match communication::input(read, now(), MAX_METADATA).unwrap() {
        Input::Messages(messages) => messages,
        Input::Value(value) => panic!("{value:?}"),
    }
}

/// Messages in the form of a client of the Agent Connect Protocol.
fn to_connect(messages: &[Message]) -> Value {
    messages
        .iter()
        .map(|said| serde_json::to_value(connect::message(said, &links())).unwrap())
        .collect()
}

fn of_connect(sent: &Value) -> Vec<Message> {
    let text = serde_json::to_vec(sent).unwrap();
    let read: Vec<agent_connect::Message> = serde_json::from_slice(&text).unwrap();
    connect::read_messages(read, now(), "/messages").unwrap()
}

fn word() -> impl Strategy<Value = String> {
    "[a-zé ]{1,6}"
}

fn any_json() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!(null)),
        any::<i32>().prop_map(Value::from),
        word().prop_map(Value::from),
        prop::collection::btree_map("[a-z]{1,3}", any::<bool>(), 0..3)
            .prop_map(|members| json!(members)),
    ]
}

fn any_content() -> impl Strategy<Value = Part> {
    prop_oneof![
        word().prop_map(Part::text),
        any_json().prop_map(|value| Part::json(&json_of(&value))),
        word().prop_map(|text| Part::new("text/html", Content::Text(Arc::from(text)))),
        prop::collection::vec(any::<u8>(), 1..6).prop_map(|bytes| Part::bytes("image/png", bytes)),
        prop::collection::vec(any::<u8>(), 1..6).prop_map(|bytes| Part::bytes("audio/wav", bytes)),
        "https://[a-z]{1,4}/[a-z]{0,3}".prop_map(|url| Part::url("application/pdf", &*url)),
    ]
}

fn any_metadata() -> impl Strategy<Value = PartMetadata> {
    let text = || prop::option::of(word());
    // The Agent Communication Protocol requires an object here, so another value is wrapped in one.
    let object = || prop::collection::btree_map("[a-z]{1,3}", any_json(), 0..3);
    let json = || prop::option::of(object().prop_map(|members| json_of(&json!(members))));
    let index = || prop::option::of(0_i64..9);
    let citation = (index(), index(), text(), text(), text()).prop_map(
        |(start_index, end_index, url, title, description)| {
            PartMetadata::Citation(Citation { start_index, end_index, url, title, description })
        },
    );
    let step = (text(), text(), json(), json()).prop_map(
        |(message, tool_name, tool_input, tool_output)| {
            PartMetadata::Trajectory(Trajectory { message, tool_name, tool_input, tool_output })
        },
    );
    prop_oneof![citation, step]
}

/// Text, data, images, sounds and links, as artifacts or not, with citations, thoughts and tool calls.
fn any_part() -> impl Strategy<Value = Part> {
    let name = prop::option::of("[a-z]{1,4}\\.[a-z]{1,3}".prop_map(Arc::from));
    let whole = (any_content(), name, prop::option::of(any_metadata()))
        .prop_map(|(part, name, metadata)| Part { name, metadata, ..part });
    prop_oneof![4 => whole, 1 => any_metadata().prop_map(Part::annotation)]
}

fn any_message() -> impl Strategy<Value = Message> {
    let role = prop_oneof![
        Just(Role::User),
        Just(Role::Agent),
        "[a-z]{1,5}".prop_map(|name| Role::NamedAgent(Arc::from(name))),
    ];
    let id = "[a-z]{1,8}".prop_map(|id| message_id(&id));
    (id, role, prop::collection::vec(any_part(), 1..4))
        .prop_map(|(id, role, parts)| Message { id, ..Message::new(role, parts, Some(now())) })
}

fn any_failure() -> impl Strategy<Value = Failure> {
    let data = prop::option::of(any_json().prop_map(|value| json_of(&value)));
    let code = prop_oneof![
        Just("agent_failed".to_owned()),
        Just("agent_lost".to_owned()),
        Just("invalid_input".to_owned()),
        "[a-z]{1,6}_[a-z]{1,6}",
    ];
    (code, word(), any::<bool>(), data).prop_map(|(code, message, transient, data)| {
        // Trilogue's own codes determine whether an error is transient.
        let transient = Code::from_text(&code).map_or(transient, Code::is_transient);
        // `null` means that there are no details.
        let data = data.filter(|data| data.as_str() != "null");
        Failure { code, message, transient, data }
    })
}

fn any_question() -> impl Strategy<Value = Interrupt> {
    let kind = prop_oneof![
        Just(InterruptKind::Permission),
        Just(InterruptKind::Form),
        Just(InterruptKind::Url),
        Just(InterruptKind::Message),
    ];
    (kind, word(), "https://[a-z]{1,4}/").prop_map(|(kind, text, url)| {
        let payload = match kind {
            InterruptKind::Url => json!({ "url": url }),
            InterruptKind::Permission => json!({ "tool": text }),
            _ => json!(null),
        };
        let schema = matches!(kind, InterruptKind::Form)
            .then(|| json_of(&json!({ "type": "object", "properties": { "a": {} } })));
        let asked = interrupt("i", kind.clone(), &payload);
        let options = match kind {
            InterruptKind::Permission => vec![
                PermissionOption::once("yes", "Yes", Effect::Allow),
                PermissionOption::once("no", "No", Effect::Reject),
            ],
            _ => Vec::new(),
        };
        Interrupt { prompt: vec![Part::text(text)], schema, options, ..asked }
    })
}

/// A run that has begun, in the form of the Agent Communication Protocol.
fn running() -> (Projection, ThreadId) {
    let show = ProjectionOptions {
        strict: false,
        base: Arc::from("http://h/c"),
        max_inline_bytes: 1_000_000,
        input: false,
    };
    let (mut run, thread) = (Projection::new(show), ThreadId::parse(THREAD).unwrap());
    let (id, agent) = (RunId::parse(RUN).unwrap(), AgentName::parse("echo").unwrap());
    let created = Body::Run(RunEvent::Created { run: id, agent, input: None, audit: None });
    for body in [created, run_started()] {
        drop(run.push(&event(body), &thread));
    }
    (run, thread)
}

/// A waiting run in the form of the Agent Communication Protocol.
fn awaiting(question: &Interrupt) -> Value {
    let (mut run, thread) = running();
    drop(run.push(&event(raised(question.clone())), &thread));
    serde_json::from_slice(&run.run()).unwrap()
}

fn of_awaiting(run: &Value) -> Interrupt {
    let text = serde_json::to_vec(run).unwrap();
    let run: acp::Run = acp::read(&text, acp::Rules::Lenient).unwrap();
    communication::remote_interrupt(&run).unwrap().0
}

/// The content of a question, without each side's ids.
fn question_of(asked: &Interrupt) -> impl PartialEq + std::fmt::Debug + use<> {
    let Interrupt { kind, prompt, payload, options, schema, .. } = asked.clone();
    (kind, prompt, payload, options, schema)
}

proptest! {
    #[test]
    fn messages_of_communication_come_back_through_connect(said in any_message()) {
        let first = to_communication(&[said]);
        let core = of_communication(&first);
        let there = of_connect(&to_connect(&core));
        prop_assert_eq!(&there[0].parts, &core[0].parts);
        prop_assert_eq!(&there[0].id, &core[0].id);
        prop_assert_eq!(&to_communication(&there)[0]["parts"], &first[0]["parts"]);
        prop_assert_eq!(&to_communication(&there)[0]["role"], &first[0]["role"]);
    }

    #[test]
    fn messages_of_connect_come_back_through_communication(said in any_message()) {
        let first = to_connect(&[said]);
        let core = of_connect(&first);
        let there = of_communication(&to_communication(&core));
        prop_assert_eq!(&there[0].parts, &core[0].parts);
        prop_assert_eq!(&there[0].id, &core[0].id);
        prop_assert_eq!(to_connect(&there), first);
    }

    #[test]
    fn failures_come_back_through_either(failure in any_failure()) {
        let outcome = |failure: &Failure| Outcome::Failed(failure.clone());
        let of_error = |error| communication::remote_failure(&error);
        let core = of_error(communication::error(&outcome(&failure)).unwrap());
        let shown = connect::run_error(&outcome(&core), &chat(), RUN).unwrap();
        let there = connect::remote_failure(&shown);
        prop_assert_eq!(&there, &core);
        prop_assert_eq!(communication::error(&outcome(&there)), communication::error(&outcome(&failure)));
        prop_assert_eq!(core, failure);
    }

    #[test]
    fn questions_come_back_through_communication(question in any_question()) {
        let read = of_awaiting(&awaiting(&question));
        prop_assert_eq!(question_of(&read), question_of(&question));
        let again = awaiting(&Interrupt { id: question.id.clone(), ..read });
        prop_assert_eq!(&again["await_request"], &awaiting(&question)["await_request"]);
    }

    #[test]
    fn questions_come_back_through_connect(question in any_question()) {
        let shown = connect::interrupt(&question, &links());
        let read = connect::remote_interrupt(&shown, &chat(), |_, _| false).unwrap();
        let again = connect::interrupt(&Interrupt { id: question.id, ..read }, &links());
        prop_assert_eq!(serde_json::to_value(again).unwrap(), serde_json::to_value(shown).unwrap());
    }
}

fn any_entry() -> impl Strategy<Value = PlanEntry> {
    let status = prop_oneof!["pending", "in_progress", "completed"];
    (word(), status).prop_map(|(content, status)| PlanEntry { content, status })
}

/// A plan, an applied rule, or an agent's own update.
fn any_news() -> impl Strategy<Value = Body> {
    let entries = prop::collection::vec(any_entry(), 0..3).prop_map(PlanContent::Entries);
    let document = (word(), prop::option::of(word()))
        .prop_map(|(text, path)| PlanContent::Markdown { text, path });
    let content = prop_oneof![entries, document];
    prop_oneof![
        prop::collection::vec(any_entry(), 0..3).prop_map(|it| Body::State(StateEvent::Plan(it))),
        (word(), content)
            .prop_map(|(plan, content)| { Body::State(StateEvent::PlanUpdated { plan, content }) }),
        word().prop_map(|plan| Body::State(StateEvent::PlanRemoved { plan })),
        (word(), any::<bool>()).prop_map(|(rule, allowed)| {
            Body::Interrupt(InterruptEvent::RuleApplied { rule, allowed, origin: None })
        }),
        ("[a-z_]{1,6}", any_json()).prop_map(|(kind, data)| {
            Body::State(StateEvent::Custom { kind, data: json_of(&data) })
        }),
    ]
}

/// The events that a Trilogue server logs for an event of a Trilogue server behind it.
fn through_communication(body: &Body) -> Vec<Body> {
    let (mut run, thread) = running();
    let mut remote = RemoteRun::new("r", Role::Agent).at_ours(true);
    let events = run.push(&event(body.clone()), &thread);
    let events = events.iter().map(|line| serde_json::from_slice::<acp::Event>(line).unwrap());
    events.flat_map(|event| remote.push(event).unwrap()).collect()
}

proptest! {
    #[test]
    fn a_sub_agent_behind_another_server_stays_an_update_because_its_thread_is_there(title in word()) {
        let thread = trilogue_domain::ThreadId::parse("t").unwrap();
        let state = Some(SubagentState::Idle { stop_reason: Some("end_turn".to_owned()) });
        let can_cancel = true;
        let one = Subagent { thread, title: Some(title.clone()), description: None, state, can_cancel };
        let read = through_communication(&Body::State(StateEvent::Subagent(one)));
        let [Body::State(StateEvent::Custom { kind, data })] = &read[..] else { panic!("{read:?}") };
        let expected = json!({
            "thread_id": "t", "title": title, "state": "idle", "stop_reason": "end_turn", "can_cancel": true,
        });
        prop_assert_eq!((&**kind, data.to_value()), ("subagent", expected));
    }

    #[test]
    fn news_of_a_run_are_what_they_were_in_front_of_another_server_of_ours(news in any_news()) {
        prop_assert_eq!(through_communication(&news), [news]);
    }
}
