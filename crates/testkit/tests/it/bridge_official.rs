//! Agents behind the official server of the Agent Communication Protocol: this server serves its own suite and its own agents.

use serde_json::{Value, json};
use trilogue_testkit::editor::Editor;
use trilogue_testkit::foreign::{Foreign, ForeignServer};
use trilogue_testkit::{Folder, Server, ServerOptions, reserve_address};

use crate::bridge::{bridge_settings, message, start_with};
use crate::events;
use crate::kill_rounds::stop;

/// The number of checks of the official suite, with one store.
const CHECKS: usize = 27;

/// Starts a server at the root of its address, in front of all agents of another server, for callers without a token.
async fn in_front_of(dir: &Folder, url: &str) -> Server {
    let settings = format!(
        r#"
[egress]
allow = ["127.0.0.0/8", "::1/128"]

[[mounts]]
protocol = "communication"
prefix = "/"

[agents.all]
kind = "agent-communication"
url = "{url}"
agents = "*"
refresh = "200ms"
"#
    );
    let options = ServerOptions {
        settings,
        agents: Vec::new(),
        server_settings: "no_auth = true".to_owned(),
        ..ServerOptions::default()
    };
    Server::start(dir.path(), &options).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_official_suite_passes_through_servers_in_front_of_its_own() {
    let (mut behind, mut front, mut servers) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..3 {
        let (address, dir) = (reserve_address().unwrap(), Folder::new().unwrap());
        let server = in_front_of(&dir, &format!("http://{address}")).await;
        behind.push(address.port().to_string());
        front.push(server.home().address().port().to_string());
        servers.push((server, dir));
    }
    let ports = |name: &str, ports: &[String]| [&[name.to_owned()], ports].concat();
    let arguments = [ports("--behind", &behind), ports("--front", &front)].concat();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let said = Foreign::OfficialSuite.run(&arguments).await.unwrap_or_else(|error| {
        let logs: Vec<_> = servers.iter().map(|(server, _)| server.home().log_end()).collect();
        panic!("{error:#}\n{}", logs.join("\n"))
    });
    assert!(said.contains(&format!("{CHECKS} checks ran, 0 failed")), "{said}");
    for (server, _dir) in servers {
        stop(server).await;
    }
}

/// Agents of the official suite, and the agent of the official example. The first two and the one after them yield whole messages.
const SPEAKERS: [&str; 5] =
    ["example_echo", "echo", "base64_encoding", "artifact_producer", "mime_types"];

/// A part's content, in the members that every protocol has.
fn spoken(part: &Value) -> (String, String) {
    let text = |key: &str| part[key].as_str().unwrap_or_default().to_owned();
    (text("content_type"), text("content"))
}

fn parts_of(output: &Value) -> Vec<(String, String)> {
    let messages = output.as_array().into_iter().flatten();
    messages
        .flat_map(|message| message["parts"].as_array().into_iter().flatten())
        .map(spoken)
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_of_the_official_server_say_each_part_once_on_every_protocol() {
    let far = ForeignServer::official_agents().await.unwrap();
    let dir = Folder::new().unwrap();
    let settings = format!(
        "[agents.all]\nkind = \"agent-communication\"\nurl = \"{}\"\nagents = \"*\"\nprefix = \"far_\"\n",
        far.url()
    );
    let server = start_with(&dir, settings).await;
    let client = server.client();
    for agent in SPEAKERS {
        let here = format!("far_{agent}");
        let body = |name: &str| json!({ "agent_name": name, "input": [message("Howdy!")], "mode": "sync" });
        let direct = far.client().post("/runs", &body(agent)).await.unwrap().ok().unwrap();
        let expected = parts_of(&direct["output"]);
        assert!(!expected.is_empty(), "{direct}");

        let run = client.post("/communication/runs", &body(&here)).await.unwrap().ok().unwrap();
        assert_eq!(parts_of(&run["output"]), expected, "{agent}: {run}");
        let path = format!("/communication/runs/{}/events", run["run_id"].as_str().unwrap());
        let list = client.get(&path).await.unwrap().ok().unwrap();
        let streamed = list["events"].as_array().unwrap().iter();
        let streamed: Vec<_> = streamed
            .filter(|event| event["type"] == "message.part")
            .map(|event| spoken(&event["part"]))
            .collect();
        assert_eq!(streamed, expected, "{agent}: {list}");

        let log = events(&client, run["session_id"].as_str().unwrap()).await.unwrap();
        let begun = log.iter().position(|event| event["type"] == "run.started").unwrap();
        let logged = log[begun..].iter().filter(|event| {
            matches!(event["type"].as_str(), Some("message.part" | "message.delta"))
        });
        assert_eq!(logged.count(), expected.len(), "{agent}: {log:?}");

        let body = json!({ "agent_id": here, "input": { "message": "Howdy!" } });
        let waited = client.post("/connect/runs/wait", &body).await.unwrap().ok().unwrap();
        let messages = waited["output"]["values"]["messages"].to_string();
        for (_, content) in &expected {
            let content = Value::from(content.as_str()).to_string();
            let content = content.trim_matches('"');
            assert_eq!(messages.matches(content).count(), 1, "{agent}: {content}: {waited}");
        }

        let command = server.home().command_line(&["connect", &here]).await.unwrap();
        let mut editor = Editor::launch(&command, dir.path()).await;
        let session = editor.session().await;
        editor.prompt(&session, "Howdy!").await;
        let chunks = editor.updates_of(&session).into_iter();
        let chunks: Vec<Value> = chunks
            .filter(|update| update["sessionUpdate"] == "agent_message_chunk")
            .map(|update| update["content"].clone())
            .collect();
        assert_eq!(chunks.len(), expected.len(), "{agent}: {chunks:?}");
    }
    stop(server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_base64_of_an_agent_elsewhere_keeps_its_label_and_breaks_the_strict_rules() {
    let far = ForeignServer::communication().await.unwrap();
    let dir = Folder::new().unwrap();
    let mounts = "[[mounts]]\nprotocol = \"communication\"\nprefix = \"/communication\"\n\n[[mounts]]\nprotocol = \"communication\"\nprefix = \"/strict\"\nstrict = true\n\n";
    let settings =
        format!("{mounts}{}", bridge_settings("agent-communication", &far.url(), &["words"]));
    let server = start_with(&dir, settings).await;
    let body = json!({ "agent_name": "far_words", "input": [message("broken")], "mode": "sync" });
    let run = server.client().post("/communication/runs", &body).await.unwrap().ok().unwrap();
    let part = &run["output"][0]["parts"][0];
    assert_eq!(
        (&run["status"], &part["content"], &part["content_encoding"]),
        (&json!("completed"), &json!("%%%"), &json!("base64")),
        "{run}"
    );
    let log = server.home().log_end();
    assert_eq!(log.matches("content is not the base64 that it is called").count(), 1, "{log}");
    let run = server.client().post("/strict/runs", &body).await.unwrap().ok().unwrap();
    assert_eq!(
        (&run["status"], &run["error"]["data"]["reason"], &run["error"]["data"]["transient"]),
        (&json!("failed"), &json!("output_invalid"), &json!(false)),
        "{run}"
    );
    stop(server).await;
}
