//! Questions of sub-agents: each is asked in the run of the sub-agent, and in that of its parent while it waits.

use std::time::Duration;

use serde_json::{Value, json};
use trilogue_domain::{Answer, Body, Code, Interrupt, Resolution, RunStatus};
use trilogue_runtime::AnswerTo;
use trilogue_store::rows::RunRow;

use super::rig::{Rig, until_async};
use super::subagents::{
    announce, go, once, pending, run_in, running, thread_of, wait, wait_for_text, within, working,
};

#[tokio::test]
async fn a_question_of_a_sub_agent_is_asked_in_its_run_and_in_its_parents() {
    for answers_parent in [false, true] {
        let rig = Rig::new(&[]).await;
        let lines = [announce("a", &running(), false), "subagent-ask:a".to_owned()];
        let parent = rig.begin(&rig.thread, &lines.join("\n")).await;
        let thread = thread_of(&rig, &rig.thread, "Agent a").await;
        let run = run_in(&rig, &thread, 0, RunStatus::Interrupted).await;
        let mut question = None;
        until_async("the question in both runs", async || {
            let both = (pending(&rig, &run).await, pending(&rig, &parent.run).await);
            question = if answers_parent { both.1.clone() } else { both.0.clone() };
            both.0.is_some() && both.1.is_some()
        })
        .await;
        let to = AnswerTo::Interrupt(question.unwrap().id);
        rig.runtime.answer(&rig.by, to, Answer::Option("yes".into())).await.unwrap();
        wait_for_text(&rig, &run, "\"yes\"").await;
        until_async("no question is open", async || {
            pending(&rig, &run).await.is_none() && pending(&rig, &parent.run).await.is_none()
        })
        .await;
        super::rig::settle(parent).await;
        rig.end().await;
    }
}

/// The params of a sub-agent's question.
fn question(id: &str) -> Value {
    json!({
        "sessionId": id, "toolCall": { "toolCallId": "t1", "title": "Read a file", "kind": "read" },
        "options": [
            { "optionId": "yes", "name": "Allow", "kind": "allow_once" },
            { "optionId": "no", "name": "Reject", "kind": "reject_once" },
        ],
    })
}

/// A line that asks a sub-agent's question, after which the parent's turn continues.
fn ask_beside(id: &str) -> String {
    let method = "session/request_permission";
    let asked = format!("question-{id}");
    let request =
        json!({ "jsonrpc": "2.0", "id": asked, "method": method, "params": question(id) });
    format!("put:{request}")
}

/// Waits until a sub-agent's run and its parent's run ask the same question. Returns it as each of them asks it.
async fn asked_in_both(rig: &Rig, run: &RunRow, parent: &RunRow) -> (Interrupt, Interrupt) {
    let mut both = None;
    until_async("the question in both runs", async || {
        both = pending(rig, run).await.zip(pending(rig, parent).await);
        both.is_some()
    })
    .await;
    both.unwrap()
}

#[tokio::test]
async fn a_stop_of_the_server_lets_a_run_finish_whose_sub_agent_asks() {
    let rig = Rig::new(&[]).await;
    let nested = announce("b", &running(), false);
    let lines = [
        announce("a", &running(), false),
        wait(&rig, "nest"),
        within("a", &serde_json::from_str(nested.strip_prefix("raw:").unwrap()).unwrap()),
        ask_beside("b"),
        wait(&rig, "go"),
        "say:the result".to_owned(),
    ];
    let parent = rig.begin(&rig.thread, &lines.join("\n")).await;
    let a = working(&rig, &rig.thread, "Agent a").await;
    go(&rig, "nest");
    let b = thread_of(&rig, &a, "Agent b").await;
    let run = run_in(&rig, &b, 0, RunStatus::Interrupted).await;
    asked_in_both(&rig, &run, &parent.run).await;
    let drain = rig.runtime.drain(Duration::from_secs(60));
    let finish = async {
        // No client can answer any more. Only the run that waits for the answer itself ends.
        until_async("no question is open", async || pending(&rig, &parent.run).await.is_none())
            .await;
        run_in(&rig, &b, 0, RunStatus::Failed).await;
        go(&rig, "go");
    };
    let (report, ()) = tokio::join!(drain, finish);
    let ended = run_in(&rig, &rig.thread, 0, RunStatus::Completed).await;
    assert_eq!((&ended.id, &*rig.reply_text(&ended).await), (&parent.run.id, "the result"));
    assert!(!report.abandoned.contains(&ended.id) && report.abandoned.contains(&run.id));
    rig.end().await;
}

#[tokio::test]
async fn an_agent_that_waits_for_its_sub_agents_question_goes_on_when_nobody_can_answer() {
    for is_erased in [false, true] {
        let rig = Rig::new(&[]).await;
        let lines = [
            announce("a", &running(), false),
            "subagent-ask:a".to_owned(),
            "say:the result".to_owned(),
        ];
        let parent = rig.begin(&rig.thread, &lines.join("\n")).await;
        let thread = thread_of(&rig, &rig.thread, "Agent a").await;
        let run = run_in(&rig, &thread, 0, RunStatus::Interrupted).await;
        asked_in_both(&rig, &run, &parent.run).await;
        if is_erased {
            rig.runtime.erase_thread(&rig.by, &thread).await.unwrap();
        } else {
            rig.runtime.drain(Duration::from_secs(60)).await;
        }
        let ended = run_in(&rig, &rig.thread, 0, RunStatus::Completed).await;
        let text = rig.reply_text(&ended).await;
        assert!(ended.id == parent.run.id && text.contains("the result"), "{text}");
        rig.end().await;
    }
}

#[tokio::test]
async fn a_question_of_a_sub_agent_after_the_answer_is_asked_in_its_run_only() {
    let rig = Rig::with(&[], |launch| launch.answer_settle = Duration::from_secs(3_600)).await;
    let asks = json!({
        "call": "session/request_permission", "session": "a", "params": question("a"),
    });
    let lines = [announce("a", &running(), false), once(&rig, "go", &asks), "say:one".to_owned()];
    let parent = rig.begin(&rig.thread, &lines.join("\n")).await;
    let thread = thread_of(&rig, &rig.thread, "Agent a").await;
    until_async("the answer", async || rig.custom(&parent.run, "turn_result").await.len() == 1)
        .await;
    go(&rig, "go");
    // The question ends the wait for late output. Who waits for the answered run is not asked.
    let parent = super::rig::settle(parent).await;
    assert_eq!((parent.status, &*rig.reply_text(&parent).await), (RunStatus::Completed, "one"));
    let events = rig.events(&parent).await;
    assert!(!events.iter().any(|event| matches!(event.body, Body::Interrupt(_))), "{events:?}");
    let run = run_in(&rig, &thread, 0, RunStatus::Interrupted).await;
    let asked = AnswerTo::Interrupt(pending(&rig, &run).await.unwrap().id);
    rig.runtime.answer(&rig.by, asked, Answer::Option("yes".to_owned())).await.unwrap();
    wait_for_text(&rig, &run, "\"yes\"").await;
    rig.end().await;
}

#[tokio::test]
async fn the_id_of_a_sub_agents_question_in_a_run_above_outlives_that_run() {
    for names_run in [false, true] {
        let rig = Rig::new(&[]).await;
        let nested = announce("b", &running(), false);
        let lines = [
            announce("a", &running(), false),
            wait(&rig, "nest"),
            within("a", &serde_json::from_str(nested.strip_prefix("raw:").unwrap()).unwrap()),
            ask_beside("b"),
            wait(&rig, "go"),
        ];
        let parent = rig.begin(&rig.thread, &lines.join("\n")).await.run;
        let a = working(&rig, &rig.thread, "Agent a").await;
        go(&rig, "nest");
        let run =
            run_in(&rig, &thread_of(&rig, &a, "Agent b").await, 0, RunStatus::Interrupted).await;
        let (open, asked) = asked_in_both(&rig, &run, &parent).await;
        rig.runtime.record_shown_question(&rig.by.id, &parent.id, &asked.id);
        go(&rig, "go");
        run_in(&rig, &rig.thread, 0, RunStatus::Completed).await;
        assert_eq!(pending(&rig, &run).await.unwrap().id, open.id);
        let to = match names_run {
            true => AnswerTo::Run(parent.id.clone()),
            false => AnswerTo::Interrupt(asked.id.clone()),
        };
        let answer = || Answer::Option("yes".to_owned());
        let answered = rig.runtime.answer(&rig.by, to.clone(), answer()).await.unwrap();
        // The run between asks it too.
        assert_ne!(answered.run_id, parent.id);
        until_async("the sub-agent has the answer", async || {
            let row = rig.store.interrupt(&rig.by.scope(), &open.id).await.unwrap().unwrap();
            matches!(row.resolution, Some(Resolution::Answered { .. }))
        })
        .await;
        let error = rig.runtime.answer(&rig.by, to, answer()).await.unwrap_err();
        assert!(matches!(error.code(), Code::InterruptResolved | Code::RunEnded), "{error}");
        rig.end().await;
    }
}

#[tokio::test]
async fn an_answer_to_an_ended_run_names_the_next_question_of_its_sub_agents() {
    let rig = Rig::new(&[]).await;
    let lines = [
        announce("a", &running(), false),
        announce("b", &running(), false),
        ask_beside("a"),
        wait(&rig, "next"),
        ask_beside("b"),
        wait(&rig, "go"),
    ];
    let parent = rig.begin(&rig.thread, &lines.join("\n")).await.run;
    let mut asked = Vec::new();
    for (title, step) in [("Agent a", "next"), ("Agent b", "go")] {
        let thread = thread_of(&rig, &rig.thread, title).await;
        let run = run_in(&rig, &thread, 0, RunStatus::Interrupted).await;
        let open = pending(&rig, &run).await.unwrap();
        asked.push((open.id.clone(), open.id.passed_up(&parent.id)));
        go(&rig, step);
    }
    let [(of_a, shown), (_, next)] = &asked[..] else { panic!("{asked:?}") };
    rig.runtime.record_shown_question(&rig.by.id, &parent.id, shown);
    run_in(&rig, &rig.thread, 0, RunStatus::Completed).await;
    let answer = || Answer::Option("yes".to_owned());
    let to = |run: &RunRow| AnswerTo::Run(run.id.clone());
    let answered = rig.runtime.answer(&rig.by, to(&parent), answer()).await.unwrap();
    assert_eq!(answered.interrupt.id, *of_a);
    // What was not shown is not answered, but named.
    for to in [to(&parent), AnswerTo::Interrupt(shown.clone())] {
        let error = rig.runtime.answer(&rig.by, to, answer()).await.unwrap_err();
        assert_eq!(error.code(), Code::InterruptResolved);
        assert_eq!(error.pending_interrupt(), Some(next));
    }
    let named = rig.runtime.answer(&rig.by, AnswerTo::Interrupt(next.clone()), answer()).await;
    assert_ne!(named.unwrap().run_id, parent.id);
    rig.end().await;
}
