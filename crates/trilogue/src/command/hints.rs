//! What hints name must exist: commands parse, options are known, keys are settings.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{CommandFactory as _, Parser as _};
use trilogue::config;

use crate::command::arguments::Arguments;

const SECTIONS: [&str; 8] =
    ["server", "store", "runtime", "log", "agents", "mounts", "egress", "inspector"];

#[test]
fn what_hints_name_exists() {
    let (keys, options) = (keys(), options());
    let (mut hints_seen, mut named) = (0, 0);
    for file in sources() {
        let source = fs::read_to_string(&file).unwrap();
        for hint in hints(&source) {
            let place = format!("{}: {hint}", file.display());
            hints_seen += 1;
            for command in commands(&hint) {
                let parsed = Arguments::try_parse_from(command.split_whitespace());
                assert!(parsed.is_ok(), "{place}\nhas `{command}`: {}", parsed.unwrap_err());
                named += 1;
            }
            for key in keys_in(&hint) {
                let known = keys.iter().any(|it| *it == key || it.starts_with(&format!("{key}.")));
                assert!(known, "{place}\nnames the unknown setting '{key}'");
                named += 1;
            }
            for key in assigned_in(&hint) {
                let known = keys.iter().any(|it| it.rsplit('.').next() == Some(key.as_str()));
                assert!(known, "{place}\nsets the unknown setting '{key}'");
                named += 1;
            }
            for option in hint.split(|c: char| c != '-' && !c.is_ascii_lowercase()) {
                let Some(option) = option.strip_prefix("--") else { continue };
                assert!(options.iter().any(|it| it == option), "{place}\nnames --{option}");
                named += 1;
            }
        }
    }
    assert!(hints_seen > 80 && named > 40, "the scan finds too little: {hints_seen}, {named}");
}

fn keys() -> Vec<String> {
    let file = "[agents.echo]\nkind = \"builtin\"\n[store]\nurl = \"postgres://h/d\"\n[store.blobs]\nurl = \"s3://b\"\n";
    let loaded = config::parse(Path::new("t.toml"), file).unwrap();
    let mount = config::Mount::of(config::Protocol::Communication);
    let mount = serde_json::to_value(mount).unwrap();
    let mounts = mount.as_object().unwrap().keys().map(|key| format!("mounts.{key}"));
    let settings = config::settings(&loaded.options, None, &[]).into_iter().map(|it| it.key);
    settings.chain(mounts).collect()
}

fn options() -> Vec<String> {
    let mut open = vec![Arguments::command()];
    let mut options = vec!["help".to_owned(), "version".to_owned()];
    while let Some(command) = open.pop() {
        options.extend(command.get_arguments().filter_map(|it| it.get_long()).map(str::to_owned));
        open.extend(command.get_subcommands().cloned());
    }
    options
}

fn sources() -> Vec<PathBuf> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let crates = fs::read_dir(crates).unwrap().map(|entry| entry.unwrap().path());
    // The benchmarks name commands of `cargo xtask` and of other programs.
    let crates = crates.filter(|path| !path.ends_with("bench"));
    let mut open: Vec<_> = crates.map(|path| path.join("src")).collect();
    let mut files = Vec::new();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|it| it == "rs")
            && !path.ends_with("src/command/hints.rs")
        {
            files.push(path);
        }
    }
    files
}

/// The texts of a source's hints: the string literals of `hint(…)` calls and `hint: …` members, without escapes.
fn hints(source: &str) -> Vec<String> {
    let starts = ["hint(", "hint: "].into_iter().flat_map(|it| {
        source.match_indices(it).map(move |(at, found)| (at + found.len(), found == "hint("))
    });
    starts.map(|(at, call)| literals(&source[at..], call)).filter(|it| !it.is_empty()).collect()
}

/// The string literals up to the end of an argument list, or of a member.
fn literals(source: &str, call: bool) -> String {
    let (mut text, mut inside, mut depth) = (String::new(), false, 0);
    let mut letters = source.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' if inside => text.extend(letters.next()),
            '"' => inside = !inside,
            _ if inside => text.push(letter),
            '(' | '{' | '[' => depth += 1,
            ')' | '}' | ']' if depth == 0 => break,
            ')' | '}' | ']' => depth -= 1,
            ',' | ';' if depth == 0 && !call => break,
            _ => {}
        }
    }
    text
}

/// Returns the whole commands of a hint: in backticks, or after a colon. A word replaces each placeholder.
fn commands(hint: &str) -> Vec<String> {
    let mut found = Vec::new();
    for begin in ["`trilogue ", ": trilogue "] {
        for (at, _) in hint.match_indices(begin) {
            let rest = hint[at..].trim_start_matches(['`', ':', ' ']);
            let command = rest.split(['`', ';']).next().unwrap_or_default();
            found.push(filled(command).replace("RIGHT", "read"));
        }
    }
    found
}

/// Puts a word for each placeholder that is one, and nothing for one that follows a word.
fn filled(command: &str) -> String {
    let mut text = String::new();
    let mut rest = command;
    while let Some((before, placeholder)) = rest.split_once('{') {
        text.push_str(before);
        if text.ends_with(' ') {
            text.push('x');
        }
        rest = placeholder.split_once('}').map_or("", |(_, after)| after);
    }
    text + rest
}

/// The dotted keys and the sections in brackets that a hint names. A slash makes a word an address or a path.
fn keys_in(hint: &str) -> Vec<String> {
    hint.split(|c: char| !(c.is_ascii_lowercase() || "_./".contains(c)))
        .map(|word| word.trim_matches('.'))
        .filter(|word| {
            let section = word.split('.').next().unwrap_or_default();
            let dotted = word.contains('.') || hint.contains(&format!("[{word}]"));
            SECTIONS.contains(&section) && dotted
        })
        .map(str::to_owned)
        .collect()
}

/// The last parts of the keys that a hint gives values.
fn assigned_in(hint: &str) -> Vec<String> {
    let before = hint.match_indices(" = ").map(|(at, _)| &hint[..at]);
    let word = |text: &str| {
        let word = text.rsplit(|c: char| !(c.is_ascii_lowercase() || c == '_')).next();
        word.unwrap_or_default().to_owned()
    };
    before.map(word).filter(|word| !word.is_empty()).collect()
}

#[test]
fn hints_are_found_in_source() {
    let source = r#"
        .hint(format!("see `trilogue tail {} --follow{}`; or", id(x), y))
        hint: "set server.limits, or [store] url = \"memory:\"".to_owned(),
    "#;
    let hints = hints(source);
    assert_eq!(hints[0], "see `trilogue tail {} --follow{}`; or");
    assert_eq!(commands(&hints[0]), ["trilogue tail x --follow"]);
    assert_eq!(keys_in(&hints[1]), ["server.limits", "store"]);
    assert_eq!(assigned_in(&hints[1]), ["url"]);
}
