//! The files around a working folder. They may come from a stranger, so no program is started by name from there.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use percent_encoding::percent_decode_str;

use trilogue_backends::child::{find_program, join_folders, search_folders};

/// The prefixes, in capitals, of the names of variables from which programs, interpreters and package runners load code or settings.
const LOADERS: [&str; 20] = [
    "BASH_ENV",
    "BUN_",
    "DENO_",
    "DYLD_",
    "GIT_",
    "JAVA_TOOL_OPTIONS",
    "LD_",
    "MISE_",
    "NODE_",
    "NPM_CONFIG_",
    "NVM_",
    "PERL5",
    "PIP_",
    "PYTHON",
    "RUBY",
    "UV_",
    "VOLTA_",
    "XDG_CONFIG_",
    "XDG_DATA_",
    "ZDOTDIR",
];
/// The separators before and after a path in the value of a variable.
const SEPARATORS: [char; 7] = [':', '=', ',', ';', ' ', '"', '\''];

/// A working folder, or the whole repository that it is part of; or several of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checkout {
    /// None of them has the user's home: then the files are the user's own.
    roots: Vec<PathBuf>,
}

/// A search path without the folders of a checkout.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OuterPath {
    /// The remaining folders, as a search path. `None` if all were left out.
    pub path: Option<String>,
    /// The folders of the checkout, as they were written.
    pub left_out: Vec<PathBuf>,
}

// === impl Checkout ===

impl Checkout {
    /// The checkout that has this folder.
    #[must_use]
    pub fn around(folder: &Path) -> Self {
        let home = std::env::var_os("HOME").map(PathBuf::from);
        Self::outside_home(folder, home.filter(|home| home.is_absolute()).as_deref())
    }

    /// The checkout that has the current folder.
    #[must_use]
    pub fn around_here() -> Self {
        Self::around(&std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/")))
    }

    /// This checkout and another one.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.roots.extend(other.roots);
        self
    }

    fn outside_home(folder: &Path, home: Option<&Path>) -> Self {
        let folder = resolve(folder);
        let home = home.map(resolve);
        let has_home = |folder: &Path| {
            home.as_ref().is_some_and(|home| home.starts_with(folder)) || folder.parent().is_none()
        };
        if has_home(&folder) {
            return Self { roots: Vec::new() };
        }
        // The outermost repository counts: an inner one can be part of a download.
        let outer = folder.ancestors().take_while(|outer| !has_home(outer));
        let repository = outer.filter(|outer| outer.join(".git").exists()).last();
        Self { roots: vec![repository.unwrap_or(&folder).to_owned()] }
    }

    /// Whether a path leads into it, also through links.
    #[must_use]
    pub fn has(&self, path: &Path) -> bool {
        let has = |path: &Path| self.roots.iter().any(|root| path.starts_with(root));
        has(path) || (!self.roots.is_empty() && has(&resolve(path)))
    }

    /// The file of a program outside of the checkout.
    #[must_use]
    pub fn find_outside(&self, program: &str, path: &str) -> Option<PathBuf> {
        let mut folders = search_folders(path).filter(|folder| !self.has(folder));
        folders.find_map(|folder| {
            let found = find_program(program, Path::new("/"), folder.to_str());
            found.filter(|file| file.is_file() && !self.has(file))
        })
    }

    /// Whether programs that get this variable load code or settings from the checkout.
    #[must_use]
    pub fn is_loaded_from(&self, name: &str, value: &str) -> bool {
        let name = name.to_ascii_uppercase();
        // An address of a file can have encoded letters.
        let decoded = percent_decode_str(value).decode_utf8_lossy();
        let is_inside = |path: &str| {
            let is_relative = path == "." || path.starts_with("./") || path.starts_with("../");
            let normal = || without_dots(Path::new(path));
            is_relative
                || (path.starts_with('/') && (self.has(Path::new(path)) || self.has(&normal())))
        };
        !self.roots.is_empty()
            && LOADERS.iter().any(|loader| name.starts_with(loader))
            && [value, &decoded].iter().any(|value| value.split(SEPARATORS).any(is_inside))
    }

    /// The names of the variables of this process from which programs load code or settings of the checkout.
    pub fn loaded_of_process(&self) -> impl Iterator<Item = OsString> {
        std::env::vars_os().filter_map(|(name, value)| {
            self.is_loaded_from(&name.to_string_lossy(), &value.to_string_lossy()).then_some(name)
        })
    }

    /// The search path of this process, without the folders of the checkout.
    #[must_use]
    pub fn outer_path_of_process(&self) -> Option<String> {
        self.outer_path(&std::env::var("PATH").ok()?).path
    }

    /// A search path without the folders of the checkout, and without relative ones.
    #[must_use]
    pub fn outer_path(&self, path: &str) -> OuterPath {
        let is_outside = |folder: &PathBuf| folder.is_absolute() && !self.has(folder);
        let (kept, left_out): (Vec<_>, Vec<_>) = std::env::split_paths(path).partition(is_outside);
        OuterPath { path: join_folders(&kept), left_out }
    }
}

/// The path behind all links, as far as it exists.
fn resolve(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// The path without `.` and `..`, as programs read one that does not exist.
fn without_dots(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut normal, part| {
        match part {
            Component::ParentDir => drop(normal.pop()),
            Component::CurDir => {}
            part => normal.push(part),
        }
        normal
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_program_of_a_checkout_is_not_found_by_any_path() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["home/bin", "home/checkout/.git", "home/checkout/bin", "home/checkout/inner"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        symlink(at("home/checkout/bin"), at("home/linked")).unwrap();
        fs::write(at("home/checkout/bin/agent"), "").unwrap();
        symlink(at("home/checkout/bin/agent"), at("home/bin/agent")).unwrap();
        let checkout = Checkout::outside_home(&at("home/checkout/inner"), Some(&at("home")));
        let path = ["home/checkout/bin", "home/linked", "home/bin"].map(&at);
        let path = format!(".::bin:{}", join_folders(&path).unwrap());
        assert_eq!(checkout.find_outside("agent", &path), None);
        let outer = checkout.outer_path(&path);
        assert_eq!(outer.path, Some(at("home/bin").display().to_string()));
        assert_eq!(outer.left_out.len(), 5, "{outer:?}");
        fs::remove_file(at("home/bin/agent")).unwrap();
        fs::write(at("home/bin/agent"), "").unwrap();
        assert_eq!(checkout.find_outside("agent", &path), Some(at("home/bin/agent")));
    }

    #[test]
    fn variables_that_load_files_of_a_checkout_are_known() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        fs::create_dir_all(at("checkout/.git")).unwrap();
        let checkout = Checkout::outside_home(Path::new(&at("checkout")), None);
        let (inside, outside) = (at("checkout/x"), at("x"));
        for (name, value) in [
            ("NODE_OPTIONS", format!("--trace-warnings --require={inside}")),
            ("NODE_OPTIONS", format!("--import \"file://{inside}\"")),
            ("NODE_PATH", format!("{outside}:{inside}")),
            (
                "NODE_OPTIONS",
                format!("--import=file://{}", inside.replace("checkout", "%63heckout")),
            ),
            ("NODE_OPTIONS", format!("--require={}", at("none/../checkout/x"))),
            ("npm_config_script_shell", inside.clone()),
            ("LD_PRELOAD", "./x.so".to_owned()),
        ] {
            assert!(checkout.is_loaded_from(name, &value), "{name} {value}");
        }
        for (name, value) in [
            ("NODE_OPTIONS", format!("--require={outside} --max-old-space-size=4096")),
            ("VIRTUAL_ENV", inside),
            ("NODE_ENV", "production".to_owned()),
        ] {
            assert!(!checkout.is_loaded_from(name, &value), "{name} {value}");
        }
    }

    #[test]
    fn the_users_home_is_not_a_checkout() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir_all(home.path().join(".git")).unwrap();
        fs::create_dir_all(home.path().join("work")).unwrap();
        let around = |folder: &Path| Checkout::outside_home(folder, Some(home.path()));
        assert!(!around(home.path()).has(&home.path().join("bin")));
        assert!(!around(Path::new("/")).has(Path::new("/usr/bin")));
        // A repository of the settings in the home does not make programs of the home foreign.
        let inner = around(&home.path().join("work"));
        assert!(inner.has(&home.path().join("work/bin")) && !inner.has(&home.path().join("bin")));
    }
}
