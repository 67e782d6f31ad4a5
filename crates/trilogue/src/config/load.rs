//! Reads a configuration file. Errors name the position and the nearest key.

use std::fmt;
use std::fs::Metadata;
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

use super::usual_keys::{AGENT_TABLES, KINDS, missing_key, usual_key};
use super::{Options, settings};

/// The largest configuration file, in bytes.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// The settings of a configuration file, with their lines.
#[derive(Clone, Debug)]
pub struct LoadedConfig {
    /// The settings. Those that the file does not name have their defaults.
    pub options: Options,
    /// The settings that the file names, as dotted keys with their lines, in the file's order.
    pub lines: Vec<(String, usize)>,
}

/// Why a configuration file is invalid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    /// The file.
    pub path: PathBuf,
    /// Line and column, from 1, if known.
    pub place: Option<(usize, usize)>,
    /// What is wrong.
    pub message: String,
    /// What to do next.
    pub hint: Option<String>,
}

/// Reads a file.
///
/// # Errors
/// If the file cannot be read, is not TOML, or has an invalid setting.
pub fn load(path: &Path) -> Result<LoadedConfig, Error> {
    let failed = |message: String| Error {
        path: path.to_owned(),
        place: None,
        message,
        hint: Some(
            "an empty file is a valid configuration; see docs/reference/configuration.md"
                .to_owned(),
        ),
    };
    let metadata = std::fs::metadata(path)
        .map_err(|error| failed(format!("the file cannot be read: {error}")))?;
    refuse_writable_by_all(path, &metadata)?;
    let length = metadata.len();
    if length > MAX_FILE_BYTES {
        return Err(failed(format!("the file has {length} bytes, at most {MAX_FILE_BYTES} fit")));
    }
    let text = std::fs::read_to_string(path)
        .map_err(|error| failed(format!("the file cannot be read: {error}")))?;
    let mut loaded = parse(path, &text)?;
    loaded.options.file = Some(path.to_owned());
    Ok(loaded)
}

/// Refuses a file that every user of the machine can change or replace: it names the commands that the server starts.
fn refuse_writable_by_all(path: &Path, metadata: &Metadata) -> Result<(), Error> {
    /// The permission bit that lets every user write.
    const WRITABLE: u32 = 0o002;
    /// The bit of a folder in which only an entry's owner can replace it.
    const STICKY: u32 = 0o1000;
    let refused = |what: &Path, mode: u32| Error {
        path: path.to_owned(),
        place: None,
        message: format!("every user can write {} (mode {:o})", what.display(), mode & 0o7777),
        hint: Some(format!("take that right away: chmod o-w '{}'", what.display())),
    };
    // A pipe or a device has no content that others could have changed.
    if !metadata.is_file() {
        return Ok(());
    }
    if metadata.mode() & WRITABLE != 0 {
        return Err(refused(path, metadata.mode()));
    }
    let folder = path.canonicalize().ok().and_then(|path| path.parent().map(Path::to_owned));
    if let Some(folder) = folder
        && let Ok(found) = std::fs::metadata(&folder)
        && found.mode() & WRITABLE != 0
        && found.mode() & STICKY == 0
    {
        return Err(refused(&folder, found.mode()));
    }
    Ok(())
}

/// Parses the text of a file. Errors name `path`.
pub fn parse(path: &Path, text: &str) -> Result<LoadedConfig, Error> {
    let at = |span: Option<Range<usize>>, message: String, hint: Option<String>| Error {
        path: path.to_owned(),
        place: span.map(|span| place(text, span.start)),
        message,
        hint,
    };
    let table =
        DeTable::parse(text).map_err(|error| at(error.span(), error.message().to_owned(), None))?;
    let mut lines = Vec::new();
    collect(text, table.get_ref(), "", &mut lines);
    lines.sort_by_key(|(_, line)| *line);
    let options = toml::from_str(text).map_err(|error| {
        let (message, hint) = explain(error.message(), text, error.span());
        at(error.span(), message, hint)
    })?;
    Ok(LoadedConfig { options, lines })
}

fn collect(text: &str, table: &DeTable<'_>, prefix: &str, lines: &mut Vec<(String, usize)>) {
    for (key, value) in table {
        let dotted = match prefix {
            "" => key.get_ref().clone().into_owned(),
            prefix => format!("{prefix}.{}", key.get_ref()),
        };
        match value.get_ref().as_table() {
            Some(inner) => collect(text, inner, &dotted, lines),
            None => lines.push((dotted, place(text, key.span().start).0)),
        }
    }
}

/// The parser's message, with the nearest key or value if it lists the valid ones.
fn explain(message: &str, text: &str, span: Option<Range<usize>>) -> (String, Option<String>) {
    let (what, rest) = if let Some(rest) = message.strip_prefix("unknown field ") {
        ("key", rest)
    } else if let Some(rest) = message.strip_prefix("unknown variant ") {
        ("value", rest)
    } else if let Some(rest) = message.strip_prefix("missing field ") {
        let hint = missing_key(rest.trim_matches('`'));
        return (format!("the key {rest} is missing"), hint.map(str::to_owned));
    } else {
        let line = span.and_then(|span| text.lines().nth(place(text, span.start).0 - 1));
        let is_of_agents = message.contains("sequence")
            && line.is_some_and(|line| line.trim_start_matches('[').starts_with("agents"));
        let hint = is_of_agents.then(|| AGENT_TABLES.to_owned());
        return (wrong_type_message(message).unwrap_or_else(|| message.to_owned()), hint);
    };
    let written = span.and_then(|span| text.get(span)).unwrap_or_default();
    let written = written.trim_matches(['"', '\'']).escape_debug().to_string();
    let expected = rest.rsplit_once(", expected ").map_or("", |(_, names)| names);
    let names: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
    let mut message = format!("unknown {what} `{written}`");
    let usual = match what {
        "key" => usual_key(&written, &names).map(str::to_owned).or_else(|| section_of(&written)),
        _ => None,
    };
    if usual.is_some() {
        return (message, usual);
    }
    match nearest(&written, &names) {
        Some(name) => {
            message.push_str(&format!(", did you mean `{name}`?"));
            (message, None)
        }
        None if names.contains(&"agent-client") => (message, Some(KINDS.to_owned())),
        None => (message, Some(format!("the {what}s here: {}", names.join(", ")))),
    }
}

/// The section of the file that has a key, if it is the only one.
fn section_of(key: &str) -> Option<String> {
    let settings = settings(&Options::default(), None, &[]);
    let mut sections = settings.iter().filter_map(|setting| {
        setting.key.rsplit_once('.').filter(|(_, last)| *last == key).map(|(section, _)| section)
    });
    let section = sections.next().filter(|_| sections.next().is_none())?;
    Some(format!("`{key}` belongs to [{section}]"))
}

/// A message about a value of the wrong type, with the names of TOML's types.
fn wrong_type_message(message: &str) -> Option<String> {
    let rest = ["invalid type: ", "invalid value: "].iter().find_map(|it| message.strip_prefix(it));
    let (found, expected) = rest?.split_once(", expected ")?;
    let found = match found {
        "sequence" => "a list",
        "map" => "a table",
        // A value that is shown has its kind before it.
        other => other.find(['`', '"']).and_then(|shown| other.get(shown..)).unwrap_or(other),
    };
    let expected = match expected {
        "a sequence" => "a list",
        "a map" => "a table",
        "a boolean" => "true or false",
        "a string" => "a text",
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number",
        name if name.starts_with("struct ") => "a table",
        other => other,
    };
    Some(format!("{found} does not fit, expected {expected}"))
}

/// The name that was most likely meant, if any is near enough.
#[must_use]
pub fn nearest<'a>(written: &str, names: &[&'a str]) -> Option<&'a str> {
    /// How alike two names must be, from 0 to 1, to be taken for a slip.
    const ALIKE: f64 = 0.75;
    names
        .iter()
        .map(|name| (*name, strsim::jaro_winkler(written, name)))
        .filter(|(_, alike)| *alike >= ALIKE)
        .max_by(|one, other| one.1.total_cmp(&other.1))
        .map(|(name, _)| name)
}

/// Line and column of a byte offset, from 1; columns count characters.
fn place(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset.min(text.len())).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (line, column)
}

// === impl Error ===

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some((line, column)) = self.place {
            write!(f, ":{line}:{column}")?;
        }
        write!(f, ": {}", self.message)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        let error = parse(Path::new("t.toml"), text).unwrap_err();
        match &error.hint {
            Some(hint) => format!("{error} | {hint}"),
            None => error.to_string(),
        }
    }

    #[test]
    fn a_slip_names_its_place_and_the_nearest_key() {
        assert_eq!(
            error("[server]\n\nlisen = \"127.0.0.1:1\"\n"),
            "t.toml:3:1: unknown key `lisen`, did you mean `listen`?"
        );
        assert_eq!(error("[sever]\n"), "t.toml:1:2: unknown key `sever`, did you mean `server`?");
        assert_eq!(
            error("[agents.x]\nkind = \"builtin\"\nbultin = \"echo\"\n"),
            "t.toml:3:1: unknown key `bultin`, did you mean `builtin`?"
        );
        assert_eq!(
            error("[log]\nformat = \"jsn\"\n"),
            "t.toml:2:10: unknown value `jsn`, did you mean `json`?"
        );
        assert_eq!(
            error("[agents.x]\nkind = \"agent-client\"\ncomand = \"x\"\n"),
            "t.toml:3:1: unknown key `comand`, did you mean `command`?"
        );
        assert_eq!(
            error(
                "[[agents.x.permissions]]\ndecison = \"allow\"\n[agents.x]\nkind = \"builtin\"\n"
            ),
            "t.toml:2:1: unknown key `decison`, did you mean `decision`?"
        );
        assert_eq!(
            error("[agents.x]\nkind = \"agent-client\"\nfiles = \"writ\"\n"),
            "t.toml:3:9: unknown value `writ`, did you mean `write`?"
        );
        assert_eq!(
            error("[client]\nwhen_bussy = \"queue\"\n"),
            "t.toml:2:1: unknown key `when_bussy`, did you mean `when_busy`?"
        );
        assert_eq!(
            error("[notify]\nuri = \"http://x\"\n"),
            "t.toml:2:1: unknown key `uri`, did you mean `url`?"
        );
        assert_eq!(
            error("[agents.x]\nkind = \"bultin\"\n"),
            "t.toml:2:8: unknown value `bultin`, did you mean `builtin`?"
        );
        assert_eq!(
            error("[store]\nzzz = 1\n"),
            "t.toml:2:1: unknown key `zzz` | the keys here: url, password_env, password_file, connections, connect_timeout, retry_for, blobs, durability, tail_cache, max_size, reserve, memory_runs, memory_size"
        );
    }

    #[test]
    fn a_wrong_value_says_what_would_fit() {
        assert_eq!(
            error("[server]\nshutdown_deadline = \"30\"\n"),
            "t.toml:2:21: invalid duration `30`, expected a whole number with ms, s, m, h or d, such as \"30s\""
        );
        assert_eq!(
            error("[server]\nlisten = \"localhost\"\n"),
            "t.toml:2:10: `localhost` does not fit, expected an IP address with a port, such as \"127.0.0.1:7878\""
        );
        let misfit = |setting: &str| {
            let error = error(setting);
            error.split_once(": ").unwrap().1.to_owned()
        };
        for (setting, said) in [
            (
                "[server]\nlisten = 7878\n",
                "`7878` does not fit, expected an IP address with a port, such as \"127.0.0.1:7878\", or a list of such",
            ),
            (
                "[server]\nshutdown_deadline = [\"30s\"]\n",
                "a list does not fit, expected a duration such as \"30s\"",
            ),
            (
                "[server]\nshutdown_deadline = 30\n",
                "`30` does not fit, expected a duration such as \"30s\"",
            ),
            ("[server]\nno_auth = \"yes\"\n", "\"yes\" does not fit, expected true or false"),
            ("[server]\nlimits = 1\n", "`1` does not fit, expected a table"),
            (
                "[server.limits]\nmax_body = { a = 1 }\n",
                "a table does not fit, expected a size such as \"32MiB\"",
            ),
            ("[server.limits]\nmax_streams = -1\n", "`-1` does not fit, expected a whole number"),
        ] {
            assert_eq!(misfit(setting), said);
        }
    }

    #[test]
    fn the_value_of_a_variable_is_shown_nowhere() {
        let text = "[agents.x]\nkind = \"agent-client\"\ncommand = \"x\"\n[agents.x.env]\nAPI_KEY = \"swordfish\"\n";
        let options = parse(Path::new("t.toml"), text).unwrap().options;
        assert_eq!(options.agents["x"].env["API_KEY"].0, "swordfish");
        let settings = super::super::settings(&options, None, &[]);
        let key = settings.iter().find(|setting| setting.key == "agents.x.env.API_KEY").unwrap();
        assert_eq!(key.value, "\"(hidden)\"");
        assert!(!format!("{settings:?} {options:?}").contains("swordfish"));
        for bad in ["[\"swordfish\"]", "{ swordfish = 1 }", "77712345"] {
            let error = error(&text.replace("\"swordfish\"", bad));
            assert!(!error.contains("swordfish") && !error.contains("77712345"), "{error}");
            assert!(error.contains("expected a text"), "{error}");
        }
    }

    #[test]
    fn a_file_that_everybody_can_change_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("t.toml");
        std::fs::write(&file, "").unwrap();
        let mode = |path: &Path, mode: u32| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(&file, 0o666);
        let error = load(&file).unwrap_err();
        assert!(error.to_string().contains("666"), "{error}");
        assert!(error.hint.unwrap().contains("chmod o-w"));
        mode(&file, 0o664);
        load(&file).unwrap();
        mode(folder.path(), 0o777);
        assert!(load(&file).unwrap_err().to_string().contains("777"));
        mode(folder.path(), 0o1777);
        load(&file).unwrap();
    }

    #[test]
    fn broken_toml_names_its_place() {
        assert!(error("[server\n").starts_with("t.toml:1:8: "), "{}", error("[server\n"));
    }

    #[test]
    fn an_empty_file_is_the_default_and_each_named_key_has_its_line() {
        let loaded = parse(Path::new("t.toml"), "").unwrap();
        assert_eq!(loaded.options, Options::default());
        let text = "[store]\nurl = \"memory:\"\n[agents.a]\nkind = \"builtin\"\n";
        let loaded = parse(Path::new("t.toml"), text).unwrap();
        assert_eq!(loaded.lines, [("store.url".to_owned(), 2), ("agents.a.kind".to_owned(), 4)]);
    }
}
