//! An agent on two byte streams, driven by a client whose messages are checked against the official schema.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use trilogue_sdk::agent_client::wire::{
    ClientCapabilities, FileSystemCapabilities, ReadTextFileRequest, ReadTextFileResponse,
    RequestPermissionRequest, RequestPermissionResponse, SessionUpdate, SystemPromptMode,
};
use trilogue_sdk::agent_client::{
    Client, ClientHandler, Error, ErrorObject, Options, Prompt, RejectAll, Session, SessionOptions,
    StopReason, TurnEnd, Update, allow_once,
};
use trilogue_sdk::prelude::*;
use trilogue_sdk::{PlanContent, PlanEntry, SystemPromptAbility, stdio};

const LONG: Duration = Duration::from_secs(20);

fn puppet() -> impl Agent {
    let card = Card::chat("puppet", "Does what you say.")
        .version("1.2.3")
        .system_prompt(SystemPromptAbility::Append)
        .config(json!({ "properties": { "loud": { "type": "boolean" } } }))
        .interrupt("count", json!({}), json!({ "type": "object" }));
    agent_fn("puppet", "", |turn: Turn, context: Context| async move {
        if let Turn::Resume { answer, saved, .. } = turn {
            let answer = format!("{answer:?}").contains("three");
            context.text(format!("{} {answer}", saved.as_str())).await?;
            return Ok(Outcome::Completed);
        }
        match turn.text().as_str() {
            "work" => {
                context.thought("I have to look.").await?;
                let step = PlanEntry { content: "Look".to_owned(), status: "pending".to_owned() };
                context.plan([step]).await?;
                let document = PlanContent::Markdown { text: "- [x] Read".to_owned(), path: None };
                context.plan_by_id("later", document).await?;
                context.remove_plan("later").await?;
                let call = context.tool("look", "Looking", json!({ "at": "it" })).await?;
                call.complete("seen").await?;
                context.text("One, ").await?;
                context.text("two.").await?;
                context.say([Part::text("Another message.")]).await?;
            }
            "ask" => {
                let question = Question::permission("May I?").payload(json!({ "tool": "rm" }));
                let allowed = context.ask_permission(question).await?.allowed;
                context.text(if allowed { "Thanks." } else { "Pity." }).await?;
            }
            "ask in words" => {
                let name = context.ask_text("What is your name?").await?;
                context.text(format!("Hello, {name}.")).await?;
            }
            "call" => {
                let error = context.call("other", "Hello!").await.unwrap_err();
                context.text(format!("{}: {error}", error.code())).await?;
            }
            "suspend" => return Outcome::suspended(Question::message("How many?"), "kept"),
            "count" => {
                let turns: u32 = context.state().await?;
                context.set_state(turns + 1).await?;
                let messages = context.history().await?.len();
                context.text(format!("{turns} {messages}")).await?;
            }
            "loud?" => context.text(format!("{:?}", context.config_json())).await?,
            "read" => {
                let editor =
                    context.editor().ok_or_else(|| AgentError::agent_failed("no editor"))?;
                context.text(editor.read_text_file("/a").await?).await?;
            }
            "wait" => {
                context.text("Waiting.").await?;
                context.wait(LONG * 100).await?;
            }
            "panic" => unreachable!("as it was told"),
            "instructed?" => {
                let prompt = context.system_prompt().await?;
                let shown = prompt.map(|prompt| (prompt.overrides, prompt.text));
                context.text(format!("{shown:?}")).await?;
            }
            "fail" => return Err(AgentError::new("no_luck", "There is no luck.")),
            "title" => context.custom("session_info_update", json!({ "title": "T" })).await?,
            other => context.text(other.repeat(4)).await?,
        }
        Ok(Outcome::Completed)
    })
    .with_card(card)
}

async fn connect(handler: impl ClientHandler) -> (Client, JoinHandle<Result<(), AgentError>>) {
    let (here, there) = tokio::io::duplex(64 * 1024);
    let (read, write) = tokio::io::split(there);
    let serving = tokio::spawn(stdio::serve_over(read, write, puppet(), stdio::Options::default()));
    let (read, write) = tokio::io::split(here);
    let client = Client::connect(read, write, handler, Options::default()).await.unwrap();
    (client, serving)
}

async fn session(handler: impl ClientHandler) -> Session {
    connect(handler).await.0.new_session(SessionOptions::new("/work")).await.unwrap()
}

async fn prompt(session: &Session, text: &str) -> (TurnEnd, Vec<Update>) {
    let mut turn = session.prompt(text).await.unwrap();
    let mut updates = Vec::new();
    while let Some(update) = tokio::time::timeout(LONG, turn.next()).await.unwrap().unwrap() {
        updates.push(update);
    }
    (turn.outcome().unwrap().clone(), updates)
}

async fn reply(session: &Session, text: &str) -> String {
    prompt(session, text).await.1.iter().map(Update::text).collect()
}

#[tokio::test]
async fn what_an_agent_says_and_does_is_shown() {
    let session = session(RejectAll).await;
    let info = session.client().agent().agent_info.clone().unwrap();
    assert_eq!((info.name.as_str(), info.version.as_str()), ("puppet", "1.2.3"));
    let (end, updates) = prompt(&session, "work").await;
    assert_eq!(end.stop_reason, StopReason::EndTurn);
    assert!(end.user_message_id.is_some() && end.alias.is_none());
    let kinds: Vec<_> = updates.iter().map(|update| update.body.kind()).collect();
    let expected = [
        "agent_thought_chunk",
        "plan",
        // The client knows only one plan, so it gets all of them as one.
        "plan",
        "plan",
        "tool_call",
        "tool_call_update",
        "agent_message_chunk",
        "agent_message_chunk",
        "agent_message_chunk",
    ];
    assert_eq!(kinds, expected);
    let plans: Vec<_> = updates
        .iter()
        .filter_map(|update| match &update.body {
            SessionUpdate::Plan(plan) => {
                Some(plan.entries.iter().map(|entry| entry.content.as_str()).collect::<Vec<_>>())
            }
            _ => None,
        })
        .collect();
    assert_eq!(plans, [vec!["Look"], vec!["Look", "Read"], vec!["Look"]]);
    // Chunks of one message have the same id, and another message has another id.
    let ids: Vec<_> = updates.iter().filter_map(|update| update.body.chunk()).collect();
    let ids: Vec<_> = ids.iter().map(|chunk| chunk.message_id.clone().unwrap()).collect();
    assert!(ids[1] == ids[2] && ids[2] != ids[3] && ids[0] != ids[1], "{ids:?}");

    let (_, titled) = prompt(&session, "title").await;
    assert_eq!(titled[0].body.kind(), "session_info_update");
}

#[tokio::test]
async fn an_id_is_acknowledged_where_the_session_keeps_it() {
    let session = session(RejectAll).await;
    let given = "9B1DEB4D-3B7D-4BAD-9BDD-2B0D7B3DCB6D";
    let long = "x".repeat(257);
    for (id, acknowledged) in
        [(given, Some(given)), (given, None), ("", None), (long.as_str(), None), ("m", Some("m"))]
    {
        let turn = session.prompt(Prompt::from("hello").with_message_id(id)).await.unwrap();
        let end = turn.finish().await.unwrap();
        assert_eq!(end.stop_reason, StopReason::EndTurn);
        assert_eq!(end.user_message_id.as_deref(), acknowledged, "{id:?}");
    }
}

#[tokio::test]
async fn an_agent_gets_the_instructions_of_its_client() {
    let (client, _serving) = connect(RejectAll).await;
    let options = SessionOptions::new("/work");
    let plain = client.new_session(options.clone()).await.unwrap();
    assert_eq!(reply(&plain, "instructed?").await, "None");
    let instructed = options.clone().append_system_prompt("Be brief.");
    let instructed = client.new_session(instructed).await.unwrap();
    assert_eq!(reply(&instructed, "instructed?").await, "Some((false, \"Be brief.\"))");
    let mut replaced = options.append_system_prompt("Be brief.");
    replaced.system_prompt.as_mut().unwrap().mode = SystemPromptMode::Override;
    // The agent keeps its own instructions.
    assert!(matches!(client.new_session(replaced).await, Err(Error::Invalid(_))));
}

#[derive(Debug)]
struct AllowAll;

#[async_trait]
impl ClientHandler for AllowAll {
    fn capabilities(&self) -> ClientCapabilities {
        let files =
            FileSystemCapabilities { read_text_file: true, ..FileSystemCapabilities::new() };
        ClientCapabilities { fs: Some(files), ..ClientCapabilities::new() }
    }

    async fn permission(&self, request: RequestPermissionRequest) -> RequestPermissionResponse {
        assert_eq!(request.tool_call.title.as_deref(), Some("May I?"));
        allow_once(&request)
    }

    async fn read_text_file(
        &self,
        request: ReadTextFileRequest,
    ) -> Result<ReadTextFileResponse, ErrorObject> {
        assert_eq!(request.path, "/a");
        Ok(ReadTextFileResponse::new("words"))
    }
}

#[tokio::test]
async fn an_agent_asks_through_the_editor() {
    let allows = session(AllowAll).await;
    assert_eq!(reply(&allows, "ask").await, "Thanks.");
    assert_eq!(reply(&allows, "read").await, "words");
    let rejects = session(RejectAll).await;
    assert_eq!(reply(&rejects, "ask").await, "Pity.");

    // The editor has no forms: the question ends the turn, and the next prompt answers it.
    assert_eq!(reply(&rejects, "ask in words").await, "What is your name?");
    assert_eq!(reply(&rejects, "Ada").await, "Hello, Ada.");
    assert_eq!(reply(&rejects, "suspend").await, "How many?");
    assert_eq!(reply(&rejects, "three").await, "\"kept\" true");
    assert_eq!(reply(&rejects, "ho").await, "hohohoho");
}

#[tokio::test]
async fn an_agent_alone_calls_no_other() {
    let session = session(RejectAll).await;
    let said = reply(&session, "call").await;
    assert!(said.starts_with("agent_not_found: this agent runs without a server"), "{said}");
}

#[tokio::test]
async fn a_session_keeps_its_history_state_and_options() {
    let session = session(RejectAll).await;
    assert_eq!(reply(&session, "count").await, "0 0");
    assert_eq!(reply(&session, "count").await, "1 2");
    let other = session.client().new_session(SessionOptions::new("/work")).await.unwrap();
    assert_eq!(reply(&other, "count").await, "0 0");
    assert_eq!(reply(&session, "loud?").await, "None");
}

#[tokio::test]
async fn turns_are_cancelled_and_fail_alone() {
    let (client, serving) = connect(RejectAll).await;
    let session = client.new_session(SessionOptions::new("/work")).await.unwrap();
    let mut turn = session.prompt("wait").await.unwrap();
    assert_eq!(turn.next().await.unwrap().unwrap().text(), "Waiting.");
    turn.cancel().await.unwrap();
    assert_eq!(turn.finish().await.unwrap().stop_reason, StopReason::Cancelled);

    for (text, code) in [("fail", "no_luck"), ("panic", "agent_panicked")] {
        let failed = session.prompt(text).await.unwrap().finish().await.unwrap_err();
        let data = failed.refusal().unwrap().data.as_ref().unwrap().to_value();
        assert_eq!(data["code"], code);
    }
    // An unanswered question ends with its turn.
    assert_eq!(reply(&session, "ask in words").await, "What is your name?");
    session.cancel().await.unwrap();
    assert_eq!(reply(&session, "a").await, "aaaa");

    client.close().await;
    drop(session);
    tokio::time::timeout(LONG, serving).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn requests_that_do_not_fit_are_refused() {
    let session = session(RejectAll).await;
    let refused = async |method: &str, params: Value| {
        let refused = session.client().extension(method, &params).await.unwrap_err();
        refused.refusal().unwrap().code.0
    };
    let prompt = json!([{ "type": "text", "text": "a" }]);
    let unknown = json!({ "sessionId": "unknown", "prompt": prompt });
    assert_eq!(refused("session/prompt", unknown).await, -32002);
    assert_eq!(refused("session/prompt", json!({})).await, -32602);
    assert_eq!(refused("session/load", json!({})).await, -32602);
    assert_eq!(refused("nonsense", json!({})).await, -32601);
}
