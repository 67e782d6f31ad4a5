//! What an agent can do while it opens a session, or somebody signs in: wait, ask, die.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use trilogue_sdk::agent_client::peer::Peer;
use trilogue_wire::jsonrpc::{ErrorObject, Id};

use crate::agent::Scripted;
use crate::tools;

/// How often it is looked whether a file is there.
const LOOKED_EVERY: Duration = Duration::from_millis(5);
/// The name of the question that is asked at the sign-in.
const QUESTION: &str = "sign-in";

/// What happens while something is opened.
#[derive(Args, Clone, Debug)]
pub(crate) struct Openings {
    /// Answer `session/new` when this file is there.
    #[arg(long, value_name = "FILE")]
    open_when: Option<PathBuf>,
    /// End with this exit code when a session is to be opened.
    #[arg(long, value_name = "CODE")]
    die_at_open: Option<u8>,
    /// Ask for this file before `session/new` is answered.
    #[arg(long, value_name = "FILE")]
    early_read: Option<PathBuf>,
    /// Ask whoever authenticates to go to a page first.
    #[arg(long)]
    ask_at_auth: bool,
}

// === impl Openings ===

impl Openings {
    /// A session of this id is to be opened.
    pub(crate) async fn opening(&self, agent: &Scripted, peer: &Peer, session: &str) {
        if let Some(code) = self.die_at_open {
            tools::complain("this agent was told to die when a session is opened");
            std::process::exit(i32::from(code));
        }
        if let Some(file) = &self.early_read {
            read_early(agent.clone(), peer, session, file).await;
        }
        while self.open_when.as_ref().is_some_and(|file| !file.exists()) {
            tokio::time::sleep(LOOKED_EVERY).await;
        }
    }

    /// Somebody signs in with the request of this id. What they say is in the result.
    pub(crate) async fn signing_in(&self, peer: &Peer, id: &Id<'_>) -> Result<Value, ErrorObject> {
        if !self.ask_at_auth {
            return Ok(json!({}));
        }
        let question = json!({
            "requestId": id.to_string().parse::<Value>().unwrap_or_default(),
            "mode": "url", "elicitationId": QUESTION,
            "url": "https://example.org/sign-in", "message": "Sign in there.",
        });
        let answer = match peer.call("elicitation/create", &question).await {
            Ok(answer) => answer.to_value(),
            Err(failed) => json!({ "failed": failed.to_string() }),
        };
        let done = json!({ "elicitationId": QUESTION });
        // Without a client there is nobody to be told.
        drop(peer.notify("elicitation/complete", &done).await);
        drop(peer.notify("elicitation/complete", &json!({ "elicitationId": "no such" })).await);
        Ok(json!({ "_meta": { "answer": answer } }))
    }
}

/// Asks for a file, and goes on without the answer.
async fn read_early(agent: Scripted, peer: &Peer, session: &str, file: &Path) {
    let method = "fs/read_text_file";
    let params = json!({ "sessionId": session, "path": file });
    if let Ok(call) = peer.begin(method, &params).await {
        tokio::spawn(async move {
            let answer = match call.await {
                Ok(answer) => Ok(answer.to_value()),
                Err(failed) => Err(ErrorObject::new(
                    trilogue_wire::jsonrpc::Code::INTERNAL_ERROR,
                    failed.to_string(),
                )),
            };
            agent.record_answer(method, &answer);
        });
    }
}
