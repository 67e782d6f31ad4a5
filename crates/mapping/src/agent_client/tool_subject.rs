//! Extracts from a tool call what permission rules read: its kind, its name, and the files and commands in it.
//!
//! # Invariants
//! - An allowing rule never sees less than the agent's raw input contains: a text that can be a path counts as one, and a command is known
//!   to be there.
//! - The effect of a command is unknown. Its words are only mentioned.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
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

/// Where a value of a raw input is.
#[derive(Clone, Copy)]
enum InputPlace<'a> {
    Whole,
    /// In a list with this meaning.
    Item(Meaning),
    /// A member of an object with the outer meaning.
    Member {
        name: &'a str,
        outer: Meaning,
    },
}

/// Reads a raw input value by value into its subject.
struct InputWalk<'a> {
    subject: &'a mut ToolSubject,
    /// The working directories of its commands.
    folders: &'a mut Vec<String>,
    place: InputPlace<'a>,
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
    if let Some(input) = &call.raw_input {
        subject.add_input([(InputPlace::Whole, input.as_str())]);
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
    let inputs = members.iter().filter_map(|&name| {
        let place = InputPlace::Member { name, outer: Meaning::Other };
        Some((place, splice::get(params, &[name])?))
    });
    subject.add_input(inputs);
    Some(subject)
}

// === impl ToolSubject ===

impl ToolSubject {
    /// Adds the texts of a raw input, without a tree of its values in memory. One that cannot be read is known in part only.
    fn add_input<'a>(&mut self, inputs: impl IntoIterator<Item = (InputPlace<'a>, &'a str)>) {
        let mut folders = Vec::new();
        for (place, raw) in inputs {
            if let InputPlace::Member { name, .. } = place {
                self.add_text(name, Meaning::Other);
            }
            let mut reader = serde_json::Deserializer::from_str(raw);
            let walk = InputWalk { subject: self, folders: &mut folders, place };
            let is_read = walk.deserialize(&mut reader).and_then(|()| reader.end()).is_ok();
            self.is_partial |= !is_read;
        }
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

// === impl InputPlace ===

impl InputPlace<'_> {
    /// The meaning of the value here. An input without member names can be a command.
    fn meaning(self, is_object: bool) -> Meaning {
        match self {
            Self::Whole if is_object => Meaning::Other,
            Self::Whole => Meaning::Command,
            Self::Item(meaning) => meaning,
            Self::Member { name, outer } => match Meaning::of(name) {
                Meaning::Other => outer,
                Meaning::Arguments if !is_object => Meaning::Command,
                own => own,
            },
        }
    }
}

// === impl InputWalk ===

impl<'de> DeserializeSeed<'de> for InputWalk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for InputWalk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        if let InputPlace::Member { name, .. } = self.place
            && is_named(name, &FOLDER_NAMES)
            && self.folders.len() < MAX_TEXTS
        {
            self.folders.push(text.to_owned());
        }
        self.subject.add_text(text, self.place.meaning(false));
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Self { subject, folders, place } = self;
        let place = InputPlace::Item(place.meaning(false));
        loop {
            let walk = InputWalk { subject: &mut *subject, folders: &mut *folders, place };
            if items.next_element_seed(walk)?.is_none() {
                return Ok(());
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let Self { subject, folders, place } = self;
        let outer = place.meaning(true);
        while let Some(name) = members.next_key::<String>()? {
            // Some tools list their files as the names of members.
            subject.add_text(&name, Meaning::Other);
            let place = InputPlace::Member { name: &name, outer };
            let walk = InputWalk { subject: &mut *subject, folders: &mut *folders, place };
            members.next_value_seed(walk)?;
        }
        Ok(())
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

    fn of(input: &serde_json::Value) -> ToolSubject {
        let mut subject = ToolSubject::default();
        subject.add_input([(InputPlace::Whole, input.to_string().as_str())]);
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
