//! `kill -9` of a server of the Agent Connect Protocol that has a run in each state.

use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use trilogue_testkit::callback::Receiver;
use trilogue_testkit::foreign::{Conformance, ConformanceOptions};
use trilogue_testkit::{Client, Folder};

const LIMIT: Duration = Duration::from_secs(60);
const MOCK: &str = "3f1e2549-5799-4321-91ae-2a4881d55526";

async fn start(folder: &Folder) -> Conformance {
    let options = ConformanceOptions::connect("sqlite:agents.db", "/connect");
    let allow_egress = Some("127.0.0.1/32".to_owned());
    let options = ConformanceOptions { allow_egress, ..options };
    Conformance::start(folder.path(), options).await.unwrap()
}

async fn post(client: &Client, path: &str, body: &Value) -> Value {
    client.post(&format!("/connect{path}"), body).await.unwrap().ok().unwrap()
}

async fn get(client: &Client, path: &str) -> Value {
    client.get(&format!("/connect{path}")).await.unwrap().ok().unwrap()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

fn endless() -> Value {
    json!({"agent_id": "counter", "input": {"count": 10_000, "pause_ms": 50}})
}

fn count(count: u32) -> Value {
    json!({"agent_id": "counter", "input": {"count": count}})
}

/// Starts a run and returns once its agent works.
async fn start_working_run(client: &Client, path: &str, body: &Value) -> String {
    let run = text(&post(client, path, body).await["run_id"]);
    let mut stream = client.stream(&format!("/connect/runs/{run}/stream"), None).await.unwrap();
    let event = tokio::time::timeout(LIMIT, stream.next()).await.unwrap().unwrap().unwrap();
    assert!(event.data.contains("\"count\""), "{event:?}");
    run
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_run_is_lost_and_those_behind_it_are_not() {
    let folder = Folder::new().unwrap();
    let program = start(&folder).await;
    let client = program.client();
    let thread = text(&post(&client, "/threads", &json!({})).await["thread_id"]);
    let runs = format!("/threads/{thread}/runs");
    post(&client, &format!("{runs}/wait"), &count(5)).await;
    let running = start_working_run(&client, &runs, &endless()).await;
    let mut behind = count(2);
    behind["multitask_strategy"] = json!("enqueue");
    let pending = text(&post(&client, &runs, &behind).await["run_id"]);
    let before = get(&client, &format!("/threads/{thread}")).await;
    assert_eq!((&before["status"], &before["values"]["total"]), (&json!("busy"), &json!(5)));

    let program = program.kill_and_start().await.unwrap();
    let client = program.client();
    let lost = get(&client, &format!("{runs}/{running}/wait")).await;
    assert_eq!(lost["run"]["status"], "error", "{lost}");
    assert_eq!(lost["output"]["errcode"], 7, "{lost}");
    assert_eq!(lost["output"]["transient"], true, "{lost}");
    let done = get(&client, &format!("{runs}/{pending}/wait")).await;
    assert_eq!(done["output"]["values"], json!({"count": 2}), "{done}");
    // The lost run's count appears in no state.
    let after = get(&client, &format!("/threads/{thread}")).await;
    assert_eq!((&after["status"], &after["values"]["total"]), (&json!("idle"), &json!(7)));
    assert!(program.stop().await.unwrap().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scheduled_run_starts_at_its_time() {
    let folder = Folder::new().unwrap();
    let program = start(&folder).await;
    let client = program.client();
    let thread = text(&post(&client, "/threads", &json!({})).await["thread_id"]);
    let later = |seconds: u32| {
        let mut body = count(1);
        body["after_seconds"] = json!(seconds);
        body
    };
    let soon = text(&post(&client, "/runs", &later(3)).await["run_id"]);
    let never = post(&client, &format!("/threads/{thread}/runs"), &later(86_400)).await;
    let never = text(&never["run_id"]);

    let program = program.kill_and_start().await.unwrap();
    let client = program.client();
    let run = get(&client, &format!("/threads/{thread}/runs/{never}")).await;
    assert_eq!(
        (&run["status"], &run["creation"]["after_seconds"]),
        (&json!("pending"), &json!(86_400))
    );
    assert_eq!(get(&client, &format!("/threads/{thread}")).await["status"], "busy");
    let refused = client.post(&format!("/connect/threads/{thread}/runs"), &count(1)).await.unwrap();
    assert_eq!(refused.status, 409, "{}", refused.json());
    let done = get(&client, &format!("/runs/{soon}/wait")).await;
    assert_eq!(done["output"]["values"], json!({"count": 1}), "{done}");
    let cancel = format!("/connect/threads/{thread}/runs/{never}/cancel?wait=true");
    assert_eq!(client.post(&cancel, &json!({})).await.unwrap().status, 204);
    assert!(program.stop().await.unwrap().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_run_threads_and_instances_are_as_they_were() {
    let folder = Folder::new().unwrap();
    let program = start(&folder).await;
    let client = program.client();
    let thread =
        text(&post(&client, "/threads", &json!({"metadata": {"a": 1}})).await["thread_id"]);
    for number in [2, 3] {
        post(&client, &format!("/threads/{thread}/runs/wait"), &count(number)).await;
    }
    let ask = json!({"agent_id": MOCK, "input": {"message": "Please interrupt"}});
    let waiting = post(&client, "/runs/wait", &ask).await;
    assert_eq!(waiting["run"]["status"], "interrupted", "{waiting}");
    let run = text(&waiting["run"]["run_id"]);
    let configuration = json!({"config": {"pause_ms": 1}, "metadata": {"b": 2}});
    let instance = post(&client, &format!("/agents/{MOCK}/configurations"), &configuration).await;
    let id = text(&instance["configuration_id"]);
    let paths = [
        format!("/threads/{thread}"),
        format!("/threads/{thread}/history"),
        format!("/threads/{thread}/runs"),
        format!("/runs/{run}"),
        format!("/runs/{run}/wait"),
        format!("/agents/{MOCK}/configurations/{id}"),
    ];
    let mut before = Vec::new();
    for path in &paths {
        before.push(get(&client, path).await);
    }

    let program = program.kill_and_start().await.unwrap();
    let client = program.client();
    for (path, before) in paths.iter().zip(&before) {
        assert_eq!(&get(&client, path).await, before, "{path}");
    }
    let unfit = client.post(&format!("/connect/runs/{run}"), &json!({"nope": 1})).await.unwrap();
    assert_eq!(unfit.status, 422, "{}", unfit.json());
    post(&client, &format!("/runs/{run}"), &json!({"message": "so"})).await;
    let done = get(&client, &format!("/runs/{run}/wait")).await;
    assert_eq!(done["output"]["values"], json!({"message": "so"}), "{done}");
    let sky = json!({"agent_id": id, "input": {"message": "What's the color of the sky?"}});
    assert_eq!(post(&client, "/runs/wait", &sky).await["run"]["status"], "success");
    post(&client, &format!("/threads/{thread}/runs/wait"), &count(10)).await;
    assert_eq!(get(&client, &format!("/threads/{thread}")).await["values"]["total"], 15);
    assert!(program.stop().await.unwrap().success());
}

/// A callback that its receiver has not accepted is sent again, under the same id. The end of a run that the kill caused is delivered too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_callback_that_is_due_is_delivered() {
    let receiver = Receiver::start().await.unwrap();
    receiver.answer_next([StatusCode::SERVICE_UNAVAILABLE; 2]);
    let folder = Folder::new().unwrap();
    let program = start(&folder).await;
    let client = program.client();
    let called = |mut body: Value| {
        body["webhook"] = json!(receiver.url());
        body
    };
    let ask = json!({"agent_id": MOCK, "input": {"message": "Please interrupt"}});
    let (done, waiting) = (called(count(1)), called(ask));
    // Concurrently, so that each is delivered once before either is retried.
    let (done, waiting) =
        tokio::join!(post(&client, "/runs", &done), post(&client, "/runs", &waiting));
    let (done, waiting) = (text(&done["run_id"]), text(&waiting["run_id"]));
    // Both were refused once, so both are due again.
    let refused = receiver.wait_for(2, LIMIT).await.unwrap();
    let running = start_working_run(&client, "/runs", &called(endless())).await;

    let program = program.kill_and_start().await.unwrap();
    let client = program.client();
    let body = |delivery: &trilogue_testkit::callback::Delivery| -> Value {
        serde_json::from_slice(&delivery.body).unwrap()
    };
    // The refused callbacks come again, and the lost run's end once.
    let all = receiver.wait_for(5, LIMIT).await.unwrap();
    for (run, status) in [(&done, "success"), (&waiting, "interrupted")] {
        let of_run =
            |delivery: &&trilogue_testkit::callback::Delivery| body(delivery)["run_id"] == **run;
        let first = refused.iter().find(of_run).unwrap();
        let again = all.iter().skip(2).find(of_run).unwrap();
        assert_eq!(again.headers["webhook-id"], first.headers["webhook-id"]);
        assert_eq!(body(again), body(first));
        assert_eq!(body(again)["status"], status);
    }
    let lost = all.iter().map(body).find(|body| body["run_id"] == *running).unwrap();
    assert_eq!((&lost["status"], &lost["output"]["errcode"]), (&json!("error"), &json!(7)));
    post(&client, &format!("/runs/{waiting}"), &json!({"message": "so"})).await;
    let ended = receiver.wait_for(6, LIMIT).await.unwrap();
    let ended = body(ended.last().unwrap());
    assert_eq!((&ended["run_id"], &ended["status"]), (&json!(waiting), &json!("success")));
    assert_eq!(ended["output"]["values"], json!({"message": "so"}));
    assert!(program.stop().await.unwrap().success());
}
