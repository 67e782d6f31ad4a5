//! The log already has the history that an agent replays, at any time of the replay.

use trilogue_domain::{Body, RunStatus, ThreadId};

use super::rig::{Rig, text_of, until};

/// The agent's messages in the log, by text, in order.
async fn agent_messages(rig: &Rig, thread: &ThreadId) -> Vec<String> {
    let log = rig.log(thread).await.into_iter();
    let said = log.filter_map(|event| {
        let text = text_of(event.original.as_ref()?);
        text.contains("_chunk").then_some(text)
    });
    said.collect()
}

async fn end(rig: &Rig, thread: &ThreadId) {
    let run = rig.run(thread, "crash").await;
    assert_eq!(run.status, RunStatus::Failed);
    until("the child is gone", || rig.children.count() == 0).await;
}

#[tokio::test]
async fn a_history_is_logged_once_however_late_it_is_told() {
    for replay in ["before", "late", "split", "never"] {
        let rig = Rig::new(&["--load", "--store", "{store}", "--replay", replay]).await;
        let lines: Vec<_> = (0..12).map(|line| format!("say:line {line}\ntool")).collect();
        rig.run(&rig.thread, &lines.join("\n")).await;
        let before = agent_messages(&rig, &rig.thread).await;
        assert_eq!(before.len(), 12);
        end(&rig, &rig.thread).await;
        let run = rig.run(&rig.thread, "say:new").await;
        assert_eq!(
            (run.status, &*rig.reply_text(&run).await),
            (RunStatus::Completed, "new"),
            "{replay}"
        );
        let after = agent_messages(&rig, &rig.thread).await;
        assert_eq!((&after[..12], after.len()), (&before[..], 13), "{replay}");
        let tools = rig.events(&run).await;
        assert!(!tools.iter().any(|event| matches!(event.body, Body::Tool(_))), "{replay}");
        rig.end().await;
    }
}

#[tokio::test]
async fn a_client_that_loads_does_not_wait_for_what_comes_late() {
    let rig = Rig::new(&["--load", "--store", "{store}", "--replay", "split"]).await;
    rig.run(&rig.thread, &"say:line\n".repeat(40)).await;
    end(&rig, &rig.thread).await;
    let context = rig.context(&rig.thread).await;
    let caller = super::rig::caller("{}");
    let params = super::rig::json(r#"{"mcpServers":[]}"#);
    rig.sessions().open(&context, &caller, params).await.unwrap();
    // The replay continues here, but the updates of the next turn are new.
    let run = rig.run(&rig.thread, "say:new").await;
    assert_eq!(rig.reply_text(&run).await, "new");
    assert_eq!(agent_messages(&rig, &rig.thread).await.len(), 41);
    rig.end().await;
}
