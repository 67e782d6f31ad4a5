//! Two tenants at one mount: every id of one tenant is unknown to the other, on every route of the protocol.

use serde_json::{Value, json};
use trilogue_domain::Rights;
use trilogue_gateway::face::Operation;
use trilogue_gateway::{CommunicationOptions, Protocol};

use crate::isolation_harness::{Case, filled, hold};
use crate::rig::{Rig, text};

const BASE: &str = "/communication";

struct Fixtures {
    session: String,
    run: String,
    waiting: String,
    message: String,
    checkpoint: String,
    sha256: String,
}

fn new_run(input: &str, session: &str) -> Value {
    let input =
        json!([{"role": "user", "parts": [{"content_type": "text/plain", "content": input}]}]);
    json!({"agent_name": "puppet", "input": input, "session_id": session})
}

impl Fixtures {
    async fn of(rig: &Rig) -> Self {
        let client = rig.alice();
        let session = "11111111-2222-4333-8444-555555555555".to_owned();
        let start = async |body: Value| {
            let made = client.post(&format!("{BASE}/runs"), &body).await.unwrap();
            text(&made.ok().unwrap(), "/run_id").to_owned()
        };
        let run = start(new_run("large", &session)).await;
        start(new_run("state secret", &session)).await;
        let waiting = start(new_run("suspend", "11111111-2222-4333-8444-666666666666")).await;
        let own = client.get(&format!("/api/v1/runs/{run}")).await.unwrap().ok().unwrap();
        let thread = client.get(&format!("/api/v1/threads/{session}")).await.unwrap();
        Self {
            run,
            waiting,
            message: text(&own, "/output/0/id").to_owned(),
            sha256: text(&own, "/output/0/parts/0/blob/sha256").to_owned(),
            checkpoint: text(&thread.ok().unwrap(), "/head").to_owned(),
            session,
        }
    }

    /// The same structure with unknown ids.
    fn unknown() -> Self {
        let id = |last: u8| format!("99999999-2222-4333-8444-{last:012}");
        Self {
            session: id(1),
            run: id(2),
            waiting: id(3),
            message: id(4),
            checkpoint: id(5),
            sha256: "0".repeat(64),
        }
    }

    /// The requests of an operation that name one of these objects: path and body.
    fn requests(&self, operation: &Operation) -> Vec<(String, Value)> {
        let values = [
            ("{session_id}", vec![&self.session]),
            ("{run_id}", vec![&self.run, &self.waiting]),
            ("{message_id}", vec![&self.message]),
            ("{checkpoint_id}", vec![&self.checkpoint]),
            ("{sha256}", vec![&self.sha256]),
            // All callers share the agents.
            ("{name}", Vec::new()),
        ];
        let paths = filled(operation.path, &values);
        let unfilled = paths.iter().find(|path| path.contains('{'));
        assert_eq!(unfilled, None, "{operation:?} needs a case here");
        let is_resume = operation.method == "POST" && operation.path.ends_with("{run_id}");
        let body = match is_resume {
            true => {
                let message = json!({"role": "user", "parts": [{"content_type": "text/plain", "content": "{}"}]});
                json!({"await_resume": {"type": "message", "message": message}, "mode": "sync"})
            }
            false => Value::Null,
        };
        paths.into_iter().map(|path| (format!("{BASE}{path}"), body.clone())).collect()
    }
}

#[tokio::test]
async fn a_foreign_id_is_as_unknown_as_one_that_never_was_under_a_mount() {
    for rig in [Rig::start().await, Rig::on_disk().await] {
        check_every_route(rig).await;
    }
}

async fn check_every_route(rig: Rig) {
    let (theirs, unknown) = (Fixtures::of(&rig).await, Fixtures::unknown());
    rig.token("beta", "mallory", Rights::all(), false).await;
    rig.token("alpha", "own", Rights::all(), true).await;
    let alice = rig.alice();
    let operations = CommunicationOptions::default().operations();
    // A principal of another tenant, and one of the same tenant that sees only its own objects.
    for stranger in [rig.as_("beta", "mallory"), rig.as_("alpha", "own")] {
        let cases = operations.iter().filter(|it| it.path.contains('{')).flat_map(|operation| {
            let (foreign, never) = (theirs.requests(operation), unknown.requests(operation));
            Case::of(operation.name, operation.method, foreign, never)
        });
        let checked = hold(&stranger, cases).await;
        assert!(checked >= 12, "{checked}");
        let listed = stranger.get(&format!("{BASE}/runs")).await.unwrap().ok().unwrap();
        assert_eq!(listed["runs"], json!([]));
    }

    // Checks the requests themselves: each names an object that its owner can read.
    let gets = operations.iter().filter(|it| it.method == "GET");
    for operation in gets.filter(|it| it.path.contains('{')) {
        let mut found = 0;
        for (path, _) in theirs.requests(operation) {
            found += usize::from(alice.get(&path).await.unwrap().status == 200);
        }
        // The puppet answers with messages, so its runs have no value.
        let has_none = operation.name == "communication_get_result";
        assert!(found > 0 || has_none || operation.path.contains("{name}"), "{operation:?}");
    }
    let waiting = alice.get(&format!("{BASE}/runs/{}", theirs.waiting)).await.unwrap();
    assert_eq!(text(&waiting.ok().unwrap(), "/status"), "awaiting");
}

#[tokio::test]
async fn the_same_session_in_two_tenants_is_two_sessions() {
    let rig = Rig::start().await;
    rig.token("beta", "bob", Rights::all(), false).await;
    let session = "11111111-2222-4333-8444-777777777777";
    let mut histories = Vec::new();
    for client in [rig.alice(), rig.as_("beta", "bob")] {
        let runs = format!("{BASE}/runs");
        client.post(&runs, &new_run("hello", session)).await.unwrap().ok().unwrap();
        let path = format!("{BASE}/sessions/{session}");
        let found = client.get(&path).await.unwrap().ok().unwrap();
        assert_eq!(found["history"].as_array().unwrap().len(), 2);
        histories.push(found["history"].clone());
    }
    assert_ne!(histories[0], histories[1]);
}
