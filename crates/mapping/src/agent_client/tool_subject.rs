//! Extracts from a tool call what permission rules read: its kind, its name, and the files and commands in it.
//!
//! # Invariants
//! - An allowing rule never sees less than the agent's raw input contains: a text that can be a path counts as one, and a command is known
//!   to be there.
//! - The effect of a command is unknown. Its words are only mentioned.

use serde_json::{Map, Value};
use trilogue_wire::agent_client::{RequestPermissionRequest, ToolCallContent, splice};

/// The most texts of one call that rules check. A call with more is known in part only.
const MAX_TEXTS: usize = 1_024;
/// The longest text that can be a path, in bytes: the limit of Linux.
const MAX_PATH_BYTES: usize = 4_096;
/// A text with one of these prefixes is a path in any member.
const PATH_STARTS: [&str; 5] = ["/", "./", "../", "~/", "file://"];
const FILE_SCHEME: &str = "file://";
/// The suffixes of member names with a path, in lower case without `_` and `-`.
const PATH_NAMES: [&str; 14] = [
    "path",
    "paths",
    "file",
    "files",
    "filename",
    "filenames",
    "dir",
    "directory",
    "directories",
    "folder",
    "cwd",
    "workdir",
    "source",
    "destination",
];
/// The suffixes of member names with a command.
const COMMAND_NAMES: [&str; 15] = [
    "command",
    "commands",
    "commandline",
    "cmdline",
    "program",
    "executable",
    "bash",
    "run",
    "cmd",
    "cmds",
    "script",
    "argv",
    "exec",
    "shell",
    "code",
];
/// The suffixes of member names with arguments of a command, or of anything else. They belong to a command if they are texts.
const ARGUMENT_NAMES: [&str; 2] = ["args", "arguments"];
/// The suffixes of member names with a command's working directory.
const FOLDER_NAMES: [&str; 3] = ["cwd", "workdir", "workingdirectory"];
/// What separates the words of a command.
const SEPARATORS: [char; 18] =
    ['"', '\'', '`', ';', '|', '&', '<', '>', '(', ')', '{', '}', '[', ']', '$', '=', ',', ':'];

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ToolSubject {
    pub kind: Option<String>,
    pub name: Option<String>,
    /// The files that the call names.
    pub paths: Vec<String>,
    /// Texts that may name files, such as the words of a command.
    pub mentions: Vec<String>,
    pub runs_command: bool,
    /// Whether there was more than rules check.
    pub is_partial: bool,
}

/// The meaning of a value, by its member's name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Meaning {
    Path,
    Command,
    Arguments,
    Other,
}

/// Returns the subject of a permission request.
#[must_use]
pub fn subject(params: &RequestPermissionRequest) -> ToolSubject {
    let call = &params.tool_call;
    let mut subject = ToolSubject {
        kind: call.kind.map(|kind| kind.as_str().to_owned()),
        name: call.name.clone(),
        ..ToolSubject::default()
    };
    for location in call.locations.iter().flatten() {
        subject.add_path(&location.path);
    }
    for item in call.content.iter().flatten() {
        match item {
            ToolCallContent::Diff(diff) => subject.add_path(&diff.path),
            // Something runs in it.
            ToolCallContent::Terminal(_) => subject.runs_command = true,
            _ => {}
        }
    }
    match call.raw_input.as_ref().map(|input| serde_json::from_str(input.as_str())) {
        Some(Ok(input)) => subject.add_input(&input),
        Some(Err(_)) => subject.is_partial = true,
        None => {}
    }
    subject
}

/// Returns the subject of an agent's call of a client's files or terminals. `None` for a method that uses an object from an earlier call.
#[must_use]
pub fn subject_of_method(method: &str, params: &str) -> Option<ToolSubject> {
    let (kind, members): (_, &[&str]) = match method {
        "fs/read_text_file" => ("read", &["path"]),
        "fs/write_text_file" => ("edit", &["path"]),
        "terminal/create" => ("execute", &["command", "args", "cwd"]),
        _ => return None,
    };
    let mut subject = ToolSubject {
        kind: Some(kind.to_owned()),
        name: Some(method.to_owned()),
        ..ToolSubject::default()
    };
    let mut input = Map::new();
    for name in members {
        let Some(raw) = splice::get(params, &[name]) else { continue };
        match serde_json::from_str(raw) {
            Ok(value) => drop(input.insert((*name).to_owned(), value)),
            Err(_) => subject.is_partial = true,
        }
    }
    subject.add_input(&Value::Object(input));
    Some(subject)
}

// === impl ToolSubject ===

impl ToolSubject {
    fn add_input(&mut self, input: &Value) {
        let mut folders = Vec::new();
        // An input without member names can be a command.
        let meaning = if input.is_object() { Meaning::Other } else { Meaning::Command };
        self.walk(input, meaning, &mut folders);
        if !self.runs_command {
            return;
        }
        // A command uses the files in its folder, and its relative paths begin there.
        let words = self.mentions.clone();
        for folder in &folders {
            self.mention(format!("{folder}/*"));
            for word in words.iter().filter(|word| !word.starts_with(['/', '~'])) {
                self.mention(format!("{folder}/{word}"));
            }
        }
    }

    fn walk(&mut self, value: &Value, meaning: Meaning, folders: &mut Vec<String>) {
        match value {
            Value::String(text) => self.add_text(text, meaning),
            Value::Array(items) => items.iter().for_each(|item| self.walk(item, meaning, folders)),
            Value::Object(members) => {
                for (name, value) in members {
                    // Some tools list their files as the names of members.
                    self.add_text(name, Meaning::Other);
                    if let (true, Value::String(folder)) = (is_named(name, &FOLDER_NAMES), value) {
                        folders.push(folder.clone());
                    }
                    let own = match Meaning::of(name) {
                        Meaning::Arguments if !value.is_object() => Meaning::Command,
                        own => own,
                    };
                    self.walk(value, if own == Meaning::Other { meaning } else { own }, folders);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn add_text(&mut self, text: &str, meaning: Meaning) {
        match meaning {
            Meaning::Path => self.add_path(text),
            Meaning::Command | Meaning::Arguments => {
                self.runs_command |= meaning == Meaning::Command;
                self.mention(text.to_owned());
                for word in text.split(|it: char| it.is_whitespace() || SEPARATORS.contains(&it)) {
                    self.mention(word.to_owned());
                }
            }
            Meaning::Other if text.contains('\n') => {}
            Meaning::Other if PATH_STARTS.iter().any(|start| text.starts_with(start)) => {
                self.add_path(text);
            }
            Meaning::Other => self.mention(text.to_owned()),
        }
    }

    fn add_path(&mut self, path: &str) {
        let path = match path.strip_prefix(FILE_SCHEME) {
            // Only a decoded path could be compared.
            Some(encoded) if encoded.contains('%') => return self.is_partial = true,
            Some(path) => path,
            None => path,
        };
        if path.len() > MAX_PATH_BYTES {
            self.is_partial = true;
        } else if !self.paths.iter().any(|known| known == path) && self.has_room() {
            self.paths.push(path.to_owned());
        }
    }

    fn mention(&mut self, text: String) {
        if text.is_empty() || text.len() > MAX_PATH_BYTES {
            return;
        }
        if !self.mentions.contains(&text) && self.has_room() {
            self.mentions.push(text);
        }
    }

    fn has_room(&mut self) -> bool {
        let has_room = self.paths.len() + self.mentions.len() < MAX_TEXTS;
        self.is_partial |= !has_room;
        has_room
    }
}

// === impl Meaning ===

impl Meaning {
    fn of(name: &str) -> Self {
        if is_named(name, &COMMAND_NAMES) {
            Self::Command
        } else if is_named(name, &ARGUMENT_NAMES) {
            Self::Arguments
        } else if is_named(name, &PATH_NAMES) || is_named(name, &FOLDER_NAMES) {
            Self::Path
        } else {
            Self::Other
        }
    }
}

/// Whether a member's name ends with one of these.
fn is_named(name: &str, ends: &[&str]) -> bool {
    let plain: String =
        name.chars().filter(|it| it.is_alphanumeric()).map(|it| it.to_ascii_lowercase()).collect();
    ends.iter().any(|end| plain.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(input: &Value) -> ToolSubject {
        let mut subject = ToolSubject::default();
        subject.add_input(input);
        subject
    }

    #[test]
    fn every_text_that_can_be_a_path_is_one() {
        for input in [
            serde_json::json!({ "path": "secrets/key" }),
            serde_json::json!({ "file_path": "secrets/key" }),
            serde_json::json!({ "filePath": "secrets/key" }),
            serde_json::json!({ "deep": [{ "paths": ["secrets/key"] }] }),
            serde_json::json!({ "uri": "file://secrets/key" }),
        ] {
            assert_eq!(of(&input).paths, ["secrets/key"], "{input}");
        }
        let changes = serde_json::json!({ "changes": { "/ws/secrets/key": { "add": "x" } } });
        assert_eq!(of(&changes).paths, ["/ws/secrets/key"]);
        let encoded = serde_json::json!({ "uri": "file:///ws/%73ecrets/key" });
        assert!(of(&encoded).is_partial);
        assert!(of(&serde_json::json!({ "path": "x".repeat(MAX_PATH_BYTES + 1) })).is_partial);
        assert!(of(&serde_json::json!({ "text": "/a line\nof /two" })).paths.is_empty());
    }

    #[test]
    fn a_command_is_known_by_its_member_or_by_having_none() {
        for input in [
            serde_json::json!("rm -rf ~"),
            serde_json::json!(["rm", "-rf", "/"]),
            serde_json::json!({ "commandLine": "rm" }),
            serde_json::json!({ "args": ["rm"] }),
            serde_json::json!({ "exec": "rm" }),
            serde_json::json!({ "cmdline": "rm" }),
            serde_json::json!({ "program": "rm", "arguments": ["-rf"] }),
            serde_json::json!({ "arguments": "rm" }),
            serde_json::json!({ "command ": "rm" }),
            serde_json::json!({ "code": "rm" }),
            serde_json::json!({ "shell": { "text": "rm" } }),
        ] {
            assert!(of(&input).runs_command, "{input}");
        }
        for input in [
            serde_json::json!({ "path": "a" }),
            serde_json::json!({ "args": { "query": "a" } }),
            serde_json::json!(null),
            serde_json::json!({}),
        ] {
            assert!(!of(&input).runs_command, "{input}");
        }
    }

    #[test]
    fn a_command_mentions_its_words_and_its_folder() {
        for command in [
            serde_json::json!("cat 'secrets/key'|sh"),
            serde_json::json!(["bash", "-lc", "cat<secrets/key"]),
            serde_json::json!(["cat", "--file=secrets/key"]),
        ] {
            let subject = of(&serde_json::json!({ "command": command, "cwd": "/ws" }));
            assert!(subject.runs_command, "{command}");
            for mention in ["secrets/key", "/ws/secrets/key", "/ws/*"] {
                assert!(subject.mentions.iter().any(|it| it == mention), "{command}: {mention}");
            }
        }
        let many: Vec<_> = (0..=MAX_TEXTS).map(|number| format!("w{number}")).collect();
        assert!(of(&serde_json::json!({ "command": many })).is_partial);
    }
}
