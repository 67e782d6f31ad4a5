//! What hosted agents reach over the network, through a real server, with real programs in a sandbox.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use trilogue_testkit::callback::Receiver;
use trilogue_testkit::{Client, Server, ServerOptions, until};

use crate::run_of;

const AGENT: &str = include_str!("shell_agent.py");
const LIMIT: Duration = Duration::from_secs(60);
const KEY: &str = "the-key-of-the-operator";
/// Prints the status of a response, or the reason without one. The hosts of the tests are on this machine, for which programs use no proxy otherwise.
const CURL: &str = "curl -sS -m 20 -o /dev/null -w '%{http_code} ' --noproxy ''";
/// The same for the address of a provider.
const DIRECT: &str = "curl -sS -m 20 -o /dev/null -w '%{http_code} '";

/// A server with the agent `shell`, and hosts on this machine.
struct Machine {
    dir: TempDir,
    host: Receiver,
    other: Receiver,
}

// === impl Machine ===

impl Machine {
    async fn new() -> Self {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        for name in ["agent", "work", "server", "keys"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        fs::write(dir.path().join("agent/shell_agent.py"), AGENT).unwrap();
        fs::write(dir.path().join("keys/provider"), KEY).unwrap();
        let (host, other) = (Receiver::start().await.unwrap(), Receiver::start().await.unwrap());
        Self { dir, host, other }
    }

    async fn start(&self, network: &str, more: &str) -> Server {
        let settings = format!(
            "[network]\nallow_addresses = [\"127.0.0.1\"]\n[agents.shell]\nkind = \"agent-client\"\ncommand = {}\ncwd = {}\nnetwork = {network}\n{more}",
            json!(["/usr/bin/python3", self.path("agent/shell_agent.py")]),
            json!(self.path("work")),
        );
        let options = ServerOptions { settings, ..ServerOptions::default() };
        Server::start(&self.dir.path().join("server"), &options).await.unwrap()
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    /// The settings of a key whose provider is the host.
    fn key(&self) -> String {
        let (from, url) = (self.path("keys/provider"), format!("http://{}", address(&self.host)));
        format!("[agents.shell.keys.ANTHROPIC_API_KEY]\nfrom = \"file:{from}\"\nurl = \"{url}\"\n")
    }
}

fn address(host: &Receiver) -> String {
    let url = host.url();
    url.split('/').nth(2).unwrap().to_owned()
}

/// Runs a script, until it ends or asks.
async fn run(client: &Client, thread: &str, script: &str) -> Value {
    let request = run_of("shell", thread, &json!(script), "wait");
    client.post("/api/v1/runs", &request).await.unwrap().ok().unwrap()
}

fn text(run: &Value) -> String {
    assert_eq!(run["status"], "completed", "{run}");
    let parts = run["output"].as_array().into_iter().flatten();
    let parts = parts.flat_map(|message| message["parts"].as_array().into_iter().flatten());
    parts.filter_map(|part| part["content"].as_str()).collect()
}

/// Chooses an option of the question of a run, and returns the run when it has ended.
async fn answer(client: &Client, asked: &Value, option: &str) -> Value {
    let question = &asked["interrupts"][0];
    assert_eq!(question["kind"], "permission", "{asked}");
    let path = format!("/api/v1/interrupts/{}/answer", question["id"].as_str().unwrap());
    client.post(&path, &json!({ "option": option })).await.unwrap().ok().unwrap();
    wait_for_end(client, asked).await
}

async fn wait_for_end(client: &Client, run: &Value) -> Value {
    let path = format!("/api/v1/runs/{}", run["id"].as_str().unwrap());
    let ended = until("the run to end", LIMIT, || {
        let (client, path) = (client.clone(), path.clone());
        async move {
            let run = client.get(&path).await.ok()?.ok().ok()?;
            run["ended_at"].is_string().then_some(run)
        }
    });
    ended.await.unwrap()
}

/// The connections of a thread, as its events have them.
async fn connections(client: &Client, thread: &str) -> Vec<Value> {
    let events = crate::events(client, thread).await.unwrap();
    let of_network = events.into_iter().filter(|event| event["kind"] == "network_connection");
    of_network.map(|event| event["data"].clone()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_uses_a_key_that_nothing_in_its_sandbox_has() {
    let machine = Machine::new().await;
    let server = machine.start("[\"no.example\"]", &machine.key()).await;
    let client = server.client();
    let script = format!(
        "cat /proc/[0-9]*/environ {keys} 2>/dev/null; env; grep -r {KEY} / --include='*' -s -l --exclude-dir=proc --exclude-dir=sys 2>/dev/null
        {DIRECT} -H \"x-api-key: $ANTHROPIC_API_KEY\" -d '{{}}' $ANTHROPIC_BASE_URL/v1/messages
        {DIRECT} -H 'x-api-key: another' -d '{{}}' $ANTHROPIC_BASE_URL/v1/messages
        {CURL} http://{other}/",
        keys = machine.path("keys/provider"),
        other = address(&machine.other),
    );
    let text = text(&run(&client, "keys", &script).await);
    assert!(!text.contains(KEY), "{text}");
    assert!(text.ends_with("204 401 403 ."), "{text}");
    let deliveries = machine.host.deliveries();
    let [delivery] = &deliveries[..] else { panic!("one request: {deliveries:?}") };
    assert_eq!(delivery.headers["x-api-key"], KEY);
    assert_eq!(delivery.target, "/v1/messages");
    assert_eq!(machine.other.deliveries().len(), 0);
    let connections = connections(&client, "keys").await;
    let outcomes: Vec<_> = connections.iter().map(|it| it["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["listed", "refused"], "{connections:?}");
    assert!(!Value::from(connections).to_string().contains(KEY));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_is_asked_about_a_host_and_the_answer_stays() {
    let machine = Machine::new().await;
    let server = machine.start("\"ask\"", "").await;
    let client = server.client();
    let script = format!("{CURL} http://{}/", address(&machine.host));
    let asked = run(&client, "one", &script).await;
    let title = format!("May the agent reach {}?", address(&machine.host));
    assert!(asked["interrupts"][0].to_string().contains(&title), "{asked}");
    assert_eq!(text(&answer(&client, &asked, "reject_once").await), "403 .");
    let asked = run(&client, "one", &script).await;
    assert_eq!(text(&answer(&client, &asked, "allow_thread").await), "204 .");
    assert_eq!(text(&run(&client, "one", &script).await), "204 .");
    // Another thread has another process, and asks again.
    let asked = run(&client, "two", &script).await;
    assert_eq!(text(&answer(&client, &asked, "allow_once").await), "204 .");
    let home = server.kill().await.unwrap();
    let server = home.start().await.unwrap();
    let client = server.client();
    assert_eq!(text(&run(&client, "one", &script).await), "204 .");
    let asked = run(&client, "two", &script).await;
    assert_eq!(text(&answer(&client, &asked, "allow_always").await), "204 .");
    assert_eq!(text(&run(&client, "three", &script).await), "204 .");
    let connections = connections(&client, "three").await;
    assert_eq!(connections[0]["outcome"], "answered", "{connections:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_decide_about_hosts_and_a_question_without_an_answer_refuses() {
    let machine = Machine::new().await;
    let (host, other) = (address(&machine.host), address(&machine.other));
    let rules = format!(
        "[[agents.shell.permissions]]\nname = \"allowed\"\ntool = \"network:{host}\"\ndecision = \"allow\"\n\
         [[agents.shell.permissions]]\nname = \"denied\"\ntool = \"network:{other}\"\ndecision = \"deny\"\n\
         [runtime]\ninterrupt_deadline = \"1s\"\n"
    );
    let server = machine.start("\"ask\"", &rules).await;
    let client = server.client();
    // The last one has a private address that the operator has not allowed: no question is asked.
    let script = format!(
        "{CURL} http://{host}/; {CURL} http://{other}/; {CURL} http://127.0.0.1:9/; {CURL} http://10.0.0.1/; {CURL} http://169.254.169.254/"
    );
    let asked = run(&client, "rules", &script).await;
    assert_eq!(text(&wait_for_end(&client, &asked).await), "204 403 403 403 403 .");
    let connections = connections(&client, "rules").await;
    let seen: Vec<_> =
        connections.iter().map(|it| (it["outcome"].as_str().unwrap(), it["by"].as_str())).collect();
    let by_rule = |name| Some(name);
    assert_eq!(seen[0], ("answered", by_rule("rule:allowed")), "{seen:?}");
    assert_eq!(seen[1], ("refused", by_rule("rule:denied")), "{seen:?}");
    assert_eq!(seen[2].0, "refused", "{seen:?}");
    assert_eq!((seen[3].0, seen[4].0), ("address", "address"), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_that_outlives_its_server_reaches_the_network_again() {
    let machine = Machine::new().await;
    let host = address(&machine.host);
    let server = machine.start(&format!("[{}]", json!(host)), "").await;
    let client = server.client();
    let go = machine.path("work/go");
    let script = format!(
        "{CURL} http://{host}/before; touch {work}/begun; while [ ! -e {go} ]; do sleep 0.05; done; {CURL} --retry 20 --retry-all-errors http://{host}/after",
        work = machine.path("work"),
    );
    let request = run_of("shell", "held", &json!(script), "async");
    let run = client.post("/api/v1/runs", &request).await.unwrap().ok().unwrap();
    let begun = machine.path("work/begun");
    until("the first request", LIMIT, || {
        let is_begun = Path::new(&begun).exists();
        async move { is_begun.then_some(()) }
    })
    .await
    .unwrap();
    let home = server.kill().await.unwrap();
    fs::write(&go, "").unwrap();
    let server = home.start().await.unwrap();
    assert_eq!(text(&wait_for_end(&server.client(), &run).await), "204 204 .");
    assert_eq!(machine.host.deliveries().len(), 2);
}
