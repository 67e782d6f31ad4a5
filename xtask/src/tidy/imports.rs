//! Which file of a crate imports which other, read from `use` declarations and from paths in the code.
//!
//! A re-export (`pub use`) is followed to the file that declares the name and counts as no import of its own.

use std::collections::{BTreeSet, HashMap};

use super::scan;
use super::tree::{File, Tree};

/// How many re-exports a name is followed through.
const MAX_HOPS: usize = 8;

/// A file of a crate, with what it imports from that crate.
pub(super) struct Source<'a> {
    /// The folder of the crate's sources, such as `crates/store/src`.
    pub(super) root: &'a str,
    pub(super) path: &'a str,
    pub(super) imports: Vec<Import>,
}

/// A path that a file names, from the crate's root: modules and, mostly, an item at its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Import {
    pub(super) path: Vec<String>,
    /// The name that a declaration gives it in this file, under which other files find it here too.
    pub(super) name: Option<String>,
    /// Whether the file only passes it on.
    pub(super) is_reexport: bool,
}

/// Every file of production code, with its imports.
pub(super) fn of(tree: &Tree) -> Vec<Source<'_>> {
    let mut sources = Vec::new();
    for file in tree.rust() {
        let Some((root, module)) = module_of(file) else { continue };
        let code: Vec<String> =
            scan::production(&file.text).into_iter().map(|line| line.code).collect();
        sources.push(Source { root, path: &file.path, imports: read(&code.join("\n"), &module) });
    }
    sources
}

/// For each file the numbers of the files that it imports, without itself.
pub(super) fn edges(files: &[(&str, Vec<Import>)]) -> Vec<Vec<usize>> {
    let modules: HashMap<Vec<String>, usize> = files
        .iter()
        .enumerate()
        .map(|(number, (path, _))| {
            (module_path(path.split_once("/src/").map_or(*path, |it| it.1)), number)
        })
        .collect();
    let targets = |number: usize, imports: &[Import]| {
        let found: BTreeSet<usize> = imports
            .iter()
            .filter(|import| !import.is_reexport)
            .filter_map(|import| resolve(&import.path, files, &modules, MAX_HOPS))
            .filter(|target| *target != number)
            .collect();
        found.into_iter().collect()
    };
    files.iter().enumerate().map(|(number, (_, imports))| targets(number, imports)).collect()
}

/// The file that a path leads to: that of its longest module, or where that one exports the next name from.
fn resolve(
    path: &[String],
    files: &[(&str, Vec<Import>)],
    modules: &HashMap<Vec<String>, usize>,
    hops: usize,
) -> Option<usize> {
    let length = (0..=path.len()).rev().find(|length| modules.contains_key(&path[..*length]))?;
    let file = *modules.get(&path[..length])?;
    let Some(name) = path.get(length).filter(|_| hops > 0) else { return Some(file) };
    let exported = files[file].1.iter().find(|it| it.name.as_ref() == Some(name));
    match exported {
        Some(import) => resolve(&import.path, files, modules, hops - 1).or(Some(file)),
        None => Some(file),
    }
}

/// The source folder and the module of a file of production code.
fn module_of(file: &File) -> Option<(&str, Vec<String>)> {
    let (root, inside) = file.path.split_once("/src/")?;
    let is_test = file.is_test() || file.path.ends_with("_tests.rs");
    let root = &file.path[..root.len() + "/src".len()];
    (!is_test).then(|| (root, module_path(inside)))
}

fn module_path(inside: &str) -> Vec<String> {
    let inside = inside.trim_end_matches(".rs");
    let mut parts: Vec<String> = inside.split('/').map(str::to_owned).collect();
    if parts.last().is_some_and(|last| matches!(last.as_str(), "mod" | "lib")) {
        parts.pop();
    }
    parts
}

/// The imports of a file: its `use` declarations, and every path in the code that begins at the crate or above.
fn read(code: &str, module: &[String]) -> Vec<Import> {
    let mut imports = Vec::new();
    let mut rest = code;
    while let Some((declaration, is_public, before, after)) = next_use(rest) {
        imports.extend(paths(before).into_iter().filter_map(|path| plain(&path, module)));
        let mut leaves = Vec::new();
        expand(declaration, &mut Vec::new(), &mut leaves);
        for (path, name) in leaves {
            if let Some(path) = absolute(&path, module) {
                imports.push(Import { path, name: Some(name), is_reexport: is_public });
            }
        }
        rest = after;
    }
    imports.extend(paths(rest).into_iter().filter_map(|path| plain(&path, module)));
    imports
}

fn plain(path: &[String], module: &[String]) -> Option<Import> {
    absolute(path, module).map(|path| Import { path, name: None, is_reexport: false })
}

/// The next `use` declaration: what it names, whether it is a re-export, and the code before and after it.
fn next_use(code: &str) -> Option<(&str, bool, &str, &str)> {
    let mut from = 0;
    while let Some(found) = code[from..].find("use ") {
        let at = from + found;
        let line = code[..at].rfind('\n').map_or(0, |end| end + 1);
        let before = code[line..at].trim();
        from = at + "use ".len();
        if !(before.is_empty() || before == "pub" || before.starts_with("pub(")) {
            continue;
        }
        let end = code[from..].find(';')? + from;
        return Some((&code[from..end], !before.is_empty(), &code[..line], &code[end + 1..]));
    }
    None
}

/// The single paths of a declaration with braces, each with the name that it gives.
fn expand(text: &str, prefix: &mut Vec<String>, leaves: &mut Vec<(Vec<String>, String)>) {
    for part in split(text) {
        let (head, tail) = match part.find('{') {
            Some(brace) => {
                (&part[..brace], part[brace + 1..].rfind('}').map(|end| &part[brace + 1..][..end]))
            }
            None => (part, None),
        };
        let (head, name) =
            head.split_once(" as ").map_or((head, None), |(head, name)| (head, Some(name.trim())));
        let segments: Vec<String> = head
            .split("::")
            .map(|segment| segment.trim().to_owned())
            .filter(|segment| !segment.is_empty())
            .collect();
        let length = prefix.len();
        prefix.extend(segments);
        match tail {
            Some(inner) => expand(inner, prefix, leaves),
            None => {
                if prefix.last().is_some_and(|last| last == "self") && prefix.len() > 1 {
                    prefix.pop();
                }
                let name = name.map(str::to_owned).or_else(|| prefix.last().cloned());
                leaves.push((prefix.clone(), name.unwrap_or_default()));
            }
        }
        prefix.truncate(length);
    }
}

/// The parts between commas that stand outside of braces.
fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut begun) = (0_usize, 0);
    for (at, char) in text.char_indices() {
        match char {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(text[begun..at].trim());
                begun = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[begun..].trim());
    parts.retain(|part| !part.is_empty());
    parts
}

/// Paths in the code that begin with `crate`, `super` or `self`. The path of a visibility (`pub(in …)`) imports nothing.
fn paths(code: &str) -> Vec<Vec<String>> {
    let is_word = |char: char| char.is_alphanumeric() || char == '_';
    let mut found = Vec::new();
    for start in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back();
            let is_visibility = code[..at].ends_with("pub(in ");
            if is_visibility
                || before.is_some_and(|char| is_word(char) || matches!(char, ':' | '$'))
            {
                continue;
            }
            let text = code[at..].split(|char: char| !is_word(char) && char != ':').next();
            let path = text.unwrap_or_default().split("::").filter(|it| !it.is_empty());
            found.push(path.map(str::to_owned).collect());
        }
    }
    found
}

/// The path from the crate's root; `None` where it begins in another crate or at a child, which a parent names by right.
fn absolute(path: &[String], module: &[String]) -> Option<Vec<String>> {
    let mut base = match path.first()?.as_str() {
        "crate" => Vec::new(),
        "self" => module.to_vec(),
        "super" => {
            let mut base = module.to_vec();
            base.pop()?;
            base
        }
        _ => {
            let mut base = module.to_vec();
            base.extend(path.iter().cloned());
            return Some(base);
        }
    };
    for segment in &path[1..] {
        match segment.as_str() {
            "super" => {
                base.pop()?;
            }
            segment => base.push(segment.to_owned()),
        }
    }
    Some(base)
}
