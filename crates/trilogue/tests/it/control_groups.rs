//! Agents in control groups, below a group that is delegated to their server.

#![expect(clippy::print_stderr, reason = "a test says what it cannot check here")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::agent_client_examples::example;
use crate::harness::{BINARY, Home, Server, until};
use crate::hosted::over_http;

const SERVE: [&str; 5] = ["serve", "--config", "trilogue.toml", "--listen", "127.0.0.1:0"];
const LIMITS: &str = "limits = { memory = \"1GiB\", processes = 512, cpu = 2 }\n";
/// Starts a process that neither its variables nor its session nor its parents tell, and becomes the agent.
const HIDING: &str = "(env -i setsid sh -c 'sleep 1000 & exit' &); exec \"$0\" \"$@\"";
/// Becomes a server that can create no namespaces.
const WITHOUT_NAMESPACES: &str = "exec unshare --user --map-root-user sh -c 'echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all --inh-caps=-all \"$0\" \"$@\"' \"$0\" \"$@\"";

/// A group of the test, which is delegated to a server.
struct TestGroup(PathBuf);

/// A home whose agent has started a process that hides.
struct HidingAgent {
    home: Home,
    group: TestGroup,
}

// === impl TestGroup ===

impl TestGroup {
    /// `None` if this machine lets the test create none.
    fn create() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "));
        let Some(mount) = mount.and_then(|line| line.split(' ').nth(4)) else {
            eprintln!("NOT CHECKED: this machine has mounted no cgroup v2");
            return None;
        };
        let folder = Path::new(mount).join(format!("trilogue-test-{}", Uuid::new_v4()));
        match fs::create_dir(&folder) {
            Ok(()) => Some(Self(folder)),
            Err(error) => {
                eprintln!("NOT CHECKED: '{}' cannot be created: {error}", folder.display());
                None
            }
        }
    }

    /// The first of the controllers of [`LIMITS`] that it does not have.
    fn missing_controller(&self) -> Option<&'static str> {
        let has = fs::read_to_string(self.0.join("cgroup.controllers")).unwrap();
        let mut all = ["memory", "pids", "cpu"].into_iter();
        all.find(|name| !has.split_whitespace().any(|it| it == *name))
    }

    fn processes(folder: &Path) -> Vec<u32> {
        let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        text.lines().map(|pid| pid.parse().unwrap()).collect()
    }

    /// The groups of agents.
    fn agents(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap());
        let agents =
            entries.filter(|entry| entry.file_name().to_str().unwrap().starts_with("agent-"));
        agents.map(|entry| entry.path()).collect()
    }

    /// A command that enters this group, or a leaf of it, and does this.
    fn command(&self, leaf: &str, then: &str) -> Command {
        let folder = self.0.join(leaf);
        let mut command = Command::new("/bin/sh");
        let script = format!("echo $$ > '{}/cgroup.procs' && {then}", folder.display());
        command.args(["-c", &script, BINARY]);
        command
    }
}

impl Drop for TestGroup {
    fn drop(&mut self) {
        // A test that fails leaves processes.
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
        let folders = self.agents().into_iter().chain([self.0.join("server"), self.0.clone()]);
        for folder in folders {
            until(|| (!folder.exists() || fs::remove_dir(&folder).is_ok()).then_some(()));
        }
    }
}

// === impl HidingAgent ===

impl HidingAgent {
    fn new(group: TestGroup, settings: &str) -> Self {
        let home = Home::new();
        let program = example("scripted_agent").display().to_string();
        let record = home.work().join("record").display().to_string();
        let command = json!(["/bin/sh", "-c", HIDING, program, "--record", record]);
        let folder = home.work().join("folder");
        fs::create_dir(&folder).unwrap();
        let settings = format!(
            "[server]\nshutdown_deadline = \"1s\"\n[store]\nurl = \"sqlite:store.db\"\n[agents.coder]\nkind = \"agent-client\"\ncommand = {command}\ncwd = {folder:?}\nwrite_paths = [{:?}]\n{settings}",
            home.work(),
        );
        home.write("trilogue.toml", &settings);
        Self { home, group }
    }

    fn start(&self, leaf: &str, then: &str) -> Server {
        self.home.start_as(self.group.command(leaf, then), &SERVE)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.home.work().join(name)
    }

    /// Starts a run that waits for the file `go`, and waits until its turn is kept. Returns its id.
    fn run(&self, server: &Server) -> String {
        let text = format!("say:one\nwait:{}\nsay:two", self.file("go").display());
        let started = server.run(&["run", "coder", &text, "--no-wait", "--thread", "t"]);
        let run = started.expect(0).out.trim().to_owned();
        until(|| {
            let thread = server.run(&["threads", "show", "t", "--json"]).expect(0).out;
            thread.contains("\"text\":\"one\"").then_some(())
        });
        run
    }

    fn wait_for_end(server: &Server, run: &str) -> Value {
        until(|| {
            let shown = over_http(server, &format!("/api/v1/runs/{run}"), None);
            let shown: Value = serde_json::from_str(&shown).unwrap();
            (!["queued", "running"].contains(&shown["status"].as_str().unwrap())).then_some(shown)
        })
    }

    /// The group of the agent, which also has the process that hides.
    fn group_of_agent(&self) -> PathBuf {
        let [group] = &self.group.agents()[..] else { panic!("{:?}", self.group.agents()) };
        let text = |pid: &u32, name: &str| {
            fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default()
        };
        until(|| {
            let processes = TestGroup::processes(group);
            let hidden = processes.iter().find(|pid| text(pid, "cmdline").starts_with("sleep"));
            hidden.filter(|pid| !text(pid, "environ").contains("TRILOGUE")).map(|_| ())
        });
        group.clone()
    }
}

#[test]
fn an_agent_has_a_control_group_that_outlives_its_server_and_ends_with_the_agent() {
    let Some(group) = TestGroup::create() else { return };
    let missing = group.missing_controller();
    let agent = HidingAgent::new(group, LIMITS);
    let server = agent.start("", "exec \"$0\" \"$@\"");
    // Alone in the delegated group, the server has moved into a leaf.
    assert!(TestGroup::processes(&agent.group.0.join("server")).contains(&server.pid()));
    let run = agent.run(&server);
    let group = agent.group_of_agent();
    let processes = TestGroup::processes(&group);
    assert!(!processes.contains(&server.pid()));
    check_limits(&server, &group, missing);

    server.stop(Signal::KILL);
    // The next one is started in the leaf, as a service manager does.
    let server = agent.start("server", "exec \"$0\" \"$@\"");
    fs::write(agent.file("go"), "").unwrap();
    let ended = HidingAgent::wait_for_end(&server, &run);
    assert_eq!(ended["status"], "completed", "{ended}");
    assert_eq!(agent.group_of_agent(), group, "the agent is the same");
    server.stop(Signal::TERM);
    // A group can only be removed without processes.
    until(|| agent.group.agents().is_empty().then_some(()));
}

/// Checks the files of the limits, or that the server says which one is not in force.
fn check_limits(server: &Server, group: &Path, missing: Option<&str>) {
    let layers = server.run(&["status", "--json"]).expect(0).json();
    let layers = layers["agents"]["list"][0]["sandbox"].to_string();
    assert_eq!(layers.contains("limits"), missing.is_none(), "{layers}");
    let set = [
        ("memory", "memory.max", "1073741824"),
        ("memory", "memory.oom.group", "1"),
        ("pids", "pids.max", "512"),
        ("cpu", "cpu.max", "200000 100000"),
    ];
    let has = fs::read_to_string(group.join("cgroup.controllers")).unwrap();
    for (controller, file, value) in set {
        if has.split_whitespace().any(|it| it == controller) {
            assert_eq!(fs::read_to_string(group.join(file)).unwrap().trim(), value, "{file}");
        } else {
            eprintln!(
                "NOT CHECKED: {file}: this machine's cgroup v2 has no controller '{controller}'"
            );
        }
    }
}

#[test]
fn a_process_that_hides_ends_with_its_agent_also_without_namespaces() {
    let Some(group) = TestGroup::create() else { return };
    let agent = HidingAgent::new(group, "");
    let server = agent.start("", WITHOUT_NAMESPACES);
    let run = agent.run(&server);
    let group = agent.group_of_agent();
    // Without its outer stage, the process that hides has no parent in the group.
    let stage = TestGroup::processes(&group).into_iter().min().unwrap();
    let stage = Pid::from_raw(i32::try_from(stage).unwrap()).unwrap();
    kill_process(stage, Signal::KILL).unwrap();
    let ended = HidingAgent::wait_for_end(&server, &run);
    assert_eq!(ended["outcome"]["error"]["code"], "agent_lost", "{ended}");
    until(|| (!group.exists()).then_some(()));
    server.stop(Signal::TERM);
}

#[test]
fn the_next_server_removes_what_a_killed_one_has_left() {
    let Some(group) = TestGroup::create() else { return };
    let agent = HidingAgent::new(group, "outlive = false\n");
    let server = agent.start("", WITHOUT_NAMESPACES);
    agent.run(&server);
    let group = agent.group_of_agent();
    server.stop(Signal::KILL);
    let server = agent.start("server", WITHOUT_NAMESPACES);
    until(|| (!group.exists()).then_some(()));
    server.stop(Signal::TERM);
}

#[test]
fn limits_that_cannot_be_applied_are_named_with_the_fix() {
    let Some(group) = TestGroup::create() else { return };
    let missing = group.missing_controller();
    let agent = HidingAgent::new(group, LIMITS);
    // Tests run in no delegated group.
    let checked = agent.home.run(&["serve", "--check", "--config", "trilogue.toml"]).expect(0);
    let said = format!("{}{}", checked.out, checked.err);
    assert!(said.contains("agents.coder.limits") && said.contains("Delegate="), "{said}");
    let Some(missing) = missing else {
        eprintln!("NOT CHECKED: this machine's cgroup v2 has all controllers");
        return;
    };
    let server = agent.start("", "exec \"$0\" \"$@\"");
    let log = agent.home.log();
    let expected = format!("has no controller '{missing}'");
    assert!(log.contains("not all `limits` of the agent are in force"), "{log}");
    assert!(log.contains(&expected) && log.contains("Delegate="), "{log}");
    server.stop(Signal::TERM);

    let settings = fs::read_to_string(agent.file("trilogue.toml")).unwrap();
    agent.home.write("trilogue.toml", &format!("{settings}sandbox = \"require:all\"\n"));
    let refused =
        agent.home.try_start_as(agent.group.command("server", "exec \"$0\" \"$@\""), &SERVE);
    let refused = refused.err().unwrap();
    assert!(refused.contains("`agents.coder.limits`") && refused.contains(&expected), "{refused}");
}
