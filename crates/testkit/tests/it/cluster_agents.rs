//! Nodes of one store with different agents.

use std::time::Duration;

use serde_json::{Value, json};
use trilogue_testkit::{Client, builtin, until};

use crate::cluster::{Cluster, QUICK};
use crate::run_of;

const SETTLE_LIMIT: Duration = Duration::from_secs(30);
const CONNECT: &str = "/connect";
const COMMUNICATION: &str = "/communication";
const MAIL: &str = "Write to ada@example.com about the report: it is ready.";

/// Starts a cluster in which nodes a and b have the mail composer and c does not; `same` is a different agent on b and on c.
async fn cluster() -> Cluster {
    let same = |of: &str| [("same".to_owned(), of.to_owned())];
    let a = builtin(&["echo", "mailcomposer"]);
    let b = [builtin(&["echo", "mailcomposer"]), same("echo").to_vec()].concat();
    let c = [builtin(&["echo"]), same("researcher").to_vec()].concat();
    Cluster::start_with("", [&a, &b, &c], QUICK).await.unwrap()
}

async fn get(client: &Client, path: &str) -> Value {
    client.get(path).await.unwrap().ok().unwrap_or_else(|error| panic!("{path}: {error}"))
}

async fn post(client: &Client, path: &str, body: &Value) -> Value {
    client.post(path, body).await.unwrap().ok().unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_an_agent_sends_requests_for_it_to_one_that_has_it() {
    let cluster = cluster().await;
    let clients = cluster.clients();
    let (a, c) = (&clients[0], &clients[2]);
    let id = post(a, &format!("{CONNECT}/agents/search"), &json!({})).await;
    let id = id.as_array().unwrap().iter().find(|it| it.to_string().contains("mailcomposer"));
    let id = id.unwrap()["agent_id"].as_str().unwrap().to_owned();
    let mut paths = vec![
        "/api/v1/agents/mailcomposer".to_owned(),
        "/api/v1/agents/mailcomposer/forms".to_owned(),
        format!("{COMMUNICATION}/agents/mailcomposer"),
    ];
    // By its name on this node, its own name, and its id.
    for name in ["mailcomposer", "org.agntcy.mailcomposer", &id, &id.to_ascii_uppercase()] {
        for document in ["", "/descriptor", "/manifest", "/schemas", "/capabilities", "/openapi"] {
            paths.push(format!("{CONNECT}/agents/{name}{document}"));
        }
    }
    for path in paths {
        let (here, there) = (get(a, &path).await, get(c, &path).await);
        // An agent's document contains the address of the request.
        let is_placed = path.ends_with("/openapi");
        assert!(is_placed || here == there, "{path}: {here} {there}");
    }
    for (path, body) in [
        ("/api/v1/runs".to_owned(), run_of("mailcomposer", "t", &json!(MAIL), "wait")),
        (
            format!("{COMMUNICATION}/runs"),
            json!({"agent_name": "mailcomposer", "mode": "sync", "input": [
                {"role": "user", "parts": [{"content_type": "text/plain", "content": MAIL}]}
            ]}),
        ),
        (
            format!("{CONNECT}/runs/wait"),
            json!({"agent_id": id, "input": {"messages": [{"type": "human", "content": MAIL}]}}),
        ),
    ] {
        let run = post(c, &path, &body).await;
        assert!(run.to_string().contains("ada@example.com"), "{path}: {run}");
    }
    // The thread's owner neither has the agent nor a run of it.
    post(c, "/api/v1/threads", &json!({"id": "mixed"})).await;
    post(c, "/api/v1/runs", &run_of("echo", "mixed", &json!("hi"), "wait")).await;
    let run = run_of("mailcomposer", "mixed", &json!(MAIL), "wait");
    let run = until("the thread to move", SETTLE_LIMIT, || {
        let (client, run) = (c.clone(), run.clone());
        async move { client.post("/api/v1/runs", &run).await.unwrap().ok().ok() }
    })
    .await
    .unwrap();
    assert_eq!(run["status"], "interrupted", "{run}");
    let nobody = c.get("/api/v1/agents/nobody").await.unwrap();
    assert_eq!(nobody.status, 404, "no node has it");
    assert_eq!(nobody.json()["code"], "agent_not_found");
    cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thread_of_a_dead_node_goes_to_one_that_has_its_agent() {
    let mut cluster = cluster().await;
    let clients = cluster.clients();
    let (a, b, c) = (&clients[0], &clients[1], &clients[2]);
    let run = post(a, "/api/v1/runs", &run_of("mailcomposer", "mail", &json!(MAIL), "wait")).await;
    let question = run["interrupts"][0]["id"].as_str().unwrap().to_owned();
    let owner = |client: &Client| {
        let client = client.clone();
        async move { get(&client, "/api/v1/threads/mail").await["node"].clone() }
    };
    until("the node to be named", SETTLE_LIMIT, || {
        let owner = owner(c);
        async move { (owner.await == "a").then_some(()) }
    })
    .await
    .unwrap();
    cluster.lose(0).await.unwrap();
    // The request goes to c, which lacks the agent; no client contacts a node that has it.
    let path = format!("/api/v1/interrupts/{question}/answer");
    let answer = json!({"value": {"approved": true, "reason": "fine"}});
    post(c, &path, &answer).await;
    let run = format!("/api/v1/runs/{}", run["id"].as_str().unwrap());
    let status = until("the run to end", SETTLE_LIMIT, || {
        let client = c.clone();
        let run = run.clone();
        async move {
            let run = get(&client, &run).await;
            run["ended_at"].is_string().then(|| run["status"].clone())
        }
    })
    .await
    .unwrap();
    assert_eq!(status, "completed");
    assert_eq!(owner(b).await, "b");
    cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_say_where_they_differ() {
    let cluster = cluster().await;
    let clients = cluster.clients();
    let expected = json!([
        {"agent": "mailcomposer", "variants": [["a", "b"]], "missing_on": ["c"]},
        {"agent": "same", "variants": [["b"], ["c"]], "missing_on": ["a"]},
    ]);
    for client in &clients {
        let status = get(client, "/api/v1/status").await;
        assert_eq!(status["agent_differences"], expected);
        assert_eq!(status["nodes"][0]["agents"], json!(["echo", "mailcomposer"]));
    }
    let same = "described differently on b and on c, missing on a";
    for (command, line) in [
        (
            &["status"][..],
            format!("agents that differ: mailcomposer on a, b, missing on c; same {same}"),
        ),
        (&["nodes"], format!("agent same: {same}")),
        (&["doctor"], format!("warning: agent same: {same}")),
        (&["doctor"], "ok: node b: alive, 0 open threads".to_owned()),
    ] {
        let said = cluster.run(0, command).await.unwrap();
        assert!(said.contains(&line), "{command:?}: {said}");
    }
    let metrics = clients[1].get("/metrics").await.unwrap();
    let metrics = String::from_utf8(metrics.body.to_vec()).unwrap();
    let samples: Vec<_> = metrics.lines().filter(|line| !line.starts_with('#')).collect();
    let unnamed = samples.iter().find(|line| !line.is_empty() && !line.contains("node=\"b\""));
    assert!(samples.len() > 20 && unnamed.is_none(), "{unnamed:?}");
    until("the difference to be logged", SETTLE_LIMIT, || {
        let log = cluster.log_ends();
        async move { log.contains("do not agree about an agent").then_some(()) }
    })
    .await
    .unwrap();
    cluster.stop().await.unwrap();
}

/// A hosted agent with a program of its own beside it, which sends one request after the other and keeps each response.
struct AgentProgram {
    folder: trilogue_testkit::Folder,
    token: String,
}

// === impl AgentProgram ===

impl AgentProgram {
    /// A cluster whose first node runs the agent; its program stays when the run has ended.
    async fn start() -> (Cluster, Self) {
        let folder = trilogue_testkit::Folder::new().unwrap();
        let agent = trilogue_testkit::official::example("stdio_echo").await.unwrap();
        let (orders, reply) = (folder.path().join("orders"), folder.path().join("reply"));
        let script = format!(
            "[ -e {orders:?} ] || mkfifo {orders:?}\n({{\nwhile read -r host port method path token body < {orders:?}; do\nexec 3<>\"/dev/tcp/$host/$port\"\nprintf '%s %s HTTP/1.1\\r\\nHost: %s:%s\\r\\nAuthorization: Bearer %s\\r\\nContent-Type: application/json\\r\\nConnection: close\\r\\nContent-Length: %s\\r\\n\\r\\n%s' \"$method\" \"$path\" \"$host\" \"$port\" \"$token\" \"${{#body}}\" \"$body\" >&3\ncat <&3 > {reply:?}.part\nmv {reply:?}.part {reply:?}\ndone\n}} < /dev/null > /dev/null 2>&1 &)\nexec {agent:?}\n"
        );
        let file = folder.path().join("agent.sh");
        std::fs::write(&file, script).unwrap();
        // In a sandbox it would reach neither its orders nor the server.
        let settings = format!(
            "[agents.hosted]\nkind = \"agent-client\"\nsandbox = \"off\"\ncommand = [\"/bin/bash\", {file:?}]\n"
        );
        let all = builtin(&["echo", "mailcomposer"]);
        let cluster = Cluster::start_with(&settings, [&all, &all, &all], QUICK).await.unwrap();
        let run = run_of("hosted", "hosted", &json!("hi"), "wait");
        let hosted = post(&cluster.clients()[0], "/api/v1/runs", &run).await;
        assert_eq!(hosted["status"], "completed", "{hosted}");
        let token = cluster.token().to_owned();
        (cluster, Self { folder, token })
    }

    /// The response to a request of the program.
    async fn send(&self, to: std::net::SocketAddr, method: &str, path: &str, body: &str) -> String {
        let (host, port, token) = (to.ip(), to.port(), &self.token);
        let order = format!("{host} {port} {method} {path} {token} {body}\n");
        let (orders, reply) = (self.folder.path().join("orders"), self.folder.path().join("reply"));
        let write = move || std::fs::write(orders, order);
        tokio::task::spawn_blocking(write).await.unwrap().unwrap();
        let response = until("the response", SETTLE_LIMIT, || {
            let reply = reply.clone();
            async move { std::fs::read_to_string(reply).ok() }
        })
        .await
        .unwrap();
        std::fs::remove_file(reply).unwrap();
        response
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_does_not_answer_through_another_node() {
    let (cluster, program) = AgentProgram::start().await;
    let clients = cluster.clients();
    let (a, b) = (&clients[0], &clients[1]);
    let run = post(a, "/api/v1/runs", &run_of("mailcomposer", "mail", &json!(MAIL), "wait")).await;
    let question = run["interrupts"][0]["id"].as_str().unwrap();
    let path = format!("/api/v1/interrupts/{question}/answer");
    let answer = json!({"value": {"approved": true, "reason": "fine"}}).to_string();
    let reply = program.send(cluster.address(1), "POST", &path, &answer).await;
    assert!(reply.starts_with("HTTP/1.1 403"), "{reply}");
    let waiting = get(b, &format!("/api/v1/interrupts/{question}")).await;
    assert!(waiting["resolution"].is_null(), "{waiting}");
    assert_refused(&cluster, 1, "answer_interrupt");
    // Another program answers through that node.
    post(b, &path, &json!({"value": {"approved": true, "reason": "fine"}})).await;
    cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_of_one_node_decides_nothing_through_another() {
    let (cluster, program) = AgentProgram::start().await;
    let clients = cluster.clients();
    let b = &clients[1];
    post(b, "/api/v1/runs", &run_of("echo", "kept", &json!("hi"), "wait")).await;
    let rules = r#"{"agent":"echo","input":"x","config":{"permissions":[{"decision":"allow"}]}}"#;
    // The other node handles all of these itself.
    for (method, path, body, operation) in [
        (
            "POST",
            "/api/v1/tokens",
            r#"{"label":"evil","rights":["admin","server"]}"#,
            "create_token",
        ),
        ("POST", "/api/v1/sign-in-links", "", "create_sign_in_link"),
        ("DELETE", "/api/v1/threads/kept", "", "erase_thread"),
        ("POST", "/api/v1/nodes/b/drain", "", "drain_node"),
        ("POST", "/api/v1/runs", rules, "create_run"),
    ] {
        let reply = program.send(cluster.address(1), method, path, body).await;
        assert!(reply.starts_with("HTTP/1.1 403"), "{operation}: {reply}");
        assert_refused(&cluster, 1, operation);
    }
    let tokens = get(b, "/api/v1/tokens").await.to_string();
    assert!(!tokens.contains("evil"), "{tokens}");
    assert_eq!(get(b, "/api/v1/threads/kept").await["id"], "kept");
    // What decides nothing is allowed, as at its own server.
    let reply = program.send(cluster.address(1), "GET", "/api/v1/threads/kept", "").await;
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    post(b, "/api/v1/tokens", &json!({"label": "of-a-person"})).await;
    cluster.stop().await.unwrap();
}

/// A line of the node's audit says that it refused a program of an agent.
fn assert_refused(cluster: &Cluster, node: usize, operation: &str) {
    let log = cluster.log_end(node);
    let is_line = |line: &str| line.contains("agent_refused") && line.contains(operation);
    assert!(log.lines().any(is_line), "{node}: {log}");
}
