//! A minimal agent of the Agent Client Protocol: it reads lines and writes bytes, so that the measurement shows the programs
//! between.

use std::io::{self, BufRead, BufReader, Write};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde_json::Value;

/// How much is written at once while it writes as fast as it can, in bytes.
const WRITE_BYTES: usize = 64 * 1024;
/// The session that it has.
const SESSION: &str = "0195c0de-0000-7000-8000-000000000001";
/// The prefix of its messages' ids. Each turn sends one message, in any number of updates.
const MESSAGE: &str = "9b1deb4d-3b7d-4bad-9bdd-";

/// Is the agent until its input ends.
///
/// It understands two prompts: `flood N` writes N updates as fast as it can, `paced N MICROS` writes N with a pause between them,
/// each with the time at which it was written.
pub(crate) fn serve() -> Result<()> {
    let (mut input, mut output) = (BufReader::new(io::stdin().lock()), io::stdout().lock());
    let mut line = String::new();
    let mut turns = 0_u64;
    loop {
        line.clear();
        if input.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let message: Value = serde_json::from_str(&line)?;
        let Some(id) = message.get("id") else { continue };
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" => {
                r#"{"protocolVersion":1,"agentCapabilities":{"loadSession":false}}"#.to_owned()
            }
            "session/new" => format!(r#"{{"sessionId":"{SESSION}"}}"#),
            "session/prompt" => {
                let said = message["params"]["prompt"][0]["text"].as_str().context("no text")?;
                turns += 1;
                prompt(said, &format!("{MESSAGE}{turns:012x}"), &mut output)?;
                r#"{"stopReason":"end_turn"}"#.to_owned()
            }
            _ => "{}".to_owned(),
        };
        writeln!(output, r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)?;
        output.flush()?;
    }
}

fn prompt(said: &str, message: &str, output: &mut impl Write) -> Result<()> {
    let mut words = said.split(' ');
    let (kind, count) = (words.next(), words.next().context("how many?")?.parse::<u64>()?);
    let mut bytes = Vec::with_capacity(WRITE_BYTES + 1024);
    if kind == Some("flood") {
        for _ in 0..count {
            update(&mut bytes, message, "and on ")?;
            if bytes.len() >= WRITE_BYTES {
                output.write_all(&bytes)?;
                bytes.clear();
            }
        }
        return Ok(output.write_all(&bytes)?);
    }
    let pause = Duration::from_micros(words.next().context("how long?")?.parse()?);
    for _ in 0..count {
        thread::sleep(pause);
        bytes.clear();
        update(&mut bytes, message, &now()?.as_nanos().to_string())?;
        output.write_all(&bytes)?;
        output.flush()?;
    }
    Ok(())
}

fn update(bytes: &mut Vec<u8>, message: &str, text: &str) -> Result<()> {
    writeln!(
        bytes,
        r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"{SESSION}","update":{{"sessionUpdate":"agent_message_chunk","messageId":"{message}","content":{{"type":"text","text":"{text}"}}}}}}}}"#
    )?;
    Ok(())
}

/// The time since the epoch: the same clock for every process of the machine.
pub(crate) fn now() -> Result<Duration> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?)
}
