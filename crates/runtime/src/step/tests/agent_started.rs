//! Tests runs that an agent starts, and a turn whose agent had answered before a restart.

use trilogue_store::rows::{BindingRow, CheckpointRow};

use super::*;

fn agent_starts(table: &mut Table, run: i64, last_seen: Option<i64>) -> Result<Step> {
    table.checkpoints += 1;
    let checkpoint = (CheckpointKey(table.checkpoints), CheckpointId::generate());
    let binding = BindingRow {
        thread: ThreadKey(1),
        agent: AgentName::parse("echo").unwrap(),
        remote: "s".to_owned(),
        capabilities: Json::empty_object(),
        last_seen: last_seen.map(CheckpointKey),
    };
    let opening = AgentRunOpening { checkpoint, binding: Some(binding) };
    table.submit_with(run, |submit| {
        submit.native = false;
        submit.input = Input::Messages(Vec::new());
        submit.opening = Some(Box::new(opening));
    })
}

fn checkpoints(step: &Step) -> Vec<&CheckpointRow> {
    let rows = step.changes.iter().filter_map(|change| match change {
        Change::Checkpoint(row) => Some(row),
        _ => None,
    });
    rows.collect()
}

fn seen(step: &Step) -> Option<CheckpointKey> {
    step.changes.iter().find_map(|change| match change {
        Change::Binding(row) => row.last_seen,
        _ => None,
    })
}

#[test]
fn a_run_that_its_agent_starts_is_in_the_history_from_its_beginning() {
    let mut table = Table::new();
    table.submit(1).unwrap();
    table.finish(1, Ok(Ending::Completed)).unwrap();
    let before = table.state.thread.head;
    let step = agent_starts(&mut table, 2, Some(1)).unwrap();
    assert_eq!(step_summary(&step).last().unwrap(), "start 2");
    let head = table.state.thread.head;
    assert_eq!(
        (checkpoints(&step)[0].run, checkpoints(&step)[0].parent),
        (Some(RunKey(2)), before)
    );
    assert_eq!((head, seen(&step)), (Some(CheckpointKey(2)), head));
    // Its end moves nothing: only the position is written again.
    let step = table.finish(2, Ok(Ending::Completed)).unwrap();
    assert_eq!(table.state.thread.head, head);
    assert_eq!(checkpoints(&step)[0].position, table.state.last);
    assert_eq!((checkpoints(&step).len(), seen(&step)), (1, None));
}

#[test]
fn an_agent_that_has_missed_another_run_is_still_told_of_it() {
    let mut table = Table::new();
    table.submit(1).unwrap();
    table.finish(1, Ok(Ending::Completed)).unwrap();
    let step = agent_starts(&mut table, 2, None).unwrap();
    assert_eq!(seen(&step), None);
}

#[test]
fn a_run_that_its_agent_starts_never_waits_for_its_turn() {
    let mut table = Table::new();
    table.submit(1).unwrap();
    let refused = agent_starts(&mut table, 2, None).unwrap_err();
    assert_eq!(refused.code(), Code::ThreadBusy);
    table.finish(1, Ok(Ending::Completed)).unwrap();
    // A scheduled run keeps nothing from starting.
    table
        .submit_with(3, |submit| submit.row.not_before = Some(Timestamp::from_micros(i64::MAX)))
        .unwrap();
    agent_starts(&mut table, 2, None).unwrap();
    assert_eq!(table.status(2), Some(RunStatus::Running));
}

#[test]
fn a_turn_whose_agent_had_answered_is_complete_after_a_restart() {
    let mut table = Table::new();
    table.submit_with(1, |submit| submit.native = false).unwrap();
    let state = table.state.runs.get_mut(&RunKey(1)).unwrap();
    (state.is_answered, state.restored) = (true, true);
    let checkpoint = Some((CheckpointKey(9), CheckpointId::generate()));
    let recover = Command::Recover { restarted: true, failure: lost_failure(), checkpoint };
    let step = table.step(recover).unwrap();
    assert!(step_summary(&step).iter().any(|line| line.ends_with("completed")), "{step:?}");
    assert_eq!(table.state.thread.head, Some(CheckpointKey(9)));
}
