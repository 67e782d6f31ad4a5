//! Turns: their updates, their end, and how they are cancelled.

use std::time::Duration;

use futures_util::StreamExt;
use serde_json::json;
use trilogue_sdk::agent_client::{
    Attachment, Error, Options, Prompt, RejectAll, SessionUpdate, StopReason,
};

use super::{LONG, quiet_session, session, session_with};

#[tokio::test]
async fn what_nobody_knows_comes_as_it_was_written() {
    let (session, mut agent) = quiet_session().await;
    let mut turn = session.prompt("hi").await.unwrap();
    let (id, _) = agent.read_request("session/prompt").await;
    let params = r#"{"update":{"x":[1e2],"sessionUpdate":"later"},"sessionId":"s","more":1.0}"#;
    agent
        .line(&format!(r#"{{"jsonrpc":"2.0","method":"session/update","params":{params}}}"#))
        .await;
    agent.line("npm warn this is no message").await;
    agent.update("s", &json!({ "no": "kind" })).await;
    agent.update("of somebody else", &json!({ "sessionUpdate": "plan", "entries": [] })).await;
    agent.answer(&id, &json!({ "stopReason": "from_the_future" })).await;
    let update = turn.next().await.unwrap().unwrap();
    assert!(matches!(&update.body, SessionUpdate::Other(other) if other.kind == "later"));
    assert_eq!(update.original.as_str(), params);
    assert_eq!(turn.next().await.unwrap(), None);
    assert_eq!(turn.outcome().unwrap().stop_reason.as_str(), "from_the_future");
    assert_eq!(session.client().stray_notifications(), 2);
}

#[tokio::test]
async fn an_agent_that_says_more_than_is_read_loses_nothing() {
    let options = Options { max_updates: 4, ..Options::default() };
    let (session, mut agent) = session_with(json!({}), RejectAll, options).await;
    let mut turn = session.prompt("hi").await.unwrap();
    let said = tokio::spawn(async move {
        let (id, _) = agent.read_request("session/prompt").await;
        for number in 0..5_000 {
            agent.chunk("agent_message_chunk", "m", &format!("{number} ")).await;
        }
        agent.answer(&id, &json!({ "stopReason": "end_turn" })).await;
        agent
    });
    let mut heard = String::new();
    while let Some(update) = turn.next().await.unwrap() {
        heard.push_str(update.text());
    }
    let all: String = (0..5_000).map(|number| format!("{number} ")).collect();
    assert_eq!(heard, all);

    // Without a reader, the newest updates are kept and the connection continues.
    let mut agent = said.await.unwrap();
    for number in 0..10 {
        agent.chunk("agent_message_chunk", "late", &number.to_string()).await;
    }
    agent.pinged(&session).await;
    let late: Vec<_> =
        session.take_updates().iter().map(|update| update.text().to_owned()).collect();
    assert_eq!(late, ["6", "7", "8", "9"]);
    assert_eq!(session.missed_updates(), 6);
}

#[tokio::test]
async fn a_turn_that_nobody_reads_holds_up_no_other_call() {
    let options =
        Options { max_unread_bytes: 4 * 1024, call_timeout: LONG / 2, ..Options::default() };
    let (session, mut agent) = session_with(json!({}), RejectAll, options).await;
    let mut turn = session.prompt("hi").await.unwrap();
    let (prompt, _) = agent.read_request("session/prompt").await;
    for number in 0..1_000 {
        agent.chunk("agent_message_chunk", "m", &number.to_string()).await;
    }
    agent.pinged(&session).await;
    agent.answer(&prompt, &json!({ "stopReason": "end_turn" })).await;

    // The first updates of the turn arrive; then an error reports that the rest is missing.
    let updates: Vec<_> = turn.stream().collect().await;
    let (last, first) = updates.split_last().unwrap();
    assert!(matches!(last, Err(Error::Overflow)), "{last:?}");
    assert!(!first.is_empty() && first.iter().all(Result::is_ok));
    assert_eq!(first.len() as u64 + session.missed_updates(), 1_000);
    assert_eq!(turn.next().await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_not_answered_ends_in_time() {
    let (session, _agent) = session(json!({}), RejectAll).await;
    let call = session.client().extension("_silence", &json!({})).await;
    assert!(matches!(call, Err(Error::TimedOut { method, .. }) if method == "_silence"));
}

#[tokio::test]
async fn a_block_that_the_agent_does_not_take_is_refused_before_sending() {
    let takes = json!({ "promptCapabilities": { "audio": true } });
    let (session, mut agent) = session(takes, RejectAll).await;
    let image = Attachment::bytes("file:///a.png", [1]).mime_type("image/png");
    let refused = session.prompt(Prompt::from("look").attach(image)).await;
    let Err(Error::Lacks { capability, .. }) = refused else { unreachable!("{refused:?}") };
    assert_eq!(capability, "promptCapabilities.image");

    let file = Attachment::text("file:///a/notes.md", "words").mime_type("text/markdown");
    let turn = session.prompt(Prompt::from("see").attach(file)).await.unwrap();
    let (id, params) = agent.read_request("session/prompt").await;
    assert_eq!(
        params["prompt"][1],
        json!({ "type": "resource_link", "uri": "file:///a/notes.md", "name": "notes.md",
            "mimeType": "text/markdown", "size": 5 })
    );
    agent.answer(&id, &json!({ "stopReason": "end_turn" })).await;
    turn.finish().await.unwrap();
}

#[tokio::test]
async fn a_cancelled_turn_is_heard_to_its_end() {
    let (session, mut agent) = quiet_session().await;
    let mut turn = session.prompt("hi").await.unwrap();
    let (id, _) = agent.read_request("session/prompt").await;
    assert!(matches!(session.prompt("too early").await, Err(Error::Busy)));
    turn.cancel().await.unwrap();
    let cancel = agent.read_message().await;
    assert_eq!((&cancel["method"], cancel.get("id")), (&json!("session/cancel"), None));
    assert_eq!(cancel["params"], json!({ "sessionId": "s" }));
    agent.chunk("agent_message_chunk", "m", "last words").await;
    agent.answer(&id, &json!({ "stopReason": "cancelled" })).await;
    assert_eq!(turn.next().await.unwrap().unwrap().text(), "last words");
    assert_eq!(turn.next().await.unwrap(), None);
    assert_eq!(turn.outcome().unwrap().stop_reason, StopReason::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_listen_is_told_again_and_given_up() {
    let options = Options { cancel_grace: Duration::from_secs(3), ..Options::default() };
    let (session, mut agent) = session_with(json!({}), RejectAll, options).await;
    let turn = session.prompt("hi").await.unwrap();
    agent.read_request("session/prompt").await;
    let begun = tokio::time::Instant::now();
    session.cancel().await.unwrap();
    assert!(matches!(turn.finish().await, Err(Error::Unresponsive)));
    assert_eq!(begun.elapsed().as_secs(), 6);
    for _ in 0..2 {
        assert_eq!(agent.read_message().await["method"], "session/cancel");
    }
    // The next turn can begin.
    session.prompt("again").await.unwrap();
    agent.read_request("session/prompt").await;
}

#[tokio::test]
async fn a_dropped_turn_is_cancelled_and_the_next_one_waits_for_its_end() {
    let (session, mut agent) = quiet_session().await;
    drop(session.prompt("first").await.unwrap());
    let (first, _) = agent.read_request("session/prompt").await;
    assert_eq!(agent.read_message().await["method"], "session/cancel");
    let next = session.prompt("second");
    tokio::pin!(next);
    let early = tokio::time::timeout(Duration::from_millis(50), &mut next).await;
    assert!(early.is_err(), "it began before the first had ended");
    agent.answer(&first, &json!({ "stopReason": "cancelled" })).await;
    let turn = tokio::time::timeout(LONG, next).await.unwrap().unwrap();
    let (second, _) = agent.read_request("session/prompt").await;
    agent.answer(&second, &json!({ "stopReason": "end_turn" })).await;
    assert_eq!(turn.finish().await.unwrap().stop_reason, StopReason::EndTurn);
}

#[tokio::test]
async fn a_turn_whose_agent_is_gone_fails_after_what_it_said() {
    let (session, mut agent) = quiet_session().await;
    let mut turn = session.prompt("hi").await.unwrap();
    agent.read_request("session/prompt").await;
    agent.chunk("agent_message_chunk", "m", "I will").await;
    drop(agent);
    assert_eq!(turn.next().await.unwrap().unwrap().text(), "I will");
    assert!(matches!(turn.next().await, Err(Error::Closed)));
    assert_eq!(session.next_update().await, None);
}
