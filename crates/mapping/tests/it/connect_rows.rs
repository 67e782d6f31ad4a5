//! Runs, threads and checkpoints in responses, and the bodies of callbacks.

use serde_json::{Value, json};
use trilogue_domain::{Json, Message, Part, Role, RunStatus, ThreadActivity, Timestamp};
use trilogue_mapping::connect::{
    self, CallbackContent, CheckpointFields, RunFields, State, ThreadFields, callback_body,
    wait_response,
};
use trilogue_wire::agent_connect::{Run, Thread, ThreadState, decode};

use crate::published::{assert_valid, document, fits};
use crate::sample::{
    RUN, THREAD, approval, chat, full, json_of, links, message_id, parsed, raised, result,
    run_ended, run_started, values,
};

fn run(status: RunStatus) -> Vec<u8> {
    connect::run(&RunFields {
        id: RUN,
        thread_id: THREAD,
        agent_id: "3f1e2549-5799-4321-91ae-2a4881d55526",
        configuration_id: Some(THREAD),
        status,
        is_scheduled: true,
        created_at: Timestamp::from_micros(1_763_683_200_000_120),
        updated_at: Timestamp::from_micros(1_763_683_200_000_000),
        creation: br#"{"input":{"n":1.0}}"#,
    })
}

fn user_messages() -> Vec<Message> {
    vec![Message { id: message_id("m"), ..Message::new(Role::User, vec![Part::text("hi")], None) }]
}

#[test]
fn a_run_keeps_the_published_schema_and_its_request_as_it_was_written() {
    let document = document();
    for status in RunStatus::ALL {
        let shown = run(status);
        assert_valid(document.as_ref(), "RunStateless", &parsed(&shown));
        assert_valid(document.as_ref(), "RunStateful", &parsed(&shown));
        let read: Run = decode(&shown).unwrap();
        assert_eq!(read.status, connect::status(status));
        assert_eq!(serde_json::to_value(read).unwrap(), parsed(&shown));
    }
    let text = String::from_utf8(run(RunStatus::Queued)).unwrap();
    assert!(text.contains(r#""created_at":"2025-11-21T00:00:00.000120Z""#), "{text}");
    assert!(text.contains(r#""updated_at":"2025-11-21T00:00:00.000000Z""#), "{text}");
    assert!(text.contains(r#""status":"pending","phase":"scheduled""#), "{text}");
    assert!(text.ends_with(r#""creation":{"input":{"n":1.0}}}"#), "{text}");
}

#[test]
fn a_wait_responds_with_the_run_its_output_and_the_members_of_the_document() {
    let document = document();
    let (shown, done) = (
        run(RunStatus::Completed),
        vec![
            run_started(),
            result(&json!({ "message": "a" })),
            run_ended(trilogue_domain::Outcome::Completed),
        ],
    );
    let output = values(full(), done).output().unwrap();
    let answer = parsed(&wait_response(&shown, Some(&output)));
    assert_valid(document.as_ref(), "RunWaitResponseStateless", &answer);
    assert_valid(document.as_ref(), "RunWaitResponseStateful", &answer);
    assert_eq!(
        (&answer["type"], &answer["result"]),
        (&json!("result"), &json!({ "message": "a" }))
    );
    let asked = values(full(), vec![run_started(), raised(approval("i"))]).output().unwrap();
    let answer = parsed(&wait_response(&run(RunStatus::Interrupted), Some(&asked)));
    assert_eq!(answer["type"], "interrupt");
    assert_eq!(answer["interrupt_type"], "approval");
    assert_eq!(answer["interrupt_payload"], json!({ "question": "?" }));
    assert_eq!(answer.get("result"), None);
    let failure = trilogue_domain::Failure::of(trilogue_domain::Code::AgentFailed, "it burns");
    let failed = run_ended(trilogue_domain::Outcome::Failed(failure));
    let failed = values(full(), vec![run_started(), failed]).output().unwrap();
    let answer = parsed(&wait_response(&run(RunStatus::Failed), Some(&failed)));
    assert_eq!((&answer["type"], &answer["errcode"]), (&json!("error"), &json!(1)));
    assert_eq!(answer["description"], "it burns");
}

#[test]
fn clients_are_called_with_the_run_and_what_is_told_of_it() {
    let document = document();
    let shown = run(RunStatus::Completed);
    for (what, event, member, value) in [
        (
            CallbackContent::Status(br#"{"type":"result"}"#),
            "run.status",
            "output",
            json!({ "type": "result" }),
        ),
        (
            CallbackContent::Values(br#"{"type":"result","values":5}"#),
            "run.values",
            "output",
            json!({ "type": "result", "values": 5 }),
        ),
        (
            CallbackContent::Update(br#"{"type":"custom","update":{"a":1},"kind":"k"}"#),
            "run.custom",
            "update",
            json!({ "a": 1 }),
        ),
    ] {
        let body = parsed(&callback_body(&shown, what, "d-1"));
        assert_valid(document.as_ref(), "RunStateless", &body);
        assert_eq!((&body["event"], &body["delivery_id"]), (&json!(event), &json!("d-1")));
        assert_eq!(body[member], value);
    }
    let update = CallbackContent::Update(br#"{"update":{},"kind":"k"}"#);
    assert_eq!(parsed(&callback_body(&shown, update, "d"))["kind"], "k");
}

#[test]
fn a_thread_and_its_states_keep_the_published_schemas() {
    let document = document();
    let (value, said) = (json_of(&json!({ "log": [1] })), user_messages());
    let metadata = Json::parse(r#"{"k":1.0}"#).unwrap();
    let thread = |state| {
        let shown = connect::thread(
            &ThreadFields {
                id: THREAD,
                created_at: Timestamp::from_micros(0),
                updated_at: Timestamp::from_micros(1),
                metadata: &metadata,
                standing: ThreadActivity::Failed,
                state,
            },
            &links(),
        )
        .into_json();
        assert_valid(document.as_ref(), "Thread", &parsed(&shown));
        let read: Thread = decode(&shown).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), parsed(&shown));
        parsed(&shown)
    };
    let none = thread(None);
    assert_eq!((none.get("values"), none.get("messages")), (None, None));
    assert_eq!((&none["status"], &none["metadata"]), (&json!("error"), &json!({ "k": 1.0 })));
    let set = thread(Some(State::Value(&value)));
    assert_eq!((&set["values"], set.get("messages")), (&json!({ "log": [1] }), None));
    let talk = thread(Some(State::Messages(&said)));
    let messages = json!([{ "role": "user", "content": "hi", "id": "m" }]);
    assert_eq!((&talk["values"], &talk["messages"]), (&json!({ "messages": messages }), &messages));
    let schema = connect::descriptor(&chat()).to_value()["specs"]["thread_state"].clone();
    fits(&schema, &talk["values"]);
    for state in [State::Value(&value), State::Messages(&said)] {
        let of = CheckpointFields { id: THREAD, state, metadata: json!({ "source": "loop" }) };
        let shown = connect::thread_state(&of, &links()).into_json();
        assert_valid(document.as_ref(), "ThreadState", &parsed(&shown));
        let read: ThreadState = decode(&shown).unwrap();
        assert_eq!(read.checkpoint.checkpoint_id, THREAD);
        let alone: Value = parsed(&connect::state(state, &links()).into_json());
        assert_eq!(alone, parsed(&shown)["values"]);
    }
}

#[test]
fn a_state_that_is_sent_in_pieces_is_the_same_json() {
    let (said, links) = (user_messages(), links());
    let elements: Vec<_> =
        said.iter().map(|message| connect::message_json(message, &links)).collect();
    let check = |show: &dyn Fn(State<'_>) -> connect::Template, places: usize| {
        let parts = show(State::Pieces).parts();
        assert_eq!(parts.len(), places + 1);
        assert_eq!(
            parts.join(&elements.join(&b","[..])[..]),
            show(State::Messages(&said)).into_json()
        );
        assert_eq!(parts.concat(), show(State::Messages(&[])).into_json());
    };
    let metadata = Json::empty_object();
    let thread = |state: State<'_>| {
        let of = ThreadFields {
            id: THREAD,
            created_at: Timestamp::from_micros(0),
            updated_at: Timestamp::from_micros(1),
            metadata: &metadata,
            standing: ThreadActivity::Idle,
            state: Some(state),
        };
        connect::thread(&of, &links)
    };
    let of_checkpoint = |state: State<'_>| {
        let of = CheckpointFields { id: THREAD, state, metadata: json!({}) };
        connect::thread_state(&of, &links).in_array()
    };
    check(&thread, 2);
    check(&of_checkpoint, 2);
    check(&|state: State<'_>| connect::state(state, &links), 1);
}
