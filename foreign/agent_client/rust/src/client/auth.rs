//! Authentication.

use agent_client_protocol::v1::schema::AuthenticateRequest;
use anyhow::Result;
use serde_json::json;

use crate::check::refused;
use crate::editor::{Manner::Allow, Target};
use crate::equal;

crate::checks!(authenticate_first);

async fn authenticate_first(target: Target) -> Result<()> {
    target
        .open(Allow, async |editor| {
            equal!(editor.hello.auth_methods.len(), 1);
            refused(editor.new_session().await, -32000)?;
            let method = |id: &str| json!({"methodId": id});
            refused(editor.call::<AuthenticateRequest>(method("none")).await, -32602)?;
            editor.call::<AuthenticateRequest>(method("key")).await?;
            let id = editor.new_session().await?.session_id.to_string();
            equal!(editor.prompt(&id, json!("say:in")).await?.said(), "in");
            Ok(())
        })
        .await
}
