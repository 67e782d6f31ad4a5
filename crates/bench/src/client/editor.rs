//! A minimal client of the Agent Client Protocol: it counts lines.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::agent::now;

/// How much is read at once, in bytes.
const READ_BYTES: usize = 256 * 1024;
/// How many updates are timed one by one.
const PACED: u64 = 2_000;
/// The pause between them, in microseconds.
const PAUSE_MICROS: u64 = 1_000;

/// A client with an agent that it launched. The agent is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Editor {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    session: String,
    next_id: u64,
    line: Vec<u8>,
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
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().context("the agent is mute")?;
        let mut editor = Self {
            input: child.stdin.take(),
            output: BufReader::with_capacity(READ_BYTES, output),
            child,
            session: String::new(),
            next_id: 0,
            line: Vec::new(),
        };
        editor.ask("initialize", &json!({"protocolVersion": 1, "clientCapabilities": {}}))?;
        let cwd = std::env::current_dir()?;
        let opened = editor.ask("session/new", &json!({"cwd": cwd, "mcpServers": []}))?;
        opened["sessionId"].as_str().context("no session")?.clone_into(&mut editor.session);
        Ok(editor)
    }

    /// Says something and waits for the turn's end.
    pub(crate) fn prompt(&mut self, text: &str, has_times: bool) -> Result<Turn> {
        let prompt = json!([{"type": "text", "text": text}]);
        let params = json!({"sessionId": self.session, "prompt": prompt});
        let begun = Instant::now();
        let id = self.send("session/prompt", &params)?;
        let mut turn = Turn::default();
        loop {
            self.read()?;
            if memmem(&self.line, br#""method":"session/update""#) {
                if memmem(&self.line, br#""agent_message_chunk""#) {
                    turn.updates += 1;
                    if has_times {
                        turn.ages.push(age(&self.line)?);
                    }
                }
                continue;
            }
            let message: Value = serde_json::from_slice(&self.line)?;
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

    /// Ends the agent by the end of its input.
    pub(crate) fn close(mut self) -> Result<()> {
        drop(self.input.take());
        let mut rest = Vec::new();
        self.output.read_to_end(&mut rest)?;
        ensure!(self.child.wait()?.success(), "the agent failed");
        Ok(())
    }

    fn ask(&mut self, method: &str, params: &Value) -> Result<Value> {
        let id = self.send(method, params)?;
        loop {
            self.read()?;
            let mut message: Value = serde_json::from_slice(&self.line)?;
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
        let mut line = serde_json::to_vec(&message)?;
        line.push(b'\n');
        let input = self.input.as_mut().context("the agent was closed")?;
        input.write_all(&line)?;
        Ok(id)
    }

    fn read(&mut self) -> Result<()> {
        self.line.clear();
        if self.output.read_until(b'\n', &mut self.line)? == 0 {
            bail!("the agent ended");
        }
        Ok(())
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
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
