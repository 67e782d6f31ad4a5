//! The repository's files for operators: the service unit, the proxy's configuration, the container.
//!
//! nginx, OpenSSL, curl and systemd's own check come from the system: `scripts/test` installs them.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::agent_client_examples::example;
use crate::approval::start_waiting_run;
use crate::connect_editor::Editor;
use crate::harness::{BINARY, Home, Server, lasting_address, until};
use crate::messages::ask;
use crate::monitored::CONFIG;

/// The server's name in the configuration of nginx.
const HOST: &str = "agents.example.com";
const INSTALLED: &str = "/usr/local/bin/trilogue";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn deployed(name: &str) -> String {
    fs::read_to_string(repository().join("deploy").join(name)).unwrap()
}

/// Runs a program to its end; prints how to install it if it is missing.
pub(crate) fn run(command: &mut Command) -> String {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().unwrap_or_else(|error| {
        panic!("{name}: {error}; `scripts/test` installs it");
    });
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{name}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// nginx with the repository's configuration. Stopped when dropped.
pub(crate) struct Proxy {
    child: Child,
    pub(crate) dir: PathBuf,
    pub(crate) address: String,
}

// === impl Proxy ===

impl Proxy {
    /// `admits_own`: whether clients of the proxy's machine are let in, which the deployed configuration refuses.
    fn start(home: &Home, server: &Server, admits_own: bool) -> Self {
        Self::start_with(home, server, admits_own, &[])
    }

    /// The same with these replacements in the configuration.
    pub(crate) fn start_with(
        home: &Home,
        server: &Server,
        admits_own: bool,
        changes: &[(&str, &str)],
    ) -> Self {
        let dir = home.work().join("nginx");
        fs::create_dir(&dir).unwrap();
        let path = |name: &str| dir.join(name).display().to_string();
        run(Command::new("openssl")
            .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"])
            .args(["-subj", &format!("/CN={HOST}")])
            .args(["-addext", &format!("subjectAltName=DNS:{HOST},IP:127.0.0.1")])
            .args(["-addext", "basicConstraints=critical,CA:FALSE"])
            .args(["-keyout", &path("tls.key"), "-out", &path("tls.crt")]));
        let address = lasting_address();
        let mut site = deployed("nginx.conf");
        let (is_own, own_address) = if admits_own { (0, "none") } else { (1, "$server_addr") };
        for (written, here) in [
            ("127.0.0.0/8 1;", format!("127.0.0.0/8 {is_own};")),
            ("($remote_addr = $server_addr)", format!("($remote_addr = {own_address})")),
            ("server 127.0.0.1:7878;", format!("server {};", server.address)),
            ("listen 443 ssl;", format!("listen {address} ssl;")),
            ("/etc/nginx/tls/agents.example.com.crt", path("tls.crt")),
            ("/etc/nginx/tls/agents.example.com.key", path("tls.key")),
        ] {
            assert!(site.contains(written), "{written}");
            site = site.replace(written, &here);
        }
        for (written, here) in changes {
            assert!(site.contains(written), "{written}");
            site = site.replace(written, here);
        }
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {};\n", path(name)))
            .concat();
        let whole = format!(
            "daemon off;\nmaster_process off;\npid {};\nerror_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\n{temporary}{site}}}\n",
            path("pid"),
        );
        fs::write(dir.join("nginx.conf"), whole).unwrap();
        let child = Command::new("nginx")
            .args(["-p", &path(""), "-c", &path("nginx.conf"), "-e", "stderr"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(dir.join("log")).unwrap())
            .spawn()
            .unwrap_or_else(|error| panic!("nginx: {error}; `scripts/test` installs it"));
        let mut proxy = Self { child, dir, address };
        until(|| {
            let ended = proxy.child.try_wait().unwrap();
            assert!(ended.is_none(), "{}", fs::read_to_string(proxy.dir.join("log")).unwrap());
            TcpStream::connect(&proxy.address).ok()
        });
        proxy
    }

    /// A request of an outside client that knows the proxy's name and certificate.
    fn request(&self, server: &Server, path: &str) -> Command {
        let port = self.address.rsplit_once(':').unwrap().1;
        let token = fs::read_to_string(server.token_file()).unwrap();
        let mut command = Command::new("curl");
        command
            .args(["-sS", "-N", "--max-time", "60"])
            .arg("--cacert")
            .arg(self.dir.join("tls.crt"))
            .args(["--resolve", &format!("{HOST}:{port}:127.0.0.1")])
            .args(["-H", &format!("Authorization: Bearer {}", token.trim())])
            .arg(format!("https://{HOST}:{port}{path}"));
        command
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn served(home: &Home) -> Server {
    served_with(home, "")
}

fn served_with(home: &Home, further: &str) -> Server {
    let settings = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\npublic_url = \"https://{HOST}\"\nsocket = \"off\"\n\n[agents.echo]\nkind = \"builtin\"\n\n[agents.mailcomposer]\nkind = \"builtin\"\n{further}"
    );
    home.write("trilogue.toml", &settings);
    home.start(&["serve", "--config", "trilogue.toml"])
}

#[test]
fn the_proxy_refuses_clients_of_its_own_machine_except_for_health() {
    let home = Home::new();
    let server = served(&home);
    let proxy = Proxy::start(&home, &server, false);
    let refused: Value =
        serde_json::from_str(&run(&mut proxy.request(&server, "/api/v1/agents"))).unwrap();
    assert_eq!(refused["code"], "forbidden", "{refused}");
    assert_eq!(run(&mut proxy.request(&server, "/healthz")), "ok\n");
}

#[test]
#[cfg(target_os = "linux")]
fn a_program_of_an_agent_decides_nothing_through_the_proxy_from_any_address() {
    let home = Home::new();
    let settings = format!(
        "[agents.runner]\nkind = \"agent-client\"\ncommand = [{:?}]\ncwd = {:?}\nterminals = true\n",
        example("scripted_agent"),
        home.work(),
    );
    let server = served_with(&home, &settings);
    // As if its machine's other addresses were missing in the proxy's list.
    let proxy = Proxy::start(&home, &server, true);
    let mut request = proxy.request(&server, "/api/v1/tokens");
    request.args(["-H", "Content-Type: application/json", "-d", r#"{"label":"mine"}"#]);
    let words = std::iter::once(request.get_program()).chain(request.get_args());
    let line: Vec<_> = words.map(|word| format!("'{}'", word.to_str().unwrap())).collect();
    let script = home.write("request.sh", &line.join(" "));
    let told = server.run(&["run", "runner", &format!("term:/bin/sh {} 2>&1", script.display())]);
    assert!(told.out.contains("a program of a hosted agent"), "{told:?}");
    // A program of a person may do it.
    let made = run(&mut request);
    assert!(made.contains("\"label\":\"mine\""), "{made}");
}

#[test]
fn clients_reach_the_server_through_nginx_and_see_events_as_they_happen() {
    let home = Home::new();
    let server = served(&home);
    let proxy = Proxy::start(&home, &server, true);
    let said = run(proxy.request(&server, "/communication/runs").args([
        "-H",
        "Content-Type: application/json",
        "-d",
        r#"{"agent_name":"echo","mode":"sync","input":[{"role":"user","parts":[{"content_type":"text/plain","content":"Hello"}]}]}"#,
    ]));
    let answer: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(answer["output"][0]["parts"][0]["content"], "Hello", "{said}");

    // The run waits for an answer, so its stream stays open: the proxy did not buffer the events that arrive here.
    let begun = run(proxy.request(&server, "/api/v1/runs").args([
        "-H",
        "Content-Type: application/json",
        "-d",
        r#"{"agent":"mailcomposer","input":"Write to ada@example.com about lunch","thread_id":"mail","create_thread":true,"mode":"async"}"#,
    ]));
    assert!(begun.contains("\"id\""), "{begun}");
    let mut stream = proxy
        .request(&server, "/api/v1/threads/mail/events")
        .args(["-H", "Accept: text/event-stream"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(stream.stdout.take().unwrap()).lines();
    let asked = lines.map(Result::unwrap).find(|line| line.contains("interrupt.raised"));
    assert!(asked.is_some() && stream.try_wait().unwrap().is_none());
    stream.kill().unwrap();
    stream.wait().unwrap();

    let status =
        run(proxy.request(&server, "/metrics").args(["-o", "/dev/null", "-w", "%{http_code}"]));
    assert_eq!(status, "404");
}

#[test]
fn the_service_unit_is_one_and_starts_what_there_is() {
    let unit = deployed("trilogue.service");
    let home = Home::new();
    // A systemd before 254 ignores this key, and its `verify` fails.
    let here = unit.replace(INSTALLED, BINARY).replace("\nDelegateSubgroup=server\n", "\n");
    let path = home.write("trilogue.service", &here);
    let verified = Command::new("systemd-analyze")
        .args(["verify", "--man=no", "--recursive-errors=no"])
        .arg(&path)
        .output()
        .unwrap_or_else(|error| panic!("systemd-analyze: {error}; `scripts/test` installs it"));
    let said = String::from_utf8_lossy(&verified.stderr);
    assert!(verified.status.success() && !said.contains("trilogue.service"), "{said}");

    let sample =
        deployed("trilogue.toml").replace("/var/lib/trilogue", &home.work().display().to_string());
    let config = home.write("trilogue.toml", &sample);
    let checks = unit.lines().find_map(|line| line.strip_prefix("ExecStartPre=")).unwrap();
    let words: Vec<_> = checks.split(' ').skip(1).collect();
    let config = config.display().to_string();
    let words: Vec<_> = words
        .into_iter()
        .map(|word| if word == "/etc/trilogue/trilogue.toml" { &*config } else { word })
        .collect();
    home.run(&words).expect(0);
    // An invalid configuration exits with the code after which the unit does not restart.
    home.write("trilogue.toml", "nonsense = 1\n");
    home.run(&words).expect(2);
    assert!(unit.contains("RestartPreventExitStatus=2\n"));
}

#[test]
fn the_container_is_made_of_what_there_is() {
    let file = deployed("Containerfile");
    let copied = file.lines().filter_map(|line| line.strip_prefix("COPY "));
    for line in copied.filter(|line| !line.starts_with("--from")) {
        let source = line.split(' ').next().unwrap();
        assert!(repository().join(source).exists(), "{source}");
    }
    let home = Home::new();
    let settings =
        deployed("container.toml").replace("/var/lib/trilogue", &home.work().display().to_string());
    home.write("trilogue.toml", &settings);
    home.run(&["serve", "--check", "--config", "trilogue.toml"]).expect(0);
    let toolchain = fs::read_to_string(repository().join("rust-toolchain.toml")).unwrap();
    let version = file.split("FROM rust:").nth(1).and_then(|it| it.split("-slim").next());
    assert!(toolchain.contains(&format!("\"{}", version.unwrap())), "{toolchain}");
}

/// Settings and agents that make every metric appear.
fn observed(home: &Home) -> String {
    format!(
        r#"{CONFIG}
[agents.hosted]
kind = "agent-client"
command = [{:?}]
cwd = {:?}

[agents.far]
kind = "agent-communication"
url = "http://{}/communication"
name = "far"

[telemetry.otlp]
endpoint = "http://127.0.0.1:9"
"#,
        example("scripted_agent"),
        home.work(),
        lasting_address(),
    )
}

/// The metrics in queries, with the suffixes of histograms.
fn queried(queries: &str) -> BTreeSet<&str> {
    let words = queries.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|it| it.starts_with("trilogue_") || it.starts_with("process_")).collect()
}

#[test]
fn a_server_has_every_metric_that_the_dashboard_and_the_alerts_ask_for() {
    let dashboard: Value = serde_json::from_str(&deployed("grafana-dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let queries: Vec<_> = targets.map(|target| target["expr"].as_str().unwrap()).collect();
    assert!(queries.len() > 30, "{queries:?}");
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let variables = variables.iter().filter_map(|variable| variable["query"]["query"].as_str());
    let asked = format!("{} {}", queries.join(" "), variables.collect::<Vec<_>>().join(" "));
    let alerts = deployed("prometheus-alerts.yml");
    let mut wanted = queried(&asked);
    wanted.extend(queried(&alerts));

    let home = Home::new();
    home.write("t.toml", &observed(&home));
    let server = home.start(&["serve", "--config", "t.toml", "--listen", "127.0.0.1:0"]);
    server.run(&["run", "echo", "Hello"]).expect(0);
    server.run(&["run", "hosted", "say:hello"]).expect(0);
    server.run(&["run", "broken", "Hello"]).expect(1);
    let (run, question) = start_waiting_run(&server);
    server.run(&["approve", &question, "--yes"]).expect(0);
    server.run(&["tail", &run, "--follow"]).expect(0);
    home.run(&["agents", "--url", &server.url(), "--token", "wrong"]);
    let metrics = ask(&home, &server, "/metrics", None);
    let series: BTreeSet<_> =
        metrics.lines().filter_map(|line| line.split(['{', ' ']).next()).collect();
    let missing: Vec<_> = wanted.difference(&series).collect();
    assert!(missing.is_empty(), "{missing:?} are not in\n{metrics}");
}

#[test]
fn prometheus_takes_the_alerts_and_the_configuration() {
    let deploy = repository().join("deploy");
    run(Command::new("promtool")
        .args(["check", "rules"])
        .arg(deploy.join("prometheus-alerts.yml")));
    run(Command::new("promtool")
        .args(["check", "config", "--syntax-only"])
        .arg(deploy.join("prometheus.yml")));
}

#[test]
fn a_check_finds_secrets_and_notifications_that_cannot_work() {
    let home = Home::new();
    let check = |config: &str| {
        home.write("t.toml", config);
        home.run(&["serve", "--config", "t.toml", "--check"])
    };
    let store = "[store]\nurl = \"postgres://trilogue@db.example.com/trilogue\"\n";
    check(&format!("{store}password_file = \"/nonexistent/password\"\n"))
        .complains(2, "`store.password_file`: '/nonexistent/password' cannot be read");
    let blobs = "[store.blobs]\nurl = \"https://s3.example.com/b\"\nkey_id = \"k\"\n";
    check(&format!("{store}{blobs}secret_file = \"/nonexistent/secret\"\n"))
        .complains(2, "`store.blobs.secret_file`: '/nonexistent/secret' cannot be read");
    check("[cluster]\nnats_file = \"/nonexistent/nats\"\n")
        .complains(2, "`cluster.nats_file`: '/nonexistent/nats' cannot be read");
    // A variable may be set only where the server starts.
    let unset = check(&format!("{store}password_env = \"UNSET_HERE\"\n")).expect(0).err;
    assert!(unset.contains("warning: store.password_env: the variable 'UNSET_HERE'"), "{unset}");

    let notify = "[notify]\nurl = \"http://127.0.0.1:9/hook\"\n";
    let refused = check(notify).expect(0).err;
    assert!(refused.contains("problem: notify.url: no notification is sent"), "{refused}");
    assert!(refused.contains("hint: add \"127.0.0.1\" to egress.allow"), "{refused}");
    let allowed = check(&format!("{notify}[egress]\nallow = \"127.0.0.1\"\n")).expect(0).err;
    assert!(!allowed.contains("notify.url"), "{allowed}");
    let missing = check("[notify]\ncommand = [\"no-such-program\"]\n").expect(0).err;
    assert!(missing.contains("problem: notify.command: "), "{missing}");

    let cluster = "[cluster]\naddress = \"http://10.0.0.5:7878\"\ndangerously_plain_http = true\n";
    let alone = check(cluster).expect(0).err;
    assert!(
        alone.contains("warning: cluster.address: no other server reaches http://10.0.0.5:7878/"),
        "{alone}"
    );
    let open =
        format!("[server]\nlisten = \"0.0.0.0:7879\"\ndangerously_plain_http = true\n{cluster}");
    let open = check(&open).expect(0).err;
    assert!(!open.contains("cluster.address:"), "{open}");
}

#[test]
fn a_certificate_that_is_not_trusted_is_explained() {
    let home = Home::new();
    let server = served(&home);
    let proxy = Proxy::start(&home, &server, true);
    let url = format!("https://{}", proxy.address);
    let refused = home.run(&["agents", "--url", &url, "--token", "tril_x"]).expect(6).err;
    assert!(refused.contains("invalid peer certificate"), "{refused}");
    assert!(refused.contains("set SSL_CERT_FILE"), "{refused}");
    assert!(!refused.contains("trilogue demo"), "{refused}");
    let connect = ["connect", "echo", "--url", &url, "--token", "tril_x"];
    let mut editor = Editor::launch(&home, &connect);
    let answer = editor.ask("initialize", json!({ "protocolVersion": 1 }));
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("invalid peer certificate"), "{answer}");
    assert_eq!(editor.wait().code(), Some(6));
    let said = editor.last_notes();
    assert!(said.contains("set SSL_CERT_FILE"), "{said}");
}

#[test]
fn an_editor_reaches_an_agent_through_the_proxy() {
    let home = Home::new();
    let server = served(&home);
    let proxy = Proxy::start(&home, &server, true);
    let token = fs::read_to_string(server.token_file()).unwrap();
    let laptop = Home::new();
    let url = format!("https://{}", proxy.address);
    let mut command = laptop.program(BINARY);
    command.args(["connect", "echo", "--url", &url, "--token", token.trim()]);
    command.env("SSL_CERT_FILE", proxy.dir.join("tls.crt"));
    let mut editor = Editor::of(command);
    editor.ask("initialize", json!({ "protocolVersion": 1, "clientCapabilities": {} }));
    let session = editor.session();
    let told = editor.turn(&session, "through nginx");
    assert!(told.iter().any(|line| line.contains("through nginx")), "{told:?}");
    drop(proxy);
    editor.note("lost");
}
