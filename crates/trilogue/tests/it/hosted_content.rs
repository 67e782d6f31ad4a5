//! A hosted agent's content in the other protocols, and their content at the agent.

use std::process::Command;

use serde_json::{Value, json};

use crate::agent_client_examples::example;
use crate::harness::{Home, Server, finish, until};

const STRICT: &str = "/strict";
const COMPATIBLE: &str = "/communication";

/// Starts a server with two scripted agents. The second one reads citations in `_meta`.
fn serve(home: &Home) -> Server {
    let agent = example("scripted_agent");
    let agent = agent.to_str().unwrap();
    let config = format!(
        r#"
[store]
url = "memory:"

[agents.reviewer]
kind = "agent-client"
command = [{agent:?}, "--no-ids", "--media", "--modes", "--config", "--commands", "--record", "reviewer.heard"]

[agents.reader]
kind = "agent-client"
command = [{agent:?}, "--record", "reader.heard"]
citations = "meta"

[[mounts]]
protocol = "communication"
prefix = "{COMPATIBLE}"

[[mounts]]
protocol = "communication"
prefix = "{STRICT}"
strict = true

[[mounts]]
protocol = "connect"
prefix = "/connect"
"#
    );
    let config = home.write("trilogue.toml", &config);
    home.start(&["serve", "--config", config.to_str().unwrap(), "--listen", "127.0.0.1:0"])
}

fn fetch(server: &Server, path: &str, body: Option<&Value>) -> Value {
    let token = std::fs::read_to_string(server.token_file()).unwrap();
    let mut curl = Command::new("curl");
    curl.args(["-sS", "-H", &format!("Authorization: Bearer {}", token.trim())]);
    if body.is_some() {
        curl.args(["-H", "Content-Type: application/json", "--data-binary", "@-"]);
    }
    curl.arg(format!("{}{path}", server.url()));
    let body = body.map(Value::to_string).unwrap_or_default();
    serde_json::from_str(&finish(curl, &body).expect(0).out).unwrap()
}

fn run(server: &Server, mount: &str, agent: &str, parts: &Value) -> Value {
    let input = json!([{ "role": "user", "parts": parts }]);
    let body = json!({ "agent_name": agent, "input": input });
    fetch(server, &format!("{mount}/runs"), Some(&body))
}

/// Runs the agent with this script from a user, and returns the run.
fn played(server: &Server, mount: &str, script: &str) -> Value {
    run(server, mount, "reviewer", &json!([{ "content_type": "text/plain", "content": script }]))
}

fn parts(run: &Value) -> Vec<Value> {
    let messages = run["output"].as_array().unwrap_or_else(|| panic!("{run}")).iter();
    messages.flat_map(|message| message["parts"].as_array().unwrap()).cloned().collect()
}

fn image(data: &str) -> String {
    let content = json!({ "type": "image", "mimeType": "image/png", "data": data });
    format!("raw:{}", json!({ "sessionUpdate": "agent_message_chunk", "content": content }))
}

/// The last prompt that an agent received.
fn last_prompt(home: &Home, agent: &str) -> Value {
    let heard = std::fs::read_to_string(home.work().join(format!("{agent}.heard"))).unwrap();
    let mut lines = heard.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let prompt = lines.rfind(|line| line["method"] == "session/prompt").unwrap();
    prompt["params"]["prompt"].clone()
}

/// The document's example (message metadata), with members that only some peers know.
fn study() -> Value {
    json!({
        "kind": "citation", "start_index": 15, "end_index": 27,
        "url": "https://example.com/ai-study-2024", "title": "AI Adoption Report 2024",
        "description": "Comprehensive analysis of AI adoption trends across industries",
        "author": "A. Author", "score": 0.9,
    })
}

const STATEMENT: &str = "According to a recent study, AI adoption has increased by 40% this year.";

#[test]
fn large_content_of_an_agent_is_a_blob_and_runs_of_communication_have_it_whole() {
    let home = Home::new();
    let server = serve(&home);
    let data = "A".repeat(4 * 22_000);
    let body = json!({
        "agent": "reviewer", "input": image(&data), "thread_id": "large", "create_thread": true,
    });
    let run = fetch(&server, "/api/v1/runs", Some(&body));
    let listed = fetch(&server, "/api/v1/threads/large/messages", None);
    let listed = listed["items"].as_array().unwrap();
    let listed = listed.iter().find(|message| message["role"] != "user");
    for message in [&run["output"][0], listed.unwrap()] {
        let part = &message["parts"][0];
        assert_eq!(part.get("content"), None, "{part}");
        assert_eq!(part["blob"]["length"], 66_000, "{part}");
    }
    let part = &parts(&played(&server, COMPATIBLE, &image(&data)))[0];
    assert!(part["content"] == data.as_str(), "its content is not whole");
    let small = &parts(&played(&server, COMPATIBLE, &image("AAAA")))[0];
    assert_eq!(small["content"], "AAAA");
}

#[test]
fn base64_of_an_agent_is_put_right_and_what_is_none_breaks_the_strict_rules() {
    let home = Home::new();
    let server = serve(&home);
    for mount in [COMPATIBLE, STRICT] {
        for data in ["+/+/aA==", "+/+/aA", "-_-_aA", "+/+/\r\naA==\n"] {
            let run = played(&server, mount, &image(data));
            assert_eq!(run["status"], "completed", "{run}");
            let part = &parts(&run)[0];
            let shown = (&part["content"], &part["content_encoding"]);
            assert_eq!(shown, (&json!("+/+/aA=="), &json!("base64")), "{mount} {data:?}");
        }
    }
    let run = played(&server, COMPATIBLE, &image("%%%"));
    let part = &parts(&run)[0];
    assert_eq!((&part["content"], &part["content_encoding"]), (&json!("%%%"), &json!("base64")));
    assert_eq!(home.log().matches("content is not the base64 that it is called").count(), 1);
    let run = played(&server, STRICT, &image("%%%"));
    assert_eq!(
        (&run["status"], &run["error"]["data"]["reason"]),
        (&json!("failed"), &json!("output_invalid"))
    );
    // The other direction.
    let sent = json!([
        { "content_type": "image/png", "content": "-_-_aA", "content_encoding": "base64" },
        { "content_type": "text/plain", "content": "say:seen" },
    ]);
    let refused = run_error(&server, &sent);
    assert!(refused.contains("base64"), "{refused}");
    assert_eq!(self::run(&server, COMPATIBLE, "reviewer", &sent)["status"], "completed");
    assert_eq!(last_prompt(&home, "reviewer")[0]["data"], "+/+/aA==");
}

fn run_error(server: &Server, parts: &Value) -> String {
    let refused = run(server, STRICT, "reviewer", parts);
    assert_eq!(refused["code"], "invalid_input", "{refused}");
    refused["message"].as_str().unwrap().to_owned()
}

#[test]
fn a_thought_and_a_tool_call_are_one_step_each() {
    let home = Home::new();
    let server = serve(&home);
    let script = "think:I \nthink:think \nthink:so\ntool\nsay:It is done.";
    let run = played(&server, COMPATIBLE, script);
    let steps: Vec<_> = parts(&run).iter().map(|part| part["metadata"].clone()).collect();
    let thought = json!({
        "kind": "trajectory", "message": "I think so",
        "tool_name": null, "tool_input": null, "tool_output": null,
    });
    let call = json!({
        "kind": "trajectory", "message": "Read a file", "tool_name": "read_file",
        "tool_input": { "path": "/a" }, "tool_output": { "lines": 1 },
    });
    assert_eq!(steps, [thought, call, Value::Null], "{run}");
    let update = &parts(&run)[1]["x_trilogue"]["update"];
    assert_eq!((&update["kind"], &update["status"]), (&json!("read"), &json!("completed")));
}

#[test]
fn a_tool_call_is_one_step_with_its_output_however_it_ends() {
    let home = Home::new();
    let server = serve(&home);
    let large = json!({ "type": "image", "mimeType": "image/png", "data": "A".repeat(160_000) });
    let small = json!({ "type": "text", "text": "made" });
    let long = json!({ "type": "text", "text": "x".repeat(100_000) });
    let update = |kind: &str, block: &Value| {
        let content = json!([{ "type": "content", "content": block }]);
        json!({
            "sessionUpdate": kind, "toolCallId": "c", "title": "Look", "status": "completed",
            "content": content,
        })
    };
    for kind in ["tool_call", "tool_call_update"] {
        for block in [&small, &long, &large] {
            let told = played(&server, COMPATIBLE, &format!("raw:{}", update(kind, block)));
            let steps = parts(&told);
            let [step] = &steps[..] else { panic!("{kind}: {told}") };
            let output = step["metadata"]["tool_output"].to_string();
            assert!(output.contains(&block.to_string()), "{kind}: {step}");
        }
        let begin = json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "title": "Look" });
        let begin = if kind == "tool_call" { String::new() } else { format!("raw:{begin}\n") };
        let script = format!("{begin}raw:{}", update(kind, &long));
        let told = server.run(&["run", "reviewer", &script]).expect(0);
        let shown = format!("{}{}", told.out, told.err);
        assert!(shown.contains("| xxx"), "{kind}: {shown}");
    }
}

#[test]
fn a_hosted_agent_cites_on_every_face() {
    let home = Home::new();
    let server = serve(&home);
    let meta = json!({ "trilogue": { "citation": study() } });
    for is_of_chunk in [false, true] {
        let mut update = json!({
            "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": STATEMENT },
        });
        let holder = if is_of_chunk { &mut update } else { &mut update["content"] };
        holder["_meta"] = meta.clone();
        let script = format!("raw:{update}");
        let shown = played(&server, STRICT, &script);
        let part = &parts(&shown)[0];
        assert_eq!((&part["content"], &part["metadata"]), (&json!(STATEMENT), &study()), "{shown}");
        let body = json!({ "agent_id": "reviewer", "input": { "message": script } });
        let output = fetch(&server, "/connect/runs/wait", Some(&body));
        let mut cited = study();
        cited.as_object_mut().unwrap().remove("kind");
        let messages = &output["output"]["values"]["messages"];
        assert_eq!(messages[0]["content"][0]["metadata"]["citation"], cited, "{output}");
    }
}

#[test]
fn an_agent_gets_the_citations_of_a_prompt_in_words_or_where_it_reads_them() {
    let home = Home::new();
    let server = serve(&home);
    let part = json!({ "content_type": "text/plain", "content": STATEMENT, "metadata": study() });
    for agent in ["reviewer", "reader"] {
        let run = run(&server, COMPATIBLE, agent, &json!([part]));
        assert_eq!(run["status"], "completed", "{run}");
    }
    let told = last_prompt(&home, "reviewer");
    let note = told[1]["text"].as_str().unwrap_or_else(|| panic!("{told}"));
    for words in ["“recent study”: AI Adoption Report 2024", "author: A. Author", "score: 0.9"]
    {
        assert!(note.contains(words), "{note}");
    }
    let told = last_prompt(&home, "reader");
    let mut cited = study();
    cited.as_object_mut().unwrap().remove("kind");
    let meta = json!({ "trilogue": { "citation": cited } });
    assert_eq!(told, json!([{ "type": "text", "text": STATEMENT, "_meta": meta }]));
}

#[test]
fn descriptions_of_an_agent_say_what_it_said_last() {
    let home = Home::new();
    let server = serve(&home);
    let manifest = || fetch(&server, &format!("{COMPATIBLE}/agents/reviewer"), None);
    let before = manifest();
    assert_eq!(before["input_content_types"], json!(["text/plain"]), "{before}");
    assert_eq!(before["metadata"]["x_trilogue"].get("config_schema"), None);
    // A description starts no process; this run starts one, which ends with it.
    played(&server, COMPATIBLE, "say:hello");
    let after = until(|| {
        let after = manifest();
        (!after["metadata"]["capabilities"].is_null()).then_some(after)
    });
    let types = json!(["text/plain", "image/*", "audio/*", "text/*", "application/*"]);
    assert_eq!(after["input_content_types"], types);
    let command = json!({ "name": "help", "description": "Says what it can do." });
    assert_eq!(after["metadata"]["capabilities"], json!([command]));
    let ours = &after["metadata"]["x_trilogue"];
    assert_eq!(ours["version"], "1.0.0");
    let modes = json!([{ "const": "ask", "title": "Ask" }, { "const": "code", "title": "Code" }]);
    assert_eq!(ours["config_schema"]["properties"]["mode"]["oneOf"], modes);
    assert_eq!(ours["config_schema"]["properties"]["verbose"]["type"], "boolean");
    let descriptor = fetch(&server, "/connect/agents/reviewer/descriptor", None);
    assert_eq!(descriptor["metadata"]["ref"]["version"], "1.0.0", "{descriptor}");
    assert_eq!(descriptor["specs"]["config"], ours["config_schema"]);
    assert_eq!(descriptor["specs"]["input"]["examples"], json!([{ "message": "/help" }]));
    let native = fetch(&server, "/api/v1/agents/reviewer", None);
    assert_eq!(native["commands"], json!([command]));
    // The described configuration works.
    let configured = json!({ "agent_name": "reviewer", "config": { "mode": "code" }, "input": [
        { "role": "user", "parts": [{ "content_type": "text/plain", "content": "say:ok" }] },
    ] });
    let run = fetch(&server, &format!("{COMPATIBLE}/runs"), Some(&configured));
    assert_eq!(run["status"], "completed", "{run}");
}
