//! Callbacks of runs, sent to a real receiver.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use serde_json::{Value, json};
use trilogue_egress::Policy;
use trilogue_gateway::callback::sign;
use trilogue_gateway::{ConnectOptions, Mount, Options};
use trilogue_testkit::callback::{Delivery, Receiver};
use trilogue_testkit::until;

use crate::fountain::{Fountain, Hand, Step};
use crate::rig::{LIMIT, Rig, Setup, callback_key, text, user};

struct Scene {
    rig: Rig,
    hand: Hand,
    receiver: Receiver,
}

impl Scene {
    async fn start(egress: Policy) -> Self {
        let (agent, hand) = Fountain::new();
        let callback_backoff = Some(Duration::from_millis(50));
        let setup = Setup { agents: vec![agent], egress, callback_backoff, ..Setup::default() };
        Self { rig: Rig::of(setup).await, hand, receiver: Receiver::start().await.unwrap() }
    }

    async fn create(&self, events: &[&str]) -> String {
        let callback = json!({"url": self.receiver.url(), "events": events});
        let body = json!({"agent_id": "fountain", "input": {}, "callback": callback});
        let made = self.rig.alice().post("/connect/runs", &body).await.unwrap();
        text(&made.ok().unwrap(), "/run_id").to_owned()
    }

    async fn delivered(&self, count: usize) -> Vec<Value> {
        let arrived = async || (self.receiver.deliveries().len() >= count).then_some(());
        until("deliveries", LIMIT, arrived).await.unwrap();
        let key = callback_key("alpha", "alice", &self.receiver.url());
        self.receiver.deliveries().iter().map(|delivery| checked(delivery, &key)).collect()
    }

    async fn dead(&self) -> Vec<Value> {
        let dead = self.rig.alice().get("/api/v1/deliveries").await.unwrap().ok().unwrap();
        dead["items"].as_array().unwrap().clone()
    }
}

/// The body of a delivery; its signature must be valid for this key.
fn checked(delivery: &Delivery, key: &[u8]) -> Value {
    let header = |name: &str| delivery.headers[name].to_str().unwrap();
    let seconds: i64 = header("webhook-timestamp").parse().unwrap();
    let id = header("webhook-id");
    let expected = sign(key, id, seconds, &delivery.body);
    assert_eq!(header("webhook-signature"), expected);
    let body: Value = serde_json::from_slice(&delivery.body).unwrap();
    assert_eq!(body["delivery_id"], id);
    body
}

fn facts(body: &Value) -> (&str, &str) {
    (text(body, "/event"), text(body, "/status"))
}

#[tokio::test]
async fn a_run_tells_what_it_waits_for_and_how_it_ended() {
    let scene = Scene::start(Policy::local()).await;
    let run = scene.create(&["status"]).await;
    scene.hand.take(Step::Ask);
    let told = scene.delivered(1).await;
    assert_eq!(facts(&told[0]), ("run.status", "interrupted"));
    assert_eq!(text(&told[0], "/run_id"), run);
    assert_eq!(text(&told[0], "/output/type"), "interrupt");
    assert_eq!(told[0]["output"]["interrupt"], json!({"whether": {"may": "I"}}));
    // The callback contained the question, so an answer without a name resolves it.
    let path = format!("/api/v1/runs/{run}/answer");
    let answered = async || {
        let reply = scene.rig.alice().post(&path, &json!({"value": {}})).await.ok()?;
        (reply.status == 200).then_some(())
    };
    until("the answer", LIMIT, answered).await.unwrap();
    scene.hand.take(Step::End(json!({"n": 1})));
    let told = scene.delivered(2).await;
    assert_eq!(facts(&told[1]), ("run.status", "success"));
    assert_eq!(told[1]["output"]["values"], json!({"n": 1}));
    assert_ne!(told[0]["delivery_id"], told[1]["delivery_id"]);
    assert_eq!(scene.receiver.deliveries().len(), 2);
    assert!(scene.dead().await.is_empty());
}

#[tokio::test]
async fn a_callback_leads_to_the_mount_that_created_the_run() {
    let mount = |prefix| Mount::new(ConnectOptions::default(), prefix).unwrap();
    let rig = Rig::of(Setup {
        agents: crate::communication_agents::all(),
        egress: Policy::local(),
        mounts: Some(vec![mount("/first"), mount("/second")]),
        // A small limit, so that large content is linked.
        options: Options { max_output_bytes: 10_000, ..Options::default() },
        ..Setup::default()
    })
    .await;
    for prefix in ["/second", "/first"] {
        let receiver = Receiver::start().await.unwrap();
        let body = json!({"agent_id": "large", "input": "x", "webhook": receiver.url()});
        rig.alice().post(&format!("{prefix}/runs"), &body).await.unwrap().ok().unwrap();
        let delivery = receiver.wait_for(1, LIMIT).await.unwrap().remove(0);
        let body = String::from_utf8(delivery.body.to_vec()).unwrap();
        let link = format!("http://{}{prefix}/threads/", rig.address);
        assert!(body.contains(&link), "{prefix}: {body:.2000}");
        let other = if prefix == "/first" { "/second" } else { "/first" };
        assert!(!body.contains(&format!("{other}/threads/")), "{prefix}");
    }
}

#[tokio::test]
async fn updates_come_in_order_and_the_output_as_it_was() {
    let scene = Scene::start(Policy::local()).await;
    let run = scene.create(&["status", "values", "custom"]).await;
    for n in 1..=10 {
        scene.hand.take(Step::Update(json!({"n": n})));
        scene.hand.take(Step::Output(json!({"n": n})));
        scene.hand.sync().await;
    }
    scene.hand.take(Step::End(json!({"n": 11})));
    let ended = async || {
        let last: Value = serde_json::from_slice(&scene.receiver.deliveries().last()?.body).ok()?;
        (last["status"] == "success").then_some(())
    };
    until("the end", LIMIT, ended).await.unwrap();
    let told = scene.delivered(12).await;
    let updates: Vec<_> = told
        .iter()
        .filter(|body| body["event"] == "run.custom")
        .map(|body| body["update"]["n"].as_u64().unwrap())
        .collect();
    assert_eq!(updates, (1..=10).collect::<Vec<_>>());
    let values: Vec<_> = told
        .iter()
        .filter(|body| body["event"] == "run.values")
        .map(|body| body["output"]["values"]["n"].as_u64().unwrap())
        .collect();
    assert!(!values.is_empty() && values.windows(2).all(|pair| pair[0] < pair[1]), "{values:?}");
    for body in told.iter().filter(|body| body["event"] == "run.values") {
        assert_eq!(text(body, "/output/type"), "values", "a partial result has its own type");
        let id = text(body, "/delivery_id").strip_prefix(&format!("{run}.values.")).unwrap();
        assert!(id.parse::<u64>().is_ok(), "{body}");
    }
    let mut ids: Vec<_> = told.iter().map(|body| text(body, "/delivery_id")).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), told.len());
}

#[tokio::test]
async fn a_receiver_that_fails_delays_nothing_but_its_callback() {
    let scene = Scene::start(Policy::local()).await;
    scene.receiver.answer_next([StatusCode::SERVICE_UNAVAILABLE, StatusCode::FOUND]);
    let run = scene.create(&["status"]).await;
    scene.hand.take(Step::End(json!({})));
    let wait = format!("/api/v1/runs/{run}/wait");
    let ended = scene.rig.alice().get(&wait).await.unwrap().ok().unwrap();
    assert_eq!(ended["status"], "completed");
    let told = scene.delivered(3).await;
    // Each attempt has the same message. A redirect counts as a failure and is not followed.
    assert!(told.iter().all(|body| *body == told[0]), "{told:?}");
    assert!(scene.receiver.deliveries().iter().all(|it| it.target == "/callback"));
    assert!(scene.dead().await.is_empty());
}

#[tokio::test]
async fn what_cannot_be_delivered_is_kept_and_can_be_sent_again() {
    let scene = Scene::start(Policy::local()).await;
    scene.receiver.answer_next([StatusCode::GONE]);
    scene.create(&["status"]).await;
    scene.hand.take(Step::Fail);
    let is_dead = async || (!scene.dead().await.is_empty()).then_some(());
    until("the dead letter", LIMIT, is_dead).await.unwrap();
    let dead = scene.dead().await;
    assert!(text(&dead[0], "/error").contains("410"), "{dead:?}");
    let path =
        format!("/api/v1/deliveries/{}/redeliver", dead[0]["id"].as_str().unwrap_or_default());
    scene.rig.alice().post(&path, &json!({})).await.unwrap().ok().unwrap();
    let told = scene.delivered(2).await;
    assert_eq!(told[0], told[1]);
    assert_eq!(facts(&told[1]), ("run.status", "error"));
    assert_eq!(text(&told[1], "/output/type"), "error");
}

#[tokio::test]
async fn a_private_target_is_refused_by_address_and_setting_and_nothing_is_created() {
    let scene = Scene::start(Policy::default()).await;
    let port = scene.receiver.url().rsplit(':').next().unwrap().to_owned();
    for host in ["127.0.0.1", "localhost", "[::1]", "2130706433", "[::ffff:127.0.0.1]"] {
        let url = format!("http://{host}:{port}");
        for callback in [json!({"webhook": url}), json!({"callback": {"url": url}})] {
            let mut body = json!({"agent_id": "fountain", "input": {}});
            body.as_object_mut().unwrap().extend(callback.as_object().unwrap().clone());
            let refused = scene.rig.alice().post("/connect/runs", &body).await.unwrap();
            assert_eq!(
                (refused.status, refused.code().as_str()),
                (422, "invalid_webhook"),
                "{url}"
            );
            let told = text(&refused.json(), "/description").to_owned();
            assert!(told.contains("[egress] allow"), "{told}");
            // The error names an address that the client wrote, but not the address that a name resolves to.
            let names = told.contains("127.0.0.1") || told.contains("::1");
            assert_eq!(names, host != "localhost", "{told}");
        }
    }
    for (url, why) in [
        ("ftp://example.com/x", "scheme"),
        ("not a url", "malformed"),
        ("http://user:pass@192.0.2.1/", "credentials"),
    ] {
        let body = json!({"agent_id": "fountain", "input": {}, "webhook": url});
        let refused = scene.rig.alice().post("/connect/runs", &body).await.unwrap();
        assert_eq!((refused.status, refused.code().as_str()), (422, "invalid_webhook"), "{url}");
        let told = refused.json().to_string();
        assert!(told.contains(why) && !told.contains("user:pass"), "{told}");
    }
    let runs = scene.rig.alice().get("/api/v1/runs").await.unwrap().ok().unwrap();
    assert_eq!(runs["items"], json!([]));
    assert!(scene.receiver.deliveries().is_empty());
}

#[tokio::test]
async fn an_address_that_no_request_can_carry_is_refused_at_once() {
    let scene = Scene::start(Policy::local()).await;
    for url in [" http://127.0.0.1:9/", "http://127.0.0.1:9/a b", "http:\n//127.0.0.1:9/"] {
        let body = json!({"agent_id": "fountain", "input": {}, "webhook": url});
        let reply = scene.rig.alice().post("/connect/runs", &body).await.unwrap();
        assert_eq!((reply.status, reply.code().as_str()), (422, "invalid_webhook"), "{url:?}");
    }
}

#[tokio::test]
async fn a_receiver_of_one_principal_cannot_pass_a_callback_on_to_that_of_another() {
    let scene = Scene::start(Policy::local()).await;
    scene.rig.token("alpha", "bob", user(), false).await;
    let (url, theirs) = (scene.receiver.url(), format!("{}/theirs", scene.receiver.url()));
    scene.create(&["status"]).await;
    scene.hand.take(Step::End(json!({})));
    scene.delivered(1).await;
    let delivery = scene.receiver.deliveries().remove(0);
    let header = |name: &str| delivery.headers[name].to_str().unwrap().to_owned();
    let seconds: i64 = header("webhook-timestamp").parse().unwrap();
    // A principal's secret from the server verifies only its own callbacks to this address.
    let secret = async |principal: &str, url: &str| {
        let client = scene.rig.as_("alpha", principal);
        let keys = client.post("/api/v1/callback-keys", &json!({ "url": url })).await.unwrap();
        text(&keys.ok().unwrap(), "/secrets/0").to_owned()
    };
    let signature = |secret: &str| {
        let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
        sign(&key, &header("webhook-id"), seconds, &delivery.body)
    };
    let genuine = header("webhook-signature");
    assert_eq!(signature(&secret("alice", &url).await), genuine);
    for (principal, url) in [("bob", &url), ("alice", &theirs)] {
        assert_ne!(signature(&secret(principal, url).await), genuine, "{principal} {url}");
    }
    let bad = scene.rig.alice().post("/api/v1/callback-keys", &json!({"url": "hook"})).await;
    assert_eq!(bad.unwrap().code(), "invalid_request");
}

#[tokio::test]
async fn a_target_that_does_not_answer_delays_no_other() {
    let scene = Scene::start(Policy::local()).await;
    // It accepts connections and never responds.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let slow = format!("http://{}/", silent.local_addr().unwrap());
    for _ in 0..100 {
        let body = json!({"agent_id": "puppet", "input": {"message": "hi"}, "callback": slow});
        scene.rig.alice().post("/connect/runs", &body).await.unwrap().ok().unwrap();
    }
    let mut held = Vec::new();
    for _ in 0..8 {
        held.push(tokio::time::timeout(LIMIT, silent.accept()).await.unwrap().unwrap());
    }
    let begun = std::time::Instant::now();
    scene.create(&["status"]).await;
    scene.hand.take(Step::End(json!({})));
    scene.delivered(1).await;
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    // The silent target gets only its share of deliveries.
    let another = tokio::time::timeout(Duration::from_millis(200), silent.accept()).await;
    assert!(another.is_err(), "a ninth delivery to one target");
    assert!(scene.dead().await.is_empty(), "what waits for its target is not given up");
    let metrics = scene.rig.metrics().await;
    let postponed = metrics.lines().find_map(|line| {
        line.strip_prefix("trilogue_callback_postponed_total{kind=\"callback\"} ")
    });
    let postponed: u64 = postponed.unwrap_or_else(|| panic!("{metrics}")).parse().unwrap();
    assert!(postponed >= 92, "all but eight of a hundred: {postponed}");
}
