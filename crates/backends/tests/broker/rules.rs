//! What an agent and its commands reach.

use serde_json::{Value, json};
use tokio::net::TcpListener;
use trilogue_backends::child::{Confinement, Layers, Network, Program, Sandbox, SandboxMode};
use trilogue_backends::workspace::{Grants, PrivatePaths, Workspace};

use super::Place;
use super::agent::{PYTHON, Server, VARIABLE, block_on, sandbox, script, serve};

/// Sockets that reach more than the broker: the family, the type and the protocol.
const OTHER_SOCKETS: [(&str, i32, i32, i32); 14] = [
    ("UDP", libc::AF_INET, libc::SOCK_DGRAM, 0),
    ("UDP over IPv6", libc::AF_INET6, libc::SOCK_DGRAM, 0),
    ("ping", libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_ICMP),
    ("raw", libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP),
    ("MPTCP", libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_MPTCP),
    ("MPTCP over IPv6", libc::AF_INET6, libc::SOCK_STREAM, libc::IPPROTO_MPTCP),
    ("SCTP", libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_SCTP),
    ("messages of SCTP", libc::AF_INET, libc::SOCK_SEQPACKET, libc::IPPROTO_SCTP),
    ("DCCP", libc::AF_INET, 6, libc::IPPROTO_DCCP),
    ("SMC", 43, libc::SOCK_STREAM, 0),
    ("RxRPC", libc::AF_RXRPC, libc::SOCK_DGRAM, libc::AF_INET),
    ("packets", libc::AF_PACKET, libc::SOCK_DGRAM, 0),
    ("virtual machines", libc::AF_VSOCK, libc::SOCK_STREAM, 0),
    ("keys", libc::AF_ALG, libc::SOCK_SEQPACKET, 0),
];

pub(super) fn an_agent_reaches_the_broker_only(place: Place) {
    block_on(async {
        let server = Server::new().await;
        let (mut agent, mut other) = (server.start(false).await, server.start(true).await);
        assert_eq!(agent.child.layers().namespaces, place.has_namespaces());
        let broker = agent.broker.as_ref().unwrap();
        assert_eq!(broker.is_private, place.has_namespaces());
        let (port, secret) = (broker.port, broker.secret.clone());
        let value = format!("{port}:{}:{secret}", place.has_namespaces());
        assert_eq!(agent.attempt(&format!("variable {VARIABLE}")).await, value);
        agent.serve("one");
        other.serve("two");
        let outside = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let outside_port = outside.local_addr().unwrap().port();
        serve(outside, "outside");

        assert_eq!(agent.attempt(&format!("tcp 127.0.0.1 {port}")).await, "one");
        assert_eq!(other.attempt(&format!("tcp 127.0.0.1 {}", other.port)).await, "two");
        let refused = if place.has_namespaces() { "ECONNREFUSED" } else { "EACCES" };
        let unreachable = if place.has_namespaces() { "ENETUNREACH" } else { "EACCES" };
        for (line, expected) in [
            (format!("tcp 127.0.0.1 {outside_port}"), refused),
            (format!("tcp ::1 {outside_port}"), refused),
            ("tcp 192.0.2.1 443".to_owned(), unreachable),
            ("tcp 2001:db8::1 443".to_owned(), unreachable),
            (format!("fast_open sendto 127.0.0.1 {outside_port}"), "EACCES"),
            (format!("fast_open sendmsg 127.0.0.1 {outside_port}"), "EACCES"),
            (format!("fast_open sendmmsg 127.0.0.1 {outside_port}"), "EACCES"),
            ("change_protocol".to_owned(), "EACCES"),
        ] {
            assert_eq!(agent.attempt(&line).await, expected, "{line}");
        }
        for (name, family, kind, protocol) in OTHER_SOCKETS {
            let line = format!("create {family} {kind} {protocol}");
            assert_eq!(agent.attempt(&line).await, "EACCES", "{name}");
        }
        for (family, kind, protocol) in [
            (libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0),
            (libc::AF_INET6, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, libc::IPPROTO_TCP),
            (libc::AF_UNIX, libc::SOCK_DGRAM, 0),
        ] {
            let line = format!("create {family} {kind} {protocol}");
            assert_eq!(agent.attempt(&line).await, "created", "{line}");
        }
        // A network of its own is free for servers of the agent, but no other one is.
        let listening = if place.has_namespaces() { "listening" } else { "EACCES" };
        assert_eq!(agent.attempt("listen 127.0.0.1 4567").await, listening);
        assert_eq!(other.attempt("listen 0.0.0.0 4567").await, listening);
        if !place.has_namespaces() {
            let line = format!("tcp 127.0.0.1 {}", other.port);
            assert_eq!(agent.attempt(&line).await, "EACCES", "the broker of another agent");
        }
        server.children.close().await;
    });
}

pub(super) fn a_command_reaches_the_broker_of_its_agent(place: Place) {
    block_on(async {
        let server = Server::new().await;
        for can_outlive in [false, true] {
            let mut agent = server.start(can_outlive).await;
            agent.serve("answer");
            let grants = Grants {
                terminals: true,
                env: agent.child.env().to_vec(),
                policy: agent.child.policy().cloned(),
                ..Grants::default()
            };
            let workspace = Workspace::open(&server.work(), grants).unwrap();
            let script = script(server.work().parent().unwrap());
            let (line, other) = (format!("127.0.0.1 {}", agent.port), "127.0.0.1 1".to_owned());
            for (line, expected) in [(line, "answer\n"), (other, place.other_port_error())] {
                let mut arguments = vec![script.display().to_string(), "tcp".to_owned()];
                arguments.extend(line.split(' ').map(str::to_owned));
                let output =
                    run(&workspace, &json!({ "command": PYTHON, "args": arguments })).await;
                assert_eq!(output, expected, "{line}");
            }
            let line =
                json!({ "command": "readlink /proc/self/ns/net; ls /proc | grep -c '^[0-9]'" });
            let output = run(&workspace, &line).await;
            let (network, processes) = output.split_once('\n').unwrap();
            let own = std::fs::read_link("/proc/self/ns/net").unwrap();
            assert_eq!(network != own.to_str().unwrap(), place.has_namespaces());
            // It shares the network with the agent, but no processes.
            let processes: u32 = processes.trim().parse().unwrap();
            assert!(!place.has_namespaces() || processes < 8, "{processes}");
            workspace.close().await;
        }
        server.children.close().await;
    });
}

/// Runs a command to its end. Returns its output.
async fn run(workspace: &Workspace, request: &Value) -> String {
    let call = async |method: &str, params: &Value| -> Value {
        let mut params = params.clone();
        params["sessionId"] = json!("");
        let answer = workspace.call(&format!("terminal/{method}"), &params.to_string()).await;
        serde_json::from_slice(&answer.unwrap()).unwrap()
    };
    let terminal = json!({ "terminalId": call("create", request).await["terminalId"] });
    call("wait_for_exit", &terminal).await;
    call("output", &terminal).await["output"].as_str().unwrap().to_owned()
}

pub(super) fn an_agent_without_a_sandbox_is_refused(_: Place) {
    block_on(async {
        let server = Server::new().await;
        let private = PrivatePaths::default();
        let off = Sandbox { mode: SandboxMode::Off, ..sandbox() };
        assert_eq!(off.check(&private).unwrap_err().key, "network");
        assert_eq!(sandbox().check(&private), Ok(()));
        // The layers alone decide.
        let files = Layers { files: true, ..Layers::NONE };
        assert!(!Network::Broker.is_enforced_by(files));
        assert!(Network::Broker.is_enforced_by(Layers { calls: true, ..files }));
        assert!(Network::Broker.is_enforced_by(Layers { namespaces: true, ..Layers::NONE }));
        let marker = server.work().join("started");
        let command = ["touch".to_owned(), marker.display().to_string()];
        for (sandbox, folders) in [(off, vec![server.work()]), (sandbox(), vec!["/".into()])] {
            let confinement =
                Confinement { sandbox: &sandbox, folders: &folders, private: &private };
            let (env, inherit, cwd) = (&[], &[], &server.work());
            let program = Program {
                name: "refused",
                command: &command,
                cwd,
                env,
                inherit,
                confinement,
                can_outlive: false,
                broker: None,
            };
            let error = server.children.start(program).await.unwrap_err();
            assert_eq!(error.hint_text(), Some("see docs/sandbox.md"), "{error}");
            assert!(!marker.exists());
        }
        server.children.close().await;
    });
}
