//! The checks over the Agent Communication Protocol and the Agent Connect Protocol.

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use trilogue_testkit::{Client, Server, until};
use uuid::Uuid;

use super::{
    ANSWER, CHILD_ANSWER, Check, DONE, Face, Hosted, LIMIT, PLAN, Place, REPORT, allow_once, text,
};

/// A thread, as a client of one of the protocols uses it.
struct Conversation<'a> {
    client: Client,
    face: Face,
    agent: &'a str,
    thread: String,
}

/// The status of a run, in words of both protocols.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Status {
    Works,
    Asks,
    Completed,
    Cancelled,
    Failed,
}

/// Checks that the thread of the killed server has the report, and that its run has failed.
pub(super) async fn check_lost(
    server: &Server,
    place: Place,
    thread: &str,
    run: &str,
) -> Result<()> {
    let (client, thread) = (server.client(), thread.to_owned());
    let conversation = Conversation { client, face: place.face, agent: "", thread };
    let messages = conversation.messages(&conversation.thread).await?;
    ensure!(messages.contains(ANSWER) && messages.contains(REPORT), "{messages}");
    let status = conversation.status(run).await?;
    ensure!(status == Status::Failed, "the run is {status:?}");
    Ok(())
}

// === impl Conversation ===

impl Conversation<'_> {
    async fn post(&self, path: &str, body: Value) -> Result<Value> {
        self.client.post(path, &body).await?.ok().with_context(|| path.to_owned())
    }

    async fn get(&self, path: &str) -> Result<Value> {
        self.client.get(path).await?.ok().with_context(|| path.to_owned())
    }

    /// Prompts the agent, and returns the run.
    async fn prompt(&self, prompt: &str) -> Result<String> {
        let run = match self.face {
            Face::Communication => {
                let body = json!({
                    "agent_name": self.agent, "mode": "async", "session_id": self.thread,
                    "input": [message(prompt)],
                });
                self.post("/communication/runs", body).await?
            }
            _ => {
                self.post("/connect/threads", json!({"thread_id": self.thread})).await?;
                let body = json!({
                    "agent_id": self.agent, "input": {"message": prompt},
                    "stream_mode": ["values", "custom"],
                });
                self.post(&format!("/connect/threads/{}/runs", self.thread), body).await?
            }
        };
        Ok(text(&run["run_id"])?.to_owned())
    }

    fn path(&self, run: &str) -> String {
        match self.face {
            Face::Communication => format!("/communication/runs/{run}"),
            _ => format!("/connect/threads/{}/runs/{run}", self.thread),
        }
    }

    async fn status(&self, run: &str) -> Result<Status> {
        let shown = self.get(&self.path(run)).await?;
        Ok(match text(&shown["status"])? {
            "awaiting" | "interrupted" => Status::Asks,
            "completed" | "success" => Status::Completed,
            "cancelled" => Status::Cancelled,
            "failed" => Status::Failed,
            "error" => {
                let ended = self.get(&format!("{}/wait", self.path(run))).await?;
                if ended["output"]["errcode"] == 5 { Status::Cancelled } else { Status::Failed }
            }
            "created" | "in-progress" | "cancelling" | "pending" => Status::Works,
            other => bail!("unknown status '{other}'"),
        })
    }

    async fn reach(&self, run: &str, wanted: Status) -> Result<()> {
        let reached = until("the status of a run", LIMIT, || async {
            match self.status(run).await {
                Ok(status) if status == wanted => Some(Ok(())),
                Ok(Status::Works) | Err(_) => None,
                Ok(other) => Some(Err(anyhow::anyhow!("the run is {other:?}"))),
            }
        });
        reached.await.with_context(|| format!("{wanted:?}"))?
    }

    async fn cancel(&self, run: &str) -> Result<()> {
        let reply = self.client.post(&format!("{}/cancel", self.path(run)), &json!({})).await?;
        ensure!(reply.status < 300, "the cancellation was refused with {}", reply.status);
        self.reach(run, Status::Cancelled).await
    }

    /// Allows the tool call that a run asks about.
    async fn allow(&self, run: &str) -> Result<()> {
        let path = self.path(run);
        let answer = match self.face {
            Face::Communication => {
                let answer = json!({"type": "message", "message": message("yes")});
                json!({"await_resume": answer, "mode": "async"})
            }
            _ => {
                let ended = self.get(&format!("{path}/wait")).await?;
                let payload = &ended["output"]["interrupt_payload"];
                json!({"option_id": allow_once(&payload["options"], "option_id")?})
            }
        };
        self.post(&path, answer).await?;
        Ok(())
    }

    /// Waits until the history of a thread has this text.
    async fn wait_for_text(&self, thread: &str, wanted: &str) -> Result<()> {
        until("a text of the history", LIMIT, || async {
            self.messages(thread).await.ok().filter(|messages| messages.contains(wanted))
        })
        .await
        .map(drop)
        .with_context(|| wanted.to_owned())
    }

    /// The messages of a thread.
    async fn messages(&self, thread: &str) -> Result<String> {
        if self.face == Face::Connect {
            let shown = self.get(&format!("/connect/threads/{thread}")).await?;
            return Ok(shown["values"].to_string());
        }
        let session = self.get(&format!("/communication/sessions/{thread}")).await?;
        let mut messages = String::new();
        for address in session["history"].as_array().context("no history")? {
            let place = text(address)?.find("/communication/").context("no path")?;
            let path = text(address)?.get(place..).unwrap_or_default();
            messages.push_str(&self.get(path).await?.to_string());
        }
        Ok(messages)
    }

    /// The events of this kind in a run.
    async fn events(&self, run: &str, kind: &str) -> Result<Vec<Value>> {
        if self.face == Face::Communication {
            let listed = self.get(&format!("{}/events", self.path(run))).await?;
            let all = listed["events"].as_array().context("no events")?.iter();
            let generic = all.map(|event| &event["generic"]);
            return Ok(generic.filter(|it| it["kind"] == kind).cloned().collect());
        }
        let path = format!("{}/stream", self.path(run));
        let mut stream = self.client.stream(&path, Some("0")).await?;
        let mut found = Vec::new();
        while let Some(event) = stream.next().await? {
            let data: Value = serde_json::from_str(&event.data).unwrap_or_default();
            if data.to_string().contains(&format!("state.{kind}")) {
                found.push(data);
            }
        }
        Ok(found)
    }

    /// The thread of the sub-agent that a run has begun.
    async fn subagent(&self, run: &str) -> Result<String> {
        until("a sub-agent", LIMIT, || async {
            let found = match self.face {
                Face::Communication => {
                    self.events(run, "subagent").await.ok()?.first().map(|it| it["data"].clone())
                }
                _ => {
                    let body = json!({"metadata": {"parent_thread_id": self.thread}});
                    self.post("/connect/threads/search", body).await.ok()?.get(0).cloned()
                }
            };
            found?["thread_id"].as_str().map(str::to_owned)
        })
        .await
    }

    /// The newest run of a thread.
    async fn newest_run(&self, thread: &str) -> Result<String> {
        until("a run", LIMIT, || async {
            let runs = match self.face {
                Face::Communication => {
                    let path = format!("/communication/runs?session_id={thread}&limit=1");
                    self.get(&path).await.ok()?["runs"].take()
                }
                _ => self.get(&format!("/connect/threads/{thread}/runs?limit=1")).await.ok()?,
            };
            runs[0]["run_id"].as_str().map(str::to_owned)
        })
        .await
    }
}

// === impl Hosted ===

impl Hosted {
    pub(super) async fn run(&self, place: Place) -> Result<String> {
        let (client, agent) = (self.client(), self.agent(place));
        let thread = Uuid::new_v4().to_string();
        let conversation = Conversation { client, face: place.face, agent: &agent, thread };
        let run = conversation.prompt(&place.prompt()).await?;
        match place.check {
            Check::Cancel => {
                self.model.reach(&place.prompt(), LIMIT).await?;
                conversation.cancel(&run).await?;
                return Ok(conversation.thread);
            }
            Check::Question => self.answer_run(&conversation, &run, place).await?,
            Check::Subagent => self.see_subagent(&conversation, &run, place).await?,
            Check::Plan => {
                conversation.reach(&run, Status::Asks).await?;
                conversation.allow(&run).await?;
            }
            _ => {}
        }
        conversation.reach(&run, Status::Completed).await?;
        let said = conversation.messages(&conversation.thread).await?;
        match place.check {
            Check::Subagent => ensure!(said.contains(ANSWER), "{said}"),
            Check::Background | Check::CancelBackground | Check::Kill => {
                ensure!(said.contains(ANSWER) && !said.contains(REPORT), "{said}");
                self.adapter.lets_report(&self.model, &self.cwd, &place).await?;
                self.see_task(&conversation, place).await?;
            }
            _ => ensure!(said.contains(DONE), "{said}"),
        }
        if place.check == Check::Plan {
            let plans = conversation.events(&run, "plan_updated").await?;
            let plan = Value::from(PLAN).to_string();
            let is_ours = |event: &Value| event.to_string().contains(plan.trim_matches('"'));
            ensure!(plans.iter().any(is_ours), "{plans:?}");
        }
        Ok(conversation.thread)
    }

    /// Answers the question before a tool call, and checks that the call waited for it.
    async fn answer_run(
        &self,
        conversation: &Conversation<'_>,
        run: &str,
        place: Place,
    ) -> Result<()> {
        conversation.reach(run, Status::Asks).await?;
        ensure!(!self.has_file(place), "the file was made before the answer");
        conversation.allow(run).await?;
        until("the file", LIMIT, || async { self.has_file(place).then_some(()) }).await
    }

    async fn see_subagent(
        &self,
        conversation: &Conversation<'_>,
        run: &str,
        place: Place,
    ) -> Result<()> {
        let (face, agent) = (conversation.face, conversation.agent);
        let (client, thread) = (conversation.client.clone(), conversation.subagent(run).await?);
        let child = Conversation { client, face, agent, thread };
        let work = child.newest_run(&child.thread).await?;
        self.answer_run(&child, &work, place).await?;
        child.wait_for_text(&child.thread, CHILD_ANSWER).await?;
        child.reach(&work, Status::Completed).await
    }

    async fn see_task(&self, conversation: &Conversation<'_>, place: Place) -> Result<()> {
        conversation.wait_for_text(&conversation.thread, REPORT).await?;
        let started = self.started_by_agent(&conversation.thread).await?;
        let run = conversation.newest_run(&conversation.thread).await?;
        ensure!(started["id"] == run.as_str(), "{run} is not {started}");
        match place.check {
            Check::Background => {
                self.model.open(&place.task());
                self.answer_run(conversation, &run, place).await?;
                conversation.wait_for_text(&conversation.thread, DONE).await
            }
            Check::CancelBackground => conversation.cancel(&run).await,
            _ => Ok(()),
        }
    }
}

fn message(text: &str) -> Value {
    json!({"role": "user", "parts": [{"content_type": "text/plain", "content": text}]})
}
