//! A server with a hosted agent, which is ended and started again on the same store.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};
use trilogue_testkit::comparable_events;

use crate::agent_client_examples::example;
use crate::harness::{BINARY, Home, Server, until};
use crate::hosted::over_http;

pub(super) const SERVE: [&str; 5] =
    ["serve", "--config", "trilogue.toml", "--listen", "127.0.0.1:0"];

/// A folder with a server of `coder`, which can be ended and started again on the same store.
pub(super) struct Lives {
    pub(super) home: Home,
    /// The server's program.
    pub(super) program: PathBuf,
    server: Option<Server>,
}

impl Lives {
    pub(super) fn start() -> Self {
        Self::with("")
    }

    /// The same with further settings of the agent.
    pub(super) fn with(further: &str) -> Self {
        Self::with_program(further, |_| PathBuf::from(BINARY))
    }

    /// The same with another program, which is made in the folder.
    pub(super) fn with_program(further: &str, program: impl FnOnce(&Home) -> PathBuf) -> Self {
        let home = Home::new();
        let program = program(&home);
        let agent = example("scripted_agent").display().to_string();
        let record = home.work().join("heard").display().to_string();
        let command = json!([agent, "--record", record]);
        let folder = home.work().join("folder");
        fs::create_dir(&folder).unwrap();
        let settings = format!(
            "[server]\nshutdown_deadline = \"1s\"\n[store]\nurl = \"sqlite:store.db\"\n[agents.coder]\nkind = \"agent-client\"\ncommand = {command}\ncwd = {folder:?}\nfiles = \"write\"\nterminals = true\nwrite_paths = [{:?}]\n{further}",
            home.work(),
        );
        home.write("trilogue.toml", &settings);
        let mut lives = Self { home, program, server: None };
        lives.begin();
        lives
    }

    pub(super) fn begin(&mut self) {
        self.server = Some(self.home.start_as(Command::new(&self.program), &SERVE));
    }

    /// The same, if no other server has the store. Returns whether it has started.
    pub(super) fn try_begin(&mut self) -> bool {
        self.server = self.home.try_start(&SERVE).ok();
        self.server.is_some()
    }

    pub(super) fn end(&mut self, signal: Signal) {
        self.server.take().unwrap().stop(signal);
    }

    pub(super) fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.home.work().join(name)
    }

    /// Starts a run of these instructions. Returns its id.
    pub(super) fn run(&self, lines: &[String]) -> String {
        let text = lines.join("\n");
        let started = self.server().run(&["run", "coder", &text, "--no-wait", "--thread", "t"]);
        started.expect(0).out.trim().to_owned()
    }

    pub(super) fn show(&self, run: &str) -> Value {
        let shown = over_http(self.server(), &format!("/api/v1/runs/{run}"), None);
        serde_json::from_str(&shown).unwrap()
    }

    /// Starts a run of these instructions, and waits until it has completed.
    pub(super) fn complete(&self, lines: &[String]) -> String {
        let run = self.run(lines);
        assert_eq!(self.wait_for_end(&run)["status"], "completed");
        run
    }

    pub(super) fn wait_for_end(&self, run: &str) -> Value {
        until(|| {
            let shown = self.show(run);
            let is_open = ["queued", "running", "interrupted", "cancelling"]
                .contains(&shown["status"].as_str().unwrap());
            (!is_open).then_some(shown)
        })
    }

    /// The thread, as JSON.
    pub(super) fn thread(&self) -> String {
        self.server().run(&["threads", "show", "t", "--json"]).expect(0).out
    }

    /// Waits until the agent has sent this message: the turn is kept from then on.
    pub(super) fn wait_for(&self, message: &str) {
        let message = format!("\"text\":\"{message}\"");
        until(|| self.thread().contains(&message).then_some(()));
    }
}

/// The processes of the agent.
pub(super) fn processes(lives: &Lives) -> usize {
    let mut find = Command::new("pgrep");
    find.args(["-f", "--", &format!("--record {}", lives.file("heard").display())]);
    let found = find.output().unwrap().stdout;
    String::from_utf8(found).unwrap().lines().count()
}

/// The events of a run, without what differs from run to run.
pub(super) fn events_of(lives: &Lives, run: &str) -> Vec<String> {
    let shown: Value = serde_json::from_str(&lives.thread()).unwrap();
    let home = lives.home.work().display().to_string();
    comparable_events(shown["events"].as_array().unwrap(), run, &[(&home, "HOME")])
}

pub(super) fn check_equal(events: &[String], expected: &[String], what: &str) {
    let differs = events.iter().zip(expected).find(|(is, should)| is != should);
    assert_eq!((differs, events.len()), (None, expected.len()), "{what}");
}
