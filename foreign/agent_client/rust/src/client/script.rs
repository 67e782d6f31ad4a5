//! Checks of an agent that follows its prompts: updates of every kind, questions, files, terminals, cancellations.

use std::collections::BTreeSet;

use agent_client_protocol::v1::schema::{SetSessionConfigOptionRequest, SetSessionModeRequest};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::check::refused;
use crate::editor::{Editor, Manner, Manner::Allow, Target, Turn, messages};
use crate::equal;
use crate::session::load;

crate::checks!(
    say,
    two_messages_in_a_row,
    thought,
    tool_call,
    permission_given,
    permission_refused,
    cancel_while_it_asks,
    elicitation,
    files_of_the_editor,
    a_terminal_of_the_editor,
    slow_and_cancelled,
    every_form_of_block,
    blocks_of_a_prompt if knows_all,
    plans_commands_title_usage if knows_all,
    modes_and_options if knows_all,
);

/// The chunks of an agent's messages.
const SAID: &str = "agent_message_chunk";

fn knows_all(target: &Target) -> bool {
    target.has_vocabulary
}

/// A turn in a new session. If the target promises that, loading the session replays the same.
async fn take(target: &Target, manner: Manner, prompt: Value) -> Result<(Turn, Editor)> {
    target
        .open(manner, async |editor| {
            let id = editor.new_session().await?.session_id.to_string();
            let turn = editor.prompt(&id, prompt).await?;
            if target.is_trilogue {
                let live = told(editor.updates(&id, 0));
                let replayed = target.open(Allow, async |second| {
                    load(&second, &id).await?;
                    Ok(told(second.updates(&id, 0)))
                });
                equal!(replayed.await?, live);
            }
            Ok((turn, editor))
        })
        .await
}

fn told(updates: Vec<Value>) -> Vec<Value> {
    updates.into_iter().filter(|each| each["sessionUpdate"] != "user_message_chunk").collect()
}

async fn say(target: Target) -> Result<()> {
    let (turn, _) = take(&target, Allow, json!("say:hello world")).await?;
    equal!(turn.stop_reason(), "end_turn");
    let all = messages(&turn.updates, SAID);
    equal!(all.len(), 1);
    equal!(all[0].1, "hello world");
    ensure!(all[0].0.is_string(), "the message has no id");
    Ok(())
}

async fn two_messages_in_a_row(target: Target) -> Result<()> {
    let (turn, _) = take(&target, Allow, json!("two")).await?;
    let all = messages(&turn.updates, SAID);
    equal!(all.len(), 2);
    ensure!(all[0].0 != all[1].0, "two messages have one id");
    Ok(())
}

async fn thought(target: Target) -> Result<()> {
    let (turn, _) = take(&target, Allow, json!("think:hm")).await?;
    let thoughts = messages(&turn.updates, "agent_thought_chunk");
    equal!(thoughts.len(), 1);
    equal!(thoughts[0].1, "hm");
    let said = messages(&turn.updates, SAID);
    ensure!(said.iter().all(|(id, _)| *id != thoughts[0].0), "a thought has a message's id");
    Ok(())
}

async fn tool_call(target: Target) -> Result<()> {
    let (turn, _) = take(&target, Allow, json!("tool")).await?;
    let call = turn.updates.iter().find(|update| update["sessionUpdate"] == "tool_call");
    let id = &call.context("no tool was called")?["toolCallId"];
    let changes: Vec<&Value> =
        turn.updates.iter().filter(|update| update["toolCallId"] == *id).collect();
    equal!(changes[changes.len() - 1]["status"], json!("completed"));
    let mut content = changes.iter().filter_map(|each| each["content"].as_array()).flatten();
    let diff = content.find(|item| item["type"] == "diff" && item["newText"].is_string());
    ensure!(diff.is_some() || !target.has_vocabulary, "there is no diff");
    Ok(())
}

async fn permission_given(target: Target) -> Result<()> {
    let (turn, editor) = take(&target, Allow, json!("permission")).await?;
    equal!(editor.asked().len(), 1);
    equal!(turn.stop_reason(), "end_turn");
    ensure!(turn.said().contains("once"), "it said {}", turn.said());
    Ok(())
}

async fn permission_refused(target: Target) -> Result<()> {
    let (turn, _) = take(&target, Manner::Refuse, json!("permission")).await?;
    equal!(turn.stop_reason(), "end_turn");
    let said = turn.said();
    ensure!(!said.contains("once") && !said.contains("always"), "it said {said}");
    Ok(())
}

async fn cancel_while_it_asks(target: Target) -> Result<()> {
    target
        .open(Manner::Cancel, async |editor| {
            let id = editor.new_session().await?.session_id.to_string();
            let turn = editor.prompt(&id, json!("permission")).await?;
            equal!(turn.stop_reason(), "cancelled");
            let turn = editor.prompt(&id, json!("say:still here")).await?;
            equal!(turn.said(), "still here");
            Ok(())
        })
        .await
}

async fn elicitation(target: Target) -> Result<()> {
    let (turn, editor) = take(&target, Allow, json!("ask-form")).await?;
    equal!(editor.asked().len(), 1);
    ensure!(turn.said().contains("Ada"), "it said {}", turn.said());
    let (turn, _) = take(&target, Manner::Refuse, json!("ask-form")).await?;
    ensure!(!turn.said().contains("Ada"), "it said {}", turn.said());
    Ok(())
}

async fn files_of_the_editor(target: Target) -> Result<()> {
    let path = format!("{}/notes-{}.txt", target.cwd, std::process::id());
    std::fs::write(&path, "from the editor")?;
    let (turn, _) = take(&target, Allow, json!(format!("read:{path}"))).await?;
    ensure!(turn.said().contains("from the editor"), "it said {}", turn.said());
    let (turn, _) = take(&target, Allow, json!(format!("write:{path}:from the agent"))).await?;
    equal!(turn.stop_reason(), "end_turn");
    equal!(std::fs::read_to_string(&path)?, "from the agent");
    Ok(())
}

async fn a_terminal_of_the_editor(target: Target) -> Result<()> {
    let (turn, editor) = take(&target, Allow, json!("term:echo out; exit 3")).await?;
    let said = turn.said();
    let has_status = said.contains("exit 3") || !target.has_vocabulary;
    ensure!(said.contains("out") && has_status, "it said {said}");
    equal!(editor.terminals(), 0);
    Ok(())
}

async fn slow_and_cancelled(target: Target) -> Result<()> {
    target
        .open(Allow, async |editor| {
            let id = editor.new_session().await?.session_id.to_string();
            let cancel = async {
                editor.saw(&id, "a chunk", |update| update["sessionUpdate"] == SAID).await?;
                Ok::<_, anyhow::Error>(editor.cancel(&id)?)
            };
            let slow = if target.has_vocabulary { "slow" } else { "say:begun\nslow" };
            let (turn, cancelled) = tokio::join!(editor.prompt(&id, json!(slow)), cancel);
            cancelled?;
            equal!(turn?.stop_reason(), "cancelled");
            let turn = editor.prompt(&id, json!("say:still here")).await?;
            equal!(turn.said(), "still here");
            Ok(())
        })
        .await
}

async fn every_form_of_block(target: Target) -> Result<()> {
    let (turn, _) = take(&target, Allow, json!("blocks")).await?;
    let chunks = turn.updates.iter().filter(|update| update["sessionUpdate"] == SAID);
    let blocks: Vec<&Value> = chunks.map(|chunk| &chunk["content"]).collect();
    let types: BTreeSet<&str> = blocks
        .iter()
        .filter_map(|block| match block["resource"]["blob"] {
            Value::Null => block["type"].as_str(),
            _ => Some("blob"),
        })
        .collect();
    let wanted = ["audio", "blob", "image", "resource", "resource_link", "text"];
    equal!(types, BTreeSet::from(wanted));
    ensure!(blocks.iter().any(|block| block["annotations"].is_object()), "none is annotated");
    Ok(())
}

async fn blocks_of_a_prompt(target: Target) -> Result<()> {
    let prompt = json!([
        {"type": "text", "text": "context", "annotations": {"audience": ["assistant"]}},
        {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"},
        {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"},
        {"type": "resource_link", "uri": "file:///a.txt", "name": "a.txt"},
        {"type": "resource", "resource": {"uri": "file:///b.txt", "text": "b"}},
        {"type": "resource", "resource": {"uri": "file:///c.bin", "blob": "AAEC"}},
        {"type": "text", "text": "got"},
    ]);
    let (turn, _) = take(&target, Allow, prompt).await?;
    equal!(turn.said(), "got text image audio resource_link resource resource text");
    Ok(())
}

async fn plans_commands_title_usage(target: Target) -> Result<()> {
    let (turn, _) = take(&target, Allow, json!("state")).await?;
    for kind in ["plan", "available_commands_update", "session_info_update", "usage_update"] {
        let came = turn.updates.iter().any(|update| update["sessionUpdate"] == kind);
        ensure!(came, "{kind} did not come: {:?}", turn.updates);
    }
    Ok(())
}

async fn modes_and_options(target: Target) -> Result<()> {
    target
        .open(Allow, async |editor| {
            let made = editor.new_session().await?;
            let id = made.session_id.to_string();
            let modes = made.modes.context("there are no modes")?;
            equal!(&*modes.current_mode_id.0, "ask");
            let mode = |mode: &str| json!({"sessionId": id, "modeId": mode});
            editor.call::<SetSessionModeRequest>(mode("code")).await?;
            editor.saw(&id, "the mode", |each| each["currentModeId"] == "code").await?;
            refused(editor.call::<SetSessionModeRequest>(mode("none")).await, -32602)?;
            let params = json!({"sessionId": id, "configId": "model", "value": "large"});
            let changed = editor.call::<SetSessionConfigOptionRequest>(params).await?;
            let changed = serde_json::to_value(changed)?;
            equal!(changed["configOptions"][0]["currentValue"], json!("large"));
            let turn = editor.prompt(&id, json!("say:in code")).await?;
            equal!(turn.stop_reason(), "end_turn");
            Ok(())
        })
        .await
}
