//! Agents that call other agents: for clients that show sub-agents, and for others.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use trilogue_backends::agent_client::Launch;
use trilogue_backends::child::Children;
use trilogue_backends::permission::Rules;
use trilogue_backends::{AgentClient, NativeAgent};
use trilogue_runtime::Backend;
use trilogue_sdk::prelude::*;
use trilogue_testkit::official::scripted_agent;
use trilogue_testkit::until;

use crate::client_editor::Editor;
use crate::client_local::position;
use crate::rig::{LIMIT, Rig, Setup, text};

/// Calls the agent that the first word of its prompt names, with the rest.
struct Caller(&'static str);

#[async_trait]
impl Agent for Caller {
    fn card(&self) -> Card {
        Card::chat(self.0, "Calls another agent.")
    }

    async fn run(&self, turn: Turn, context: Context) -> Result<Outcome, AgentError> {
        let text = turn.text();
        let (agent, rest) = text.split_once(' ').unwrap();
        let output = context.call(agent, rest).await;
        let output = output.map_or_else(|error| error.code().to_owned(), |output| output.text());
        context.text(format!("{agent}: {output}")).await?;
        Ok(Outcome::Completed)
    }
}

async fn callers() -> Rig {
    let caller = |name| Arc::new(NativeAgent::new(Caller(name)).unwrap()) as Arc<dyn Backend>;
    Rig::of(Setup { agents: vec![caller("caller"), caller("middle")], ..Setup::default() }).await
}

fn able() -> Value {
    json!({ "subagents": {} })
}

/// A kind of update, with the session and what matters of its content.
fn trace(editor: &Editor) -> Vec<(String, String)> {
    let all = editor.updates.iter().map(|params| {
        let update = &params["update"];
        let kind = update["sessionUpdate"].as_str().unwrap();
        let shown = match kind {
            "subagent_update" => {
                let state = &update["state"];
                let words = [&update["title"], &state["state"], &state["stopReason"]];
                let words = words.iter().filter_map(|word| word.as_str());
                format!("{kind} {}", words.collect::<Vec<_>>().join(" "))
            }
            kind if kind.ends_with("_chunk") => {
                format!("{kind} {}", update["content"]["text"].as_str().unwrap())
            }
            kind if kind.starts_with("tool_call") => {
                format!("{kind} {}", update["status"].as_str().unwrap_or_default())
            }
            kind => kind.to_owned(),
        };
        (params["sessionId"].as_str().unwrap().to_owned(), shown)
    });
    all.collect()
}

/// The updates of one session, in order.
fn traced(editor: &Editor, session: &str) -> Vec<String> {
    trace(editor).into_iter().filter(|(of, _)| of == session).map(|(_, shown)| shown).collect()
}

/// The sub-agents in the order of their announcements: the parent's session and their own.
fn announced(editor: &Editor) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for params in &editor.updates {
        let child = params["update"]["sessionId"].as_str();
        let is_one = params["update"]["sessionUpdate"] == "subagent_update";
        let Some(child) = child.filter(|_| is_one) else { continue };
        if !found.iter().any(|(_, known)| known == child) {
            found.push((params["sessionId"].as_str().unwrap().to_owned(), child.to_owned()));
        }
    }
    found
}

/// Checks that every child is announced on its parent's session before anything else of it.
fn assert_announced_first(editor: &Editor, root: &str) {
    let mut known = vec![root.to_owned()];
    for params in &editor.updates {
        let session = params["sessionId"].as_str().unwrap();
        assert!(known.iter().any(|it| it == session), "not announced before: {params}");
        if params["update"]["sessionUpdate"] == "subagent_update" {
            known.push(params["update"]["sessionId"].as_str().unwrap().to_owned());
        }
    }
}

/// Waits for the update that ends a child's work.
async fn wait_for_idle(editor: &mut Editor, child: &str) {
    let is_idle = |params: &Value| {
        params["update"]["sessionId"] == child && params["update"]["state"]["state"] == "idle"
    };
    while !editor.updates.iter().any(is_idle) {
        editor.message().await.unwrap();
    }
}

#[tokio::test]
async fn a_called_agent_is_a_sub_agent_for_clients_that_show_them() {
    let rig = callers().await;
    let (mut editor, session) = rig.editor_socket().open_session_with("caller", able()).await;
    let mut plain = rig.editor_socket().load_session("caller", &session).await;
    editor.prompt(&session, "puppet hello").await;
    let [(parent, child)] = &announced(&editor)[..] else { panic!("{:?}", editor.updates) };
    assert_eq!(*parent, session);
    wait_for_idle(&mut editor, child).await;
    assert_announced_first(&editor, &session);
    assert_eq!(traced(&editor, child), ["user_message_chunk hello", "agent_message_chunk hello"]);
    let mut of_parent = traced(&editor, &session);
    // The child's pump sends these next to those of the parent.
    let states = ["subagent_update running", "subagent_update idle end_turn"];
    assert!(states.iter().all(|it| of_parent.contains(&(*it).to_owned())), "{of_parent:?}");
    of_parent.retain(|it| !states.contains(&it.as_str()));
    let expected = [
        "subagent_update puppet",
        "tool_call in_progress",
        "tool_call_update completed",
        "agent_message_chunk puppet: hello",
    ];
    assert_eq!(of_parent, expected);
    let of_kind = |editor: &Editor, kind: &str| -> Value {
        let found = editor.updates_of(&session).into_iter();
        found.into_iter().find(|update| update["sessionUpdate"] == kind).unwrap()
    };
    let call = of_kind(&editor, "tool_call");
    assert_eq!(call["content"], json!([{"type": "session", "sessionId": child}]));
    assert_eq!(call["rawInput"]["thread_id"], *child);
    assert_eq!(of_kind(&editor, "subagent_update")["capabilities"], json!({"cancel": {}}));

    // Another client sees the tool call alone.
    plain.until(|message| message["params"]["update"]["content"]["text"] == "puppet: hello").await;
    let expected = [
        "user_message_chunk puppet hello",
        "tool_call in_progress",
        "tool_call_update completed",
        "agent_message_chunk puppet: hello",
    ];
    assert_eq!(traced(&plain, &session), expected);
    assert_eq!(plain.updates.len(), expected.len());
    assert_eq!(of_kind(&plain, "tool_call")["content"], Value::Null);
}

#[tokio::test]
async fn a_replay_rebuilds_the_tree() {
    let rig = callers().await;
    let (mut editor, session) = rig.editor_socket().open_session_with("caller", able()).await;
    editor.prompt(&session, "middle puppet hello").await;
    editor.prompt(&session, "puppet again").await;
    let mut later = rig.editor_socket().with("caller", able()).await;
    later.load(&session).await;
    assert_announced_first(&later, &session);
    let children = announced(&later);
    let [(first, middle), (second, puppet), (third, again)] = &children[..] else {
        panic!("{children:?}")
    };
    assert_eq!((first, second, third), (&session, middle, &session));
    let expected = [
        (&session, "user_message_chunk middle puppet hello"),
        (&session, "subagent_update middle"),
        (&session, "tool_call in_progress"),
        (middle, "user_message_chunk puppet hello"),
        (&session, "subagent_update running"),
        (middle, "subagent_update puppet"),
        (middle, "tool_call in_progress"),
        (puppet, "user_message_chunk hello"),
        (middle, "subagent_update running"),
        (puppet, "agent_message_chunk hello"),
        (middle, "subagent_update idle end_turn"),
        (middle, "tool_call_update completed"),
        (middle, "agent_message_chunk puppet: hello"),
        (&session, "subagent_update idle end_turn"),
        (&session, "tool_call_update completed"),
        (&session, "agent_message_chunk middle: puppet: hello"),
        (&session, "user_message_chunk puppet again"),
        (&session, "subagent_update puppet"),
        (&session, "tool_call in_progress"),
        (again, "user_message_chunk again"),
        (&session, "subagent_update running"),
        (again, "agent_message_chunk again"),
        (&session, "subagent_update idle end_turn"),
        (&session, "tool_call_update completed"),
        (&session, "agent_message_chunk puppet: again"),
    ];
    let expected: Vec<_> =
        expected.iter().map(|(session, shown)| ((*session).clone(), (*shown).to_owned())).collect();
    assert_eq!(trace(&later), expected);
    // The same client loads it once more.
    later.updates.clear();
    later.load(&session).await;
    assert_eq!(trace(&later), expected);
}

#[tokio::test]
async fn a_question_of_a_sub_agent_is_asked_once_in_each_client() {
    let rig = callers().await;
    let (mut editor, session) = rig.editor_socket().open_session_with("caller", able()).await;
    let mut plain = rig.editor_socket().load_session("caller", &session).await;
    let prompt = editor.start_prompt(&session, "middle puppet ask 2").await;
    let first = editor.request("session/request_permission").await;
    let children = announced(&editor);
    let (_, puppet) = children.last().unwrap();
    assert_eq!(first["params"]["sessionId"], *puppet);
    let asked = plain.request("session/request_permission").await;
    assert_eq!(asked["params"]["sessionId"], session);
    // The answer in one client takes the question back from the other.
    plain.choose(&asked, "yes").await;
    let withdrawn = editor.wait_for_notification("$/cancel_request").await;
    assert_eq!(withdrawn["params"]["requestId"], first["id"]);
    let second = editor.request("session/request_permission").await;
    assert_eq!(second["params"]["sessionId"], *puppet);
    // A client that comes now is asked in the child's session too.
    let mut later = rig.editor_socket().with("caller", able()).await;
    later.load(&session).await;
    let again = later.request("session/request_permission").await;
    assert_eq!(again["params"]["sessionId"], *puppet);
    assert_announced_first(&later, &session);
    editor.choose(&second, "no").await;
    let answer = editor.answer(&prompt).await;
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    let withdrawn = later.wait_for_notification("$/cancel_request").await;
    assert_eq!(withdrawn["params"]["requestId"], again["id"]);
    let is_question = |message: &Value| message["method"] == "session/request_permission";
    assert!(!editor.has_before(is_question) && !later.has_before(is_question));
    assert_eq!(
        editor.words("agent_message_chunk").last().unwrap(),
        "middle: puppet: yes\n\nno",
        "{:?}",
        editor.updates
    );
}

#[tokio::test]
async fn a_client_that_resumes_learns_which_sub_agents_work() {
    let rig = callers().await;
    let (mut editor, session) = rig.editor_socket().open_session_with("caller", able()).await;
    editor.prompt(&session, "puppet over").await;
    let prompt = editor.start_prompt(&session, "puppet ask").await;
    let first = editor.request("session/request_permission").await;
    let mut later = rig.editor_socket().with("caller", able()).await;
    later.ok("session/resume", json!({"sessionId": session, "cwd": "/w", "mcpServers": []})).await;
    let asked = later.request("session/request_permission").await;
    let [(_, child)] = &announced(&later)[..] else { panic!("{:?}", later.updates) };
    assert_eq!(trace(&later), [(session.clone(), "subagent_update puppet requires_action".into())]);
    assert_eq!(asked["params"]["sessionId"], *child);
    assert_eq!(first["params"]["sessionId"], *child);
    later.choose(&asked, "yes").await;
    editor.answer(&prompt).await;
    wait_for_idle(&mut later, child).await;
    assert_eq!(traced(&later, child), ["agent_message_chunk yes"]);
}

#[tokio::test]
async fn a_client_that_comes_back_gets_what_sub_agents_sent_meanwhile() {
    let rig = callers().await;
    let mut first = rig.editor_socket().numbered_with("caller", "me", able()).await;
    let session = first.session().await;
    let text = json!([{"type": "text", "text": "puppet ask"}]);
    let prompt = json!({"sessionId": session, "prompt": text, "_meta": {"trilogue": {"key": "k"}}});
    let waiting = first.ask("session/prompt", prompt.clone()).await;
    first.request("session/request_permission").await;
    let [(_, child)] = &announced(&first)[..] else { panic!("{:?}", first.updates) };
    // The position behind the question.
    let head = format!("#P {child} ");
    first.control.retain(|line| !line.starts_with(&head));
    first.until_control(|line| line.starts_with(&head)).await;
    let (after, of_child) = (position(&first, &session), position(&first, child));
    let received = traced(&first, child);
    let child = child.clone();
    drop((first, waiting));
    // Another client answers before the first is back.
    let mut other = rig.editor_socket().with("caller", able()).await;
    other.load(&session).await;
    let asked = other.request("session/request_permission").await;
    other.choose(&asked, "yes").await;
    wait_for_idle(&mut other, &child).await;
    let mut back = rig.editor_socket().numbered_with("caller", "me", able()).await;
    let attach = json!({
        "sessionId": session, "after": after, "cwd": "/w", "mcpServers": [],
        "afterOfChildren": {child.as_str(): of_child, "unknown": 3},
    });
    back.ok("_trilogue/attach", attach).await;
    let again = back.ask("session/prompt", prompt).await;
    assert_eq!(back.answer(&again).await["result"]["stopReason"], "end_turn");
    wait_for_idle(&mut back, &child).await;
    assert_announced_first(&back, &session);
    let whole = traced(&other, &child);
    assert_eq!([received, traced(&back, &child)].concat(), whole);
    assert_eq!(traced(&back, &child), ["agent_message_chunk yes"]);
}

#[tokio::test]
async fn a_client_can_cancel_a_sub_agent_and_change_nothing_else() {
    let rig = callers().await;
    let (mut editor, session) = rig.editor_socket().open_session_with("caller", able()).await;
    let prompt = editor.start_prompt(&session, "puppet begin").await;
    editor.until(|message| message["params"]["update"]["content"]["text"] == "at work").await;
    let [(_, child)] = &announced(&editor)[..] else { panic!("{:?}", editor.updates) };
    let child = child.clone();
    let of_child = |mut params: Value| {
        params["sessionId"] = child.clone().into();
        params
    };
    for (method, params) in [
        ("session/prompt", json!({"prompt": [{"type": "text", "text": "x"}]})),
        ("session/set_mode", json!({"modeId": "a"})),
        ("session/set_config_option", json!({"configId": "a", "value": "b"})),
        ("session/close", json!({})),
        ("session/delete", json!({})),
    ] {
        let refused = editor.call(method, of_child(params)).await;
        assert_eq!(refused["error"]["code"], -32602, "{method}: {refused}");
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.contains("sub-agent"), "{message}");
    }
    let listed = rig.editor_socket().plain("puppet").await.ok("session/list", json!({})).await;
    assert_eq!(listed["sessions"], json!([]));
    editor.notify("session/cancel", of_child(json!({}))).await;
    let answer = editor.answer(&prompt).await;
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    wait_for_idle(&mut editor, &child).await;
    let of_parent = traced(&editor, &session);
    assert!(of_parent.contains(&"subagent_update idle cancelled".to_owned()), "{of_parent:?}");
    assert!(of_parent.contains(&"tool_call_update failed".to_owned()), "{of_parent:?}");
    // A client that loads the thread itself has it as any other.
    let history = editor.load(&child).await;
    assert!(history.is_object());
    editor.prompt(&child, "puppet hello").await;
    assert_eq!(traced(&editor, &child).last().unwrap(), "agent_message_chunk puppet: hello");
}

#[tokio::test]
async fn closing_a_session_ends_the_updates_of_its_sub_agents() {
    let rig = callers().await;
    let (mut editor, session) = rig.editor_socket().open_session_with("caller", able()).await;
    let (mut other, _) = rig.editor_socket().open_session_with("caller", able()).await;
    other.load(&session).await;
    let prompt = editor.start_prompt(&session, "puppet ask").await;
    let asked = other.request("session/request_permission").await;
    let question = editor.request("session/request_permission").await;
    other.ok("session/close", json!({"sessionId": session})).await;
    let withdrawn = other.wait_for_notification("$/cancel_request").await;
    assert_eq!(withdrawn["params"]["requestId"], asked["id"]);
    let before = other.updates.len();
    editor.choose(&question, "yes").await;
    editor.answer(&prompt).await;
    // A response comes after everything that was sent before it.
    other.ok("session/list", json!({})).await;
    assert_eq!(other.updates.len(), before);
}

/// An agent's own sub-agent: a thread in which another client stands for the agent, and its parent's session with one client of each kind.
struct Reported {
    rig: Rig,
    driver: Editor,
    child: String,
    able: Editor,
    plain: Editor,
    session: String,
}

impl Reported {
    async fn start() -> Self {
        let rig = callers().await;
        let (driver, child) = rig.editor_socket().open_session("puppet").await;
        let (able, session) = rig.editor_socket().open_session_with("puppet", able()).await;
        let plain = rig.editor_socket().load_session("puppet", &session).await;
        Self { rig, driver, child, able, plain, session }
    }

    async fn report(&mut self, state: &str) {
        let text = format!("subagent {} {state}", self.child);
        self.able.prompt(&self.session, &text).await;
    }
}

fn has_text(text: &str) -> impl Fn(&Value) -> bool {
    move |message| message.to_string().contains(text)
}

#[tokio::test]
async fn an_agents_own_sub_agent_is_a_session_or_one_tool_call() {
    let mut it = Reported::start().await;
    it.driver.prompt(&it.child, "earlier").await;
    it.report("running").await;
    it.driver.prompt(&it.child, "hello").await;
    it.able.until(|message| message["params"]["update"]["content"]["text"] == "hello").await;
    it.plain
        .until(|message| message["params"]["update"]["content"][0]["content"]["text"] == "hello")
        .await;
    it.report("idle:error").await;
    it.plain.until(has_text("failed")).await;
    assert_announced_first(&it.able, &it.session);
    let whole = [
        "user_message_chunk earlier",
        "agent_message_chunk earlier",
        "user_message_chunk hello",
        "agent_message_chunk hello",
    ];
    assert_eq!(traced(&it.able, &it.child), whole);
    let told = ["subagent_update Helper running", "subagent_update Helper idle error"];
    assert_eq!(traced(&it.able, &it.session), told);
    let calls = |editor: &Editor| -> Vec<Value> {
        let all = editor.updates_of(&it.session).into_iter();
        all.filter(|update| update["sessionUpdate"].as_str().unwrap().starts_with("tool")).collect()
    };
    let id = format!("subagent-{}", it.child);
    let said = |text: &str| {
        let content = json!([{"type": "content", "content": {"type": "text", "text": text}}]);
        json!({"sessionUpdate": "tool_call_update", "toolCallId": id, "content": content})
    };
    let begun = json!({"sessionUpdate": "tool_call", "toolCallId": id, "title": "Helper", "kind": "other", "status": "in_progress"});
    let ended = json!({"sessionUpdate": "tool_call_update", "toolCallId": id, "title": "Helper", "status": "failed"});
    let expected = [begun, said("earlier"), said("hello"), ended];
    assert_eq!(calls(&it.plain), expected);
    assert_eq!(announced(&it.plain), []);

    // A replay gives both the same.
    let mut able = it.rig.editor_socket().with("puppet", able()).await;
    able.load(&it.session).await;
    assert_announced_first(&able, &it.session);
    assert_eq!(traced(&able, &it.child), whole);
    assert_eq!(traced(&able, &it.session)[1], told[0]);
    let plain = it.rig.editor_socket().load_session("puppet", &it.session).await;
    assert_eq!(calls(&plain), expected);

    // The tool call shows the beginning of a long message.
    let long = "x".repeat(5_000);
    it.driver.prompt(&it.child, &long).await;
    let shown = |message: &Value| message.to_string().contains("xxxx");
    let shown = it.plain.until(shown).await["params"]["update"]["content"][0]["content"].clone();
    assert_eq!(shown["text"], format!("{}…", "x".repeat(4_096)));
}

#[tokio::test]
async fn the_tool_call_of_a_sub_agent_ends_when_its_state_is_lost() {
    let mut it = Reported::start().await;
    let statuses = |editor: &Editor, session: &str| -> Vec<String> {
        let shown = traced(editor, session).into_iter();
        shown.filter(|shown| shown.starts_with("tool_call")).collect()
    };
    // A state that was never known ends nothing, and what has ended stays as it ended.
    for state in ["none", "running", "none", "running", "idle:end_turn", "none"] {
        it.report(state).await;
    }
    it.plain.until(has_text("completed")).await;
    let expected = [
        "tool_call in_progress",
        "tool_call_update failed",
        "tool_call_update in_progress",
        "tool_call_update completed",
    ];
    assert_eq!(statuses(&it.plain, &it.session), expected);
    let later = it.rig.editor_socket().load_session("puppet", &it.session).await;
    assert_eq!(statuses(&later, &it.session), expected);
}

#[tokio::test]
async fn a_question_of_an_agents_own_sub_agent_reaches_both_kinds_of_clients() {
    let mut it = Reported::start().await;
    it.report("running").await;
    let prompt = it.driver.start_prompt(&it.child, "ask 2").await;
    let first = it.able.request("session/request_permission").await;
    assert_eq!(first["params"]["sessionId"], *it.child);
    let asked = it.plain.request("session/request_permission").await;
    assert_eq!(asked["params"]["sessionId"], *it.session);
    it.plain.choose(&asked, "yes").await;
    let withdrawn = it.able.wait_for_notification("$/cancel_request").await;
    assert_eq!(withdrawn["params"]["requestId"], first["id"]);
    let second = it.able.request("session/request_permission").await;
    it.able.choose(&second, "no").await;
    let again = it.plain.request("session/request_permission").await;
    let withdrawn = it.plain.wait_for_notification("$/cancel_request").await;
    assert_eq!(withdrawn["params"]["requestId"], again["id"]);
    it.driver.end_turn(&prompt).await;
}

#[tokio::test]
async fn a_sub_agent_that_cannot_be_cancelled_goes_on() {
    let mut it = Reported::start().await;
    it.report("running").await;
    let prompt = it.driver.start_prompt(&it.child, "ask").await;
    let asked = it.able.request("session/request_permission").await;
    it.able.notify("session/cancel", json!({"sessionId": it.child})).await;
    it.able.ok("session/list", json!({})).await;
    it.able.choose(&asked, "yes").await;
    it.driver.end_turn(&prompt).await;
}

/// A server with an agent's program in this folder.
async fn scripted(folder: &Path) -> Rig {
    let path = |name: &str| folder.join(name).display().to_string();
    let program = scripted_agent().await.unwrap().display().to_string();
    let mut launch = Launch::of([program, "--load".to_owned(), "--store".to_owned(), path("kept")]);
    launch.cwd = Some(folder.to_owned());
    let children = Children::open(Some(folder.join("state"))).await.unwrap();
    let card = Card::chat("scripted", "Does what it is told.").build().unwrap();
    let agent = AgentClient::new(card, launch, children, Arc::new(Rules::default())).unwrap();
    Rig::of(Setup { agents: vec![Arc::new(agent)], ..Setup::default() }).await
}

#[tokio::test]
async fn a_client_that_has_a_sub_agent_learns_its_end_after_its_thread_was_erased() {
    let mut it = Reported::start().await;
    it.report("running").await;
    it.plain.until(has_text("in_progress")).await;
    it.driver.ok("session/delete", json!({"sessionId": it.child})).await;
    it.report("none").await;
    it.plain.until(has_text("failed")).await;
    let of_parent = traced(&it.able, &it.session);
    assert_eq!(of_parent.last().unwrap(), "subagent_update Helper", "{of_parent:?}");
    // A client that never had it does not get it.
    let later = it.rig.editor_socket().load_session("puppet", &it.session).await;
    assert!(!later.updates.iter().any(has_text("subagent-")), "{:?}", later.updates);
}

#[tokio::test]
async fn a_sub_agents_question_is_answered_at_the_ended_run_of_its_parent() {
    for face in ["communication", "connect"] {
        let folder = tempfile::tempdir().unwrap();
        let rig = scripted(folder.path()).await;
        let (mut editor, client) = (rig.editor_socket().plain("scripted").await, rig.alice());
        let session = editor.session_in(folder.path()).await;
        let state = json!({"state": "running"});
        let update =
            json!({"sessionUpdate": "subagent_update", "sessionId": "its-a", "state": state});
        let params = json!({
            "sessionId": "its-a", "toolCall": {"toolCallId": "t", "title": "Read a file"},
            "options": [{"optionId": "yes", "name": "Allow", "kind": "allow_once"}],
        });
        let method = "session/request_permission";
        let asks = json!({"jsonrpc": "2.0", "id": "q", "method": method, "params": params});
        let go = folder.path().join("go");
        let lines = format!("raw:{update}\nput:{asks}\nwait:{}", go.display());
        let prompt = editor.start_prompt(&session, &lines).await;
        let open = async || client.get("/api/v1/interrupts?pending=true").await.unwrap().json();
        let both = async || {
            let open = open().await;
            (open["items"].as_array()?.len() == 2).then_some(())
        };
        until("the question in both runs", LIMIT, both).await.unwrap();
        std::fs::write(&go, "").unwrap();
        editor.end_turn(&prompt).await;
        let left = async || {
            let open = open().await;
            (open["items"].as_array()?.len() == 1).then_some(())
        };
        until("the end of the parent's run", LIMIT, left).await.unwrap();
        let runs = client.get(&format!("/api/v1/runs?thread_id={session}")).await.unwrap().json();
        let run = text(&runs, "/items/0/id");
        let body = match face {
            "connect" => json!({"option_id": "yes"}),
            _ => {
                let part = json!({"content_type": "text/plain", "content": "yes"});
                let message = json!({"role": "user", "parts": [part]});
                json!({"await_resume": {"type": "message", "message": message}, "mode": "sync"})
            }
        };
        let path = match face {
            "connect" => format!("/connect/threads/{session}/runs/{run}"),
            _ => format!("/communication/runs/{run}"),
        };
        let answered = client.post(&path, &body).await.unwrap();
        assert_eq!(answered.status, 200, "{face}: {}", answered.json());
        assert_eq!(open().await["items"], json!([]), "{face}");
        // The ended run stays as it is, and takes no second answer.
        let ended = client.get(&format!("/api/v1/runs/{run}")).await.unwrap().json();
        assert_eq!(ended["status"], "completed", "{ended}");
        let again = client.post(&path, &body).await.unwrap();
        assert!(again.json().to_string().contains("has no "), "{face}: {}", again.json());
    }
}

#[tokio::test]
async fn the_sub_agents_of_an_agents_program_reach_both_kinds_of_clients() {
    let folder = tempfile::tempdir().unwrap();
    let rig = scripted(folder.path()).await;
    let mut editor = rig.editor_socket().with("scripted", able()).await;
    let session = editor.session_in(folder.path()).await;
    let mut plain = rig.editor_socket().plain("scripted").await;
    plain.load_in(&session, folder.path()).await;

    let update = |state: Value| {
        let title = "Reader";
        let capabilities = json!({"cancel": {}});
        json!({"sessionUpdate": "subagent_update", "sessionId": "its-a", "title": title, "capabilities": capabilities, "state": state})
    };
    let text = |text: &str| json!({"type": "text", "text": text});
    let message = json!({"sessionUpdate": "session_message", "messageId": "m1", "recipientSessionId": "its-a", "content": [text("read it")]});
    let chunk = json!({"sessionUpdate": "agent_message_chunk", "content": text("it is read")});
    let call = json!({"sessionUpdate": "tool_call", "toolCallId": "c", "title": "Delegate", "status": "completed", "content": [{"type": "session", "sessionId": "its-a"}]});
    let lines = [
        format!("raw:{}", update(json!({"state": "running"}))),
        format!("raw:{call}"),
        format!("subagent:its-a:{message}"),
        format!("subagent:its-a:{chunk}"),
        "subagent-ask:its-a".to_owned(),
        format!("raw:{}", update(json!({"state": "idle", "stopReason": "end_turn"}))),
        "say:finished".to_owned(),
    ];
    let prompt = editor.start_prompt(&session, &lines.join("\n")).await;
    let question = editor.request("session/request_permission").await;
    let [(parent, child)] = &announced(&editor)[..] else { panic!("{:?}", editor.updates) };
    let child = child.clone();
    assert_eq!((parent, &question["params"]["sessionId"]), (&session, &json!(child)));
    let asked = plain.request("session/request_permission").await;
    assert_eq!(asked["params"]["sessionId"], *session);
    // The client sees no sub-agent, but it sees who asks.
    assert_eq!(asked["params"]["toolCall"]["title"], "Reader: Read a file");
    assert_eq!(question["params"]["toolCall"]["title"], "Read a file");
    plain.choose(&asked, "yes").await;
    let withdrawn = editor.wait_for_notification("$/cancel_request").await;
    assert_eq!(withdrawn["params"]["requestId"], question["id"]);
    editor.end_turn(&prompt).await;
    wait_for_idle(&mut editor, &child).await;
    let is_said =
        |message: &Value| message["params"]["update"]["content"][0]["content"]["text"].is_string();
    plain.until(is_said).await;

    let whole = |editor: &Editor| {
        assert_announced_first(editor, &session);
        // The prompt itself has the agent's own id.
        let is_prompt = |it: &&Value| it["update"]["sessionUpdate"] == "user_message_chunk";
        let mut others = editor.updates.iter().filter(|it| !is_prompt(it));
        assert!(others.all(|it| !it.to_string().contains("its-a")), "{:?}", editor.updates);
        let shown = traced(editor, &child);
        assert_eq!(shown[..2], ["session_message", "agent_message_chunk it is read"]);
        assert!(shown[2].starts_with("agent_message_chunk told: "), "{shown:?}");
        assert_eq!(shown.len(), 3, "{shown:?}");
        let of_parent = traced(editor, &session);
        for told in ["subagent_update Reader running", "subagent_update Reader idle end_turn"] {
            assert!(of_parent.contains(&told.to_owned()), "{of_parent:?}");
        }
        let calls = editor.updates_of(&session).into_iter();
        let call = calls.into_iter().find(|update| update["toolCallId"] == "c").unwrap();
        assert_eq!(call["content"], json!([{"type": "session", "sessionId": child}]));
    };
    whole(&editor);
    // A copy of it is an ordinary session.
    let params = json!({"sessionId": child, "cwd": folder.path(), "mcpServers": []});
    let copy = editor.ok("session/fork", params).await["sessionId"].clone();
    let answer = editor.prompt(copy.as_str().unwrap(), "say:from the copy").await;
    assert_eq!(answer["stopReason"], "end_turn");
    let mut later = rig.editor_socket().with("scripted", able()).await;
    later.load_in(&session, folder.path()).await;
    whole(&later);
    let mut later = rig.editor_socket().plain("scripted").await;
    later.load_in(&session, folder.path()).await;
    for editor in [&plain, &later] {
        assert!(announced(editor).is_empty() && traced(editor, &child).is_empty());
        let calls: Vec<_> = editor.updates_of(&session).into_iter().collect();
        let own = calls.iter().find(|update| update["toolCallId"] == "c").unwrap();
        assert_eq!(own["content"], json!([]), "{own}");
        let of_child = format!("subagent-{child}");
        let of_child: Vec<_> = calls.iter().filter(|it| it["toolCallId"] == *of_child).collect();
        assert_eq!(of_child[0]["title"], "Reader");
        let statuses: Vec<_> = of_child.iter().filter_map(|it| it["status"].as_str()).collect();
        assert_eq!(statuses, ["in_progress", "completed"]);
        assert!(of_child.iter().any(|it| it.to_string().contains("told: ")), "{of_child:?}");
    }
}
