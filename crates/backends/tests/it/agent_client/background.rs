//! What an agent does while no prompt is open belongs to a run that the agent started.

use std::time::Duration;

use serde_json::{Value, json};
use trilogue_backends::permission::{Rule, RuleText, Rules, Verdict};
use trilogue_domain::event::{MessageEvent, StateEvent, ToolEvent, ToolStatus};
use trilogue_domain::{
    Answer, Body, Code, Json, MessageId, Outcome, RunStatus, StartedBy, ThreadId,
};
use trilogue_runtime::{AnswerTo, NewThread, Options, StateContent, ThreadPatch};
use trilogue_store::rows::{Page, RunFilter, RunRow};

use super::rig::{HEARD, Rig, settle, until, until_async};
use crate::harness::failure;

/// A time after which no test waits for the agent to be quiet.
pub(super) const NEVER_QUIET: Duration = Duration::from_secs(3_600);

/// An update that the agent sends after its answer, as soon as the file exists.
pub(super) fn once(rig: &Rig, file: &str, update: &Value) -> String {
    format!("once:{}:{update}", rig.path(file).display())
}

fn chunk(text: &str) -> Value {
    json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": text } })
}

fn state(state: &str) -> Value {
    json!({ "sessionUpdate": "state_update", "state": state })
}

fn permission() -> Value {
    json!({ "call": "session/request_permission", "params": {
        "toolCall": { "toolCallId": "t1", "title": "Read a file", "kind": "read" },
        "options": [
            { "optionId": "yes", "name": "Allow", "kind": "allow_once" },
            { "optionId": "no", "name": "Reject", "kind": "reject_once" },
        ],
    }})
}

pub(super) fn go(rig: &Rig, file: &str) {
    std::fs::write(rig.path(file), "").unwrap();
}

/// The runs of the usual thread, oldest first.
async fn runs(rig: &Rig) -> Vec<RunRow> {
    let filter = RunFilter { thread: Some(rig.thread.clone()), ..RunFilter::default() };
    let page = Page { limit: 100, ..Page::default() };
    let mut rows = rig.store.runs(&rig.by.scope(), &filter, &page).await.unwrap().rows;
    rows.reverse();
    rows
}

/// Waits for the run with this number that the agent started, in this status.
pub(super) async fn background_run(rig: &Rig, number: usize, status: RunStatus) -> RunRow {
    let mut found = None;
    until_async("a run of the agent", async || {
        let all = runs(rig).await.into_iter().filter(|run| run.started_by.is_some());
        found = all.into_iter().nth(number).filter(|run| run.status == status);
        found.is_some()
    })
    .await;
    found.unwrap()
}

pub(super) async fn wait_for_text(rig: &Rig, run: &RunRow, text: &str) {
    until_async(text, async || rig.reply_text(run).await.contains(text)).await;
}

/// The texts of the usual thread's messages, as its history has them.
async fn history(rig: &Rig) -> Vec<String> {
    history_of(rig, &rig.thread).await
}

async fn history_of(rig: &Rig, thread: &ThreadId) -> Vec<String> {
    let row = rig.store.thread(&rig.by.scope(), thread).await.unwrap().unwrap();
    let state = rig.runtime.state_within(&row, None, 1 << 20).await.unwrap();
    match state {
        Some(StateContent::Messages(messages)) => messages.iter().map(|one| one.text()).collect(),
        other => panic!("{other:?}"),
    }
}

fn count_heard(rig: &Rig, what: &str) -> usize {
    std::fs::read_to_string(rig.path(HEARD)).unwrap().matches(what).count()
}

#[tokio::test]
async fn words_after_the_answer_are_a_run_that_ends_when_the_agent_is_quiet() {
    let rig = Rig::with(&[], |launch| launch.background_quiet = Duration::from_millis(200)).await;
    let (text, more) = (chunk("the build "), chunk("is green"));
    let lines = ["say:started".to_owned(), once(&rig, "go", &text), once(&rig, "go", &more)];
    let first = rig.run(&rig.thread, &lines.join("\n")).await;
    assert_eq!(rig.reply_text(&first).await, "started");
    go(&rig, "go");
    let run = background_run(&rig, 0, RunStatus::Completed).await;
    assert_eq!(run.started_by, Some(StartedBy::Agent));
    assert_eq!(
        (run.principal.clone(), run.outcome.clone()),
        (first.principal, Some(Outcome::Completed))
    );
    assert_eq!(rig.reply_text(&run).await, "the build is green");
    // The next prompt comes after it in the history, and the agent is not told what it has said itself.
    let next = rig.run(&rig.thread, "prompt").await;
    let prompt = rig.reply_text(&next).await;
    assert!(!prompt.contains("the build"), "{prompt}");
    let history = history(&rig).await;
    assert_eq!(history[1..3], ["started", "the build is green"]);
    assert_eq!((&*history[3], history.len()), ("prompt", 5));
    rig.end().await;
}

#[tokio::test]
async fn the_history_has_a_message_that_is_still_open() {
    let rig = Rig::with(&[], |launch| launch.background_quiet = NEVER_QUIET).await;
    let mut said = chunk("half of it");
    said["messageId"] = json!("theirs");
    rig.run(&rig.thread, &once(&rig, "go", &said)).await;
    go(&rig, "go");
    let run = background_run(&rig, 0, RunStatus::Running).await;
    wait_for_text(&rig, &run, "half of it").await;
    assert_eq!(history(&rig).await.last().unwrap(), "half of it");
    let row = rig.store.thread(&rig.by.scope(), &rig.thread).await.unwrap().unwrap();
    let id = MessageId::parse("theirs").unwrap();
    assert_eq!(rig.store.message_in(row.key, &id).await.unwrap().unwrap().run, run.key);
    rig.end().await;
}

#[tokio::test]
async fn a_message_of_the_answer_that_goes_on_later_gets_an_id_of_its_own() {
    let rig = Rig::with(&[], |launch| launch.background_quiet = Duration::from_millis(200)).await;
    let with_id = |text: &str| {
        let mut said = chunk(text);
        said["messageId"] = json!("m");
        said
    };
    let more = once(&rig, "go", &with_id(" and more"));
    let first = rig.run(&rig.thread, &format!("raw:{}\n{more}", with_id("said"))).await;
    assert_eq!(rig.started_message_ids(&first).await, ["m"]);
    go(&rig, "go");
    let run = background_run(&rig, 0, RunStatus::Completed).await;
    assert_eq!(rig.reply_text(&run).await, " and more");
    assert_ne!(rig.started_message_ids(&run).await, ["m"]);
    rig.end().await;
}

#[tokio::test]
async fn the_next_prompt_does_not_wait_until_the_agent_is_quiet() {
    let rig = Rig::with(&[], |launch| launch.background_quiet = NEVER_QUIET).await;
    rig.run(&rig.thread, &once(&rig, "go", &chunk("on its own"))).await;
    go(&rig, "go");
    let run = background_run(&rig, 0, RunStatus::Running).await;
    wait_for_text(&rig, &run, "on its own").await;
    let next = rig.run(&rig.thread, "say:next").await;
    assert_eq!((next.status, &*rig.reply_text(&next).await), (RunStatus::Completed, "next"));
    let run = background_run(&rig, 0, RunStatus::Completed).await;
    let completed = rig
        .events(&run)
        .await
        .into_iter()
        .filter(|event| matches!(event.body, Body::Message(MessageEvent::Completed { .. })));
    assert_eq!(completed.count(), 1);
    let texts = history(&rig).await;
    assert_eq!(texts[texts.len() - 3..], ["on its own", "say:next", "next"]);
    rig.end().await;
}

#[tokio::test]
async fn a_question_outside_of_a_prompt_is_asked_and_answered() {
    let rig = Rig::with(&[], |launch| launch.background_quiet = NEVER_QUIET).await;
    rig.run(&rig.thread, &once(&rig, "go", &permission())).await;
    go(&rig, "go");
    let run = background_run(&rig, 0, RunStatus::Interrupted).await;
    let interrupt = rig.pending(&run).await;
    let to = trilogue_runtime::AnswerTo::Interrupt(interrupt.id);
    rig.runtime.answer(&rig.by, to, Answer::Option("yes".into())).await.unwrap();
    wait_for_text(&rig, &run, "\"yes\"").await;
    rig.end().await;
}

#[tokio::test]
async fn a_rule_decides_a_question_outside_of_a_prompt() {
    let rule = Rule::new(RuleText {
        name: "no reads".to_owned(),
        kinds: Some(vec!["read".to_owned()]),
        tool: None,
        path: None,
        verdict: Verdict::Deny,
    })
    .unwrap();
    let rig = Rig::with_rules(&[], Rules::new(vec![rule]).unwrap(), |launch| {
        launch.background_quiet = Duration::from_millis(200);
    })
    .await;
    rig.run(&rig.thread, &once(&rig, "go", &permission())).await;
    go(&rig, "go");
    let run = background_run(&rig, 0, RunStatus::Completed).await;
    assert!(rig.reply_text(&run).await.contains("\"no\""));
    rig.end().await;
}

#[tokio::test]
async fn an_open_question_moves_to_the_next_prompt_and_can_be_answered_there() {
    let rig = Rig::with(&[], |launch| launch.background_quiet = NEVER_QUIET).await;
    rig.run(&rig.thread, &once(&rig, "go", &permission())).await;
    go(&rig, "go");
    background_run(&rig, 0, RunStatus::Interrupted).await;
    let next = rig.begin(&rig.thread, "slow").await.run;
    let mut pending = None;
    until_async("the question in the prompt's run", async || {
        let filter = trilogue_store::rows::InterruptFilter {
            run: Some(next.id.clone()),
            pending: true,
            thread: None,
        };
        let found = rig.store.interrupts(&rig.by.scope(), &filter, &Page::default()).await.unwrap();
        pending = found.rows.into_iter().next();
        pending.is_some()
    })
    .await;
    let to = trilogue_runtime::AnswerTo::Interrupt(pending.unwrap().interrupt.id);
    rig.runtime.answer(&rig.by, to, Answer::Option("yes".into())).await.unwrap();
    wait_for_text(&rig, &next, "\"yes\"").await;
    rig.cancel(&next).await;
    rig.end().await;
}

#[tokio::test]
async fn cancelling_reaches_the_agent_and_ends_the_run() {
    let rig = Rig::with(&[], |launch| launch.background_quiet = NEVER_QUIET).await;
    rig.run(&rig.thread, &once(&rig, "go", &chunk("on its own"))).await;
    go(&rig, "go");
    let run = background_run(&rig, 0, RunStatus::Running).await;
    wait_for_text(&rig, &run, "on its own").await;
    let ended = rig.cancel(&run).await;
    assert_eq!(ended.status, RunStatus::Cancelled);
    until("the agent was asked to cancel", || count_heard(&rig, "session/cancel") == 1).await;
    // A prompt right after a cancellation is not cancelled with it.
    let next = rig.run(&rig.thread, "say:next").await;
    assert_eq!(next.status, RunStatus::Completed);
    rig.end().await;
}

#[tokio::test]
async fn what_an_agent_reports_of_its_cancellation_belongs_to_the_cancelled_run() {
    let rig = Rig::with(&[], |launch| launch.background_quiet = NEVER_QUIET).await;
    let call = json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "title": "Build" });
    let end = json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "failed" });
    let lines = [once(&rig, "go", &call), once(&rig, "stopped", &end)];
    rig.run(&rig.thread, &lines.join("\n")).await;
    go(&rig, "go");
    let run = background_run(&rig, 0, RunStatus::Running).await;
    // The agent has been quiet for longer than a cancellation waits.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(2)).await;
    tokio::time::resume();
    let cancelling = rig.cancel(&run);
    let reporting = async {
        until("the agent was asked to cancel", || count_heard(&rig, "session/cancel") == 1).await;
        go(&rig, "stopped");
    };
    let (ended, ()) = tokio::join!(cancelling, reporting);
    assert_eq!(ended.status, RunStatus::Cancelled);
    assert_eq!(runs(&rig).await.iter().filter(|run| run.started_by.is_some()).count(), 1);
    rig.end().await;
}

#[tokio::test]
async fn a_cancelled_run_whose_agent_does_not_stop_ends_after_the_grace() {
    let rig = Rig::with(&[], |launch| {
        launch.background_quiet = Duration::from_millis(1);
        launch.cancel_grace = Some(Duration::from_millis(300));
    })
    .await;
    // A call that stays open: the agent is never quiet.
    let call = json!({
        "sessionUpdate": "tool_call", "toolCallId": "c", "title": "Build", "status": "in_progress",
    });
    rig.run(&rig.thread, &once(&rig, "go", &call)).await;
    go(&rig, "go");
    let run = background_run(&rig, 0, RunStatus::Running).await;
    let began = std::time::Instant::now();
    let ended = rig.cancel(&run).await;
    assert_eq!(ended.status, RunStatus::Cancelled);
    assert!(began.elapsed() >= Duration::from_millis(300), "{:?}", began.elapsed());
    // The call has failed for clients of every protocol.
    let is_end = |body: &Body| {
        matches!(body, Body::Tool(ToolEvent::Ended { status: ToolStatus::Failed, .. }))
    };
    assert!(rig.events(&run).await.iter().any(|event| is_end(&event.body)));
    assert_eq!(rig.run(&rig.thread, "say:next").await.status, RunStatus::Completed);
    rig.end().await;
}

#[tokio::test]
async fn late_output_belongs_to_the_answer_and_idle_ends_the_wait() {
    let rig = Rig::with(&["--ids", "none"], |launch| launch.answer_settle = NEVER_QUIET).await;
    let late = [once(&rig, "go", &chunk(" and late")), once(&rig, "go", &state("idle"))];
    go(&rig, "go");
    let run = rig.run(&rig.thread, &format!("say:in time\n{}", late.join("\n"))).await;
    assert_eq!(run.status, RunStatus::Completed);
    assert_eq!(rig.reply_text(&run).await, "in time and late");
    assert_eq!(runs(&rig).await.len(), 1);
    rig.end().await;
}

#[tokio::test]
async fn the_next_prompt_does_not_wait_for_late_output() {
    let rig = Rig::with(&[], |launch| launch.answer_settle = NEVER_QUIET).await;
    let first = rig.begin(&rig.thread, "say:one").await;
    until_async("the answer", async || rig.custom(&first.run, "turn_result").await.len() == 1)
        .await;
    // The answer is in the log; the run waits for late output.
    let second = rig.begin(&rig.thread, "say:two").await;
    let first = settle(first).await;
    assert_eq!((first.status, &*rig.reply_text(&first).await), (RunStatus::Completed, "one"));
    until_async("the second answer", async || {
        rig.custom(&second.run, "turn_result").await.len() == 1
    })
    .await;
    // A cancellation comes too late for a turn that has its answer.
    let refused = rig.runtime.cancel(&rig.by, &second.run.id).await.unwrap_err();
    assert_eq!(refused.code(), trilogue_domain::Code::RunEnded);
    assert_eq!(settle(second).await.status, RunStatus::Completed);
    rig.end().await;
}

#[tokio::test]
async fn a_question_after_the_answer_is_asked_in_the_next_run_only() {
    let rig = Rig::with(&[], |launch| launch.answer_settle = NEVER_QUIET).await;
    let first =
        rig.begin(&rig.thread, &format!("say:one\n{}", once(&rig, "go", &permission()))).await;
    until_async("the answer", async || rig.custom(&first.run, "turn_result").await.len() == 1)
        .await;
    go(&rig, "go");
    // The question ends the wait for late output. Who waits for the answered run is not asked.
    let first = settle(first).await;
    assert_eq!((first.status, &*rig.reply_text(&first).await), (RunStatus::Completed, "one"));
    let events = rig.events(&first).await;
    assert!(!events.iter().any(|event| matches!(event.body, Body::Interrupt(_))), "{events:?}");
    let run = background_run(&rig, 0, RunStatus::Interrupted).await;
    let asked = AnswerTo::Interrupt(rig.pending(&run).await.id);
    rig.runtime.answer(&rig.by, asked, Answer::Option("yes".to_owned())).await.unwrap();
    wait_for_text(&rig, &run, "\"yes\"").await;
    rig.end().await;
}

#[tokio::test]
async fn a_copy_after_the_answer_has_its_late_output() {
    let rig = Rig::with(&["--ids", "none"], |launch| launch.answer_settle = NEVER_QUIET).await;
    let late = [once(&rig, "go", &chunk(" and late")), once(&rig, "go", &state("idle"))];
    let first = rig.begin(&rig.thread, &format!("say:in time\n{}", late.join("\n"))).await;
    until_async("the answer", async || rig.custom(&first.run, "turn_result").await.len() == 1)
        .await;
    let copy = rig.runtime.copy_thread(&rig.by, &rig.thread, NewThread::default());
    let (copy, ()) = tokio::join!(copy, async { go(&rig, "go") });
    assert_eq!(history_of(&rig, &copy.unwrap().id).await[1], "in time and late");
    assert_eq!(rig.reply_text(&settle(first).await).await, "in time and late");
    assert_eq!(runs(&rig).await.len(), 1);
    rig.end().await;
}

#[tokio::test]
async fn a_thread_that_is_erased_while_a_copy_waits_is_not_copied() {
    let rig = Rig::with(&[], |launch| launch.answer_settle = NEVER_QUIET).await;
    let first = rig.begin(&rig.thread, "say:secret").await;
    until_async("the answer", async || rig.custom(&first.run, "turn_result").await.len() == 1)
        .await;
    let copy = rig.runtime.copy_thread(&rig.by, &rig.thread, NewThread::default());
    let erase = rig.runtime.erase_thread(&rig.by, &rig.thread);
    let (copy, erased) = tokio::join!(copy, erase);
    erased.unwrap();
    assert_eq!(copy.unwrap_err().code(), Code::ThreadNotFound);
    drop(first);
    rig.end().await;
}

#[tokio::test]
async fn a_stop_of_the_server_does_not_wait_for_work_that_an_agent_has_started() {
    let rig = Rig::with(&[], |launch| launch.background_quiet = NEVER_QUIET).await;
    rig.run(&rig.thread, &once(&rig, "go", &chunk("on its own"))).await;
    go(&rig, "go");
    let run = background_run(&rig, 0, RunStatus::Running).await;
    wait_for_text(&rig, &run, "on its own").await;
    let began = std::time::Instant::now();
    let report = rig.runtime.drain(NEVER_QUIET).await;
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!(report.abandoned, std::slice::from_ref(&run.id));
    assert_eq!(&*failure(&background_run(&rig, 0, RunStatus::Failed).await).code, "agent_lost");
    rig.end().await;
}

#[tokio::test]
async fn many_reports_in_a_row_start_few_runs_and_lose_nothing() {
    let rig = Rig::with(&["--ids", "none"], |_| {}).await;
    let mut lines = Vec::new();
    for number in 0..50 {
        lines.push(once(&rig, "go", &chunk(&format!("<{number}>"))));
        lines.push(once(&rig, "go", &state("idle")));
    }
    rig.run(&rig.thread, &lines.join("\n")).await;
    go(&rig, "go");
    let mut texts = String::new();
    until_async("all reports", async || {
        texts.clear();
        for run in runs(&rig).await.iter().filter(|run| run.started_by.is_some()) {
            texts.push_str(&rig.reply_text(run).await.replace('\n', ""));
        }
        texts.contains("<49>")
    })
    .await;
    let expected: String = (0..50).map(|number| format!("<{number}>")).collect();
    assert_eq!(texts, expected);
    let count = runs(&rig).await.len();
    assert!(count < 50, "{count}");
    rig.end().await;
}

#[tokio::test]
async fn work_waits_for_room_among_the_runs_of_its_principal() {
    let options = Options { max_open_runs_per_principal: 1, ..Options::default() };
    let rig = Rig::with_options(&[], Rules::default(), options, |launch| {
        launch.background_quiet = NEVER_QUIET;
    })
    .await;
    rig.run(&rig.thread, &once(&rig, "go", &chunk("on its own"))).await;
    let other = rig.thread().await;
    let blocking = rig.begin(&other, "slow").await.run;
    go(&rig, "go");
    assert_eq!(runs(&rig).await.len(), 1);
    rig.cancel(&blocking).await;
    let run = background_run(&rig, 0, RunStatus::Running).await;
    wait_for_text(&rig, &run, "on its own").await;
    rig.end().await;
}

#[tokio::test]
async fn work_outside_of_a_prompt_needs_no_place_among_the_runs_at_work() {
    for options in [
        Options { max_running_per_principal: Some(1), ..Options::default() },
        Options { max_running: 1, ..Options::default() },
    ] {
        let rig = Rig::with_options(&[], Rules::default(), options, |launch| {
            launch.background_quiet = NEVER_QUIET;
        })
        .await;
        rig.run(&rig.thread, &once(&rig, "go", &permission())).await;
        // This run has the only place, and keeps it.
        let blocking = rig.begin(&rig.thread().await, "slow").await.run;
        go(&rig, "go");
        let run = background_run(&rig, 0, RunStatus::Interrupted).await;
        let to = AnswerTo::Run(run.id.clone());
        rig.runtime.answer(&rig.by, to, Answer::Option("yes".into())).await.unwrap();
        wait_for_text(&rig, &run, "told: ").await;
        rig.cancel(&blocking).await;
        rig.end().await;
    }
}

#[tokio::test]
async fn the_run_of_an_agent_that_dies_fails_once() {
    let rig = Rig::with(&[], |launch| launch.background_quiet = NEVER_QUIET).await;
    rig.run(&rig.thread, &once(&rig, "go", &chunk("on its own"))).await;
    go(&rig, "go");
    let run = background_run(&rig, 0, RunStatus::Running).await;
    wait_for_text(&rig, &run, "on its own").await;
    rig.children.close().await;
    let ended = rig.wait_until_settled(&run).await;
    assert_eq!(ended.status, RunStatus::Failed);
    assert_eq!(runs(&rig).await.iter().filter(|run| run.started_by.is_some()).count(), 1);
}

#[tokio::test]
async fn an_agent_that_sends_updates_is_not_idle_and_its_stop_is_an_event() {
    let rig = Rig::with(&[], |launch| {
        launch.background_quiet = Duration::from_millis(1);
        launch.idle_stop = Some(Duration::from_millis(200));
    })
    .await;
    rig.run(&rig.thread, "say:hello").await;
    until_async("the stop of the idle agent", async || {
        rig.log(&rig.thread).await.iter().any(|event| {
            matches!(&event.body, Body::State(StateEvent::Custom { kind, .. }) if kind == "agent_stopped")
        })
    })
    .await;
    rig.end().await;
}

#[tokio::test]
async fn an_agent_is_idle_from_its_last_sign_of_work() {
    const IDLE_STOP: Duration = Duration::from_millis(600);
    let rig = Rig::with(&[], |launch| {
        launch.background_quiet = Duration::from_millis(1);
        launch.idle_stop = Some(IDLE_STOP);
    })
    .await;
    let title = json!({ "sessionUpdate": "session_info_update", "title": "Late" });
    rig.run(&rig.thread, &once(&rig, "go", &title)).await;
    let answered = std::time::Instant::now();
    until("half of the time", || answered.elapsed() > IDLE_STOP / 2).await;
    go(&rig, "go");
    let mut times = [None, None];
    until_async("the stop of the idle agent", async || {
        for event in rig.log(&rig.thread).await {
            let text = format!("{:?}", event.body);
            let place = if text.contains("agent_stopped") { 1 } else { 0 };
            if place == 1 || text.contains("Late") && event.run.is_none() {
                times[place] = Some(event.at);
            }
        }
        times[1].is_some()
    })
    .await;
    let [Some(sign), Some(stop)] = times else { panic!("{times:?}") };
    // The clock of events has milliseconds.
    assert!(stop >= sign.after(IDLE_STOP - Duration::from_millis(2)), "{sign:?} {stop:?}");
    rig.end().await;
}

#[tokio::test]
async fn a_copy_has_no_run_that_is_still_open() {
    let rig = Rig::with(&[], |launch| launch.background_quiet = NEVER_QUIET).await;
    let mut said = chunk("half of it");
    said["messageId"] = json!("theirs");
    rig.run(&rig.thread, &format!("say:started\n{}", once(&rig, "go", &said))).await;
    let before = history(&rig).await;
    go(&rig, "go");
    let run = background_run(&rig, 0, RunStatus::Running).await;
    wait_for_text(&rig, &run, "half of it").await;
    let new = NewThread::default;
    let copy = rig.runtime.copy_thread(&rig.by, &rig.thread, new()).await.unwrap();
    assert_eq!(history_of(&rig, &copy.id).await, before);
    // A state that a client sets meanwhile comes after the open run, and is copied.
    let patch = ThreadPatch {
        values: Some(Json::from_value(&json!({ "n": 1 }))),
        ..ThreadPatch::default()
    };
    rig.runtime.patch_thread(&rig.by, &rig.thread, patch).await.unwrap();
    let copy = rig.runtime.copy_thread(&rig.by, &rig.thread, new()).await.unwrap();
    let path = rig.store.path(&rig.by.scope(), &copy.id, None, 100).await.unwrap();
    assert_eq!(path.len(), 2, "{path:?}");
    assert_eq!(path[1].parent, None);
    // No place in the open run is in the history that can be copied.
    let message = MessageId::parse("theirs").unwrap();
    let until = rig.runtime.copy_thread_until(&rig.by, &rig.thread, &message, new()).await;
    assert_eq!(until.unwrap_err().code(), Code::NotFound);
    for event in rig.events(&run).await {
        let until =
            rig.runtime.copy_thread_until_event(&rig.by, &rig.thread, event.number, new()).await;
        assert_eq!(until.unwrap_err().code(), Code::NotFound, "{event:?}");
    }
    // When the run has ended, it is copied too.
    rig.run(&rig.thread, "say:next").await;
    let copy = rig.runtime.copy_thread(&rig.by, &rig.thread, new()).await.unwrap();
    let filter = RunFilter { thread: Some(copy.id), ..RunFilter::default() };
    let copied = rig.store.runs(&rig.by.scope(), &filter, &Page::default()).await.unwrap().rows;
    assert_eq!(copied.len(), 3);
    assert!(copied.iter().all(|run| run.status == RunStatus::Completed), "{copied:?}");
    assert_eq!(copied[1].started_by, Some(StartedBy::Agent));
    rig.end().await;
}

/// A copy that ended in the middle of a message or a call would have half of it.
#[tokio::test]
async fn a_history_is_copied_only_up_to_where_something_ends() {
    let rig = Rig::new(&[]).await;
    let run = rig.run(&rig.thread, "chunks:3\ntool").await;
    let mut places = Vec::new();
    for event in rig.events(&run).await {
        let copied = rig.runtime.copy_thread_until_event(
            &rig.by,
            &rig.thread,
            event.number,
            NewThread::default(),
        );
        match copied.await {
            Ok(_) => places.push(event.body.name().to_owned()),
            Err(error) => assert_eq!(error.code(), Code::NotFound, "{event:?}"),
        }
    }
    places.retain(|name| name != "state.custom");
    assert_eq!(places, ["message.completed", "tool.ended", "message.completed"]);
    rig.end().await;
}
