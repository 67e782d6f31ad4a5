//! Tests the callbacks of a run, and which runs give way to a new one.

use trilogue_store::rows::QueueKind;

use super::*;

/// Returns the keys of the callbacks that a step queues.
fn offered(step: &Step) -> Vec<String> {
    let items = step.changes.iter().filter_map(|change| match change {
        Change::Offer(item) if item.kind == QueueKind::Callback => Some(item.key.clone()),
        _ => None,
    });
    items.collect()
}

fn call_back(submit: &mut Submit) {
    let url = "https://example.com/hook".into();
    submit.row.callback =
        Some(trilogue_domain::Callback { url, status: true, values: true, updates: true });
}

#[test]
fn a_client_is_called_back_about_the_question_that_is_shown_and_about_the_end() {
    let mut table = Table::new();
    let step = table.submit_with(1, |submit| {
        submit.native = false;
        call_back(submit);
    });
    assert_eq!(offered(&step.unwrap()), [""; 0]);
    let asked = |id| interrupt(id, InterruptKind::Permission);
    assert_eq!(offered(&table.raise(1, asked("one")).unwrap()), ["run-1.6"]);
    assert_eq!(offered(&table.raise(1, asked("two")).unwrap()), [""; 0], "another is shown");
    table.raise(1, asked("three")).unwrap();
    let answer = || Answer::Option("no".to_owned());
    assert_eq!(offered(&table.answer("two", answer()).unwrap()), [""; 0]);
    assert_eq!(offered(&table.answer("one", answer()).unwrap()), ["run-1.10"], "the next is shown");
    assert_eq!(offered(&table.answer("three", answer()).unwrap()), [""; 0], "it goes on");
    let step = table.finish(1, Ok(Ending::Completed)).unwrap();
    assert_eq!(offered(&step), ["run-1.13"]);
}

#[test]
fn a_client_is_called_back_about_what_was_emitted_by_its_numbers() {
    let mut table = Table::new();
    table.submit_with(1, call_back).unwrap();
    let thought = |text: &str| {
        Body::Message(trilogue_domain::event::MessageEvent::Thought {
            message: None,
            text: text.into(),
        })
    };
    let mut draft = Draft::default();
    for text in ["a", "b", "c"] {
        draft.push(Timestamp::from_micros(1), &thought(text), None).unwrap();
    }
    let callback_events = CallbackEvents { output: 2, updates: vec![1, 3] };
    let progress = Progress { draft, callback_events, ..progress() };
    let step = table.step(Command::Progress(progress)).unwrap();
    assert_eq!(offered(&step), ["run-1.6", "run-1.8", "run-1.values"]);
    let numbers: Vec<_> = step
        .changes
        .iter()
        .filter_map(|change| match change {
            Change::Offer(item) => item.reference.to_value()["number"].as_u64(),
            _ => None,
        })
        .collect();
    assert_eq!(numbers, [6, 8, 7]);
}

#[test]
fn everything_in_flight_gives_way_and_nothing_of_it_starts_meanwhile() {
    for (strategy, is_removed) in [(Strategy::Interrupt, false), (Strategy::Rollback, true)] {
        let mut table = Table::new();
        table.submit(1).unwrap();
        table.submit(2).unwrap();
        let later = Timestamp::from_micros(1_000);
        table.submit_with(3, |submit| submit.row.not_before = Some(later)).unwrap();
        let step = table.submit_with(4, |submit| submit.strategy = strategy).unwrap();
        let told = step_summary(&step);
        assert!(!told.iter().any(|word| word.starts_with("start")), "{told:?}");
        let ended: Vec<_> = told.iter().filter(|word| word.starts_with("settled")).collect();
        assert_eq!(ended, ["settled 2 cancelled", "settled 3 cancelled"]);
        // The log of the server names what was removed: its agent's work is gone.
        let audited: Vec<_> = told.iter().filter(|word| word.starts_with("audit")).collect();
        let expected = ["audit run-2 for run-4", "audit run-3 for run-4", "audit run-1 for run-4"];
        assert_eq!(audited, if is_removed { &expected[..] } else { &[] });
        let removed = step.changes.iter().filter(|one| matches!(one, Change::RemoveRun(_)));
        assert_eq!(removed.count(), if is_removed { 2 } else { 0 });
        let withdrawn = Change::Withdraw(QueueKind::ScheduledRun, "run-3".to_owned());
        let is_withdrawn = |one: &Change| format!("{one:?}") == format!("{withdrawn:?}");
        assert!(step.changes.iter().any(is_withdrawn), "its time does not come any more");
        assert_eq!(table.state.turn, Some(RunKey(1)), "its agent is at work still");
        table.finish(1, Ok(Ending::Completed)).unwrap();
        assert_eq!(table.state.turn, Some(RunKey(4)));
        assert_eq!(table.state.runs.len(), 1);
    }
}

#[test]
fn a_thread_goes_only_while_it_is_idle_where_that_is_asked_for() {
    let mut table = Table::new();
    table.submit(1).unwrap();
    assert_eq!(refusal_code(table.step(Command::Erase { if_idle: true })), Code::ThreadBusy);
    table.suspend(1, "ask").unwrap();
    let step = table.step(Command::Erase { if_idle: true }).unwrap();
    assert_eq!(step_summary(&step), ["abort 1", "gone"]);
    let mut table = Table::new();
    table.submit(1).unwrap();
    assert_eq!(
        step_summary(&table.step(Command::Erase { if_idle: false }).unwrap()),
        ["abort 1", "gone"]
    );
}

#[test]
fn a_note_is_of_no_run_and_leaves_runs_as_they_are() {
    let mut table = Table::new();
    let note = |bound| {
        let mut draft = Draft::default();
        draft.push(Timestamp::from_micros(1), &Body::Opaque, None).unwrap();
        Command::AppendOutsideRun { draft, bound, title: None, begun: None }
    };
    let before = table.state.last;
    assert_eq!(
        step_summary(&table.step(note(None)).unwrap()),
        [format!("{} - opaque", before + 1)]
    );
    table.submit(1).unwrap();
    let run = table.state.runs[&RunKey(1)].row.clone();
    let bound = trilogue_store::rows::BindingRow {
        thread: ThreadKey(1),
        agent: run.agent.clone(),
        remote: "s".to_owned(),
        capabilities: Json::null(),
        last_seen: None,
    };
    let step = table.step(note(Some(bound.clone()))).unwrap();
    assert_eq!(step_summary(&step), [format!("{} - opaque", table.state.last)]);
    assert!(matches!(&step.changes[..], [Change::Binding(row)] if *row == bound));
    assert_eq!(table.state.runs[&RunKey(1)].row, run);
    let step = table.finish(1, Ok(Ending::Completed)).unwrap();
    let told = step.changes.iter().find_map(|change| match change {
        Change::Binding(row) => Some((row.remote.clone(), row.last_seen)),
        _ => None,
    });
    assert_eq!(told, Some(("s".to_owned(), table.state.thread.head)), "it was told of this run");
}

#[test]
fn somebody_is_told_of_an_interrupt_until_it_is_resolved() {
    for notifies in [false, true] {
        let mut table = Table::new();
        table.state.notifies = notifies;
        table.submit(1).unwrap();
        let step = table.raise(1, interrupt("one", InterruptKind::Permission)).unwrap();
        let offers = step.changes.iter().filter(|change| {
            matches!(change, Change::Offer(item) if item.kind == QueueKind::Notify && item.key == "one")
        });
        assert_eq!(offers.count(), usize::from(notifies));
        let step = table.answer("one", Answer::Option("no".to_owned())).unwrap();
        let withdrawn = step.changes.iter().filter(
            |change| matches!(change, Change::Withdraw(QueueKind::Notify, key) if key == "one"),
        );
        assert_eq!(withdrawn.count(), usize::from(notifies));
    }
}
