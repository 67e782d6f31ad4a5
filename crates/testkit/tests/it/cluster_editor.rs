//! An editor on the socket of one node, which continues while nodes have faults.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;
use trilogue_testkit::editor::agent_text;
use trilogue_testkit::{Client, Editor};

use crate::events;

/// How long an editor pauses if its node cannot open a session now.
const REST: Duration = Duration::from_millis(50);

/// What an editor received on one thread. Only its last turn may have failed.
#[derive(Debug)]
pub(crate) struct Session {
    thread: String,
    said: String,
    turns: usize,
    has_failed: bool,
}

/// The turns that editors saw and every node confirmed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Turns {
    pub(crate) ended: usize,
    pub(crate) failed: usize,
}

/// Sends prompts until the client is closed. After a failed turn the editor opens a new thread, because another node may own the old one.
pub(crate) async fn edit(command: Vec<String>, cwd: PathBuf, client: Client) -> Vec<Session> {
    let mut sessions = Vec::new();
    let mut editor = Editor::launch(&command, &cwd).await;
    while !client.is_closed() {
        let params = json!({"cwd": cwd, "mcpServers": []});
        let opened = editor.call("session/new", params).await;
        let Some(thread) = opened["result"]["sessionId"].as_str() else {
            assert!(opened["error"]["message"].is_string(), "{opened}");
            tokio::time::sleep(REST).await;
            continue;
        };
        let mut session =
            Session { thread: thread.to_owned(), said: String::new(), turns: 0, has_failed: false };
        while !client.is_closed() && !session.has_failed {
            let turn = editor.start_prompt(&session.thread, "what is a log?").await;
            let answer = editor.answer(&turn).await;
            match answer["result"]["stopReason"].as_str() {
                Some(reason) => {
                    assert_eq!(reason, "end_turn", "{answer}");
                    session.turns += 1;
                }
                None => {
                    assert!(answer["error"]["message"].is_string(), "{answer}");
                    session.has_failed = true;
                }
            }
        }
        session.said = agent_text(&editor.updates_of(&session.thread));
        sessions.push(session);
    }
    // The command fails if its agent never started, as it may while faults last for the whole round.
    assert!(editor.close().await.success() || sessions.is_empty());
    sessions
}

// === impl Turns ===

impl Turns {
    /// Checks that every node shows the editors' turns once, in order, and with nothing between.
    pub(crate) async fn check(&mut self, nodes: &[Client], sessions: &[Session]) -> Result<()> {
        for session in sessions {
            for node in nodes {
                let logged = logged(node, &session.thread).await?;
                let is_whole = match session.has_failed {
                    true => logged.starts_with(&session.said),
                    false => logged == session.said,
                };
                ensure!(is_whole, "{session:?} was told, and the log says: {logged:?}");
            }
            self.ended += session.turns;
            self.failed += usize::from(session.has_failed);
        }
        Ok(())
    }
}

/// The agent's text on a thread, from its log.
pub(crate) async fn logged(client: &Client, thread: &str) -> Result<String> {
    let (mut text, mut of_users) = (String::new(), Vec::new());
    for event in events(client, thread).await? {
        if event["type"] == "message.started" && event["role"] == "user" {
            of_users.push(event["message_id"].clone());
        }
        let piece = match event["type"].as_str() {
            Some("message.delta") => event["text"].as_str(),
            Some("message.part") => event["part"]["text"].as_str(),
            _ => None,
        };
        if !of_users.contains(&event["message_id"]) {
            text.push_str(piece.unwrap_or_default());
        }
    }
    Ok(text)
}
