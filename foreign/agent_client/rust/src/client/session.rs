//! Checks that apply to every agent: sessions, turns, ids, replay.

use std::collections::HashSet;

use agent_client_protocol::v1::schema::{
    CloseSessionRequest, DeleteSessionRequest, ListSessionsRequest, LoadSessionRequest,
    ResumeSessionRequest, SessionInfo,
};
use anyhow::{Context, Result, ensure};
use serde_json::json;
use uuid::Uuid;

use crate::check::{is_uuid, refused};
use crate::editor::{Editor, Manner::Allow, Target, messages};
use crate::equal;

crate::checks!(
    initialize,
    prompt,
    prompt_with_an_id,
    two_prompts_in_a_row,
    prompts_of_two_sessions_at_once,
    load_replays,
    resume_does_not_replay if |target: &Target| target.is_trilogue,
    list_close_delete,
    what_is_unknown,
    cancel_when_idle,
);

/// The chunks of an agent's messages.
const SAID: &str = "agent_message_chunk";

async fn initialize(target: Target) -> Result<()> {
    target
        .open(Allow, async |editor| {
            equal!(editor.hello.protocol_version.as_u16(), 1);
            ensure!(editor.hello.agent_capabilities.load_session, "sessions cannot be loaded");
            let name = editor.hello.agent_info.map(|info| info.name);
            if editor.target.name.is_some() {
                equal!(name, editor.target.name);
            }
            Ok(())
        })
        .await
}

async fn prompt(target: Target) -> Result<()> {
    target
        .open(Allow, async |editor| {
            let id = editor.new_session().await?.session_id.to_string();
            let turn = editor.prompt(&id, json!(editor.target.prompt)).await?;
            equal!(turn.stop_reason(), "end_turn");
            ensure!(!turn.said().is_empty(), "nothing was said");
            equal!(editor.understood(), editor.updates(&id, 0).len());
            if editor.target.is_trilogue {
                is_uuid(&json!(id), "the session's id")?;
                is_uuid(&turn.result["userMessageId"], "the id that the agent gave the prompt")?;
                for (message, _) in messages(&turn.updates, SAID) {
                    is_uuid(&message, "the id of a message")?;
                }
            }
            Ok(())
        })
        .await
}

async fn prompt_with_an_id(target: Target) -> Result<()> {
    target
        .open(Allow, async |editor| {
            let id = editor.new_session().await?.session_id.to_string();
            let message = Uuid::new_v4().to_string();
            let turn = editor.prompt_as(&id, &editor.target.prompt, &message).await?;
            equal!(turn.stop_reason(), "end_turn");
            if editor.target.has_ids {
                equal!(turn.result["userMessageId"], json!(message));
            }
            if editor.target.is_trilogue {
                let again = editor.prompt_as(&id, &editor.target.prompt, &message).await?;
                ensure!(again.result.get("userMessageId").is_none(), "recorded: {}", again.result);
                let opaque = editor.prompt_as(&id, &editor.target.prompt, "msg_1").await?;
                ensure!(opaque.result.get("userMessageId").is_none(), "kept: {}", opaque.result);
            }
            Ok(())
        })
        .await
}

async fn two_prompts_in_a_row(target: Target) -> Result<()> {
    target
        .open(Allow, async |editor| {
            let id = editor.new_session().await?.session_id.to_string();
            let (mut all, mut ids) = (0, HashSet::new());
            for _ in 0..2 {
                let turn = editor.prompt(&id, json!(editor.target.prompt)).await?;
                equal!(turn.stop_reason(), "end_turn");
                ensure!(!turn.said().is_empty(), "nothing was said");
                let said = messages(&turn.updates, SAID);
                all += said.len();
                ids.extend(said.into_iter().map(|(message, _)| message.to_string()));
            }
            equal!(ids.len(), all);
            Ok(())
        })
        .await
}

async fn prompts_of_two_sessions_at_once(target: Target) -> Result<()> {
    target
        .open(Allow, async |editor| {
            let one = editor.new_session().await?.session_id.to_string();
            let two = editor.new_session().await?.session_id.to_string();
            let text = json!(editor.target.prompt);
            let turns =
                tokio::try_join!(editor.prompt(&one, text.clone()), editor.prompt(&two, text));
            turns?;
            for id in [one, two] {
                let said = messages(&editor.updates(&id, 0), SAID);
                ensure!(!said.is_empty(), "a session said nothing");
            }
            Ok(())
        })
        .await
}

async fn load_replays(target: Target) -> Result<()> {
    let message = Uuid::new_v4().to_string();
    let (id, live) = target
        .open(Allow, async |editor| {
            let id = editor.new_session().await?.session_id.to_string();
            let turn = editor.prompt_as(&id, &editor.target.prompt, &message).await?;
            editor.prompt(&id, json!(editor.target.prompt)).await?;
            Ok((id, messages(&turn.updates, SAID)))
        })
        .await?;
    target
        .open(Allow, async |editor| {
            load(&editor, &id).await?;
            let replayed = editor.updates(&id, 0);
            let prompts = messages(&replayed, "user_message_chunk");
            let texts: Vec<&str> = prompts.iter().map(|(_, text)| text.as_str()).collect();
            equal!(texts, [editor.target.prompt.as_str(); 2]);
            if editor.target.has_ids {
                equal!(prompts[0].0, json!(message));
            }
            equal!(messages(&replayed, SAID)[..live.len()], live[..]);
            let turn = editor.prompt(&id, json!(editor.target.prompt)).await?;
            equal!(turn.stop_reason(), "end_turn");
            Ok(())
        })
        .await
}

async fn resume_does_not_replay(target: Target) -> Result<()> {
    let id = target
        .open(Allow, async |editor| {
            let id = editor.new_session().await?.session_id.to_string();
            editor.prompt(&id, json!(editor.target.prompt)).await?;
            Ok(id)
        })
        .await?;
    target
        .open(Allow, async |editor| {
            let can = &editor.hello.agent_capabilities.session_capabilities.resume;
            ensure!(can.is_some(), "sessions cannot be resumed");
            let params = json!({"sessionId": id, "cwd": editor.target.cwd, "mcpServers": []});
            editor.call::<ResumeSessionRequest>(params).await?;
            equal!(messages(&editor.updates(&id, 0), SAID), []);
            let turn = editor.prompt(&id, json!(editor.target.prompt)).await?;
            equal!(turn.stop_reason(), "end_turn");
            Ok(())
        })
        .await
}

async fn list_close_delete(target: Target) -> Result<()> {
    target
        .open(Allow, async |editor| {
            let id = editor.new_session().await?.session_id.to_string();
            editor.prompt(&id, json!(editor.target.prompt)).await?;
            let found = listed(&editor, &id).await?.context("the session is not in the list")?;
            equal!(found.cwd.to_string_lossy(), editor.target.cwd);
            if !editor.target.is_trilogue {
                return Ok(());
            }
            ensure!(found.updated_at.is_some(), "the list does not say when it changed");
            editor.call::<CloseSessionRequest>(json!({"sessionId": id})).await?;
            ensure!(listed(&editor, &id).await?.is_some(), "a closed session is gone");
            for _ in 0..2 {
                editor.call::<DeleteSessionRequest>(json!({"sessionId": id})).await?;
            }
            ensure!(listed(&editor, &id).await?.is_none(), "a deleted session is in the list");
            let error = refused(load(&editor, &id).await, -32002)?;
            equal!(error.data.unwrap_or_default()["sessionId"], json!(id));
            Ok(())
        })
        .await
}

async fn what_is_unknown(target: Target) -> Result<()> {
    target
        .open(Allow, async |editor| {
            let id = Uuid::new_v4().to_string();
            refused(editor.prompt(&id, json!(editor.target.prompt)).await, -32002)?;
            refused(load(&editor, &id).await, -32002)?;
            refused(editor.raw("_trilogue.test/none", json!({})).await, -32601)?;
            editor.cancel(&id)?;
            let id = editor.new_session().await?.session_id.to_string();
            let turn = editor.prompt(&id, json!(editor.target.prompt)).await?;
            equal!(turn.stop_reason(), "end_turn");
            Ok(())
        })
        .await
}

async fn cancel_when_idle(target: Target) -> Result<()> {
    target
        .open(Allow, async |editor| {
            let id = editor.new_session().await?.session_id.to_string();
            editor.cancel(&id)?;
            let turn = editor.prompt(&id, json!(editor.target.prompt)).await?;
            equal!(turn.stop_reason(), "end_turn");
            Ok(())
        })
        .await
}

/// Loads a session in the SDK's types.
pub async fn load(editor: &Editor, id: &str) -> Result<(), agent_client_protocol::Error> {
    let params = json!({"sessionId": id, "cwd": editor.target.cwd, "mcpServers": []});
    editor.call::<LoadSessionRequest>(params).await.map(drop)
}

async fn listed(editor: &Editor, id: &str) -> Result<Option<SessionInfo>> {
    let mut cursor = None;
    loop {
        let mut params = json!({"cwd": editor.target.cwd});
        if let Some(cursor) = cursor {
            params["cursor"] = json!(cursor);
        }
        let page = editor.call::<ListSessionsRequest>(params).await?;
        if let Some(found) = page.sessions.into_iter().find(|each| &*each.session_id.0 == id) {
            return Ok(Some(found));
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(None);
        }
    }
}
