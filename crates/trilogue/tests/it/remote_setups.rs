//! The ways to reach agents on another machine that the documentation shows: nginx with TLS, an SSH tunnel, and a server in front of another one.
//!
//! nginx and OpenSSH come from the system: `scripts/test` installs them.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::process::{Child, Command, Stdio};

use serde_json::json;

use crate::connect_editor::Editor;
use crate::harness::{BINARY, Home, ProgramOutput, Server, finish, lasting_address, until};
use crate::operating::{Proxy, run};

const AGENTS: &str =
    "[store]\nurl = \"memory:\"\n[server]\nsocket = \"off\"\n[agents.echo]\nkind = \"builtin\"\n";
/// nginx's default, which passes no WebSockets on.
const OLD_HTTP: (&str, &str) = ("proxy_http_version 1.1;", "proxy_http_version 1.0;");

fn served(home: &Home, settings: &str) -> Server {
    let config = home.write("t.toml", settings);
    home.start(&["serve", "--config", config.to_str().unwrap(), "--listen", "127.0.0.1:0"])
}

/// The user that serves the tunnel: a server of OpenSSH without rights lets in only its own user.
const NOBODY: (&str, u32) = ("nobody", 65_534);

/// `ssh -N -L` to a server of OpenSSH, both on free ports. Stopped when dropped.
struct Tunnel {
    children: Vec<Child>,
    address: String,
    _dir: tempfile::TempDir,
}

// === impl Tunnel ===

impl Tunnel {
    fn open(server: &Server) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        let is_root = rustix::process::geteuid().is_root();
        for key in ["host", "user"] {
            run(Command::new("ssh-keygen").args([
                "-q",
                "-t",
                "ed25519",
                "-N",
                "",
                "-f",
                &path(key),
            ]));
        }
        let (sshd, here) = (lasting_address(), lasting_address());
        let (host, port) = sshd.rsplit_once(':').unwrap();
        let settings = format!(
            "ListenAddress {host}\nPort {port}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nUsePAM yes\nStrictModes no\n",
            path("host"),
            path("user.pub"),
        );
        fs::write(path("settings"), settings).unwrap();
        let mut command = Command::new("/usr/sbin/sshd");
        let mut user = std::env::var("USER").unwrap_or_default();
        if is_root {
            let (name, id) = NOBODY;
            name.clone_into(&mut user);
            fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
            chown(path("host"), Some(id), Some(id)).unwrap();
            command = Command::new("setpriv");
            command.args([&format!("--reuid={id}"), &format!("--regid={id}"), "--clear-groups"]);
            command.arg("/usr/sbin/sshd");
        }
        command.args(["-D", "-e", "-f", &path("settings")]);
        let server_process = start(command, &path("sshd.log"), &sshd);
        let mut command = Command::new("ssh");
        command
            .args(["-F", "none", "-i", &path("user"), "-p", port, "-N"])
            .args(["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"])
            .args(["-o", "BatchMode=yes", "-L", &format!("{here}:{}", server.address)])
            .arg(format!("{user}@{host}"));
        let client = start(command, &path("ssh.log"), &here);
        Self { children: vec![client, server_process], address: here, _dir: dir }
    }
}

/// Starts a program, and waits until it listens.
fn start(mut command: Command, log: &str, address: &str) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(log).unwrap());
    let mut child = command
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}; `scripts/test` installs it"));
    until(|| {
        let ended = child.try_wait().unwrap();
        assert!(ended.is_none(), "{}", fs::read_to_string(log).unwrap());
        TcpStream::connect(address).ok()
    });
    child
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn token(server: &Server) -> String {
    fs::read_to_string(server.token_file()).unwrap().trim().to_owned()
}

/// `trilogue connect` on another machine that knows the proxy's certificate.
fn connect(laptop: &Home, server: &Server, proxy: &Proxy) -> Command {
    let mut command = laptop.program(BINARY);
    command
        .args(["connect", "echo", "--url", &format!("https://{}", proxy.address)])
        .env("SSL_CERT_FILE", proxy.dir.join("tls.crt"))
        .env("TRILOGUE_TOKEN", token(server));
    command
}

/// The settings of an agent at another server.
fn far_agent(home: &Home, url: &str, further: &str) -> String {
    let work = home.work();
    format!(
        "[store]\nurl = \"memory:\"\n[agents.far]\nkind = \"agent-client\"\nurl = \"{url}\"\ntoken_file = \"token\"\nroots = [{work:?}]\n{further}\n[egress]\nallow = [\"127.0.0.1/32\"]\n"
    )
}

/// Saves the token of another server, for its user only.
fn save_token(home: &Home, of: &Server) {
    let file = home.write("token", &token(of));
    fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
}

fn run_far(server: &Server) -> ProgramOutput {
    server.run(&["run", "far", "hello there"]).expect(0)
}

#[test]
fn an_editor_reaches_an_agent_through_nginx_with_tls() {
    let (home, laptop) = (Home::new(), Home::new());
    let server = served(&home, AGENTS);
    let proxy = Proxy::start_with(&home, &server, true, &[]);
    let mut editor = Editor::of(connect(&laptop, &server, &proxy));
    editor.ask("initialize", json!({ "protocolVersion": 1, "clientCapabilities": {} }));
    let session = editor.session();
    let lines = editor.turn(&session, "through the proxy").concat();
    assert!(lines.contains("through the proxy"), "{lines}");
    assert!(editor.close().success());
}

#[test]
fn an_editor_reaches_an_agent_through_an_ssh_tunnel() {
    let (home, laptop) = (Home::new(), Home::new());
    let server = served(&home, AGENTS);
    let tunnel = Tunnel::open(&server);
    let mut command = laptop.program(BINARY);
    command
        .args(["connect", "echo", "--url", &format!("http://{}", tunnel.address)])
        .env("TRILOGUE_TOKEN", token(&server));
    let mut editor = Editor::of(command);
    editor.ask("initialize", json!({ "protocolVersion": 1, "clientCapabilities": {} }));
    let session = editor.session();
    let lines = editor.turn(&session, "through the tunnel").concat();
    assert!(lines.contains("through the tunnel"), "{lines}");
    assert!(editor.close().success());
}

#[test]
fn behind_a_proxy_without_websockets_an_editor_is_told_and_an_agent_uses_http() {
    let (home, laptop, other) = (Home::new(), Home::new(), Home::new());
    let server = served(&home, AGENTS);
    let proxy = Proxy::start_with(&home, &server, true, &[OLD_HTTP]);
    let initialize =
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}"#;
    let told = finish(connect(&laptop, &server, &proxy), &format!("{initialize}\n"));
    told.complains(6, "status 501");
    save_token(&other, &server);
    let url = format!("wss://{}/client/echo", proxy.address);
    let ca = format!("ca_file = {:?}", proxy.dir.join("tls.crt"));
    let second = served(&other, &far_agent(&other, &url, &ca));
    let told = run_far(&second);
    assert!(told.out.contains("hello there"), "{told:?}");
}

#[test]
fn a_refused_certificate_of_an_agents_server_names_its_cause() {
    let (home, laptop) = (Home::new(), Home::new());
    let server = served(&home, AGENTS);
    let proxy = Proxy::start_with(&home, &server, true, &[]);
    for scheme in ["https", "wss"] {
        let other = Home::new();
        save_token(&other, &server);
        let url = format!("{scheme}://{}/client/echo", proxy.address);
        let second = served(&other, &far_agent(&other, &url, ""));
        let failed = second.run(&["run", "far", "hello"]);
        let told = format!("{}{}", failed.out, failed.err);
        assert!(told.contains("invalid peer certificate"), "{scheme}: {told}");
        assert!(told.contains("name the file of that authority"), "{scheme}: {told}");
    }
    // A file of certificates that is missing.
    let mut command = connect(&laptop, &server, &proxy);
    command.env("SSL_CERT_FILE", "/nowhere/ca.pem").env("SSL_CERT_DIR", laptop.work());
    let initialize =
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}"#;
    finish(command, &format!("{initialize}\n"))
        .complains(1, "SSL_CERT_FILE names '/nowhere/ca.pem'");
}

#[test]
fn an_agent_of_one_server_is_an_agent_of_another() {
    let (home, other) = (Home::new(), Home::new());
    let server = served(&home, AGENTS);
    save_token(&other, &server);
    let url = server.url().replace("http://", "ws://") + "/client/echo";
    let second = served(&other, &far_agent(&other, &url, ""));
    let told = run_far(&second);
    assert!(told.out.contains("hello there"), "{told:?}");
    let mut editor = Editor::launch_initialized(&other, &["connect", "far"]);
    let session = editor.session();
    let lines = editor.turn(&session, "from one to the other").concat();
    assert!(lines.contains("from one to the other"), "{lines}");
    assert!(editor.close().success());
}
