//! The fold of a run into its output.

use serde_json::{Value, json};
use trilogue_domain::content::BlobRef;
use trilogue_domain::event::{InterruptEvent, MessageEvent, RunEvent};
use trilogue_domain::{
    AgentCard, Body, Code, Failure, InterruptId, InterruptKind, Outcome, Part, Resolution, Role,
};
use trilogue_mapping::connect::{self, Values};

use crate::published::{assert_valid, document, fits};
use crate::sample::{
    RUN, approval, chat, completed, delta, event, full, interrupt, json_of, message_id,
    message_started, output, parsed, raised, result, run_ended, run_started, values,
};

fn snapshot(values: &Values) -> Option<Value> {
    let shown = values.snapshot().map(|bytes| parsed(&bytes));
    if let Some(shown) = &shown {
        let event = json!({ "id": "1", "event": "agent_event", "data": shown });
        assert_valid(document().as_ref(), "RunOutputStream", &event);
    }
    shown
}

/// The event that ends the stream, and the output of a wait, both validated against the published schema.
fn end(values: &Values) -> Option<(Value, Value)> {
    let (Some(terminal), Some(output)) = (values.terminal(), values.output()) else {
        assert_eq!((values.terminal(), values.output()), (None, None));
        return None;
    };
    let (terminal, output) = (parsed(&terminal), parsed(&output));
    let event = json!({ "id": "1", "event": "agent_event", "data": terminal });
    assert_valid(document().as_ref(), "RunOutputStream", &event);
    assert_valid(document().as_ref(), "RunOutput", &output);
    Some((terminal, output))
}

fn failed_outcome(code: &str, data: Option<&Value>) -> Outcome {
    Outcome::Failed(Failure {
        code: code.to_owned(),
        message: "why".to_owned(),
        transient: Code::from_text(code).is_some_and(Code::is_transient),
        data: data.map(json_of),
    })
}

#[test]
fn text_grows_in_the_message_and_in_the_messages() {
    let mut run = values(
        chat(),
        vec![
            message_started("in", Role::User),
            delta("in", "not shown"),
            completed("in"),
            run_started(),
            message_started("m", Role::Agent),
        ],
    );
    assert_eq!((run.version(), snapshot(&run), end(&run)), (0, None, None));
    run.push(&event(delta("m", "Hel")));
    let before = run.version();
    run.push(&event(delta("m", "lo")));
    assert!(run.version() > before);
    let said = json!([{ "role": "assistant", "content": "Hello", "id": "m" }]);
    let whole = json!({ "message": "Hello", "messages": said });
    assert_eq!(
        snapshot(&run).unwrap(),
        json!({
            "type": "values", "run_id": RUN, "status": "pending",
            "values": whole, "messages": said, "result": whole,
        })
    );
    let done = vec![completed("m"), run_ended(Outcome::Completed)];
    done.into_iter().for_each(|body| run.push(&event(body)));
    let (terminal, output) = end(&run).unwrap();
    assert_eq!((&terminal["status"], &terminal["values"]), (&json!("success"), &whole));
    assert_eq!(
        output,
        json!({ "type": "result", "values": whole, "messages": said, "result": whole })
    );
    fits(&connect::descriptor(&chat()).to_value()["specs"]["output"], &output["values"]);
    // The last state that a stream showed before the end is still available.
    assert_eq!(snapshot(&run).unwrap()["status"], "pending");
}

#[test]
fn what_a_user_answers_is_no_output() {
    let run = values(
        chat(),
        vec![
            run_started(),
            message_started("m", Role::Agent),
            delta("m", "asks"),
            message_started("u", Role::User),
            delta("u", "answers"),
            completed("u"),
            delta("m", " on"),
        ],
    );
    let shown = snapshot(&run).unwrap();
    assert_eq!(shown["values"]["message"], "asks on");
    assert_eq!(shown["messages"].as_array().unwrap().len(), 1);
}

#[test]
fn messages_may_grow_side_by_side() {
    let run = values(
        chat(),
        vec![
            run_started(),
            message_started("a", Role::Agent),
            message_started("b", Role::Agent),
            delta("b", "2"),
            delta("a", "1"),
            completed("b"),
            delta("a", "1"),
            Body::Message(MessageEvent::Part {
                message: message_id("a"),
                part: Part::text("x").with_name("n"),
            }),
            delta("a", "!"),
        ],
    );
    let shown = snapshot(&run).unwrap();
    assert_eq!(shown["values"]["message"], "2");
    assert_eq!(shown["messages"][0]["content"][0]["text"], "11");
    assert_eq!(shown["messages"][0]["content"][2], json!({ "type": "text", "text": "!" }));
}

#[test]
fn a_value_replaces_the_one_before_and_is_shown_as_it_was_given() {
    let mut run = values(full(), vec![run_started(), output(&json!({ "message": "a" }))]);
    assert_eq!(snapshot(&run).unwrap()["values"], json!({ "message": "a" }));
    assert_eq!(snapshot(&run).unwrap().get("messages"), None);
    let exact = trilogue_domain::Json::parse(r#"{"n":1.0,"message":"b"}"#).unwrap();
    run.push(&event(Body::Run(RunEvent::Result(exact))));
    run.push(&event(run_ended(Outcome::Completed)));
    let bytes = run.output().unwrap();
    assert_eq!(
        &bytes[..],
        br#"{"type":"result","values":{"n":1.0,"message":"b"},"result":{"n":1.0,"message":"b"}}"#
    );
    assert_eq!(end(&run).unwrap().0["values"]["n"], 1.0);
}

#[test]
fn primitive_outputs_are_outputs() {
    for value in [json!("text"), json!(true), json!(1.5), json!([1])] {
        let run =
            values(full(), vec![run_started(), result(&value), run_ended(Outcome::Completed)]);
        let (terminal, output) = end(&run).unwrap();
        assert_eq!((&terminal["values"], &terminal["result"]), (&value, &value));
        assert_eq!((&output["values"], &output["result"]), (&value, &value));
    }
}

#[test]
fn text_of_an_agent_with_a_schema_goes_where_the_schema_has_a_place() {
    let with = |schema: Value| AgentCard { output_schema: Some(json_of(&schema)), ..full() };
    let said = || vec![run_started(), message_started("m", Role::Agent), delta("m", "hi")];
    let text = json!({ "type": "string" });
    for (schema, place) in [
        (json!({ "properties": { "answer": text } }), json!({ "answer": "hi" })),
        (json!({ "properties": { "message": text, "more": text } }), json!({ "message": "hi" })),
        (text, json!("hi")),
    ] {
        let run = values(with(schema), said());
        assert_eq!(snapshot(&run).unwrap()["values"], place);
    }
    let mut run = values(with(json!({ "type": "object" })), said());
    assert_eq!(snapshot(&run), None);
    run.push(&event(run_ended(Outcome::Completed)));
    assert_eq!(end(&run).unwrap().1["values"]["message"], "hi");
}

#[test]
fn a_run_that_says_nothing_ends_with_a_result() {
    let silent =
        |card| end(&values(card, vec![run_started(), run_ended(Outcome::Completed)])).unwrap();
    let (terminal, output) = silent(chat());
    assert_eq!(terminal["values"], json!({ "messages": [] }));
    assert_eq!(output["values"], json!({ "messages": [] }));
    let (terminal, output) = silent(full());
    assert_eq!((&terminal["values"], output), (&json!({}), json!({ "type": "result" })));
}

#[test]
fn a_question_ends_the_stream_until_it_is_answered() {
    let mut run =
        values(full(), vec![run_started(), raised(approval("i-1")), raised(approval("i-2"))]);
    assert_eq!(run.interrupt().unwrap().id.as_str(), "i-1");
    let (terminal, output) = end(&run).unwrap();
    assert_eq!(
        terminal,
        json!({
            "type": "interrupt",
            "run_id": RUN,
            "status": "interrupted",
            "interrupt": { "approval": { "question": "?" } },
            "interrupt_type": "approval",
            "interrupt_payload": { "question": "?" },
            "interrupt_id": "i-1"
        })
    );
    assert_eq!(output["interrupt"], terminal["interrupt"]);
    let resolved = |id: &str| {
        let interrupt = InterruptId::parse(id).unwrap();
        let resolution = Resolution::Withdrawn { reason: Code::RunSuperseded };
        event(Body::Interrupt(InterruptEvent::Resolved { interrupt, resolution }))
    };
    run.push(&resolved("i-1"));
    assert_eq!(end(&run).unwrap().0["interrupt_id"], "i-2");
    run.push(&resolved("i-2"));
    assert_eq!(end(&run), None);
    run.push(&event(raised(interrupt("p", InterruptKind::Permission, &Value::Null))));
    assert!(end(&run).is_some());
    run.push(&event(Body::Run(RunEvent::Cancelling { reason: None })));
    run.push(&event(raised(approval("late"))));
    assert_eq!(end(&run), None);
}

#[test]
fn a_failure_is_shown_in_one_shape_everywhere() {
    let end_of = |outcome| {
        let run = values(
            full(),
            vec![run_started(), output(&json!({ "message": "a" })), run_ended(outcome)],
        );
        let (terminal, output) = end(&run).unwrap();
        for member in ["type", "run_id", "errcode", "description", "code", "transient", "data"] {
            assert_eq!(terminal.get(member), output.get(member), "{member}");
        }
        (terminal["status"].clone(), output)
    };
    let of = |outcome| {
        let (status, output) = end_of(outcome);
        let member = |name: &str| output.get(name).cloned().unwrap_or_default();
        json!([status, member("errcode"), member("code"), member("transient"), member("data")])
    };
    let (own, quota) = (json!(5), json!({ "left": 0 }));
    let cancelled = |reason| Outcome::Cancelled { reason };
    for (outcome, wanted) in [
        (failed_outcome("agent_failed", None), json!(["error", 1, "agent_error", false, null])),
        (
            failed_outcome("own", Some(&own)),
            json!(["error", 1, "agent_error", false, { "reason": "own", "details": 5 }]),
        ),
        (failed_outcome("quota", Some(&quota)), json!(["error", 10_001, "quota", true, quota])),
        (
            failed_outcome("output_schema_violation", None),
            json!(["error", 2, "output_schema_violation", false, null]),
        ),
        (
            failed_outcome("interrupt_schema_violation", None),
            json!(["error", 3, "interrupt_schema_violation", false, null]),
        ),
        (
            failed_outcome("stream_update_schema_violation", None),
            json!(["error", 10, "stream_update_schema_violation", false, null]),
        ),
        (
            failed_outcome("agent_lost", None),
            json!(["error", 7, "worker_lost", true, { "reason": "agent_lost" }]),
        ),
        (
            failed_outcome("invalid_input", None),
            json!(["error", 1, "agent_error", false, { "reason": "invalid_input" }]),
        ),
        (cancelled(None), json!(["error", 5, "run_cancelled", false, null])),
        (
            cancelled(Some(Code::RunSuperseded)),
            json!(["error", 5, "run_cancelled", false, { "reason": "run_superseded" }]),
        ),
        (cancelled(Some(Code::RunRolledBack)), json!(["error", 6, "run_rolled_back", false, null])),
        (
            Outcome::TimedOut { reason: Code::AwaitTimeout },
            json!(["timeout", 4, "run_timeout", true, { "reason": "await_timeout" }]),
        ),
    ] {
        assert_eq!(of(outcome.clone()), wanted, "{outcome:?}");
    }
    assert_eq!(end_of(failed_outcome("own", None)).1["description"], "why");
}

#[test]
fn details_of_failures_fit_the_definitions() {
    let definitions = connect::definitions();
    for outcome in [
        failed_outcome("own", Some(&json!(5))),
        Outcome::Cancelled { reason: Some(Code::RunSuperseded) },
        Outcome::TimedOut { reason: Code::AwaitTimeout },
    ] {
        let run = values(full(), vec![run_started(), run_ended(outcome)]);
        let (_, output) = end(&run).unwrap();
        let known = definitions.iter().find(|it| output["code"] == it.code.as_str()).unwrap();
        assert_eq!(output["errcode"], known.errcode);
        fits(&known.schema.as_ref().unwrap().to_value(), &output["data"]);
    }
}

#[test]
fn content_that_is_stored_apart_is_wanted_while_there_is_room() {
    let blob = |length| BlobRef { hash: [0; 32], length, is_text: true };
    let mut run = values(chat(), Vec::new());
    assert!(!run.can_inline(&blob(10)));
    for body in [run_started(), message_started("m", Role::Agent)] {
        run.push(&event(body));
    }
    assert!(run.can_inline(&blob(100_000)) && !run.can_inline(&blob(100_001)));
    let part = Part::text("x".repeat(70_000));
    run.push(&event(Body::Message(MessageEvent::Part { message: message_id("m"), part })));
    assert!(run.can_inline(&blob(30_000)) && !run.can_inline(&blob(30_001)));
}

#[test]
fn the_output_so_far_has_a_type_of_its_own() {
    let run = values(full(), vec![run_started()]);
    assert_eq!(run.partial(), None);
    let run = values(full(), vec![run_started(), output(&json!({ "message": "a" }))]);
    let partial = parsed(&run.partial().unwrap());
    let message = json!({ "message": "a" });
    assert_eq!(partial, json!({ "type": "values", "values": message, "result": message }));
}
