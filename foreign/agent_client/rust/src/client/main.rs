//! Drives an agent with a client on the official SDK: `official-client [OPTIONS] SUITE… -- COMMAND…`.
//!
//! `--cwd FOLDER` is where sessions work, `--trilogue` requires everything that Trilogue promises, `--plain` skips words
//! that only our example agents know, `--name NAME` is the agent's name, `--prompt TEXT` is the prompt for an agent that
//! follows no instructions, `--only TEXT` runs the checks with this text in their names. The command can be an agent's
//! address: `ws://…` or `http://…`, with the token in `TRILOGUE_TOKEN`.

mod asking;
mod auth;
mod check;
mod editor;
mod script;
mod session;
mod transport;

use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::check::Check;
use crate::editor::Target;

const SUITES: [(&str, &[Check]); 4] = [
    ("session", session::CHECKS),
    ("script", script::CHECKS),
    ("auth", auth::CHECKS),
    ("asking", asking::CHECKS),
];

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let split = words.iter().position(|word| word == "--").context("no command behind --")?;
    let (ours, command) = words.split_at(split);
    let mut target = Target {
        command: command.iter().skip(1).cloned().collect(),
        cwd: ".".to_owned(),
        name: None,
        prompt: "hello".to_owned(),
        is_trilogue: false,
        has_ids: false,
        has_vocabulary: true,
    };
    let (mut names, mut only) = (Vec::new(), None);
    let mut words = ours.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().cloned().with_context(|| format!("{word} lacks a value"));
        match word.as_str() {
            "--trilogue" => target.is_trilogue = true,
            "--plain" => target.has_vocabulary = false,
            "--cwd" => target.cwd = value()?,
            "--name" => target.name = Some(value()?),
            "--prompt" => target.prompt = value()?,
            "--only" => only = Some(value()?),
            name => names.push(name),
        }
    }
    target.has_ids = target.is_trilogue || target.name.as_deref() == Some("official-seed");
    std::env::set_current_dir(&target.cwd)?;
    let (mut ran, mut failed) = (0, 0);
    for name in names {
        let Some((_, checks)) = SUITES.iter().find(|(suite, _)| *suite == name) else {
            bail!("there is no suite {name}");
        };
        let counts = check::run(name, checks, &target, only.as_deref()).await;
        (ran, failed) = (ran + counts.0, failed + counts.1);
    }
    println!("{ran} checks, {failed} failed");
    Ok(if ran > 0 && failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
