//! A program's own agent calls agents of every kind: in this process, in a separate program, and behind another server.

use std::path::Path;

use serde_json::Value;
use trilogue::sdk::prelude::*;
use trilogue::{Agents, App, Listeners};

use crate::agent_client_examples::example;
use crate::harness::Home;

const COMMON: &str = r#"
[server]
listen = "127.0.0.1:0"
no_auth = true
socket = "off"
shutdown_deadline = "0s"

[store]
url = "memory:"
"#;

/// Calls the agent that the first word names with the remaining text, and returns its answer.
async fn caller(turn: Turn, context: Context) -> Result<(), AgentError> {
    let text = turn.text();
    let (agent, prompt) = text.split_once(' ').unwrap_or((&text, ""));
    let output = context.call(agent, prompt).await?;
    context.text(output.text()).await
}

async fn shout(turn: Turn, context: Context) -> Result<(), AgentError> {
    context.text(turn.text().to_uppercase()).await
}

async fn asker(turn: Turn, context: Context) -> Result<Outcome, AgentError> {
    if let Turn::Start { .. } = turn {
        return Outcome::suspended(Question::message("Which word?"), Json::null());
    }
    context.text(turn.text()).await?;
    Ok(Outcome::Completed)
}

struct Running {
    url: String,
    stop: tokio::sync::oneshot::Sender<()>,
    serving: tokio::task::JoinHandle<()>,
}

async fn start(settings: &str, agents: Agents) -> Running {
    let text = format!("{COMMON}\n{settings}");
    let options = trilogue::config::parse(Path::new("trilogue.toml"), &text).unwrap().options;
    let listeners = Listeners::bind(&options.server).await.unwrap();
    let app = App::build(&options, agents, listeners).await.unwrap();
    let url = format!("http://{}", app.addresses()[0]);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(async move {
        app.run(async move { drop(stopped.await) }).await.unwrap();
    });
    Running { url, stop, serving }
}

/// Serves the calling agent together with the others, and calls `use_it` with the server's address.
async fn with_server(use_it: impl FnOnce(Home, String) + Send + 'static) {
    let far = Agents::new().with(agent_fn("shout", "Says it louder.", shout)).with(agent_fn(
        "asker",
        "Asks for a word.",
        asker,
    ));
    let far = start("", far).await;
    let home = Home::new();
    let settings = format!(
        r#"
[agents.hosted]
kind = "agent-client"
command = [{:?}]
cwd = {:?}

[agents.far]
kind = "agent-communication"
url = "{url}/communication"
name = "shout"

[agents.far_asker]
kind = "agent-communication"
url = "{url}/communication"
name = "asker"
"#,
        example("scripted_agent").to_str().unwrap(),
        home.work().to_str().unwrap(),
        url = far.url,
    );
    let agents = Agents::new()
        .with(agent_fn("caller", "Calls the agent that you name.", caller))
        .with(agent_fn("near", "Says it louder.", shout));
    let server = start(&settings, agents).await;
    let url = server.url.clone();
    tokio::task::spawn_blocking(move || use_it(home, url)).await.unwrap();
    for running in [server, far] {
        running.stop.send(()).unwrap();
        running.serving.await.unwrap();
    }
}

fn run(home: &Home, url: &str, prompt: &str) -> crate::harness::ProgramOutput {
    home.run(&["run", "caller", prompt, "--url", url])
}

/// The response to a GET of this path.
fn get(home: &Home, url: &str, path: &str) -> Value {
    let mut curl = home.program("curl");
    curl.args(["-sSf", &format!("{url}{path}")]);
    crate::harness::finish(curl, "").expect(0).json()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_calls_agents_of_every_kind() {
    with_server(|home, url| {
        for (prompt, said) in
            [("near hello", "HELLO\n"), ("hosted say:hello", "hello\n"), ("far hello", "HELLO\n")]
        {
            assert_eq!(run(&home, &url, prompt).expect(0).out, said, "{prompt}");
        }
        // An agent in the chain of callers cannot be called again.
        assert!(run(&home, &url, "caller x").expect(1).err.contains("among the callers"));

        let runs = get(&home, &url, "/api/v1/runs?agent=far");
        let child = &runs["items"][0];
        let parent = child["parent"]["run_id"].as_str().unwrap();
        assert_eq!(get(&home, &url, &format!("/api/v1/runs/{parent}"))["agent"], "caller");
        let id = child["id"].as_str().unwrap();
        let shown = home.run(&["runs", "show", id, "--url", &url]).expect(0).out;
        assert!(shown.contains(&format!("called by run: {parent}")), "{shown}");

        // Every client of the calling run sees the call, as a tool call.
        let events = get(&home, &url, &format!("/api/v1/runs/{parent}/events"));
        let named = |name: &str| {
            let events = events["items"].as_array().unwrap();
            events.iter().find(|event| event["type"] == name).unwrap().clone()
        };
        let (started, ended) = (named("tool.started"), named("tool.ended"));
        assert_eq!(started["tool"], "far", "{started}");
        assert_eq!(started["input"]["run_id"], *id, "{started}");
        assert_eq!(ended["status"], "completed", "{ended}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_question_of_a_called_agent_is_asked_by_the_run_that_the_client_knows() {
    with_server(|home, url| {
        for (prompt, answer, said) in [
            ("hosted permission:edit:/x", &["--yes"][..], "permission: once"),
            ("far_asker x", &["--message", "blue"][..], "blue"),
        ] {
            run(&home, &url, prompt).expect(3);
            let asked = get(&home, &url, "/api/v1/interrupts?pending=true");
            let asked = asked["items"].as_array().unwrap();
            assert_eq!(asked.len(), 2, "{asked:?}");
            let agents: Vec<_> = asked.iter().map(|it| it["agent"].as_str().unwrap()).collect();
            let above = asked.iter().find(|it| it["agent"] == "caller").unwrap();
            assert!(agents.contains(&prompt.split(' ').next().unwrap()), "{agents:?}");
            assert_eq!(asked[0]["prompt"], asked[1]["prompt"]);
            assert_eq!(asked[0]["kind"], asked[1]["kind"]);
            assert_eq!(asked[0]["options"], asked[1]["options"]);
            let id = above["id"].as_str().unwrap();
            home.run(&[&["approve", id, "--url", &url], answer].concat()).expect(0);
            let run = above["run_id"].as_str().unwrap();
            let ended = crate::harness::until(|| {
                let run = get(&home, &url, &format!("/api/v1/runs/{run}"));
                (run["status"] == "completed").then_some(run)
            });
            assert!(ended["output"].to_string().contains(said), "{ended}");
            let left = get(&home, &url, "/api/v1/interrupts?pending=true");
            assert_eq!(left["items"].as_array().map(Vec::len), Some(0), "{left}");
        }
    })
    .await;
}
