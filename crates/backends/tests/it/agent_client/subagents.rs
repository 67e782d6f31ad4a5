//! Sub-agents: each is a thread of its own, with runs that its agent starts.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use trilogue_backends::agent_client::ClientTools;
use trilogue_backends::permission::Rules;
use trilogue_domain::event::{MessageEvent, StateEvent, Subagent, SubagentState};
use trilogue_domain::port::SystemClock;
use trilogue_domain::{Answer, Body, Code, Interrupt, Outcome, RunStatus, StartedBy, ThreadId};
use trilogue_mapping::agent_client::OriginalReader;
use trilogue_runtime::{
    AnswerTo, Backend, NewThread, Options, Runtime, StateContent, ThreadChoice,
};
use trilogue_store::rows::{InterruptFilter, Page, RunFilter, RunRow, ThreadRow};

use super::rig::{HEARD, Rig, caller, json as parsed_json, until, until_async};
use crate::harness::{failure, new_run, user_input};

pub(super) fn announce(id: &str, state: &Value, cancel: bool) -> String {
    let capabilities = if cancel { json!({ "cancel": {} }) } else { Value::Null };
    let update = json!({
        "sessionUpdate": "subagent_update", "sessionId": id, "title": format!("Agent {id}"),
        "description": "Reads the files", "capabilities": capabilities, "state": state,
    });
    format!("raw:{update}")
}

pub(super) fn running() -> Value {
    json!({ "state": "running" })
}

fn idle(reason: &str) -> Value {
    json!({ "state": "idle", "stopReason": reason })
}

fn report(id: &str, state: &Value) -> String {
    let update = json!({ "sessionUpdate": "subagent_update", "sessionId": id, "state": state });
    format!("raw:{update}")
}

pub(super) fn within(id: &str, update: &Value) -> String {
    format!("subagent:{id}:{update}")
}

fn chunk(text: &str) -> Value {
    json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": text } })
}

/// A message of the parent to a sub-agent, as the sub-agent's session has it.
fn message(to: &str, text: &str) -> Value {
    json!({
        "sessionUpdate": "session_message", "messageId": "m1", "recipientSessionId": to,
        "content": [{ "type": "text", "text": text }],
    })
}

pub(super) fn wait(rig: &Rig, file: &str) -> String {
    format!("wait:{}", rig.path(file).display())
}

pub(super) fn once(rig: &Rig, file: &str, update: &Value) -> String {
    format!("once:{}:{update}", rig.path(file).display())
}

pub(super) fn go(rig: &Rig, file: &str) {
    std::fs::write(rig.path(file), "").unwrap();
}

/// The sub-agents that the log of a thread describes, in its order.
async fn subagents(rig: &Rig, thread: &ThreadId) -> Vec<Subagent> {
    let events = rig.log(thread).await.into_iter();
    let described = events.filter_map(|event| match event.body {
        Body::State(StateEvent::Subagent(subagent)) => Some(subagent),
        _ => None,
    });
    described.collect()
}

/// Waits for the thread of the sub-agent with this title.
pub(super) async fn thread_of(rig: &Rig, parent: &ThreadId, title: &str) -> ThreadId {
    let mut found = None;
    until_async("a sub-agent", async || {
        let all = subagents(rig, parent).await.into_iter();
        found = all.filter(|one| one.title.as_deref() == Some(title)).map(|one| one.thread).next();
        found.is_some()
    })
    .await;
    found.unwrap()
}

async fn row(rig: &Rig, thread: &ThreadId) -> ThreadRow {
    rig.store.thread(&rig.by.scope(), thread).await.unwrap().unwrap()
}

/// The runs of a thread, oldest first.
async fn runs(rig: &Rig, thread: &ThreadId) -> Vec<RunRow> {
    let filter = RunFilter { thread: Some(thread.clone()), ..RunFilter::default() };
    let page = Page { limit: 100, ..Page::default() };
    let mut rows = rig.store.runs(&rig.by.scope(), &filter, &page).await.unwrap().rows;
    rows.reverse();
    rows
}

/// Waits until the run with this number of a thread has this status.
pub(super) async fn run_in(
    rig: &Rig,
    thread: &ThreadId,
    number: usize,
    status: RunStatus,
) -> RunRow {
    let mut found = None;
    until_async(&format!("a run that is {}", status.as_str()), async || {
        found = runs(rig, thread).await.into_iter().nth(number);
        found.as_ref().is_some_and(|run| run.status == status)
    })
    .await;
    found.unwrap()
}

pub(super) async fn wait_for_text(rig: &Rig, run: &RunRow, text: &str) {
    until_async(text, async || rig.reply_text(run).await.contains(text)).await;
}

async fn history(rig: &Rig, thread: &ThreadId) -> Vec<(bool, String)> {
    let row = row(rig, thread).await;
    match rig.runtime.state_within(&row, None, 1 << 20).await.unwrap() {
        Some(StateContent::Messages(messages)) => {
            messages.iter().map(|one| (one.role.is_user(), one.text())).collect()
        }
        other => panic!("{other:?}"),
    }
}

pub(super) async fn pending(rig: &Rig, run: &RunRow) -> Option<Interrupt> {
    let filter = InterruptFilter { run: Some(run.id.clone()), pending: true, thread: None };
    let page = Page { limit: 10, ..Page::default() };
    let rows = rig.store.interrupts(&rig.by.scope(), &filter, &page).await.unwrap().rows;
    rows.into_iter().next().map(|row| row.interrupt)
}

/// The reasons for which lines of the agent were ignored on a thread.
async fn ignored(rig: &Rig, thread: &ThreadId) -> Vec<String> {
    let events = rig.log(thread).await.into_iter();
    let reasons = events.filter_map(|event| match event.body {
        Body::State(StateEvent::Custom { kind, data }) if kind == "ignored_line" => {
            data.to_value()["reason"].as_str().map(str::to_owned)
        }
        _ => None,
    });
    reasons.collect()
}

fn count_cancels(rig: &Rig, id: &str) -> usize {
    let heard = std::fs::read_to_string(rig.path(HEARD)).unwrap();
    let is_one =
        |line: &&str| line.contains("session/cancel") && line.contains(&format!("\"{id}\""));
    heard.lines().filter(is_one).count()
}

#[tokio::test]
async fn a_sub_agent_is_a_thread_with_runs_that_read_as_a_conversation() {
    let rig = Rig::new(&[]).await;
    let call = json!({
        "sessionUpdate": "tool_call", "toolCallId": "c", "title": "Delegate", "status": "completed",
        "content": [{ "type": "session", "sessionId": "a" }, { "type": "session", "sessionId": "nobody" }],
    });
    let lines = [
        announce("a", &running(), true),
        within("a", &message("a", "read it")),
        within("a", &chunk("it is read")),
        report("a", &idle("end_turn")),
        format!("raw:{call}"),
        wait(&rig, "go"),
        "say:finished".to_owned(),
    ];
    let parent = rig.begin(&rig.thread, &lines.join("\n")).await;
    let parent_run = parent.run.clone();
    let thread = thread_of(&rig, &rig.thread, "Agent a").await;
    let run = run_in(&rig, &thread, 0, RunStatus::Completed).await;
    go(&rig, "go");
    super::rig::settle(parent).await;
    assert_eq!(run.started_by, Some(StartedBy::Agent));
    assert_eq!(run.principal, parent_run.principal);
    let of = run.parent.clone().unwrap();
    assert_eq!((&of.run, &of.thread), (&parent_run.id, &rig.thread));
    assert_eq!(
        history(&rig, &thread).await,
        [(true, "read it".to_owned()), (false, "it is read".to_owned())]
    );
    let described = subagents(&rig, &rig.thread).await;
    let states: Vec<_> = described.iter().map(|one| one.state.clone().unwrap()).collect();
    let ended = SubagentState::Idle { stop_reason: Some("end_turn".to_owned()) };
    assert_eq!(states, [SubagentState::Running, ended]);
    // A description is whole, although the second update names only the state.
    assert_eq!(described[1].description.as_deref(), Some("Reads the files"));
    assert!(described.iter().all(|one| one.thread == thread && one.can_cancel));
    let row = row(&rig, &thread).await;
    let metadata = row.metadata.to_value();
    assert_eq!(metadata["parent_thread_id"], rig.thread.as_str());
    assert_eq!(metadata["parent_run_id"], parent_run.id.as_str());
    assert_eq!((&metadata["parent_agent"], row.owner), (&json!("scripted"), rig.by.id.clone()));
    let originals = rig.originals(&parent_run).await;
    let whole = |text: &&String| text.contains("Delegate") && text.contains("content");
    let call = originals.iter().find(whole).unwrap();
    let call: Value = serde_json::from_str(call).unwrap();
    let content = json!([{ "type": "session", "sessionId": thread.as_str() }]);
    assert_eq!(call["update"]["content"], content);
    rig.end().await;
}

#[tokio::test]
async fn a_request_starts_no_run_on_the_thread_of_a_sub_agent() {
    let rig = Rig::new(&[]).await;
    rig.run(&rig.thread, &announce("a", &running(), false)).await;
    let thread = thread_of(&rig, &rig.thread, "Agent a").await;
    let request = new_run("scripted", ThreadChoice::Existing(thread.clone()), user_input("say:no"));
    let error = rig.runtime.submit(&rig.by, request).await.unwrap_err();
    assert_eq!(error.code(), Code::ThreadOfSubagent);
    assert!(error.hint_text().unwrap().contains(rig.thread.as_str()));
    // A client cannot change which threads are those of sub-agents.
    let patch = trilogue_runtime::request::ThreadPatch {
        metadata: Some(parsed_json(r#"{"trilogue.subagent":null}"#)),
        ..Default::default()
    };
    let error = rig.runtime.patch_thread(&rig.by, &thread, patch).await.unwrap_err();
    assert_eq!(error.code(), Code::Forbidden);
    // A client of the agent's own protocol can load the history. It changes nothing at the agent.
    let context = rig.context(&thread).await;
    let client = caller("{}");
    let opened = rig.sessions().open(&context, &client, parsed_json("{}")).await.unwrap();
    assert_eq!(opened.as_str(), "{}");
    let mode = parsed_json(r#"{"modeId":"code"}"#);
    let refused = rig.sessions().call(Some(&context), &client, "session/set_mode", mode).await;
    assert!(refused.unwrap_err().message.contains("sub-agent"), "it is refused");
    rig.end().await;
}

#[tokio::test]
async fn a_sub_agent_goes_on_after_its_parents_run_and_works_again_after_it_was_idle() {
    let rig = Rig::new(&[]).await;
    let later = |update: &Value| json!({ "session": "a", "update": update });
    let ends =
        json!({ "sessionUpdate": "subagent_update", "sessionId": "a", "state": idle("end_turn") });
    let lines = [
        announce("a", &running(), false),
        once(&rig, "one", &later(&chunk("first"))),
        once(&rig, "one", &ends),
        once(&rig, "two", &later(&chunk("second"))),
    ];
    let parent = rig.run(&rig.thread, &lines.join("\n")).await;
    assert_eq!(parent.status, RunStatus::Completed);
    let thread = thread_of(&rig, &rig.thread, "Agent a").await;
    run_in(&rig, &thread, 0, RunStatus::Running).await;
    go(&rig, "one");
    let run = run_in(&rig, &thread, 0, RunStatus::Completed).await;
    assert_eq!(rig.reply_text(&run).await, "first");
    go(&rig, "two");
    let mut second = None;
    until_async("another run", async || {
        second = runs(&rig, &thread).await.into_iter().nth(1);
        second.is_some()
    })
    .await;
    wait_for_text(&rig, &second.unwrap(), "second").await;
    // The change of the state starts no run of the parent.
    assert_eq!(runs(&rig, &rig.thread).await.len(), 1);
    rig.end().await;
}

#[tokio::test]
async fn how_a_sub_agent_stopped_decides_how_its_run_ended() {
    let rig = Rig::new(&[]).await;
    let failed = json!({
        "state": "idle", "stopReason": "error", "error": { "code": -32000, "message": "no tokens" },
    });
    let mut lines = Vec::new();
    for (id, state) in [("a", failed), ("b", idle("cancelled")), ("c", idle("refusal"))] {
        lines.extend([announce(id, &running(), false), within(id, &chunk(id)), report(id, &state)]);
    }
    lines.push(wait(&rig, "go"));
    let parent = rig.begin(&rig.thread, &lines.join("\n")).await;
    let [a, b, c] = ["Agent a", "Agent b", "Agent c"];
    let a = run_in(&rig, &thread_of(&rig, &rig.thread, a).await, 0, RunStatus::Failed).await;
    assert!(failure(&a).message.ends_with("no tokens"), "{:?}", a.outcome);
    let b = run_in(&rig, &thread_of(&rig, &rig.thread, b).await, 0, RunStatus::Cancelled).await;
    assert_eq!(b.outcome, Some(Outcome::Cancelled { reason: None }));
    let c = run_in(&rig, &thread_of(&rig, &rig.thread, c).await, 0, RunStatus::Completed).await;
    let result = rig.custom(&c, "turn_result").await;
    assert_eq!(result[0].to_value(), json!({ "stopReason": "refusal" }));
    go(&rig, "go");
    super::rig::settle(parent).await;
    rig.end().await;
}

#[tokio::test]
async fn one_sub_agent_is_cancelled_alone_if_its_agent_allows_that() {
    let rig = Rig::new(&[]).await;
    let lines =
        [announce("a", &running(), true), announce("b", &running(), false), "slow".to_owned()];
    let parent = rig.begin(&rig.thread, &lines.join("\n")).await;
    let a = thread_of(&rig, &rig.thread, "Agent a").await;
    let b = thread_of(&rig, &rig.thread, "Agent b").await;
    let a = run_in(&rig, &a, 0, RunStatus::Running).await;
    let b_run = run_in(&rig, &b, 0, RunStatus::Running).await;
    assert_eq!(rig.cancel(&a).await.status, RunStatus::Cancelled);
    until("the agent was asked to cancel it", || count_cancels(&rig, "a") == 1).await;
    let error = rig.runtime.cancel(&rig.by, &b_run.id).await.unwrap_err();
    assert_eq!(error.code(), Code::SubagentNotCancellable);
    // The run of the parent ends that of the sub-agent.
    rig.cancel(&parent.run).await;
    let b_run = run_in(&rig, &b, 0, RunStatus::Cancelled).await;
    assert_eq!(b_run.outcome, Some(Outcome::Cancelled { reason: Some(Code::ParentEnded) }));
    assert_eq!(count_cancels(&rig, "b"), 0);
    rig.end().await;
}

#[tokio::test]
async fn a_sub_agent_has_sub_agents_as_deep_as_calls_go() {
    let options = Options { max_call_depth: 3, ..Options::default() };
    let rig = Rig::with_options(&[], Rules::default(), options, |_| {}).await;
    let nested = |id: &str| json!({ "sessionUpdate": "subagent_update", "sessionId": id, "title": format!("Agent {id}") });
    let lines = [
        announce("a", &running(), false),
        within("a", &nested("b")),
        within("b", &chunk("deep")),
        within("b", &nested("c")),
        within("c", &chunk("too deep")),
    ];
    rig.run(&rig.thread, &lines.join("\n")).await;
    let a = thread_of(&rig, &rig.thread, "Agent a").await;
    let b = thread_of(&rig, &a, "Agent b").await;
    assert_eq!(row(&rig, &b).await.metadata.to_value()["parent_thread_id"], a.as_str());
    let mut run = None;
    until_async("a run of the nested one", async || {
        run = runs(&rig, &b).await.into_iter().next();
        run.is_some()
    })
    .await;
    wait_for_text(&rig, &run.unwrap(), "deep").await;
    until_async("the deepest is ignored", async || {
        ignored(&rig, &b).await.contains(&"subagents_too_deep".to_owned())
    })
    .await;
    assert_eq!(subagents(&rig, &b).await, []);
    rig.end().await;
}

#[tokio::test]
async fn a_session_has_a_bounded_number_of_sub_agents_with_bounded_descriptions() {
    let rig = Rig::new(&[]).await;
    let long =
        json!({ "sessionUpdate": "subagent_update", "sessionId": "0", "title": "x".repeat(2_000) });
    let waits = json!({ "state": "requires_action" });
    let mut lines: Vec<_> = (0..65).map(|id| announce(&id.to_string(), &waits, false)).collect();
    lines.extend([format!("raw:{long}"), within("64", &chunk("ignored")), "say:ends".to_owned()]);
    let run = rig.run(&rig.thread, &lines.join("\n")).await;
    assert_eq!(rig.reply_text(&run).await, "ends");
    assert_eq!(subagents(&rig, &rig.thread).await.len(), 64);
    let reasons = ignored(&rig, &rig.thread).await;
    assert!(reasons.contains(&"too_many_subagents".to_owned()), "{reasons:?}");
    assert!(reasons.contains(&"subagent_too_large".to_owned()), "{reasons:?}");
    // An idle one gives its place to another, and comes back on its thread.
    let first = subagents(&rig, &rig.thread).await;
    for (number, idle_one, next) in [(0, "0", "65"), (1, "1", "0")] {
        run_in(&rig, &first[number].thread, 0, RunStatus::Running).await;
        rig.run(&rig.thread, &report(idle_one, &idle("end_turn"))).await;
        run_in(&rig, &first[number].thread, 0, RunStatus::Completed).await;
        rig.run(&rig.thread, &announce(next, &waits, false)).await;
    }
    let all = subagents(&rig, &rig.thread).await;
    assert_eq!(all.len(), 68);
    assert_eq!(all[0].thread, all[67].thread);
    assert_ne!(all[0].thread, all[65].thread);
    assert_eq!(ignored(&rig, &rig.thread).await.len(), reasons.len());
    rig.end().await;
}

#[tokio::test]
async fn the_work_of_a_sub_agent_is_lost_with_its_process_and_a_load_finds_its_thread_again() {
    let rig = Rig::with(&["--load", "--store", "{store}"], |launch| {
        launch.background_quiet = Duration::from_millis(200);
    })
    .await;
    let lines = [
        announce("a", &running(), false),
        within("a", &chunk("half")),
        wait(&rig, "go"),
        "crash".to_owned(),
    ];
    let begun = rig.begin(&rig.thread, &lines.join("\n")).await;
    let thread = thread_of(&rig, &rig.thread, "Agent a").await;
    let run = run_in(&rig, &thread, 0, RunStatus::Running).await;
    wait_for_text(&rig, &run, "half").await;
    go(&rig, "go");
    super::rig::settle(begun).await;
    let lost = run_in(&rig, &thread, 0, RunStatus::Failed).await;
    assert_eq!(&*failure(&lost).code, "agent_lost");
    until_async("the state is cleared", async || {
        subagents(&rig, &rig.thread).await.last().unwrap().state.is_none()
    })
    .await;
    let before = (rig.log(&thread).await.len(), subagents(&rig, &rig.thread).await.len());
    // The agent replays the sub-agent's history too. The log has it.
    let next = rig.run(&rig.thread, "say:back").await;
    assert_eq!(rig.reply_text(&next).await, "back");
    let after = (rig.log(&thread).await.len(), subagents(&rig, &rig.thread).await.len());
    assert_eq!(before, after);
    let lines = [
        report("a", &running()),
        within("a", &chunk("the rest")),
        report("a", &idle("end_turn")),
        wait(&rig, "end"),
    ];
    let last = rig.begin(&rig.thread, &lines.join("\n")).await;
    let run = run_in(&rig, &thread, 1, RunStatus::Completed).await;
    assert_eq!(rig.reply_text(&run).await, "the rest");
    // Its title was not said again.
    assert_eq!(
        subagents(&rig, &rig.thread).await.last().unwrap().title.as_deref(),
        Some("Agent a")
    );
    go(&rig, "end");
    super::rig::settle(last).await;
    rig.end().await;
}

/// The id of an erased thread never comes back, although the agent has the same session.
#[tokio::test]
async fn a_sub_agent_whose_thread_was_erased_gets_a_new_thread() {
    let rig = Rig::with(&["--load", "--store", "{store}"], |_| {}).await;
    let work = |text: &str| {
        [
            announce("a", &running(), false),
            within("a", &chunk(text)),
            report("a", &idle("end_turn")),
        ]
        .join("\n")
    };
    let erase = async |thread: &ThreadId| {
        run_in(&rig, thread, 0, RunStatus::Completed).await;
        rig.runtime.erase_thread(&rig.by, thread).await.unwrap();
    };
    let newest = async || subagents(&rig, &rig.thread).await.last().unwrap().thread.clone();
    rig.run(&rig.thread, &work("secret")).await;
    let first = newest().await;
    erase(&first).await;
    // The session of the parent is still open.
    rig.run(&rig.thread, &work("second")).await;
    let second = newest().await;
    erase(&second).await;
    // Another life of the agent's process loads the session.
    let crashed = rig.begin(&rig.thread, "crash").await;
    super::rig::settle(crashed).await;
    rig.run(&rig.thread, &work("third")).await;
    let third = newest().await;
    assert!(first != second && second != third && third != first);
    for erased in [&first, &second] {
        assert!(rig.store.thread(&rig.by.scope(), erased).await.unwrap().is_none());
    }
    let run = run_in(&rig, &third, 0, RunStatus::Completed).await;
    assert_eq!((rig.reply_text(&run).await.as_str(), runs(&rig, &third).await.len()), ("third", 1));
    rig.end().await;
}

#[tokio::test]
async fn a_session_that_was_not_announced_is_ignored() {
    let rig = Rig::new(&[]).await;
    let lines =
        [within("nobody", &chunk("lost")), "subagent-ask:nobody".to_owned(), "say:ends".to_owned()];
    let run = rig.run(&rig.thread, &lines.join("\n")).await;
    assert_eq!((run.status, &*rig.reply_text(&run).await), (RunStatus::Completed, "ends"));
    rig.end().await;
}

#[tokio::test]
async fn the_editor_of_the_first_session_serves_the_files_of_a_sub_agent() {
    let rig = Rig::with(&[], |launch| launch.client_tools = ClientTools::Forward).await;
    let client = caller(r#"{"fs":{"readTextFile":true}}"#);
    let attached = rig.runtime.attach(&row(&rig, &rig.thread).await, client);
    let lines = [announce("a", &running(), false), "subagent-read:a:/x".to_owned()];
    let parent = rig.begin(&rig.thread, &lines.join("\n")).await;
    let thread = thread_of(&rig, &rig.thread, "Agent a").await;
    let run = run_in(&rig, &thread, 0, RunStatus::Running).await;
    // The words of this client's refusal.
    wait_for_text(&rig, &run, "told: failed: -32601 fs/read_text_file").await;
    super::rig::settle(parent).await;
    drop(attached);
    rig.end().await;
}

#[tokio::test]
async fn a_crash_of_the_server_loses_the_work_of_a_sub_agent() {
    let rig = Rig::new(&[]).await;
    let lines = [announce("a", &running(), false), "slow".to_owned()];
    let parent = rig.begin(&rig.thread, &lines.join("\n")).await.run;
    let thread = thread_of(&rig, &rig.thread, "Agent a").await;
    let run = run_in(&rig, &thread, 0, RunStatus::Running).await;
    assert_eq!(run.parent.unwrap().run, parent.id);
    let next = server_after_crash(&rig).await;
    let lost = run_in(&rig, &thread, 0, RunStatus::Failed).await;
    assert_eq!(&*failure(&lost).code, "agent_lost");
    // Readers of the parent's log do not see it at work for ever.
    until_async("the state is cleared", async || {
        subagents(&rig, &rig.thread).await.last().unwrap().state.is_none()
    })
    .await;
    let all = subagents(&rig, &rig.thread).await;
    assert_eq!((all.len(), all[1].title.as_deref(), &all[1].thread), (2, Some("Agent a"), &thread));
    drop(next);
    rig.end().await;
}

/// The last state that the log of a parent has of its newest sub-agent.
async fn last_state(rig: &Rig, parent: &ThreadId) -> Option<SubagentState> {
    subagents(rig, parent).await.last().unwrap().state.clone()
}

/// The newest sub-agent of a thread, once it has a run that works.
pub(super) async fn working(rig: &Rig, parent: &ThreadId, title: &str) -> ThreadId {
    let thread = thread_of(rig, parent, title).await;
    run_in(rig, &thread, 0, RunStatus::Running).await;
    thread
}

#[tokio::test]
async fn a_stop_of_the_server_clears_the_states_of_a_whole_tree() {
    let rig = Rig::new(&[]).await;
    let nested = announce("b", &json!({ "state": "requires_action" }), false);
    let call = json!({
        "sessionUpdate": "tool_call", "toolCallId": "c", "title": "Build", "status": "in_progress",
    });
    let lines = [
        announce("a", &running(), false),
        within("a", &serde_json::from_str(nested.strip_prefix("raw:").unwrap()).unwrap()),
        once(&rig, "go", &call),
    ];
    rig.run(&rig.thread, &lines.join("\n")).await;
    let a = working(&rig, &rig.thread, "Agent a").await;
    let b = working(&rig, &a, "Agent b").await;
    // The parent works in a run of its own.
    go(&rig, "go");
    run_in(&rig, &rig.thread, 1, RunStatus::Running).await;
    rig.runtime.drain(Duration::from_millis(10)).await;
    for thread in [&a, &b] {
        assert_eq!(&*failure(&run_in(&rig, thread, 0, RunStatus::Failed).await).code, "agent_lost");
    }
    // Stored before the server ends, while the agent's process is still there.
    assert_eq!((last_state(&rig, &rig.thread).await, last_state(&rig, &a).await), (None, None));
    // What ends its process later adds nothing.
    let parent = rig.context(&rig.thread).await;
    assert!(parent.is_subagent_state_cleared(&a).await.unwrap());
    rig.end().await;
}

/// The last state that a log has of each sub-agent with this title.
async fn state_of(rig: &Rig, log: &ThreadId, title: &str) -> Option<SubagentState> {
    let mut all = subagents(rig, log).await.into_iter();
    all.rfind(|one| one.title.as_deref() == Some(title)).unwrap().state
}

#[tokio::test]
async fn a_copy_shows_no_sub_agent_at_work() {
    let rig = Rig::new(&[]).await;
    let ends =
        json!({ "sessionUpdate": "subagent_update", "sessionId": "b", "state": idle("end_turn") });
    let lines = [
        announce("a", &running(), true),
        announce("b", &running(), false),
        "say:said".to_owned(),
        once(&rig, "go", &ends),
    ];
    let run = rig.run(&rig.thread, &lines.join("\n")).await;
    let b = working(&rig, &rig.thread, "Agent b").await;
    go(&rig, "go");
    // After the run, so that no run of the copy has it.
    run_in(&rig, &b, 0, RunStatus::Completed).await;
    let new = NewThread::default;
    let copy = rig.runtime.copy_thread(&rig.by, &rig.thread, new()).await.unwrap().id;
    let idle = Some(SubagentState::Idle { stop_reason: Some("end_turn".to_owned()) });
    assert_eq!(state_of(&rig, &copy, "Agent a").await, None);
    assert_eq!(state_of(&rig, &copy, "Agent b").await, idle);
    // Everything else that is known of it stays.
    let copied = subagents(&rig, &copy).await;
    let last = copied.iter().rfind(|one| one.title.as_deref() == Some("Agent a")).unwrap();
    assert_eq!(last.description.as_deref(), Some("Reads the files"));
    assert!(last.can_cancel);
    // A copy of a part, up to what was said.
    let said = rig.events(&run).await.into_iter();
    let completed = |body: &Body| matches!(body, Body::Message(MessageEvent::Completed { .. }));
    let place = said.filter(|event| completed(&event.body)).last().unwrap().number;
    let copied = rig.runtime.copy_thread_until_event(&rig.by, &rig.thread, place, new()).await;
    let copy = copied.unwrap().id;
    for title in ["Agent a", "Agent b"] {
        assert_eq!(state_of(&rig, &copy, title).await, None, "{title}");
    }
    assert_eq!(subagents(&rig, &copy).await.len(), 4);
    rig.end().await;
}

#[tokio::test]
async fn a_server_without_the_agent_clears_the_states_of_its_sub_agents() {
    let rig = Rig::new(&[]).await;
    rig.run(&rig.thread, &announce("a", &running(), true)).await;
    let a = working(&rig, &rig.thread, "Agent a").await;
    let next = server_with(&rig, Vec::new()).await;
    run_in(&rig, &a, 0, RunStatus::Failed).await;
    until_async("the state is cleared", async || last_state(&rig, &rig.thread).await.is_none())
        .await;
    let all = subagents(&rig, &rig.thread).await;
    assert_eq!((all.len(), all[1].title.as_deref(), all[1].can_cancel), (2, Some("Agent a"), true));
    drop(next);
    rig.end().await;
}

#[tokio::test]
async fn a_working_sub_agent_whose_thread_is_erased_is_not_at_work_in_its_parents_log() {
    let rig = Rig::new(&[]).await;
    let lines = [announce("a", &running(), false), wait(&rig, "go")];
    let parent = rig.begin(&rig.thread, &lines.join("\n")).await;
    let a = working(&rig, &rig.thread, "Agent a").await;
    rig.runtime.erase_thread(&rig.by, &a).await.unwrap();
    assert_eq!(last_state(&rig, &rig.thread).await, None);
    go(&rig, "go");
    super::rig::settle(parent).await;
    assert_eq!(subagents(&rig, &rig.thread).await.len(), 2);
    rig.end().await;
}

#[tokio::test]
async fn a_sub_agent_whose_parents_session_is_closed_is_not_at_work_in_any_log() {
    let rig = Rig::new(&[]).await;
    rig.run(&rig.thread, &announce("a", &running(), false)).await;
    let a = working(&rig, &rig.thread, "Agent a").await;
    rig.sessions().close(&rig.context(&rig.thread).await).await;
    run_in(&rig, &a, 0, RunStatus::Cancelled).await;
    until_async("the state is cleared", async || last_state(&rig, &rig.thread).await.is_none())
        .await;
    rig.end().await;
}

#[tokio::test]
async fn a_cancelled_sub_agent_whose_agent_reports_nothing_is_not_at_work_in_any_log() {
    let rig = Rig::new(&[]).await;
    let lines = [announce("a", &running(), true), wait(&rig, "go")];
    let parent = rig.begin(&rig.thread, &lines.join("\n")).await;
    let a = working(&rig, &rig.thread, "Agent a").await;
    let run = run_in(&rig, &a, 0, RunStatus::Running).await;
    assert_eq!(rig.cancel(&run).await.status, RunStatus::Cancelled);
    // In the log before the end of the run.
    assert_eq!(last_state(&rig, &rig.thread).await, None);
    go(&rig, "go");
    super::rig::settle(parent).await;
    rig.end().await;
}

#[tokio::test]
async fn a_sub_agent_that_waits_for_a_person_has_a_run_which_a_crash_of_the_server_ends() {
    let rig = Rig::new(&[]).await;
    let waits = json!({ "state": "requires_action" });
    rig.run(&rig.thread, &announce("a", &waits, false)).await;
    let a = working(&rig, &rig.thread, "Agent a").await;
    let next = server_after_crash(&rig).await;
    run_in(&rig, &a, 0, RunStatus::Failed).await;
    until_async("the state is cleared", async || last_state(&rig, &rig.thread).await.is_none())
        .await;
    drop(next);
    rig.end().await;
}

/// A server that starts on the store, and decides about the runs of the one before.
async fn server_after_crash(rig: &Rig) -> Runtime {
    server_with(rig, vec![Arc::new(rig.agent.clone())]).await
}

/// As [`server_after_crash`], with these agents.
async fn server_with(rig: &Rig, agents: Vec<Arc<dyn Backend>>) -> Runtime {
    let (store, clock) = (Arc::clone(&rig.store), Arc::new(SystemClock));
    let originals = Arc::new(OriginalReader);
    Runtime::start(Options::default(), store, agents, clock, originals).await.unwrap()
}

#[tokio::test]
async fn the_run_of_a_sub_agent_needs_no_place_among_the_runs_at_work() {
    let options = Options { max_running_per_principal: Some(1), ..Options::default() };
    let rig = Rig::with_options(&[], Rules::default(), options, |_| {}).await;
    let lines = [
        announce("a", &running(), false),
        within("a", &chunk("at work beside its parent")),
        "subagent-ask:a".to_owned(),
        "slow".to_owned(),
    ];
    let parent = rig.begin(&rig.thread, &lines.join("\n")).await.run;
    let thread = thread_of(&rig, &rig.thread, "Agent a").await;
    // The parent has the only place, and keeps it.
    let run = run_in(&rig, &thread, 0, RunStatus::Interrupted).await;
    wait_for_text(&rig, &run, "at work beside its parent").await;
    let asked = pending(&rig, &run).await.unwrap();
    let answer = AnswerTo::Interrupt(asked.id);
    rig.runtime.answer(&rig.by, answer, Answer::Option("yes".to_owned())).await.unwrap();
    wait_for_text(&rig, &run, "told: ").await;
    rig.cancel(&parent).await;
    rig.end().await;
}

#[tokio::test]
async fn an_announcement_with_escapes_in_its_kind_is_one() {
    let rig = Rig::new(&[]).await;
    let update = announce("a", &running(), false);
    let update =
        update.strip_prefix("raw:").unwrap().replace("subagent_update", r"subagent\u005fupdate");
    let params = format!(r#"{{"sessionId":"SESSION","update":{update}}}"#);
    let line = format!(r#"put:{{"jsonrpc":"2.0","method":"session/update","params":{params}}}"#);
    rig.run(&rig.thread, &[line, within("a", &chunk("found"))].join("\n")).await;
    let thread = thread_of(&rig, &rig.thread, "Agent a").await;
    let run = run_in(&rig, &thread, 0, RunStatus::Running).await;
    wait_for_text(&rig, &run, "found").await;
    rig.end().await;
}

#[tokio::test]
async fn a_burst_of_announcements_closes_no_sub_agent_whose_run_is_about_to_start() {
    let rig = Rig::new(&[]).await;
    let lines = (0..150).flat_map(|id| {
        let id = id.to_string();
        [announce(&id, &Value::Null, false), within(&id, &chunk(&format!("it is {id}")))]
    });
    rig.run(&rig.thread, &lines.collect::<Vec<_>>().join("\n")).await;
    let all = subagents(&rig, &rig.thread).await;
    assert_eq!(all.len(), 64);
    for (id, one) in all.iter().enumerate() {
        let run = run_in(&rig, &one.thread, 0, RunStatus::Running).await;
        wait_for_text(&rig, &run, &format!("it is {id}")).await;
    }
    rig.end().await;
}

#[tokio::test]
async fn a_tree_has_a_bounded_number_of_sub_agents() {
    let rig = Rig::new(&[]).await;
    let waits = json!({ "state": "requires_action" });
    let (mut lines, mut count) = (Vec::new(), 0);
    for parent in 0..9 {
        let id = format!("p{parent}");
        lines.push(announce(&id, &waits, false));
        for child in 0..60 {
            let update = announce(&format!("{id}-{child}"), &waits, false);
            lines.push(format!("subagent:{id}:{}", update.strip_prefix("raw:").unwrap()));
            count += 1;
        }
    }
    assert!(count + 9 > 512);
    let run = rig.run(&rig.thread, &lines.join("\n")).await;
    assert_eq!(run.status, RunStatus::Completed);
    let mut open = 0;
    until_async("all announcements", async || {
        let parents = subagents(&rig, &rig.thread).await;
        open = parents.len();
        let mut refused = 0;
        for one in &parents {
            open += subagents(&rig, &one.thread).await.len();
            let reasons = ignored(&rig, &one.thread).await;
            refused += reasons.iter().filter(|it| *it == "too_many_subagents").count();
        }
        refused > 0 && open == 512
    })
    .await;
    rig.end().await;
}
