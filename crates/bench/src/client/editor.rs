//! A minimal client of the Agent Client Protocol: it counts messages.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::agent::now;
use super::link::{MessageLink, ProgramLink};

/// How many updates are timed one by one.
const PACED: u64 = 2_000;
/// The pause between them, in microseconds.
const PAUSE_MICROS: u64 = 1_000;

/// A client with a session. A program that it launched is killed when this is dropped.
pub(crate) struct Editor {
    link: Box<dyn MessageLink>,
    session: String,
    next_id: u64,
    message: Vec<u8>,
}

/// The result of a turn.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    pub(crate) updates: u64,
    pub(crate) time: Duration,
    /// For each update with a time in it, how long ago that was.
    pub(crate) ages: Vec<Duration>,
}

// === impl Editor ===

impl Editor {
    /// Launches an agent and opens a session with it.
    pub(crate) fn launch(command: &mut Command) -> Result<Self> {
        Self::open(Box::new(ProgramLink::launch(command)?), &std::env::current_dir()?)
    }

    /// The same in the working directory of the program.
    pub(super) fn launch_in(command: &mut Command) -> Result<Self> {
        let cwd = command.get_current_dir().context("no working directory")?.to_owned();
        Self::open(Box::new(ProgramLink::launch(command)?), &cwd)
    }

    /// Opens a session in a folder with the agent at the other end.
    pub(super) fn open(link: Box<dyn MessageLink>, cwd: &Path) -> Result<Self> {
        let mut editor = Self { link, session: String::new(), next_id: 0, message: Vec::new() };
        editor.ask("initialize", &json!({"protocolVersion": 1, "clientCapabilities": {}}))?;
        let opened = editor.ask("session/new", &json!({"cwd": cwd, "mcpServers": []}))?;
        opened["sessionId"].as_str().context("no session")?.clone_into(&mut editor.session);
        editor.link.follow(&editor.session)?;
        Ok(editor)
    }

    /// Says something and waits for the turn's end.
    pub(crate) fn prompt(&mut self, text: &str, has_times: bool) -> Result<Turn> {
        let mut ages = Vec::new();
        let turn = self.prompt_with(text, |update| {
            if has_times {
                ages.push(age(update)?);
            }
            Ok(())
        })?;
        Ok(Turn { ages, ..turn })
    }

    /// The same, and calls the function with each update as soon as it is here.
    pub(super) fn prompt_with(
        &mut self,
        text: &str,
        mut on_update: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<Turn> {
        let prompt = json!([{"type": "text", "text": text}]);
        let params = json!({"sessionId": self.session, "prompt": prompt});
        let begun = Instant::now();
        let id = self.send("session/prompt", &params)?;
        let mut turn = Turn::default();
        loop {
            self.link.receive(&mut self.message)?;
            if memmem(&self.message, br#""method":"session/update""#) {
                if memmem(&self.message, br#""agent_message_chunk""#) {
                    turn.updates += 1;
                    on_update(&self.message)?;
                }
                continue;
            }
            let message: Value = serde_json::from_slice(&self.message)?;
            if message["id"] == id && message.get("method").is_none() {
                ensure!(
                    message["result"]["stopReason"] == "end_turn",
                    "the turn ended with {message}"
                );
                turn.time = begun.elapsed();
                return Ok(turn);
            }
        }
    }

    /// How old each of some updates is when it comes, which the agent writes one by one.
    pub(crate) fn ages(&mut self) -> Result<Vec<Duration>> {
        Ok(self.prompt(&format!("paced {PACED} {PAUSE_MICROS}"), true)?.ages)
    }

    /// Ends the connection. A program that does not end well is an error.
    pub(crate) fn close(self) -> Result<()> {
        self.link.close()
    }

    fn ask(&mut self, method: &str, params: &Value) -> Result<Value> {
        let id = self.send(method, params)?;
        loop {
            self.link.receive(&mut self.message)?;
            let mut message: Value = serde_json::from_slice(&self.message)?;
            if message["id"] == id && message.get("method").is_none() {
                ensure!(message.get("error").is_none(), "{method}: {message}");
                return Ok(message["result"].take());
            }
        }
    }

    fn send(&mut self, method: &str, params: &Value) -> Result<u64> {
        let id = self.next_id;
        self.next_id += 1;
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.link.send(&serde_json::to_vec(&message)?)?;
        Ok(id)
    }
}

fn memmem(line: &[u8], what: &[u8]) -> bool {
    memchr::memmem::find(line, what).is_some()
}

/// How long ago the time was that an update carries as its text.
fn age(line: &[u8]) -> Result<Duration> {
    let key = br#""text":""#;
    let at = memchr::memmem::find(line, key).context("no text")? + key.len();
    let digits: String = line[at..]
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .map(|byte| char::from(*byte))
        .collect();
    let written = Duration::from_nanos(digits.parse()?);
    Ok(now()?.saturating_sub(written))
}
