//! The checks over the Agent Client Protocol.

use std::path::Path;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use trilogue_testkit::editor::agent_text;
use trilogue_testkit::{Editor, Server, until};

use super::adapter::Adapter;
use super::{
    ANSWER, CHILD_ANSWER, Check, DONE, Hosted, LIMIT, PLAN, Place, REPORT, allow_once, last_run,
    text,
};

async fn launch(server: &Server, agent: &str, cwd: &Path) -> Result<Editor> {
    let command = server.home().command_line(&["connect", agent]).await?;
    let capabilities =
        json!({"subagents": {}, "plan": {}, "session": {"notices": {}, "compaction": {}}});
    Ok(Editor::launch_with(&command, cwd, capabilities).await)
}

/// Waits for updates until the session has this text of the agent.
async fn wait_for_text(editor: &mut Editor, session: &str, wanted: &str) {
    while !agent_text(&editor.updates_of(session)).contains(wanted) {
        editor.wait_for_updates(editor.updates.len() + 1).await;
    }
}

/// Waits until the editor has an update of the session that fits.
async fn wait_for_update(editor: &mut Editor, session: &str, fits: impl Fn(&Value) -> bool) {
    while !editor.updates_of(session).iter().any(&fits) {
        editor.wait_for_updates(editor.updates.len() + 1).await;
    }
}

/// Checks that the session of the killed server has the report.
pub(super) async fn check_lost(adapter: Adapter, server: &Server, thread: &str) -> Result<()> {
    let cwd = server.home().dir().to_owned();
    let mut editor = launch(server, adapter.name(), &cwd).await?;
    editor.load_in(thread, &cwd).await;
    let said = agent_text(&editor.updates_of(thread));
    ensure!(said.contains(ANSWER) && said.contains(REPORT), "{said}");
    ensure!(editor.close().await.success(), "the connection did not end well");
    Ok(())
}

// === impl Hosted ===

impl Hosted {
    pub(super) async fn edit(&self, place: Place) -> Result<String> {
        let mut editor = launch(&self.server, &self.agent(place), &self.cwd).await?;
        let session = editor.session_in(&self.cwd).await;
        let turn = editor.start_prompt(&session, &place.prompt()).await;
        match place.check {
            Check::Question => self.answer_question(&mut editor, &session, place).await?,
            Check::Cancel => {
                self.model.reach(&place.prompt(), LIMIT).await?;
                editor.notify("session/cancel", json!({"sessionId": session})).await;
            }
            Check::Subagent => self.follow_subagent(&mut editor, &session, place).await?,
            Check::Plan => {
                let question = editor.request("session/request_permission").await;
                let option = allow_once(&question["params"]["options"], "optionId")?;
                editor.choose(&question, option).await;
            }
            _ => {}
        }
        let result = editor.answer(&turn).await;
        let stop = match place.check {
            Check::Cancel => "cancelled",
            _ => "end_turn",
        };
        ensure!(result["result"]["stopReason"] == stop, "{result}");
        let updates = editor.updates_of(&session);
        let said = agent_text(&updates);
        match place.check {
            Check::Text | Check::Question => ensure!(said.contains(DONE), "{said}"),
            Check::Cancel => {}
            Check::Subagent => ensure!(said.contains(ANSWER), "{said}"),
            Check::Plan => {
                ensure!(said.contains(DONE), "{said}");
                let mut plans = updates.iter().filter(|it| it["sessionUpdate"] == "plan_update");
                let is_ours = |update: &Value| {
                    let plan = &update["plan"];
                    let content = plan["content"].as_str().unwrap_or_default();
                    plan["type"] == "markdown"
                        && plan["planId"].is_string()
                        && content.trim() == PLAN
                };
                ensure!(plans.any(is_ours), "{updates:?}");
            }
            Check::Background | Check::CancelBackground | Check::Kill => {
                ensure!(said.contains(ANSWER) && !said.contains(REPORT), "{said}");
                self.wait_for_end(&session).await?;
                self.adapter.lets_report(&self.model, &self.cwd, &place).await?;
                wait_for_text(&mut editor, &session, REPORT).await;
                self.follow_task(&mut editor, &session, place).await?;
            }
        }
        if place.check != Check::Kill {
            ensure!(editor.close().await.success(), "the connection did not end well");
        }
        Ok(session)
    }

    /// Waits until late output of the answer is over: a report before that would belong to it.
    async fn wait_for_end(&self, session: &str) -> Result<()> {
        until("the end of the answer", LIMIT, || async {
            let run = last_run(&self.client(), session).await.ok()?;
            (run["status"] == "completed").then_some(())
        })
        .await
    }

    /// Answers the question before a tool call, and checks that the call waited for it.
    async fn answer_question(
        &self,
        editor: &mut Editor,
        session: &str,
        place: Place,
    ) -> Result<()> {
        let question = editor.request("session/request_permission").await;
        ensure!(!self.has_file(place), "the file was made before the answer");
        ensure!(question["params"]["sessionId"] == session, "{question}");
        let option = allow_once(&question["params"]["options"], "optionId")?;
        editor.choose(&question, option).await;
        until("the file", LIMIT, || async { self.has_file(place).then_some(()) }).await
    }

    async fn follow_subagent(
        &self,
        editor: &mut Editor,
        session: &str,
        place: Place,
    ) -> Result<()> {
        let is_announced = |update: &Value| update["sessionUpdate"] == "subagent_update";
        wait_for_update(editor, session, is_announced).await;
        let announced = editor.updates_of(session).into_iter().find(is_announced);
        let child = text(&announced.unwrap_or_default()["sessionId"])?.to_owned();
        self.answer_question(editor, &child, place).await?;
        wait_for_text(editor, &child, CHILD_ANSWER).await;
        let ended = json!({"state": "idle", "stopReason": "end_turn"});
        wait_for_update(editor, session, |it| it["sessionId"] == *child && it["state"] == ended)
            .await;
        Ok(())
    }

    async fn follow_task(&self, editor: &mut Editor, session: &str, place: Place) -> Result<()> {
        let run = self.started_by_agent(session).await?;
        if place.check == Check::Background {
            self.model.open(&place.task());
            self.answer_question(editor, session, place).await?;
            wait_for_text(editor, session, DONE).await;
        }
        if place.check == Check::CancelBackground {
            editor.notify("session/cancel", json!({"sessionId": session})).await;
            let path = format!("/api/v1/runs/{}", text(&run["id"])?);
            until("the end of the run", LIMIT, || async {
                let run = self.client().get(&path).await.ok()?.json();
                (run["status"] == "cancelled").then_some(())
            })
            .await?;
        }
        Ok(())
    }
}
