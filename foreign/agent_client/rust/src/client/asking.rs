//! An agent that asks before it acts.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::editor::{Manner, Target};
use crate::equal;

crate::checks!(leave_is_given, leave_is_refused, cancel_while_it_asks);

const LETTER: &str = "Write to ada@example.com about the report: it is ready.";

async fn ends(target: Target, manner: Manner, stops: &[&str]) -> Result<()> {
    target
        .open(manner, async |editor| {
            let id = editor.new_session().await?.session_id.to_string();
            let turn = editor.prompt(&id, json!(LETTER)).await?;
            equal!(editor.asked().len(), 1);
            ensure!(stops.contains(&turn.stop_reason()), "it ended with {}", turn.result);
            Ok(())
        })
        .await
}

async fn leave_is_given(target: Target) -> Result<()> {
    ends(target, Manner::Allow, &["end_turn"]).await
}

async fn leave_is_refused(target: Target) -> Result<()> {
    ends(target, Manner::Refuse, &["end_turn", "cancelled", "refusal"]).await
}

async fn cancel_while_it_asks(target: Target) -> Result<()> {
    ends(target, Manner::Cancel, &["cancelled"]).await
}
