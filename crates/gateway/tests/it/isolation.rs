//! Two tenants: every id of one tenant is unknown to the other, on every route.

use serde_json::{Value, json};
use trilogue_domain::Rights;
use trilogue_testkit::Client;

use crate::isolation_harness::{Case, hold};
use crate::rig::{Rig, text};

struct Fixtures {
    thread: String,
    run: String,
    waiting: String,
    interrupt: String,
    checkpoint: String,
    sha256: String,
    token: String,
}

impl Fixtures {
    async fn of(rig: &Rig) -> Self {
        let client = rig.alice();
        let run = rig.run_on("secret-thread", "large").await;
        let waiting = rig.run_on("secret-waiting", "suspend").await;
        let thread = client.get("/api/v1/threads/secret-thread").await.unwrap().ok().unwrap();
        let tokens = client.get("/api/v1/tokens").await.unwrap().ok().unwrap();
        Self {
            thread: "secret-thread".to_owned(),
            run: text(&run, "/id").to_owned(),
            waiting: text(&waiting, "/id").to_owned(),
            interrupt: text(&waiting, "/interrupts/0/id").to_owned(),
            checkpoint: text(&thread, "/head").to_owned(),
            sha256: text(&run, "/output/0/parts/0/blob/sha256").to_owned(),
            token: text(&tokens, "/items/0/id").to_owned(),
        }
    }

    /// The same structure with unknown ids.
    fn unknown() -> Self {
        let unknown = |kind: &str| format!("unknown-{kind}");
        Self {
            thread: unknown("thread"),
            run: unknown("run"),
            waiting: unknown("waiting"),
            interrupt: unknown("interrupt"),
            checkpoint: unknown("checkpoint"),
            sha256: "0".repeat(64),
            token: unknown("token"),
        }
    }

    /// The requests of an operation that name an object: path, query and body. `None` if this test does not know the route.
    fn requests(&self, operation: &str) -> Option<Vec<(String, Value)>> {
        let (thread, run) = (&self.thread, &self.run);
        let plain = |path: String| vec![(path, Value::Null)];
        let nothing = Vec::new;
        Some(match operation {
            "get_health"
            | "get_readiness"
            | "get_metrics"
            | "get_api_metrics"
            | "get_status"
            | "get_process_stderr"
            | "list_fidelity"
            | "get_document"
            | "list_agents"
            | "get_agent"
            | "get_agent_forms"
            | "create_thread"
            | "list_threads"
            | "list_deliveries"
            | "list_tokens"
            | "create_token"
            | "back_up"
            | "list_callback_keys"
            | "get_caller"
            | "watch_changes"
            | "create_sign_in_link"
            | "sign_in"
            | "look_up_sign_in_link"
            | "sign_out"
            | "list_nodes"
            | "drain_node"
            | "undrain_node"
            | "draw" => nothing(),
            // A login is of no tenant until a person approves its code, which only its program shows.
            "begin_login" | "collect_login" | "look_up_login" | "approve_login"
            | "create_ticket" => nothing(),
            // The store numbers deliveries, and it has none here, so every number is unknown.
            "redeliver" => nothing(),
            "get_thread" | "erase_thread" => plain(format!("/api/v1/threads/{thread}")),
            "patch_thread" => vec![
                (format!("/api/v1/threads/{thread}"), json!({"metadata": {"stolen": true}})),
                (
                    "/api/v1/threads/their-own".to_owned(),
                    json!({"values": 1, "from": self.checkpoint}),
                ),
            ],
            "hand_over_thread" => {
                vec![(format!("/api/v1/threads/{thread}/hand-over"), json!({"node": "a"}))]
            }
            "copy_thread" => vec![(format!("/api/v1/threads/{thread}/copy"), json!({}))],
            "list_thread_events" => plain(format!("/api/v1/threads/{thread}/events?after=1")),
            "list_messages" | "list_checkpoints" => {
                let noun = operation.trim_start_matches("list_");
                vec![
                    (format!("/api/v1/threads/{thread}/{noun}"), Value::Null),
                    (
                        format!("/api/v1/threads/their-own/{noun}?after={}", self.checkpoint),
                        Value::Null,
                    ),
                ]
            }
            "get_blob" => vec![
                (format!("/api/v1/threads/{thread}/blobs/{}", self.sha256), Value::Null),
                (format!("/api/v1/threads/their-own/blobs/{}", self.sha256), Value::Null),
            ],
            "get_event_forms" => plain(format!("/api/v1/threads/{thread}/events/1/forms")),
            "get_thread_state" => plain(format!("/api/v1/threads/{thread}/state")),
            "export_thread" => plain(format!("/api/v1/threads/{thread}/export")),
            "create_run" => vec![(
                "/api/v1/runs".to_owned(),
                json!({"agent": "puppet", "input": "x", "thread_id": thread}),
            )],
            "list_runs" => plain(format!("/api/v1/runs?thread_id={thread}")),
            "get_run" | "delete_run" => plain(format!("/api/v1/runs/{run}")),
            "wait_for_run" => plain(format!("/api/v1/runs/{run}/wait")),
            "cancel_run" => plain(format!("/api/v1/runs/{}/cancel", self.waiting)),
            "get_run_requests" => plain(format!("/api/v1/runs/{run}/requests")),
            "list_run_events" => plain(format!("/api/v1/runs/{run}/events?after=1")),
            "list_interrupts" => vec![
                (format!("/api/v1/interrupts?thread_id={thread}"), Value::Null),
                (format!("/api/v1/interrupts?run_id={run}"), Value::Null),
            ],
            "get_interrupt" => plain(format!("/api/v1/interrupts/{}", self.interrupt)),
            "answer_interrupt" => {
                vec![(format!("/api/v1/interrupts/{}/answer", self.interrupt), json!({"value": 1}))]
            }
            "answer_run" => vec![
                (format!("/api/v1/runs/{}/answer", self.waiting), json!({"value": 1})),
                (
                    format!("/api/v1/runs/{}/answer", self.waiting),
                    json!({"value": 1, "interrupt_id": self.interrupt}),
                ),
            ],
            "revoke_token" => plain(format!("/api/v1/tokens/{}", self.token)),
            _ => return None,
        })
    }
}

#[tokio::test]
async fn a_foreign_id_is_as_unknown_as_one_that_never_was() {
    for rig in [Rig::start().await, Rig::on_disk().await] {
        check_every_route(rig).await;
    }
}

async fn check_every_route(rig: Rig) {
    let (theirs, unknown) = (Fixtures::of(&rig).await, Fixtures::unknown());
    rig.token("beta", "mallory", Rights::all(), false).await;
    rig.token("alpha", "own", Rights::all(), true).await;
    // A principal of another tenant, and one of the same tenant that sees only its own objects.
    for (tenant, principal) in [("beta", "mallory"), ("alpha", "own")] {
        check_stranger(&rig, &rig.as_(tenant, principal), &theirs, &unknown).await;
    }
}

async fn check_stranger(rig: &Rig, mallory: &Client, theirs: &Fixtures, unknown: &Fixtures) {
    let own =
        json!({"agent": "puppet", "input": "x", "thread_id": "their-own", "create_thread": true});
    mallory.post("/api/v1/runs", &own).await.unwrap().ok().unwrap();

    let document: Value = serde_json::from_str(&trilogue_gateway::openapi_document()).unwrap();
    let mut cases = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (verb, operation) in item.as_object().unwrap() {
            let operation = text(operation, "/operationId");
            let foreign = theirs.requests(operation);
            let foreign = foreign.unwrap_or_else(|| panic!("{verb} {path} needs a case here"));
            let names_something = path.contains('{')
                && ![
                    "get_agent",
                    "get_agent_forms",
                    "get_process_stderr",
                    "redeliver",
                    "drain_node",
                    "undrain_node",
                ]
                .contains(&operation);
            assert!(!(foreign.is_empty() && names_something), "{operation} has no request");
            let never = unknown.requests(operation).unwrap();
            cases.extend(Case::of(operation, verb, foreign, never));
        }
    }
    let checked = hold(mallory, cases).await;
    assert!(checked >= 25, "{checked}");

    // None of the requests took effect, and no object is listed.
    let waiting = rig.alice().get(&format!("/api/v1/runs/{}", theirs.waiting)).await.unwrap();
    assert_eq!(text(&waiting.ok().unwrap(), "/status"), "interrupted");
    let thread = rig.alice().get("/api/v1/threads/secret-thread").await.unwrap().ok().unwrap();
    assert_eq!(thread["metadata"], json!({}));
    for list in ["threads", "runs", "interrupts", "tokens"] {
        let path = format!("/api/v1/{list}?limit=1");
        let first = rig.alice().get(&path).await.unwrap();
        let next = first.json()["next"].as_str().map(|next| format!("?after={next}"));
        assert!(next.is_some() || !["threads", "runs"].contains(&list), "{list} has one page");
        // A list shows nothing of others, and no more from a place that another list named.
        for query in [Some(String::new()), next].into_iter().flatten() {
            let listed = mallory.get(&format!("/api/v1/{list}{query}")).await.unwrap();
            assert_eq!(listed.status, 200, "{list}{query}");
            let listed = String::from_utf8_lossy(&listed.body).into_owned();
            for id in [&theirs.thread, &theirs.run, &theirs.interrupt, &theirs.token] {
                assert!(!listed.contains(id.as_str()), "{list}{query} shows {id}");
            }
        }
    }
}

#[tokio::test]
async fn the_same_id_in_two_tenants_is_two_things() {
    let rig = Rig::start().await;
    rig.token("beta", "bob", Rights::all(), false).await;
    for (tenant, principal) in [("alpha", "alice"), ("beta", "bob")] {
        let body = json!({"id": "shared", "metadata": {"whose": principal}});
        let made = rig.as_(tenant, principal).post("/api/v1/threads", &body).await.unwrap();
        assert_eq!(made.status, 201);
    }
    let seen = rig.alice().get("/api/v1/threads/shared").await.unwrap().ok().unwrap();
    assert_eq!(seen["metadata"]["whose"], "alice");
}
