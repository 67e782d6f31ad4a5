//! Two tenants at one mount of the Agent Connect Protocol: every id of one tenant is unknown to the other, on every route.

use serde_json::{Value, json};
use trilogue_domain::Rights;
use trilogue_gateway::face::Operation;
use trilogue_gateway::{ConnectOptions, Protocol};
use trilogue_testkit::Client;

use crate::fountain::Quick;
use crate::isolation_harness::{Case, filled, hold};
use crate::rig::{Rig, Setup, text};

const BASE: &str = "/connect";

struct Fixtures {
    thread: String,
    run: String,
    stateless: String,
    waiting: String,
    checkpoint: String,
    configuration: String,
    sha256: String,
}

async fn posted(client: &Client, path: &str, body: &Value) -> Value {
    client.post(&format!("{BASE}{path}"), body).await.unwrap().ok().unwrap()
}

impl Fixtures {
    async fn of(client: &Client) -> Self {
        let thread = text(&posted(client, "/threads", &json!({})).await, "/thread_id").to_owned();
        let new = |word: &str| json!({"agent_id": "puppet", "input": {"message": word}});
        let wait = |word: &str| (format!("/threads/{thread}/runs/wait"), new(word));
        let (path, body) = wait("large");
        let run = posted(client, &path, &body).await;
        let (path, body) = wait("state secret");
        posted(client, &path, &body).await;
        let own = client.get(&format!("/api/v1/runs/{}", text(&run, "/run/run_id"))).await;
        let own = own.unwrap().ok().unwrap();
        let history = client.get(&format!("{BASE}/threads/{thread}/history")).await.unwrap();
        let history = history.ok().unwrap();
        let (path, body) = wait("suspend");
        let waiting = posted(client, &path, &body).await;
        let stateless = posted(client, "/runs/wait", &new("hello")).await;
        let made = json!({"config": {"a": 1}});
        let configuration = posted(client, "/agents/quick/configurations", &made).await;
        Self {
            run: text(&run, "/run/run_id").to_owned(),
            waiting: text(&waiting, "/run/run_id").to_owned(),
            stateless: text(&stateless, "/run/run_id").to_owned(),
            checkpoint: text(&history, "/0/checkpoint/checkpoint_id").to_owned(),
            configuration: text(&configuration, "/configuration_id").to_owned(),
            sha256: text(&own, "/output/0/parts/0/blob/sha256").to_owned(),
            thread,
        }
    }

    /// The same structure with unknown ids.
    fn unknown() -> Self {
        let id = |last: u8| format!("99999999-2222-4333-8444-{last:012}");
        Self {
            thread: id(1),
            run: id(2),
            stateless: id(3),
            waiting: id(4),
            checkpoint: id(5),
            configuration: id(6),
            sha256: "0".repeat(64),
        }
    }

    fn requests(&self, operation: &Operation, own: &str) -> Vec<(String, Value)> {
        let mut requests = Vec::new();
        let is_run_of_thread =
            operation.path.contains("{thread_id}") && operation.path.contains("{run_id}");
        let template = operation.path.replace("{agent_id}", "quick");
        if is_run_of_thread {
            // Another tenant's run is unknown under the caller's own thread too.
            let foreign = template.replace("{thread_id}", own).replace("{run_id}", &self.run);
            requests.push((foreign, body_of(operation)));
        }
        let values = [
            ("{thread_id}", vec![&self.thread]),
            ("{run_id}", vec![&self.run, &self.waiting, &self.stateless]),
            ("{configuration_id}", vec![&self.configuration]),
            ("{sha256}", vec![&self.sha256]),
        ];
        let paths = filled(&template, &values);
        let unfilled = paths.iter().find(|path| path.contains('{'));
        assert_eq!(unfilled, None, "{operation:?} needs a case here");
        let names_something = ["{thread_id}", "{run_id}", "{configuration_id}"];
        if names_something.iter().any(|name| operation.path.contains(name)) {
            requests.extend(paths.into_iter().map(|path| (path, body_of(operation))));
        }
        let run = |members: Value| {
            let mut body = json!({"agent_id": "quick", "input": {}});
            body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
            body
        };
        let (checkpoint, configuration) = (&self.checkpoint, &self.configuration);
        match operation.name {
            "connect_get_thread_history" => {
                let path = format!("/threads/{own}/history?before={checkpoint}");
                requests.push((path, Value::Null));
            }
            "connect_patch_thread" => {
                let body = json!({"checkpoint": {"checkpoint_id": checkpoint}, "values": {"a": 1}});
                requests.push((format!("/threads/{own}"), body));
            }
            "connect_create_run"
            | "connect_create_run_and_wait"
            | "connect_create_run_and_stream" => {
                let path = operation.path.to_owned();
                requests.push((path.clone(), run(json!({"configuration_id": configuration}))));
                requests.push((path, run(json!({"agent_id": configuration}))));
            }
            "connect_get_blob" => {
                requests.push((format!("/threads/{own}/blobs/{}", self.sha256), Value::Null));
            }
            _ => {}
        }
        requests.into_iter().map(|(path, body)| (format!("{BASE}{path}"), body)).collect()
    }
}

fn body_of(operation: &Operation) -> Value {
    match (operation.method, operation.path) {
        ("POST", path) if path.contains("{thread_id}/runs") && !path.contains("{run_id}") => {
            json!({"agent_id": "quick", "input": {}})
        }
        ("PATCH", path) if path.contains("configurations") => json!({"config": {"stolen": true}}),
        ("PATCH", _) => json!({"metadata": {"stolen": true}}),
        ("POST", path) if path.ends_with("{run_id}") => json!({}),
        _ => Value::Null,
    }
}

async fn rig(on_disk: bool) -> Rig {
    Rig::of(Setup { agents: vec![Quick::new("quick")], on_disk, ..Setup::default() }).await
}

#[tokio::test]
async fn a_foreign_id_is_as_unknown_as_one_that_never_was_under_connect() {
    for rig in [rig(false).await, rig(true).await] {
        check_every_route(rig).await;
    }
}

async fn check_every_route(rig: Rig) {
    let alice = rig.alice();
    let (theirs, unknown) = (Fixtures::of(&alice).await, Fixtures::unknown());
    rig.token("beta", "mallory", Rights::all(), false).await;
    rig.token("alpha", "own", Rights::all(), true).await;
    // A principal of another tenant, and one of the same tenant that sees only its own objects.
    for stranger in [rig.as_("beta", "mallory"), rig.as_("alpha", "own")] {
        let own = text(&posted(&stranger, "/threads", &json!({})).await, "/thread_id").to_owned();
        let operations = ConnectOptions::default().operations();
        let cases = operations.iter().flat_map(|operation| {
            let foreign = theirs.requests(operation, &own);
            Case::of(operation.name, operation.method, foreign, unknown.requests(operation, &own))
        });
        let checked = hold(&stranger, cases).await;
        assert!(checked >= 50, "{checked}");
        for list in ["/threads/search", "/runs/search", "/agents/quick/configurations/search"] {
            let listed = posted(&stranger, list, &json!({})).await.to_string();
            for id in [&theirs.thread, &theirs.run, &theirs.stateless, &theirs.configuration] {
                assert!(!listed.contains(id.as_str()), "{list} shows {id}");
            }
        }
    }
    check_untouched(&alice, &theirs).await;
}

/// Checks that none of the requests took effect, and that the owner still finds every object.
async fn check_untouched(alice: &Client, theirs: &Fixtures) {
    let got = async |path: &str| alice.get(&format!("{BASE}{path}")).await.unwrap().ok().unwrap();
    let thread = got(&format!("/threads/{}", theirs.thread)).await;
    assert_eq!((&thread["metadata"], text(&thread, "/status")), (&json!({}), "interrupted"));
    assert_eq!(text(&got(&format!("/runs/{}", theirs.waiting)).await, "/status"), "interrupted");
    assert_eq!(text(&got(&format!("/runs/{}", theirs.stateless)).await, "/status"), "success");
    let path = format!("/agents/quick/configurations/{}", theirs.configuration);
    assert_eq!(got(&path).await["config"], json!({"a": 1}));
    let history = got(&format!("/threads/{}/history", theirs.thread)).await;
    assert_eq!(text(&history, "/0/checkpoint/checkpoint_id"), theirs.checkpoint);
    let path = format!("{BASE}/threads/{}/blobs/{}", theirs.thread, theirs.sha256);
    assert_eq!(alice.get(&path).await.unwrap().status, 200);
}
