//! Messages as large as a line of the Agent Client Protocol may be: from the agent to the log, to editors and to other clients, and after a kill of the server.

use std::time::Duration;

use serde_json::Value;
use trilogue_testkit::{Client, Editor, Folder, Server, ServerOptions};

use crate::client_official::{hosted, scripted};

const MIB: usize = 1024 * 1024;
const LIMIT: Duration = Duration::from_secs(120);

/// The agent's updates, without their ids.
fn agent_updates(editor: &Editor, session: &str) -> Vec<Value> {
    let others = ["user_message_chunk", "available_commands_update"];
    let updates = editor.updates_of(session).into_iter();
    updates.filter(|it| others.iter().all(|other| it["sessionUpdate"] != *other)).collect()
}

fn assert_same(found: &[Value], expected: &[Value]) {
    assert_eq!(found.len(), expected.len());
    for (place, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!(found == expected, "{place}: {:.300}", found.to_string());
    }
}

/// The sizes of the texts and of the tool output in an editor's updates.
fn sizes(updates: &[Value]) -> Vec<usize> {
    let text = |update: &Value| {
        let text = update["content"]["text"].as_str();
        text.or_else(|| update["content"][0]["newText"].as_str()).map(str::len)
    };
    updates.iter().filter_map(text).collect()
}

/// The longest texts of a thread's events from `/api/v1`: on pages, and on a stream.
async fn longest(client: &Client, thread: &str) -> [Vec<usize>; 2] {
    let longest = |event: &Value| event["text"].as_str().map_or(0, str::len);
    let paged = crate::events(client, thread).await.unwrap();
    let paged: Vec<_> = paged.iter().map(longest).filter(|length| *length > MIB).collect();
    let path = format!("/api/v1/threads/{thread}/events");
    let mut stream = client.stream(&path, None).await.unwrap();
    let mut streamed = Vec::new();
    while streamed.len() < paged.len() {
        let event = tokio::time::timeout(LIMIT, stream.next()).await.unwrap().unwrap().unwrap();
        let event: Value = serde_json::from_str(&event.data).unwrap();
        streamed.extend(Some(longest(&event)).filter(|length| *length > MIB));
    }
    [paged, streamed]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_updates_and_questions_reach_every_client_and_outlive_the_server() {
    let (dir, store, cwd) =
        (Folder::new().unwrap(), Folder::new().unwrap(), Folder::new().unwrap());
    let settings = hosted(&[("scripted", scripted(store.path(), &[]).await)]);
    let options = ServerOptions { settings, ..ServerOptions::default() };
    let server = Server::start(dir.path(), &options).await.unwrap();
    let command = server.home().command_line(&["connect", "scripted"]).await.unwrap();
    let mut editor = Editor::launch(&command, cwd.path()).await;
    let session = editor.session_in(cwd.path()).await;
    let large = 10 * MIB;
    let script = format!("say:a\nmuch:text:{large}\nmuch:tool:{large}\nsay:b");
    assert_eq!(editor.prompt(&session, &script).await["stopReason"], "end_turn");
    let asking = editor.start_prompt(&session, &format!("much:ask:{}", 5 * MIB)).await;
    let asked = editor.request("session/request_permission").await;
    assert_eq!(
        asked["params"]["toolCall"]["content"][0]["newText"].as_str().unwrap().len(),
        5 * MIB
    );
    editor.choose(&asked, "once").await;
    editor.end_turn(&asking).await;
    let live = agent_updates(&editor, &session);
    assert_eq!(sizes(&live), [1, large, large, 1, "chosen: once".len()]);
    assert_eq!(longest(&server.client(), &session).await, [vec![large], vec![large]]);

    let server = server.kill().await.unwrap().start().await.unwrap();
    assert_eq!(editor.prompt(&session, "say:on").await["stopReason"], "end_turn");
    let mut other = Editor::launch(&command, cwd.path()).await;
    other.load_in(&session, cwd.path()).await;
    assert_same(&agent_updates(&other, &session), &agent_updates(&editor, &session));
    assert_same(&agent_updates(&other, &session)[..live.len()], &live);
    assert_eq!(longest(&server.client(), &session).await, [vec![large], vec![large]]);
    assert!(editor.close().await.success());
    assert!(other.close().await.success());
    let (_, status) = server.stop().await.unwrap();
    assert!(status.success(), "the stop ended with {status}");
}
