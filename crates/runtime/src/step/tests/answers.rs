//! Tests the ends of a wait: answers and deadlines.

use super::*;

#[test]
fn answers_are_checked_and_the_second_is_told() {
    let mut table = Table::new();
    table.submit_with(1, |submit| submit.native = false).unwrap();
    table.raise(1, interrupt("ask", InterruptKind::Permission)).unwrap();
    let wrong = [
        Answer::Json(Json::from_value(&serde_json::json!(7))),
        Answer::Option("maybe".to_owned()),
        Answer::Message(Vec::new()),
    ];
    for answer in wrong {
        assert_eq!(refusal_code(table.answer("ask", answer)), Code::AnswerInvalid);
    }
    table.answer("ask", Answer::Option("yes".to_owned())).unwrap();
    let second = table.answer("ask", Answer::Option("yes".to_owned()));
    assert_eq!(refusal_code(second), Code::InterruptResolved);
}

#[test]
fn an_answer_without_a_name_is_for_a_run_that_has_resolved_none() {
    let mut table = Table::new();
    table.submit_with(1, |submit| submit.native = false).unwrap();
    table.raise(1, interrupt("one", InterruptKind::Permission)).unwrap();
    let unnamed = |table: &mut Table| {
        let answer = Answer::Option("yes".to_owned());
        table.step(Command::Answer {
            to: AnswerTarget::FirstOf(RunKey(1)),
            answer,
            extra: None,
            said: None,
            idempotency: None,
            by: principal(),
        })
    };
    assert!(unnamed(&mut table).is_ok());
    table.raise(1, interrupt("two", InterruptKind::Permission)).unwrap();
    let error = unnamed(&mut table).map(|_| ()).unwrap_err();
    assert_eq!(error.code(), Code::InterruptMismatch);
    assert_eq!(error.pending_interrupt().map(InterruptId::as_str), Some("two"));
}

#[test]
fn no_time_out_ever_allows() {
    let mut table = Table::new();
    table.submit_with(1, |submit| submit.native = false).unwrap();
    table.raise(1, interrupt("ask", InterruptKind::Permission)).unwrap();
    let deadline = |id: &str| Command::Deadline { interrupt: InterruptId::parse(id).unwrap() };
    let step = table.step(deadline("ask")).unwrap();
    let Some(Effect::Deliver { resolution, .. }) = step.effects.first() else { panic!("{step:?}") };
    assert_eq!(*resolution, Resolution::TimedOut { option: Some("no".to_owned()) });
    assert_eq!(table.status(1), Some(RunStatus::Running));

    table.raise(1, interrupt("form", InterruptKind::Form)).unwrap();
    let step = table.step(deadline("form")).unwrap();
    assert_eq!(
        step_summary(&step),
        [
            "10 1.10 interrupt.resolved",
            "11 1.11 timed out await_timeout",
            "abort 1",
            "settled 1 timed_out"
        ]
    );
    assert_eq!(step_summary(&table.step(deadline("form")).unwrap()), Vec::<String>::new());
}

#[test]
fn a_permission_without_a_way_to_reject_this_call_only_cancels() {
    for rejects_for_ever in [false, true] {
        let mut table = Table::new();
        table.submit_with(1, |submit| submit.native = false).unwrap();
        let mut ask = interrupt("ask", InterruptKind::Permission);
        if rejects_for_ever {
            ask.options.iter_mut().for_each(|option| option.always = true);
        } else {
            ask.options.retain(|option| option.effect == OptionEffect::Allow);
        }
        table.raise(1, ask).unwrap();
        let deadline = Command::Deadline { interrupt: InterruptId::parse("ask").unwrap() };
        table.step(deadline).unwrap();
        assert_eq!(table.status(1), Some(RunStatus::Cancelling));
    }
}

#[test]
fn an_agent_that_waits_can_be_told_that_nobody_chose() {
    let mut table = Table::new();
    table.submit_with(1, |submit| submit.native = false).unwrap();
    table.raise(1, interrupt("ask", InterruptKind::Permission)).unwrap();
    let step = table.answer("ask", Answer::Json(Json::null())).unwrap();
    let Some(Effect::Deliver { resolution, .. }) = step.effects.first() else { panic!("{step:?}") };
    assert!(matches!(resolution, Resolution::Answered { answer: Answer::Json(_), .. }));
    assert_eq!(table.status(1), Some(RunStatus::Running));
}
