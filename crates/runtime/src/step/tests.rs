//! Tests the owner's step as a table: a state, commands, and the resulting events, rows and effects.

mod agent_started;
mod answers;
mod in_flight;
mod thread;

use std::sync::Arc;
use std::time::Duration;

use trilogue_domain::interrupt::{Effect as OptionEffect, PermissionOption};
use trilogue_domain::{
    AgentName, Body, CheckpointId, CheckpointKey, Interrupt, InterruptKind, Message, Outcome, Part,
    PrincipalId, Rights, RunStatus, Strategy, Survives, TenantId, ThreadId, ThreadKey,
};
use trilogue_store::record::NoOriginals;
use trilogue_store::rows::{RunRow, ThreadRow};

use super::*;

/// A thread and a clock that ticks once for each command.
struct Table {
    state: ThreadState,
    now: i64,
    checkpoints: i64,
}

impl Table {
    fn new() -> Self {
        let thread = ThreadRow {
            owner_node: "node".to_owned(),
            ..ThreadRow::new(
                ThreadKey(1),
                ThreadId::parse("thread").unwrap(),
                TenantId::parse("tenant").unwrap(),
                PrincipalId::parse("alice").unwrap(),
                Timestamp::from_micros(0),
            )
        };
        Self { state: ThreadState::new(thread, 4), now: 0, checkpoints: 0 }
    }

    fn step(&mut self, command: Command) -> Result<Step> {
        self.now += 1;
        let before =
            (self.state.last, self.state.runs.len(), self.state.queue.clone(), self.state.turn);
        let result = step(&mut self.state, command, Timestamp::from_micros(self.now));
        if result.is_err() {
            let after =
                (self.state.last, self.state.runs.len(), self.state.queue.clone(), self.state.turn);
            assert_eq!(before, after, "a refused command changed the state");
        }
        result
    }

    fn submit(&mut self, run: i64) -> Result<Step> {
        self.submit_with(run, |_| {})
    }

    fn submit_with(&mut self, run: i64, change: impl FnOnce(&mut Submit)) -> Result<Step> {
        let message = Message {
            completed_at: None,
            ..Message::new(
                Role::User,
                vec![Part::text("hello")],
                Some(Timestamp::from_micros(self.now)),
            )
        };
        let mut submit = Submit {
            row: self.row(run),
            said: Vec::new(),
            input: Input::Messages(vec![message]),
            native: true,
            create_thread: false,
            claims_ids: false,
            strategy: Strategy::Enqueue,
            may_remove_of_others: false,
            when_waiting: WhenWaiting::Start,
            when_holding: WhenHolding::Refuse,
            idempotency: None,
            opening: None,
        };
        change(&mut submit);
        self.step(Command::Submit(Box::new(submit)))
    }

    fn row(&self, run: i64) -> RunRow {
        RunRow::new(
            RunKey(run),
            RunId::parse(&format!("run-{run}")).unwrap(),
            &self.state.thread,
            self.state.thread.owner.clone(),
            AgentName::parse("echo").unwrap(),
            Timestamp::from_micros(self.now),
        )
    }

    fn finish(&mut self, run: i64, ending: Result<Ending, Failure>) -> Result<Step> {
        self.checkpoints += 1;
        let checkpoint = Some((CheckpointKey(self.checkpoints), CheckpointId::generate()));
        self.step(Command::Finish { run: RunKey(run), ending, checkpoint })
    }

    fn suspend(&mut self, run: i64, id: &str) -> Result<Step> {
        let interrupt = Box::new(interrupt(id, InterruptKind::Form));
        self.finish(run, Ok(Ending::Suspended { interrupt, saved: Json::null() }))
    }

    fn raise(&mut self, run: i64, interrupt: Interrupt) -> Result<Step> {
        self.step(Command::Raise { run: RunKey(run), interrupt: Box::new(interrupt) })
    }

    fn answer(&mut self, id: &str, answer: Answer) -> Result<Step> {
        let to = AnswerTarget::Interrupt(InterruptId::parse(id).unwrap());
        self.step(Command::Answer {
            to,
            answer,
            extra: None,
            said: None,
            idempotency: None,
            by: principal(),
        })
    }

    fn cancel(&mut self, run: i64) -> Result<Step> {
        self.step(Command::Cancel { run: RunKey(run), reason: None, roll_back: false })
    }

    fn status(&self, run: i64) -> Option<RunStatus> {
        self.state.runs.get(&RunKey(run)).map(|state| state.row.status)
    }
}

/// Returns an empty progress of the first run.
fn progress() -> Progress {
    Progress {
        run: RunKey(1),
        draft: Draft::default(),
        begun: Vec::new(),
        messages: Vec::new(),
        aliases: Vec::new(),
        values: None,
        bound: None,
        title: None,
        kept: None,
        callback_events: CallbackEvents::default(),
    }
}

fn principal() -> Principal {
    Principal {
        tenant: TenantId::parse("tenant").unwrap(),
        id: PrincipalId::parse("alice").unwrap(),
        rights: Rights::all(),
        own: false,
    }
}

fn interrupt(id: &str, kind: InterruptKind) -> Interrupt {
    let option = |id: &str, effect| PermissionOption::once(id, id, effect);
    let options = match kind {
        InterruptKind::Permission => {
            vec![option("yes", OptionEffect::Allow), option("no", OptionEffect::Reject)]
        }
        _ => Vec::new(),
    };
    Interrupt {
        id: InterruptId::parse(id).unwrap(),
        payload: Json::empty_object(),
        options,
        patience: Some(Duration::from_secs(1)),
        ..Interrupt::new(kind)
    }
}

/// Describes the result of a step: events with their numbers, then effects.
fn step_summary(step: &Step) -> Vec<String> {
    let originals: Arc<dyn trilogue_domain::port::ReadOriginal> = Arc::new(NoOriginals);
    let mut words = Vec::new();
    for section in &step.sections {
        for frame in section.draft.clone().seal(
            ThreadKey(1),
            section.run,
            section.first,
            section.first_run,
            &originals,
        ) {
            for event in frame.events().unwrap() {
                words.push(match event.run {
                    Some(run) => {
                        format!("{} {run}.{} {}", event.number, event.run_number, name(&event.body))
                    }
                    None => format!("{} - {}", event.number, name(&event.body)),
                });
            }
        }
    }
    words.extend(step.effects.iter().map(|effect| match effect {
        Effect::Start { run, turn: StartTurn::Ready(turn) } => match turn.as_ref() {
            Turn::Start { .. } => format!("start {run}"),
            Turn::Resume { .. } => format!("resume {run}"),
            Turn::Rejoin { saved } => format!("rejoin {run} with {}", saved.as_str()),
        },
        Effect::Start { run, .. } => format!("start {run} from store"),
        Effect::Deliver { run, interrupt, .. } => format!("deliver {interrupt} to {run}"),
        Effect::Stop { run } => format!("stop {run}"),
        Effect::Abort { run } => format!("abort {run}"),
        Effect::Settled(row) => format!("settled {} {}", row.key, row.status.as_str()),
        Effect::Watch { interrupt, .. } => format!("watch {interrupt}"),
        Effect::Abandon { agent, saved } => format!("abandon {agent} with {}", saved.as_str()),
        Effect::AuditRollBack { removed, by, .. } => format!("audit {removed} for {}", by.id),
        Effect::Gone => "gone".to_owned(),
    }));
    words
}

fn name(body: &Body) -> String {
    match body {
        Body::Run(trilogue_domain::event::RunEvent::Ended(outcome)) => match outcome {
            Outcome::Completed => "completed".to_owned(),
            Outcome::Failed(failure) => format!("failed {}", failure.code),
            Outcome::Cancelled { reason: Some(reason) } => format!("cancelled {}", reason.as_str()),
            Outcome::Cancelled { reason: None } => "cancelled".to_owned(),
            Outcome::TimedOut { reason } => format!("timed out {}", reason.as_str()),
        },
        other => other.name().to_owned(),
    }
}

fn refusal_code(result: Result<Step>) -> Code {
    result.map(|step| step_summary(&step)).expect_err("the command was taken").code()
}

#[test]
fn a_run_takes_a_free_turn_and_its_completion_moves_the_head() {
    let mut table = Table::new();
    let step = table.submit(1).unwrap();
    assert_eq!(
        step_summary(&step),
        [
            "1 1.1 run.created",
            "2 1.2 message.started",
            "3 1.3 message.part",
            "4 1.4 message.completed",
            "5 1.5 run.started",
            "start 1",
        ]
    );
    assert!(step.new_work && !step.vital);
    let step = table.finish(1, Ok(Ending::Completed)).unwrap();
    assert_eq!(step_summary(&step), ["6 1.6 completed", "settled 1 completed"]);
    assert!(step.vital && !step.new_work);
    assert_eq!(table.state.thread.head, Some(CheckpointKey(1)));
    assert!(table.state.runs.is_empty());
    assert_eq!(table.state.turn, None);
}

#[test]
fn a_second_run_waits_and_is_based_on_the_head_of_its_turn() {
    let mut table = Table::new();
    table.submit(1).unwrap();
    table.submit(2).unwrap();
    assert_eq!(table.status(2), Some(RunStatus::Queued));
    let step = table.finish(1, Ok(Ending::Completed)).unwrap();
    assert_eq!(
        step_summary(&step),
        ["10 1.6 completed", "11 2.5 run.started", "settled 1 completed", "start 2"]
    );
    assert_eq!(table.state.runs[&RunKey(2)].row.base, Some(CheckpointKey(1)));
}

#[test]
fn a_failed_run_hangs_beside_the_path() {
    let mut table = Table::new();
    table.submit(1).unwrap();
    let failure = Failure::of(Code::AgentFailed, "no");
    let step = table.finish(1, Err(failure)).unwrap();
    assert_eq!(step_summary(&step), ["6 1.6 failed agent_failed", "settled 1 failed"]);
    assert_eq!(table.state.thread.head, None);
}

#[test]
fn strategies_decide_what_a_new_run_does_to_the_one_at_work() {
    let cases: [(Strategy, &[&str]); 3] = [
        (Strategy::Enqueue, &[]),
        (Strategy::Interrupt, &["10 1.6 run.cancelling", "stop 1"]),
        (Strategy::Rollback, &["10 1.6 run.cancelling", "audit run-1 for run-2", "stop 1"]),
    ];
    for (strategy, expected) in cases {
        let mut table = Table::new();
        table.submit(1).unwrap();
        let step = table.submit_with(2, |submit| submit.strategy = strategy).unwrap();
        let after: Vec<_> = step_summary(&step).into_iter().skip(4).collect();
        assert_eq!(after, expected, "{strategy:?}");
        let step = table.finish(1, Ok(Ending::Completed)).unwrap();
        let removed = step_summary(&step).iter().any(|word| word.ends_with("thread.run_removed"));
        assert_eq!(removed, strategy == Strategy::Rollback);
        assert_eq!(table.state.turn, Some(RunKey(2)), "{strategy:?}");
    }
    let mut table = Table::new();
    table.submit(1).unwrap();
    let rejected = table.submit_with(2, |submit| submit.strategy = Strategy::Reject);
    assert_eq!(refusal_code(rejected), Code::ThreadBusy);
}

#[test]
fn the_queue_of_a_thread_is_bounded() {
    let mut table = Table::new();
    for run in 1..=5 {
        table.submit(run).unwrap();
    }
    assert_eq!(refusal_code(table.submit(6)), Code::Overloaded);
}

#[test]
fn a_suspended_run_gives_up_the_turn_and_takes_it_again_in_order() {
    let mut table = Table::new();
    table.submit(1).unwrap();
    let step = table.suspend(1, "ask").unwrap();
    assert_eq!(step_summary(&step), ["6 1.6 interrupt.raised", "settled 1 interrupted"]);
    table.submit(2).unwrap();
    assert_eq!(table.state.turn, Some(RunKey(2)));
    let step = table.answer("ask", Answer::Json(Json::null())).unwrap();
    assert_eq!(step_summary(&step), ["12 1.7 interrupt.resolved"]);
    let step = table.finish(2, Ok(Ending::Completed)).unwrap();
    assert_eq!(
        step_summary(&step),
        ["13 2.6 completed", "14 1.8 run.resumed", "settled 2 completed", "resume 1"]
    );
    assert_eq!(table.state.runs[&RunKey(1)].row.base, Some(CheckpointKey(2)));
}

#[test]
fn a_waiting_run_is_started_beside_superseded_or_refuses() {
    let waiting = || {
        let mut table = Table::new();
        table.submit(1).unwrap();
        table.suspend(1, "ask").unwrap();
        table
    };
    let mut table = waiting();
    table.submit_with(2, |submit| submit.when_waiting = WhenWaiting::Start).unwrap();
    assert_eq!(table.status(1), Some(RunStatus::Interrupted));
    let mut table = waiting();
    let step = table.submit_with(2, |submit| submit.when_waiting = WhenWaiting::Supersede).unwrap();
    let after: Vec<_> = step_summary(&step).into_iter().skip(4).collect();
    assert_eq!(
        after,
        [
            "11 1.7 interrupt.resolved",
            "12 1.8 cancelled run_superseded",
            "13 2.5 run.started",
            "abandon echo with null",
            "settled 1 cancelled",
            "start 2",
        ]
    );
    let mut table = waiting();
    let result = table.submit_with(2, |submit| submit.when_waiting = WhenWaiting::Refuse);
    let error = result.map(|_| ()).unwrap_err();
    assert_eq!(error.code(), Code::ThreadWaiting);
    assert_eq!(error.pending_interrupt().map(InterruptId::as_str), Some("ask"));
}

#[test]
fn a_child_process_keeps_the_turn_while_it_asks() {
    let mut table = Table::new();
    table.submit_with(1, |submit| submit.native = false).unwrap();
    let step = table.raise(1, interrupt("ask", InterruptKind::Permission)).unwrap();
    assert_eq!(
        step_summary(&step),
        ["6 1.6 interrupt.raised", "watch ask", "settled 1 interrupted"]
    );
    assert_eq!(table.state.turn, Some(RunKey(1)));
    assert_eq!(refusal_code(table.submit(2)), Code::ThreadWaiting);
    let queued = table.submit_with(2, |submit| submit.when_holding = WhenHolding::Strategy);
    assert!(queued.is_ok());
    let step = table.answer("ask", Answer::Option("yes".to_owned())).unwrap();
    assert_eq!(
        step_summary(&step),
        ["11 1.7 interrupt.resolved", "12 1.8 run.resumed", "deliver ask to 1"]
    );
    assert_eq!(table.status(1), Some(RunStatus::Running));
}

#[test]
fn with_several_pending_the_run_waits_for_the_last() {
    let mut table = Table::new();
    table.submit_with(1, |submit| submit.native = false).unwrap();
    table.raise(1, interrupt("one", InterruptKind::Permission)).unwrap();
    table.raise(1, interrupt("two", InterruptKind::Permission)).unwrap();
    let step = table.answer("two", Answer::Option("no".to_owned())).unwrap();
    assert_eq!(step_summary(&step), ["8 1.8 interrupt.resolved", "deliver two to 1"]);
    assert_eq!(table.status(1), Some(RunStatus::Interrupted));
    table.answer("one", Answer::Option("no".to_owned())).unwrap();
    assert_eq!(table.status(1), Some(RunStatus::Running));
}

#[test]
fn cancelling_resolves_interrupts_first_then_stops_the_agent_then_ends_the_run() {
    let mut table = Table::new();
    table.submit(1).unwrap();
    table.raise(1, interrupt("ask", InterruptKind::Form)).unwrap();
    let step = table.cancel(1).unwrap();
    assert_eq!(
        step_summary(&step),
        ["7 1.7 interrupt.resolved", "8 1.8 run.cancelling", "deliver ask to 1", "stop 1"]
    );
    assert_eq!(step_summary(&table.cancel(1).unwrap()), Vec::<String>::new());
    let step = table.finish(1, Ok(Ending::Completed)).unwrap();
    assert_eq!(step_summary(&step), ["9 1.9 cancelled", "settled 1 cancelled"]);
    assert_eq!(refusal_code(table.cancel(1)), Code::RunEnded);
}

#[test]
fn a_queued_or_suspended_run_is_cancelled_at_once() {
    let mut table = Table::new();
    table.submit(1).unwrap();
    table.submit(2).unwrap();
    let step = table.cancel(2).unwrap();
    assert_eq!(step_summary(&step), ["10 2.5 cancelled", "settled 2 cancelled"]);
    table.suspend(1, "ask").unwrap();
    let step = table.cancel(1).unwrap();
    assert_eq!(
        step_summary(&step),
        [
            "12 1.7 interrupt.resolved",
            "13 1.8 cancelled",
            "abandon echo with null",
            "settled 1 cancelled"
        ]
    );
}

#[test]
fn an_agent_that_goes_on_without_its_answer_completes() {
    let mut table = Table::new();
    table.submit(1).unwrap();
    table.raise(1, interrupt("ask", InterruptKind::Form)).unwrap();
    let step = table.finish(1, Ok(Ending::Completed)).unwrap();
    assert_eq!(
        step_summary(&step),
        ["7 1.7 interrupt.resolved", "8 1.8 completed", "settled 1 completed"]
    );
}
