//! `trilogue new`.

use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};

use crate::command::globals::Globals;
use crate::terminal::exit::{CliError, ExitStatus, Result};
use crate::terminal::{print, safe};

/// The placeholder of the agent's name in a template.
const PLACEHOLDER: &str = "NAME";
/// The placeholder of the folder of the SDK, as a string of TOML.
const SDK_PLACEHOLDER: &str = "SDK_FOLDER";
/// The folder of the SDK in a checkout of this repository.
const SDK_IN_CHECKOUT: &str = "crates/sdk";
/// The longest manifest of a folder that can be the SDK's, in bytes.
const MAX_MANIFEST_BYTES: u64 = 64 * 1024;
/// The suffix of a template's files that would otherwise make it a package of this workspace.
const SUFFIX: &str = ".template";
/// The longest name, in bytes: that of an agent.
const MAX_NAME_BYTES: usize = trilogue_domain::limits::MAX_AGENT_NAME_BYTES;

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

/// Write an agent that runs: in Rust on this project's SDK, in Python and TypeScript on the official libraries of the Agent Client Protocol.
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
    /// For Rust: the folder of the SDK, `crates/sdk` of a checkout. By default that of the checkout around the current folder or around this program.
    #[arg(long, value_name = "FOLDER")]
    sdk: Option<PathBuf>,
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
        let sdk = self.sdk_folder()?;
        for (path, text) in self.language.files() {
            let path = path.trim_end_matches(SUFFIX);
            let file = folder.join(path);
            let text = text.replace(PLACEHOLDER, &self.name);
            let text = sdk.iter().fold(text, |text, sdk| text.replace(SDK_PLACEHOLDER, sdk));
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

    /// Returns the folder of the SDK as a string of TOML; `None` for languages that do not use it.
    fn sdk_folder(&self) -> Result<Option<String>> {
        if self.language != Language::Rust {
            return match self.sdk {
                Some(_) => Err(CliError::usage("--sdk is only for --language rust")),
                None => Ok(None),
            };
        }
        let found = match &self.sdk {
            Some(folder) => Some(folder.clone()).filter(|folder| is_sdk(folder)),
            None => sdk_around_here(),
        };
        let found = found.and_then(|folder| folder.canonicalize().ok());
        // A string of JSON is a string of TOML.
        match found.as_deref().and_then(Path::to_str) {
            Some(folder) => Ok(Some(serde_json::json!(folder).to_string())),
            None => {
                let message = match &self.sdk {
                    Some(folder) => {
                        let folder = safe::visible(&folder.display().to_string());
                        format!("{folder} is not the folder of trilogue-sdk")
                    }
                    None => "there is no checkout of Trilogue around here".to_owned(),
                };
                Err(CliError::usage(message)
                    .hint("clone the repository, and name its folder crates/sdk with --sdk"))
            }
        }
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

/// Returns the folder of the SDK in the checkout around the current folder, or around this program.
fn sdk_around_here() -> Option<PathBuf> {
    let starts = [std::env::current_dir(), std::env::current_exe()];
    let starts: Vec<PathBuf> = starts.into_iter().flatten().collect();
    let folders = starts.iter().flat_map(|start| start.ancestors());
    folders.map(|folder| folder.join(SDK_IN_CHECKOUT)).find(|folder| is_sdk(folder))
}

fn is_sdk(folder: &Path) -> bool {
    let Ok(file) = fs::File::open(folder.join("Cargo.toml")) else { return false };
    let mut manifest = String::new();
    let read = file.take(MAX_MANIFEST_BYTES).read_to_string(&mut manifest);
    read.is_ok() && manifest.lines().any(|line| line == r#"name = "trilogue-sdk""#)
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
