//! Tests a thread after a restart, during a drain, and when its state or history is set.

use super::*;

#[test]
fn recovery_accounts_for_every_run() {
    let mut table = Table::new();
    let mut restart = interrupt("restart", InterruptKind::Form);
    restart.survives = Survives::Restart;
    let states = [
        (1, RunStatus::Running, None, false),
        (2, RunStatus::Queued, None, false),
        (3, RunStatus::Interrupted, Some(restart), true),
        (4, RunStatus::Interrupted, Some(interrupt("process", InterruptKind::Permission)), false),
        (5, RunStatus::Cancelling, None, false),
        (6, RunStatus::Interrupted, None, true),
        (7, RunStatus::Queued, None, false),
    ];
    for (run, status, pending, saved) in states {
        let mut row = table.row(run);
        row.status = status;
        row.started_at = (status != RunStatus::Queued).then_some(Timestamp::from_micros(0));
        row.saved = saved.then(Json::null);
        row.pending_answer = (run == 6).then(|| InterruptId::parse("answered").unwrap());
        row.not_before = (run == 7).then_some(Timestamp::from_micros(i64::MAX));
        let mut state = crate::state::RunState::new(row.clone(), None, true);
        state.restored = true;
        state.pending.extend(pending.map(|interrupt| InterruptRow {
            tenant: row.tenant.clone(),
            principal: row.principal.clone(),
            thread: row.thread,
            thread_id: row.thread_id.clone(),
            run: row.key,
            run_id: row.id.clone(),
            agent: row.agent.clone(),
            raised_at: Timestamp::from_micros(0),
            resolution: None,
            resolved_at: None,
            interrupt,
        }));
        table.state.runs.insert(row.key, Box::new(state));
    }
    let step = table
        .step(Command::Recover { restarted: true, failure: lost_failure(), checkpoint: None })
        .unwrap();
    assert_eq!(
        step_summary(&step),
        [
            "1 1.1 failed agent_lost",
            "2 4.1 interrupt.resolved",
            "3 4.2 failed agent_lost",
            "4 5.1 cancelled",
            "5 2.1 run.started",
            "settled 1 failed",
            "settled 4 failed",
            "settled 5 cancelled",
            "start 2 from store",
        ]
    );
    assert_eq!(table.status(3), Some(RunStatus::Interrupted));
    assert_eq!(table.state.queue, [RunKey(6)]);
    assert_eq!(table.status(7), Some(RunStatus::Queued));
    let step = table.finish(2, Ok(Ending::Completed)).unwrap();
    assert!(step_summary(&step).contains(&"start 6 from store".to_owned()));
}

/// Keeps what a run's agent needs to find its active work again.
fn keep(table: &mut Table, saved: &str) {
    let progress = Progress { kept: Some(Json::parse(saved.to_owned()).unwrap()), ..progress() };
    table.step(Command::Progress(progress)).unwrap();
}

#[test]
fn a_run_that_is_at_work_elsewhere_is_found_again_after_a_restart() {
    let mut table = Table::new();
    table.submit(1).unwrap();
    keep(&mut table, "\"there\"");
    table.step(Command::Drain).unwrap();
    let step =
        table.step(Command::Lose { runs: vec![RunKey(1)], failure: lost_failure() }).unwrap();
    assert_eq!(step_summary(&step), [""; 0]);
    table.state.draining = false;
    table.state.turn = None;
    let step = table
        .step(Command::Recover { restarted: true, failure: lost_failure(), checkpoint: None })
        .unwrap();
    assert_eq!(step_summary(&step)[1..], ["rejoin 1 with \"there\""]);
    assert_eq!(table.status(1), Some(RunStatus::Running));
    let step = table.finish(1, Ok(Ending::Completed)).unwrap();
    assert!(
        !step_summary(&step).iter().any(|word| word.starts_with("abandon")),
        "its agent has ended it"
    );
}

#[test]
fn an_answered_run_of_an_agent_elsewhere_is_found_again_before_that_agent_has_said_anything() {
    for native in [false, true] {
        let mut table = Table::new();
        table.submit_with(1, |submit| submit.native = native).unwrap();
        table.suspend(1, "asked").unwrap();
        table.answer("asked", Answer::Json(Json::null())).unwrap();
        table.state.turn = None;
        let step = table
            .step(Command::Recover { restarted: true, failure: lost_failure(), checkpoint: None })
            .unwrap();
        let expected = if native { "settled 1 failed" } else { "rejoin 1 with null" };
        assert!(step_summary(&step).contains(&expected.to_owned()), "{:?}", step_summary(&step));
    }
}

#[test]
fn an_agent_elsewhere_is_told_of_a_run_that_was_being_cancelled() {
    let mut table = Table::new();
    table.submit(1).unwrap();
    keep(&mut table, "\"there\"");
    table.cancel(1).unwrap();
    let step = table
        .step(Command::Recover { restarted: true, failure: lost_failure(), checkpoint: None })
        .unwrap();
    assert!(
        step_summary(&step).contains(&"abandon echo with \"there\"".to_owned()),
        "{:?}",
        step_summary(&step)
    );
}

#[test]
fn a_scheduled_run_waits_for_its_time() {
    let mut table = Table::new();
    let later = Timestamp::from_micros(1_000);
    let step = table.submit_with(1, |submit| submit.row.not_before = Some(later)).unwrap();
    assert_eq!(table.state.turn, None);
    assert!(
        step.changes
            .iter()
            .any(|change| matches!(change, Change::Offer(item) if item.due == later))
    );
    let step = table.step(Command::Due { run: RunKey(1) }).unwrap();
    assert_eq!(step_summary(&step), ["5 1.5 run.started", "start 1 from store"]);
}

#[test]
fn a_draining_thread_takes_nothing_new_and_starts_nothing() {
    let mut table = Table::new();
    table.submit(1).unwrap();
    table.submit(2).unwrap();
    table.step(Command::Drain).unwrap();
    assert_eq!(refusal_code(table.submit(3)), Code::ShuttingDown);
    let step = table.finish(1, Ok(Ending::Completed)).unwrap();
    assert_eq!(step_summary(&step), ["10 1.6 completed", "settled 1 completed"]);
    assert_eq!(table.status(2), Some(RunStatus::Queued));
}

#[test]
fn an_open_run_is_not_removed() {
    let mut table = Table::new();
    table.submit(1).unwrap();
    let remove = |run: i64| Command::RemoveRun {
        run: RunKey(run),
        id: RunId::parse("run-1").unwrap(),
        reason: "deleted",
    };
    assert_eq!(refusal_code(table.step(remove(1))), Code::RunNotEnded);
    table.finish(1, Ok(Ending::Completed)).unwrap();
    assert_eq!(step_summary(&table.step(remove(1)).unwrap()), ["7 - thread.run_removed"]);
}

#[test]
fn values_become_a_checkpoint() {
    let mut table = Table::new();
    table.submit(1).unwrap();
    let values = Json::parse("{\"n\":1}").unwrap();
    let progress = Progress { values: Some(values.clone()), ..progress() };
    table.step(Command::Progress(progress)).unwrap();
    let step = table.finish(1, Ok(Ending::Completed)).unwrap();
    let checkpoint = step.changes.iter().find_map(|change| match change {
        Change::Checkpoint(row) => row.value.clone(),
        _ => None,
    });
    assert_eq!(checkpoint, Some(values));
}

#[test]
fn a_brought_history_is_taken_at_the_head_it_was_compared_with() {
    let mut table = Table::new();
    table.submit(1).unwrap();
    table.finish(1, Ok(Ending::Completed)).unwrap();
    let replace = |expected, extends, key| {
        let given = ClientHistory { entries: Vec::new(), state: Some("http://example.com".into()) };
        let state = Some(Json::null());
        Command::Replace {
            replace: Box::new(Replace { expected, extends, given, state }),
            checkpoint: (CheckpointKey(key), CheckpointId::generate()),
        }
    };
    let stale = table.step(replace(None, true, 8)).unwrap();
    assert_eq!((step_summary(&stale).len(), stale.changes.len()), (0, 0));
    assert_eq!(stale.reply, Reply::HeadMoved);
    let head = table.state.thread.head;
    assert_eq!(head, Some(CheckpointKey(1)));
    for (expected, extends, key, parent) in
        [(head, true, 9, head), (Some(CheckpointKey(9)), false, 10, None)]
    {
        let step = table.step(replace(expected, extends, key)).unwrap();
        let events = step_summary(&step);
        assert_eq!(events.len(), 2, "{events:?}");
        assert!(events[1].ends_with("thread.head_moved"), "{events:?}");
        let [Change::Checkpoint(row), Change::Thread(thread)] = &step.changes[..] else {
            panic!("{:?}", step.changes)
        };
        assert_eq!((row.parent, row.run), (parent, None));
        assert_eq!((row.position, thread.head), (table.state.last, Some(row.key)));
        assert_eq!((&row.value, row.client_history.is_some()), (&Some(Json::null()), true));
        assert!(matches!(step.reply, Reply::Thread(_)));
    }
}
