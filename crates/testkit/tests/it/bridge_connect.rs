//! Agents behind another server of the Agent Connect Protocol, used through this server's interfaces.

use serde_json::{Value, json};
use trilogue_testkit::refusing_server::RefusingServer;
use trilogue_testkit::wait_only_server::WaitOnlyServer;
use trilogue_testkit::{Client, Folder, until};

use crate::bridge::{
    Bridge, LIMIT, answer, bridge_settings, communicate, message, run, start_with, wait_for_end,
};
use crate::kill_rounds::stop;
use crate::remote_servers::lost_concepts;
use crate::{echo, events, run_of};

const KIND: &str = "agent-connect";

async fn of_type(client: &Client, thread: &str, kind: &str) -> Vec<Value> {
    let all = events(client, thread).await.unwrap();
    all.into_iter().filter(|event| event["type"] == kind).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_elsewhere_has_its_content_blocks_and_its_description_here() {
    let bridge = Bridge::start(KIND).await;
    let waited = async |client: Client, agent: &str| {
        let body = json!({ "agent_id": agent, "input": { "message": "x" } });
        let waited = client.post("/connect/runs/wait", &body).await.unwrap().ok().unwrap();
        waited["output"]["messages"][0]["content"].clone()
    };
    let direct = waited(bridge.far.client(), "mime_types").await;
    assert!(direct.as_array().is_some_and(|blocks| blocks.len() > 1), "{direct}");
    assert_eq!(waited(bridge.client(), "far_mime_types").await, direct);
    let path = "/communication/agents/far_echo";
    let manifest = bridge.client().get(path).await.unwrap().ok().unwrap();
    assert!(manifest["description"].as_str().is_some_and(|it| !it.is_empty()), "{manifest}");
    bridge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_steps_of_a_run_elsewhere_outlive_the_server_here() {
    let bridge = Bridge::start(KIND).await;
    let client = bridge.client();
    let counting = run_of("far_counter", "sum", &json!({ "count": 12, "pause_ms": 200 }), "async");
    let counting = client.post("/api/v1/runs", &counting).await.unwrap().ok().unwrap();
    until("steps to come", LIMIT, || async {
        (of_type(&client, "sum", "state.custom").await.len() >= 2).then_some(())
    })
    .await
    .unwrap();
    let bridge = bridge.restart().await;
    let client = bridge.client();
    let counted = wait_for_end(&client, counting["id"].as_str().unwrap()).await;
    assert_eq!(counted["result"], json!({ "count": 12 }), "{counted}");
    let steps = of_type(&client, "sum", "state.custom").await;
    let steps: Vec<_> = steps.iter().filter_map(|step| step["data"]["step"].as_u64()).collect();
    assert_eq!(steps, (1..=12).collect::<Vec<_>>());
    let runs = bridge.far_runs("").await;
    assert_eq!(runs.len(), 1, "the run was begun twice: {runs:?}");
    bridge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_with_schemas_has_its_values_updates_state_and_configuration_here() {
    let bridge = Bridge::start(KIND).await;
    let client = bridge.client();
    for (count, total) in [(3, 3), (2, 5)] {
        let counted = run(&client, "far_counter", "sum", json!({ "count": count })).await;
        assert_eq!(counted["result"], json!({ "count": count }), "{counted}");
        let thread = client.get("/connect/threads/sum").await.unwrap().ok().unwrap();
        assert_eq!(thread["values"], json!({ "total": total }));
    }
    let steps = of_type(&client, "sum", "state.custom").await;
    let steps: Vec<_> = steps.iter().map(|step| (&step["kind"], &step["data"]["step"])).collect();
    let step = json!("step");
    let expected = [1, 2, 3, 1, 2].map(|number| (step.clone(), json!(number)));
    assert!(
        steps.iter().copied().eq(expected.iter().map(|(kind, number)| (kind, number))),
        "{steps:?}"
    );

    let refused = run_of("far_counter", "sum", &json!({ "count": "many" }), "wait");
    let refused = client.post("/api/v1/runs", &refused).await.unwrap();
    assert_eq!((refused.status, refused.code().as_str()), (422, "invalid_input"));

    let said = json!({ "messages": [{ "type": "human", "content": "hi" }] });
    let body = json!({
        "agent_id": "far_org_agntcy_echo", "input": said,
        "config": { "configurable": { "to_upper": true } },
    });
    let waited = client.post("/connect/runs/wait", &body).await.unwrap().ok().unwrap();
    assert_eq!(waited["output"]["values"]["messages"][1]["content"], "HI", "{waited}");
    bridge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_asked_elsewhere_is_answered_from_another_protocol_after_a_restart() {
    let (here, there) = (Folder::new().unwrap(), Folder::new().unwrap());
    let far = start_with(&there, String::new()).await;
    let token = here.path().join("token");
    std::fs::write(&token, far.token()).unwrap();
    let url = format!("http://{}/connect", far.home().address());
    let settings = format!(
        "{}token_file = {token:?}\n",
        bridge_settings(KIND, &url, &["org.agntcy.mailcomposer"]).trim_end().to_owned() + "\n",
    );
    let server = start_with(&here, settings).await;
    let mail = json!({ "message": "Write to bob@example.com about lunch" });
    let agent = "far_org_agntcy_mailcomposer";
    let waiting = run(&server.client(), agent, "mail", mail).await;
    assert_eq!(waiting["interrupts"][0]["kind"], "mail_send_approval", "{waiting}");

    let server = server.kill().await.unwrap().start().await.unwrap();
    let client = server.client();
    answer(&client, &json!({ "value": { "approved": true } })).await;
    let run_id = waiting["id"].as_str().unwrap();
    let sent = wait_for_end(&client, run_id).await;
    assert!(sent["result"]["message"].as_str().is_some_and(|it| it.contains("Lunch")), "{sent}");
    // The agent has seen this run, so it does not get it again.
    let state = &of_type(&client, "mail", "state.values").await[0]["values"]["messages"];
    run(&client, agent, "mail", json!({ "message": "Write to bob@example.com about tea" })).await;
    answer(&client, &json!({ "value": { "approved": false } })).await;
    let next = until("the next state", LIMIT, || async {
        of_type(&client, "mail", "state.values")
            .await
            .pop()
            .filter(|it| it["values"]["messages"] != *state)
    });
    let next = next.await.unwrap()["values"]["messages"].as_array().unwrap().len();
    assert!(next > state.as_array().unwrap().len());
    stop(server).await;
    stop(far).await;
}

/// An old server without threads and streams, with its own forms of questions. This server still finds its runs again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_only_waits_is_enough() {
    let here = Folder::new().unwrap();
    let far = WaitOnlyServer::start().await.unwrap();
    let server = start_with(&here, bridge_settings(KIND, &far.url(), &["org.example.old"])).await;
    let (client, agent) = (server.client(), "far_org_example_old");
    let spoken = communicate(&client, agent, json!([message("hi")])).await;
    assert_eq!(spoken["output"][0]["parts"][0]["content"], "echo: hi", "{spoken}");
    let failed = run(&client, agent, "fails", json!("fail")).await;
    assert_eq!(failed["outcome"]["error"]["message"], "boom", "{failed}");
    for form in ["ask", "ask raw", "ask named"] {
        let waiting = run(&client, agent, form.rsplit(' ').next().unwrap(), json!(form)).await;
        let question = &waiting["interrupts"][0];
        assert_eq!(
            (&question["kind"], &question["payload"]),
            (&json!("approval"), &json!({ "question": "Go on?" })),
            "{form}: {waiting}"
        );
        answer(&client, &json!({ "value": { "answer": form } })).await;
        let answered = wait_for_end(&client, waiting["id"].as_str().unwrap()).await;
        assert_eq!(answered["result"]["message"], format!("echo: {form}"), "{answered}");
    }
    let waited = far.waits();
    let held = run_of(agent, "held", &json!("hold"), "async");
    let held = client.post("/api/v1/runs", &held).await.unwrap().ok().unwrap();
    until("the run to be waited for", LIMIT, || async { (far.waits() > waited).then_some(()) })
        .await
        .unwrap();
    // The state that finds the run again is on disk before the next run's changes.
    run(&client, "echo", "near", json!("x")).await;
    assert_eq!(far.runs(), 6);
    let stopped = server.kill().await.unwrap();
    let server = stopped.start().await.unwrap();
    far.release();
    let found = wait_for_end(&server.client(), held["id"].as_str().unwrap()).await;
    assert_eq!(found["result"]["message"], "echo: held", "{found}");
    assert_eq!(far.runs(), 6, "a run was begun twice");
    stop(server).await;
}

/// Only 404, 405 and 501 mean that a server has no descriptors. Any other refusal can be temporary: this server retries, without a restart and without a run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_refuses_to_describe_its_agent_is_asked_again() {
    for status in [401, 403, 408, 429, 503] {
        let here = Folder::new().unwrap();
        let far = WaitOnlyServer::start().await.unwrap();
        far.refuse_descriptor(Some(status));
        let settings = bridge_settings(KIND, &far.url(), &["org.example.old"]);
        let server = start_with(&here, settings).await;
        let (client, agent) = (server.client(), "far_org_example_old");
        let refused = run(&client, agent, "refused", json!("hi")).await;
        let error = &refused["outcome"]["error"];
        assert_eq!(error["transient"], matches!(status, 408 | 429 | 503), "{status}: {refused}");
        assert_eq!(far.runs(), 0, "{status}: nobody knows what the agent takes");
        far.refuse_descriptor(None);
        until("the agent to be described", LIMIT, || async {
            let path = format!("/connect/agents/{agent}/schemas");
            let schemas = client.get(&path).await.unwrap().ok().unwrap();
            (schemas["input_schema"]["required"] == json!(["message"])).then_some(())
        })
        .await
        .unwrap();
        let done = run(&client, agent, "done", json!("hi")).await;
        assert_eq!(done["result"]["message"], "echo: hi", "{status}: {done}");
        stop(server).await;
    }
    for status in [404, 405, 501] {
        let here = Folder::new().unwrap();
        let far = WaitOnlyServer::start().await.unwrap();
        far.refuse_descriptor(Some(status));
        let settings = bridge_settings(KIND, &far.url(), &["org.example.old"]);
        let server = start_with(&here, settings).await;
        run(&server.client(), "far_org_example_old", "t", json!("hi")).await;
        assert_eq!(far.runs(), 1, "{status}: an agent without a descriptor is run all the same");
        stop(server).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_without_a_code_says_whether_another_try_can_succeed() {
    let dir = Folder::new().unwrap();
    let far = RefusingServer::start().await.unwrap();
    let agents = ["plain", "threaded"];
    let server = start_with(&dir, bridge_settings(KIND, &far.url(), &agents)).await;
    let client = server.client();
    for (agent, status, code, is_transient) in [
        ("far_plain", "501", "agent_failed", false),
        ("far_plain", "409", "agent_failed", false),
        ("far_threaded", "409", "thread_busy", true),
        ("far_plain", "408", "peer_unavailable", true),
        ("far_plain", "425", "peer_unavailable", true),
        ("far_plain", "410", "agent_failed", false),
        // The run may have begun.
        ("far_plain", "503", "agent_lost", true),
    ] {
        let run = run(&client, agent, &format!("{agent}-{status}"), json!(status)).await;
        let error = &run["outcome"]["error"];
        let told = (error["code"].as_str(), error["transient"].as_bool().unwrap_or(false));
        assert_eq!(told, (Some(code), is_transient), "{agent} {status}: {run}");
    }
    stop(server).await;
}

/// An agent without threads gets the conversation with each run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_elsewhere_gets_the_newest_messages_of_a_big_thread() {
    let dir = Folder::new().unwrap();
    let far = RefusingServer::start().await.unwrap();
    let server = start_with(&dir, bridge_settings(KIND, &far.url(), &["plain"])).await;
    let client = server.client();
    for number in 0..10 {
        echo(&client, "big", &format!("{number}{}", "x".repeat(900_000))).await.ok().unwrap();
    }
    run(&client, "far_plain", "big", json!("now")).await;
    let inputs = far.inputs();
    let sent: Vec<&str> = inputs[0].iter().filter_map(|it| it["content"].as_str()).collect();
    let first: Vec<_> = sent.iter().filter_map(|text| text.get(..1)).collect();
    assert_eq!(first, ["5", "6", "6", "7", "7", "8", "8", "9", "9", "n"]);
    assert_eq!(lost_concepts(&client, "big").await, ["conversation"]);
    stop(server).await;
}
