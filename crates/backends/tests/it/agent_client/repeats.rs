//! A prompt is repeated only if the agent has not begun to work on it.

use trilogue_domain::RunStatus;

use super::rig::{Rig, until};
use crate::harness::failure;

fn prompts(rig: &Rig) -> usize {
    let heard = std::fs::read_to_string(rig.path("sessions-heard")).unwrap();
    heard.matches(r#""method":"session/prompt""#).count()
}

async fn rig() -> Rig {
    Rig::new(&["--heard", "{store}-heard"]).await
}

#[tokio::test]
async fn what_is_not_found_is_no_lost_session() {
    let file =
        r#"fail:{"code":-32002,"message":"Resource not found: /x","data":{"uri":"file:///x"}}"#;
    for script in [file.to_owned(), format!("say:look\n{file}")] {
        let rig = rig().await;
        let run = rig.run(&rig.thread, &script).await;
        assert_eq!(run.status, RunStatus::Failed);
        assert!(failure(&run).message.contains("/x"), "{:?}", failure(&run));
        assert_eq!(prompts(&rig), 1);
        assert!(rig.custom(&run, "session_restarted").await.is_empty());
        rig.end().await;
    }
}

#[tokio::test]
async fn nothing_is_said_twice_once_the_agent_has_worked() {
    let lost = r#"fail:{"code":-32602,"message":"Session not found"}"#;
    let login = r#"fail:{"code":-32000,"message":"sign in"}"#;
    let work = [
        "say:a side effect",
        "think:hm",
        "tool-open",
        "unknown",
        "ext",
        r#"raw:{"sessionUpdate":"plan","entries":[]}"#,
    ];
    for (error, work) in [lost, login].into_iter().flat_map(|one| work.map(|work| (one, work))) {
        let rig = rig().await;
        let run = rig.run(&rig.thread, &format!("{work}\n{error}")).await;
        assert_eq!(run.status, RunStatus::Failed, "{work} {error}");
        assert_eq!(prompts(&rig), 1, "{work} {error}");
        rig.end().await;
    }
}

#[tokio::test]
async fn a_session_that_is_lost_is_opened_anew_and_prompted_once_more() {
    // Background updates do not count as work.
    let stands = r#"raw:{"sessionUpdate":"available_commands_update","availableCommands":[]}"#;
    let lost = r#"fail:{"code":-32602,"message":"Session not found"}"#;
    let rig = rig().await;
    let run = rig.run(&rig.thread, &format!("{stands}\n{lost}")).await;
    // The repeat fails in the same way. A third try does not follow.
    assert_eq!((run.status, prompts(&rig)), (RunStatus::Failed, 2));
    assert_eq!(rig.custom(&run, "session_restarted").await.len(), 1);
    rig.end().await;
}

#[tokio::test]
async fn a_process_that_ends_between_two_prompts_fails_none() {
    let rig = Rig::new(&["--load", "--store", "{store}"]).await;
    for _ in 0..5 {
        let run = rig.run(&rig.thread, "pid").await;
        assert_eq!(run.status, RunStatus::Completed, "{:?}", run.outcome);
        let pid = rig.reply_text(&run).await;
        let before = rig.children.count();
        let killed = std::process::Command::new("kill").args(["-9", &pid]).status();
        assert!(killed.unwrap().success());
        until("the child is gone", || rig.children.count() < before).await;
    }
    rig.end().await;
}
