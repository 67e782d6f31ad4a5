//! `trilogue new`.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};

use crate::command::globals::Globals;
use crate::terminal::exit::{CliError, ExitStatus, Result};
use crate::terminal::{print, safe};

/// The placeholder of the agent's name in a template.
const PLACEHOLDER: &str = "NAME";
/// The suffix of a template's files that would otherwise make it a package of this workspace.
const SUFFIX: &str = ".template";
/// The longest name, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// Start something new from a template. Needs no server.
#[derive(Args, Debug)]
pub(crate) struct New {
    #[command(subcommand)]
    subject: NewSubject,
}

#[derive(Subcommand, Debug)]
enum NewSubject {
    Agent(NewAgent),
}

/// Write an agent that runs, on the official library of the Agent Client Protocol.
#[derive(Args, Debug)]
struct NewAgent {
    /// The agent's name, and that of its folder.
    name: String,
    /// The language.
    #[arg(long, value_enum, value_name = "LANGUAGE")]
    language: Language,
    /// The folder to write to. By default one with the agent's name.
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Language {
    Python,
    Typescript,
    Rust,
}

/// A file of a template: its path and its text.
type TemplateFile = (&'static str, &'static str);

macro_rules! template {
    ($language:literal: $($file:literal),+) => {
        &[$(($file, include_str!(concat!("../templates/", $language, "/", $file)))),+]
    };
}

// === impl New ===

impl New {
    pub(crate) fn execute(&self, globals: &Globals) -> Result {
        let NewSubject::Agent(agent) = &self.subject;
        agent.execute(globals)
    }
}

// === impl NewAgent ===

impl NewAgent {
    fn execute(&self, globals: &Globals) -> Result {
        check_name(&self.name)?;
        let folder = self.folder.clone().unwrap_or_else(|| PathBuf::from(&self.name));
        let shown = safe::visible(&folder.display().to_string());
        match fs::read_dir(&folder).map(Iterator::count) {
            Ok(0) => {}
            Ok(_) => {
                let message = format!("the folder {shown} is not empty");
                return Err(CliError::new(ExitStatus::Conflict, message)
                    .hint("name another one with --folder"));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(unusable(&folder, &error)),
        }
        for (path, text) in self.language.files() {
            let path = path.trim_end_matches(SUFFIX);
            let file = folder.join(path);
            let text = text.replace(PLACEHOLDER, &self.name);
            let written = match file.parent() {
                Some(parent) => fs::create_dir_all(parent).and_then(|()| fs::write(&file, text)),
                None => fs::write(&file, text),
            };
            written.map_err(|error| unusable(&file, &error))?;
        }
        if globals.json {
            let files: Vec<_> = self.paths().collect();
            return print::json(&serde_json::json!({ "folder": folder, "files": files }));
        }
        for path in self.paths() {
            print::out(&format!("{shown}/{path}\n"))?;
        }
        print::hint(&format!("{shown}/README.md says how to run it"));
        Ok(())
    }

    fn paths(&self) -> impl Iterator<Item = &'static str> {
        self.language.files().iter().map(|(path, _)| path.trim_end_matches(SUFFIX))
    }
}

// === impl Language ===

impl Language {
    fn files(self) -> &'static [TemplateFile] {
        match self {
            Self::Python => {
                template!("python": "agent.py", "model_agent.py", "requirements.txt", "README.md")
            }
            Self::Typescript => {
                template!("typescript": "agent.ts", "package.json", "tsconfig.json", "README.md")
            }
            Self::Rust => template!("rust": "src/main.rs", "Cargo.toml.template", "README.md"),
        }
    }
}

/// A name that every language takes for a package.
fn check_name(name: &str) -> Result {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
    let begins = name.starts_with(|c: char| c.is_ascii_lowercase());
    if begins && name.len() <= MAX_NAME_BYTES && name.chars().all(is_plain) {
        return Ok(());
    }
    let name = safe::visible(name);
    Err(CliError::usage(format!("'{name}' cannot be the name of an agent"))
        .hint("use lower-case letters, digits, - and _, beginning with a letter"))
}

fn unusable(path: &Path, error: &std::io::Error) -> CliError {
    let path = safe::visible(&path.display().to_string());
    CliError::failure(format!("cannot write {path}: {error}"))
}
