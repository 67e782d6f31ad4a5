//! Two servers that share a PostgreSQL store: `north` with two agents, `south` with one of them.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use serde_json::json;
use trilogue_testkit::services::{new_schema, service};

use crate::harness::{Home, ProgramOutput, Server, audits, lasting_address, until};
use crate::hosted::over_http;

pub(crate) struct Nodes {
    /// The home of `north`.
    pub(crate) home: Home,
    servers: Vec<Server>,
    _other: Home,
    /// Removes their stored data.
    clean_up: Option<Box<dyn FnOnce()>>,
}

// === impl Nodes ===

impl Nodes {
    pub(crate) fn start() -> Self {
        Self::start_with("")
    }

    /// Starts them. The second has further settings of its cluster.
    fn start_with(cluster_of_second: &str) -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let (database, schema) = runtime.block_on(new_schema("servers")).unwrap();
        let (home, first) = serve("north", &["echo", "researcher"], &schema, "");
        let (other, second) = serve("south", &["echo"], &schema, cluster_of_second);
        let clean_up = move || {
            let sql = format!("DROP SCHEMA {schema} CASCADE");
            runtime.block_on(database.batch_execute(&sql)).unwrap();
        };
        let servers = vec![first, second];
        Self { home, servers, _other: other, clean_up: Some(Box::new(clean_up)) }
    }

    /// The server `north`.
    pub(crate) fn first(&self) -> &Server {
        &self.servers[0]
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.servers.clear();
        if let Some(clean_up) = self.clean_up.take().filter(|_| !std::thread::panicking()) {
            clean_up();
        }
    }
}

fn serve(name: &str, agents: &[&str], schema: &str, cluster: &str) -> (Home, Server) {
    let (home, address) = (Home::new(), lasting_address());
    let url = service("TRILOGUE_POSTGRES").unwrap();
    let mut config = format!(
        "[server]\nlisten = \"{address}\"\n[cluster]\nname = \"{name}\"\n{cluster}\
         [store]\nurl = \"{url}?options=-csearch_path%3D{schema}\"\n"
    );
    for name in agents {
        config.push_str(&format!("[agents.{name}]\nkind = \"builtin\"\n"));
    }
    home.write("trilogue.toml", &config);
    let server = home.start(&["serve", "--config", "trilogue.toml"]);
    (home, server)
}

#[test]
fn a_thread_names_the_server_to_which_it_was_handed_over() {
    let nodes = Nodes::start();
    let first = nodes.first();
    first.run(&["run", "echo", "Hello", "--thread", "m"]).expect(0);
    let owners = || {
        let shown = first.run(&["threads", "show", "m", "--json"]).expect(0).json();
        let listed = first.run(&["threads", "--json"]).expect(0).json();
        (shown["node"].clone(), listed["items"][0]["node"].clone())
    };
    // The next heartbeat brings the name of the other server.
    until(|| (owners() == (json!("north"), json!("north"))).then_some(()));
    let body = json!({ "node": "south" });
    over_http(first, "/api/v1/threads/m/hand-over", Some(&body));
    assert_eq!(owners(), (json!("south"), json!("south")));
    let shown = first.run(&["threads", "show", "m"]).expect(0).out;
    assert!(shown.contains("node: south\n"), "{shown}");
    // A server that drains gives its threads up; the next run decides which server takes them.
    first.run(&["run", "echo", "Hello", "--thread", "e"]).expect(0);
    first.run(&["nodes", "drain", "north"]).expect(0);
    let is_given_up = || {
        let shown = first.run(&["threads", "show", "e", "--json"]).expect(0).json();
        (shown.get("node").is_none_or(|node| node != "north")).then_some(())
    };
    until(is_given_up);
}

#[test]
fn who_drains_a_server_or_hands_a_thread_over_is_in_its_log() {
    let nodes = Nodes::start();
    let [first, second] = &nodes.servers[..] else { panic!("there are two servers") };
    let create = ["token", "create", "--label", "ada", "--principal", "ada", "--json"];
    let rights = ["--right", "read", "--right", "run", "--right", "server"];
    let made = first.run(&[&create[..], &rights].concat()).expect(0).json();
    let (token, secret) = (&made["token"]["id"], made["secret"].as_str().unwrap());
    first.run(&["run", "echo", "Hello", "--thread", "m"]).expect(0);
    over_http(first, "/api/v1/threads/m/hand-over", Some(&json!({ "node": "south" })));
    // The other server sends the request on to the one that drains.
    second.run(&["nodes", "drain", "north", "--token", secret]).expect(0);
    first.run(&["nodes", "drain", "north", "--undo", "--token", secret]).expect(0);
    let weak = ["token", "create", "--label", "w", "--principal", "eve", "--right", "read"];
    let weak = first.run(&[&weak[..], &["--json"]].concat()).expect(0).json();
    let weak = weak["secret"].as_str().unwrap();
    first.run(&["nodes", "drain", "north", "--token", weak]).expect(5);

    let log = nodes.home.log();
    for event in ["drain_begun", "drain_ended"] {
        let [line] = &audits(&log, event)[..] else { panic!("{event}: {log}") };
        assert_eq!((&line["principal"], &line["token"]), (&json!("ada"), token), "{line}");
        assert_eq!(line["subject"], "north");
    }
    let [moved] = &audits(&log, "thread_handed_over")[..] else { panic!("{log}") };
    assert_eq!((&moved["principal"], &moved["subject"]), (&json!("owner"), &json!("m")));
    assert_eq!(moved["detail"], "to south");
    let refused = audits(&log, "request_refused");
    let refused = refused.iter().find(|line| line["principal"] == "eve").unwrap();
    assert!(refused["subject"].as_str().unwrap().contains("drain"), "{refused}");
    assert!(!log.contains(secret) && !log.contains(weak), "a secret is in the log");
}

/// Runs a thread of `south` through `north`.
fn forwarded(nodes: &Nodes) -> ProgramOutput {
    let [first, second] = &nodes.servers[..] else { panic!("there are two servers") };
    second.run(&["run", "echo", "Hello", "--thread", "s"]).expect(0);
    first.run(&["run", "echo", "Hello", "--thread", "s"])
}

#[test]
fn another_program_at_the_address_of_a_server_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            // The client may have sent a part of its request only, and gone away.
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n");
        }
    });
    let nodes = Nodes::start_with(&format!("address = \"http://{address}\"\n"));
    let refused = forwarded(&nodes).expect(1).err;
    assert!(refused.contains(&format!("at http://{address}, where a node should be")), "{refused}");
    assert!(refused.contains("hint: correct `cluster.address`"), "{refused}");
    assert!(nodes.home.log().contains("another program answers"), "{}", nodes.home.log());
}

#[test]
fn a_server_at_a_wrong_address_is_named_by_the_request_and_by_doctor() {
    // Nothing listens there.
    let address = lasting_address();
    let nodes = Nodes::start_with(&format!("address = \"http://{address}\"\n"));
    let refused = forwarded(&nodes).expect(1).err;
    assert!(refused.contains("correct `cluster.address` of that node"), "{refused}");
    assert!(nodes.home.log().contains("cannot be reached at its"), "{}", nodes.home.log());
    let checked = nodes.home.run(&["doctor"]).expect(0).out;
    assert!(
        checked.contains(&format!("warning: node south: {address} cannot be reached")),
        "{checked}"
    );
    assert!(checked.contains("hint: correct cluster.address of that server"), "{checked}");
    assert!(!checked.contains("warning: node north"), "{checked}");
}
