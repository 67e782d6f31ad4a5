//! The paths that programs may usually read.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{Network, resolve_links};

/// The most entries of a folder that are looked at.
const MAX_ENTRIES: usize = 10_000;

/// What every program may read: the system, its settings, and what the kernel says of it.
const SYSTEM: [&str; 20] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt",
    "/etc",
    "/nix",
    "/snap",
    "/proc",
    "/sys",
    "/run/current-system",
    "/run/opengl-driver",
    "/var/lib/ca-certificates",
    "/var/lib/dpkg",
    "/var/lib/rpm",
    // Often links to other places.
    "/etc/localtime",
    "/etc/ssl/certs",
];

/// How names are resolved. The first is often a link.
const RESOLVER: [&str; 3] = ["/etc/resolv.conf", "/run/systemd/resolve", "/run/resolvconf"];

/// Files in the topmost folder of a project.
const PROJECT_FILES: [&str; 6] =
    ["package.json", "pyproject.toml", "setup.py", "Cargo.toml", "deno.json", "go.mod"];

/// The ends of the names of scripts, which use files beside them.
const SCRIPTS: [&str; 15] = [
    "py", "pyz", "js", "mjs", "cjs", "ts", "mts", "rb", "pl", "php", "lua", "exs", "jar", "sh",
    "bash",
];

/// Folders for the temporary files of all users.
const SHARED: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

/// The programs and toolchains that people install below their home folder, and settings that hold no secrets.
const HOME: [&str; 31] = [
    ".asdf",
    ".bun/bin",
    ".bun/install",
    ".cargo/bin",
    ".config/git/attributes",
    ".config/git/config",
    ".config/git/ignore",
    ".deno/bin",
    ".fnm",
    ".gitconfig",
    ".gitignore",
    ".juliaup",
    ".local/bin",
    ".local/lib",
    ".local/pipx",
    ".local/share/fnm",
    ".local/share/mise",
    ".local/share/pipx",
    ".local/share/pnpm",
    ".local/share/uv",
    ".nix-profile",
    ".npm-global",
    ".nvm",
    ".pyenv",
    ".rbenv",
    ".rustup",
    ".sdkman",
    ".volta",
    "go/bin",
    "go/pkg",
    "miniconda3",
];

/// Returns the paths that a program with these words and variables may read: the system, the toolchains of its user, the folders of `PATH`, the program with its project and packages, and the files that its variables name. Missing ones are among them.
///
/// Links in the folders of `written`, which programs of agents change, lead nowhere. It blocks on the file system.
#[must_use]
pub fn usual_paths(
    command: &[String],
    env: &[(String, String)],
    network: Network,
    written: &[PathBuf],
) -> Vec<PathBuf> {
    let variable = |name: &str| env.iter().find(|(key, _)| key == name).map(|(_, value)| value);
    let home = variable("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    let home = home.as_deref();
    let resolver = if network == Network::Open { &RESOLVER[..] } else { &[] };
    let system = SYSTEM.iter().chain(resolver).map(PathBuf::from);
    let of_home = HOME.iter().filter_map(|name| Some(home?.join(name)));
    let path = variable("PATH").map(String::as_str).unwrap_or_default();
    let programs = of_path(std::env::split_paths(path), home, written);
    // The program, and the script that it runs.
    let script = command.iter().skip(1).find(|word| is_script(Path::new(word)));
    let started = command.first().into_iter().chain(script);
    let started = started.flat_map(|word| with_project(Path::new(word), home, written));
    // Files are named by themselves, or behind an option.
    let words = command.iter().map(|word| word.split_once('=').map_or(&**word, |(_, file)| file));
    let named = words.chain(env.iter().map(|(_, value)| &**value)).map(PathBuf::from);
    let named = named.filter(|path| path.is_absolute() && is_no_folder(path));
    system.chain(of_home).chain(programs).chain(started).chain(named).collect()
}

fn is_no_folder(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| !found.is_dir())
}

fn is_script(path: &Path) -> bool {
    let end = path.extension().and_then(OsStr::to_str);
    path.is_absolute() && path.is_file() && end.is_some_and(|end| SCRIPTS.contains(&end))
}

/// Returns the folders of programs on the search path, with what belongs to them: libraries beside a folder `bin`, all of an installation outside of the home folder, and the folders to which links in them lead.
fn of_path(
    folders: impl Iterator<Item = PathBuf>,
    home: Option<&Path>,
    written: &[PathBuf],
) -> Vec<PathBuf> {
    let is_system = |folder: &Path| SYSTEM.iter().any(|system| folder.starts_with(system));
    let mut granted = Vec::new();
    for folder in folders.filter(|folder| folder.is_absolute() && !is_system(folder)) {
        if is_bin(&folder) {
            granted.push(folder.with_file_name("lib"));
            let installation = folder.parent().unwrap_or(&folder);
            if home.is_none_or(|home| !installation.starts_with(home)) {
                granted.push(installation.to_owned());
            }
        }
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten().take(MAX_ENTRIES);
        let links = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()));
        granted.extend(links.flat_map(|link| with_project(&link.path(), home, written)));
        granted.push(folder);
    }
    granted.retain(|path| path.is_file() || !is_too_much(path, home));
    granted
}

/// Returns a file, its folder, and the project and the packages that it is in, also where it lies if it is a link. Nothing if it is not a file.
fn with_project(file: &Path, home: Option<&Path>, written: &[PathBuf]) -> Vec<PathBuf> {
    if !file.is_absolute() || !file.is_file() {
        return Vec::new();
    }
    let mut granted = Vec::new();
    let real = resolve_links(file).filter(|real| real.link_in(written).is_none());
    for file in [Some(file.to_owned()), real.map(|real| real.path)].into_iter().flatten() {
        let Some(folder) = file.parent() else { continue };
        let whole = if is_bin(folder) { folder.parent().unwrap_or(folder) } else { folder };
        granted.extend([file.clone(), folder.to_owned(), whole.to_owned()]);
        let is_project =
            |folder: &&Path| PROJECT_FILES.iter().any(|name| folder.join(name).exists());
        granted.extend(file.ancestors().skip(1).find(is_project).map(Path::to_owned));
        // The outermost one: packages use those beside them.
        let packages =
            file.ancestors().filter(|it| it.file_name() == Some(OsStr::new("node_modules")));
        granted.extend(packages.last().map(Path::to_owned));
    }
    granted.retain(|path| path.is_file() || !is_too_much(path, home));
    granted
}

fn is_bin(folder: &Path) -> bool {
    folder.file_name() == Some(OsStr::new("bin"))
}

/// Whether a folder is the root, one with a home folder in it, one with the settings of all programs, or one for the temporary files of all users. No rule should grant such a folder as a whole.
#[must_use]
pub fn is_too_much(folder: &Path, home: Option<&Path>) -> bool {
    let is_of_home = |home: &Path| {
        home.starts_with(folder)
            || [".local", ".local/share", ".config", ".cache"]
                .iter()
                .any(|it| home.join(it) == folder)
    };
    folder.parent().is_none()
        || home.is_some_and(is_of_home)
        || SHARED.iter().any(|shared| Path::new(shared) == folder)
}

/// Replaces each path in which a hidden one lies by the entries around it, without links: they lead elsewhere. A path below a hidden one is meant, so it stays.
pub(crate) fn around(paths: &[PathBuf], hidden: &[PathBuf]) -> Vec<PathBuf> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let hidden: Vec<_> = hidden.iter().map(|path| real(path)).collect();
    let mut granted = Vec::new();
    let mut open = paths.to_vec();
    while let Some(path) = open.pop() {
        let here = real(&path);
        if hidden.contains(&here) {
            continue;
        }
        if !hidden.iter().any(|hidden| hidden.starts_with(&here)) {
            granted.push(path);
            continue;
        }
        let entries = fs::read_dir(&here).into_iter().flatten().flatten().take(MAX_ENTRIES);
        let entries = entries.filter(|it| it.file_type().is_ok_and(|kind| !kind.is_symlink()));
        open.extend(entries.map(|entry| entry.path()));
    }
    granted
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// An empty folder of a test.
    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("trilogue-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder.canonicalize().unwrap()
    }

    #[test]
    fn a_folder_with_a_hidden_path_is_granted_around_it() {
        let folder = folder("around");
        for name in ["all/state/keys", "all/work/deep", "all/other", "elsewhere"] {
            fs::create_dir_all(folder.join(name)).unwrap();
        }
        // What a link leads to is not in the folder.
        symlink(folder.join("elsewhere"), folder.join("all/link")).unwrap();
        let all = folder.join("all");
        let hidden = [all.join("state"), all.join("work/deep")];
        let granted = around(&[all.clone(), all.join("state")], &hidden);
        assert_eq!(granted, [all.join("other")]);
        // What is named below a hidden path is meant.
        let named = [all.join("state/keys")];
        assert_eq!(around(&named, &hidden), named);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_search_path_grants_no_home_and_no_root() {
        let folders = ["/home/u", "/home", "/", "bin", "/tmp", "/home/u/x/bin", "/none/x/bin"];
        let granted = of_path(folders.iter().map(PathBuf::from), Some(Path::new("/home/u")), &[]);
        let expected = ["/home/u/x/lib", "/home/u/x/bin", "/none/x/lib", "/none/x", "/none/x/bin"];
        assert_eq!(granted, expected.map(PathBuf::from));
    }

    #[test]
    fn a_command_grants_its_program_and_script_and_of_other_files_only_themselves() {
        let folder = folder("command");
        for name in ["tools/bin", "agent/src", "agent/node_modules/x", "secrets"] {
            fs::create_dir_all(folder.join(name)).unwrap();
        }
        for name in
            ["tools/bin/run", "agent/package.json", "agent/src/main.js", "secrets/env", "secrets/b"]
        {
            fs::write(folder.join(name), "").unwrap();
        }
        let at = |name: &str| folder.join(name).display().to_string();
        let command =
            [at("tools/bin/run"), at("agent/src/main.js"), format!("--env={}", at("secrets/env"))];
        let env = [("KEYS".to_owned(), at("secrets/b")), ("HOME".to_owned(), at(""))];
        let granted = usual_paths(&command, &env, Network::None, &[]);
        let is_granted = |name: &str| {
            let path = folder.join(name);
            granted.iter().any(|granted| path.starts_with(granted))
        };
        for name in ["tools/lib", "agent/node_modules/x", "secrets/env", "secrets/b"] {
            assert!(is_granted(name), "{name}: {granted:?}");
        }
        for name in ["secrets", "other", ".ssh"] {
            assert!(!is_granted(name), "{name}: {granted:?}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
