//! The packages of a release, built from this binary. The real installer installs each one into an empty prefix, and the program serves from there.
//!
//! tar and sha256sum are on every system; `scripts/test` installs dpkg and binutils, and `scripts/foreign` Python, npm and the schema of CycloneDX.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Signal, geteuid};
use serde_json::Value;
use trilogue_testkit::{cargo, cyclonedx_schema, xtask};

use crate::harness::{BINARY, Home, ProgramOutput, finish};

const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The time of everything in the packages, so that no commit is needed.
const SECONDS: &str = "1700000000";

/// A folder with every package, its checksums and the list of the binary's contents.
struct Packages {
    dir: PathBuf,
}

// === impl Packages ===

impl Packages {
    async fn make(home: &Home, name: &str) -> Self {
        let dir = home.work().join(name);
        let mut command = Command::new(xtask().await.unwrap());
        command
            .args(["dist", "--binary", BINARY, "--out"])
            .arg(&dir)
            .env("SOURCE_DATE_EPOCH", SECONDS);
        run(&mut command);
        Self { dir }
    }

    /// The only package with this suffix.
    fn path(&self, end: &str) -> PathBuf {
        let entries = fs::read_dir(&self.dir).unwrap().map(|entry| entry.unwrap().path());
        let mut found = entries.filter(|path| path.to_string_lossy().ends_with(end));
        let path = found.next().unwrap_or_else(|| panic!("no package ends with {end}"));
        assert_eq!(found.next(), None);
        path
    }

    fn sbom(&self) -> Value {
        serde_json::from_slice(&fs::read(self.path(".cdx.json")).unwrap()).unwrap()
    }
}

/// Runs a program to its end; prints how to install it if it is missing.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| {
        panic!("{command:?}: {error}; `scripts/test` installs what is missing")
    });
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// Checks that the installed program serves the demo in an empty home, responds, and stops.
fn serves(program: &Path) {
    assert!(program.is_file(), "{} is missing", program.display());
    let home = Home::new();
    let ended = |arguments: &[&str]| -> ProgramOutput {
        let mut command = home.program(program);
        command.args(arguments);
        finish(command, "").expect(0)
    };
    assert!(ended(&["--version"]).out.contains(VERSION));
    let server = home.start_as(Command::new(program), &["demo", "--listen", "127.0.0.1:0"]);
    let url = server.url();
    assert_eq!(ended(&["run", "echo", "Hello", "--url", &url]).out, "Hello\n");
    let status = server.stop(Signal::TERM);
    assert!(status.success(), "{status}: {}", home.log());
}

#[tokio::test]
async fn every_package_installs_into_an_empty_prefix_and_serves() {
    let home = Home::new();
    let packages = Packages::make(&home, "packages").await;
    run(Command::new("sha256sum")
        .args(["--check", "--strict", "SHA256SUMS"])
        .current_dir(&packages.dir));
    let prefix = |name: &str| {
        let folder = home.work().join(name);
        fs::create_dir(&folder).unwrap();
        folder
    };

    let local = prefix("tar");
    let tarball = packages.path(".tar.gz");
    run(Command::new("tar")
        .arg("-xzf")
        .arg(&tarball)
        .arg("-C")
        .arg(&local)
        .arg("--strip-components=1"));
    serves(&local.join("bin/trilogue"));
    let unit = fs::read_to_string(local.join("lib/systemd/system/trilogue.service")).unwrap();
    assert!(unit.contains("\nExecStart=/usr/local/bin/trilogue "), "{unit}");

    let root = prefix("debian");
    debian(&packages.path(".deb"), &root);
    serves(&root.join("usr/bin/trilogue"));

    let environment = prefix("python");
    run(Command::new("python3").args(["-m", "venv"]).arg(&environment));
    run(Command::new(environment.join("bin/python"))
        .args(["-m", "pip", "install", "--no-index", "--disable-pip-version-check"])
        .arg(packages.path(".whl")));
    serves(&environment.join("bin/trilogue"));

    let node = prefix("npm");
    run(Command::new("npm")
        .args(["install", "--global", "--offline", "--no-audit", "--no-fund", "--prefix"])
        .arg(&node)
        .arg("--cache")
        .arg(node.join("cache"))
        .arg(packages.path(".tgz")));
    serves(&node.join("bin/trilogue"));
}

/// Installs the package below a root. dpkg only installs as root; other users unpack it.
fn debian(package: &Path, root: &Path) {
    let field = |name| run(Command::new("dpkg-deb").arg("--field").arg(package).arg(name));
    assert!(field("Depends").starts_with("libc6 (>= 2."), "{}", field("Depends"));
    let arch = run(Command::new("dpkg").arg("--print-architecture"));
    assert_eq!(field("Architecture"), arch);
    if !geteuid().is_root() {
        run(Command::new("dpkg-deb").arg("--extract").arg(package).arg(root));
        return;
    }
    for folder in ["etc", "var/lib/dpkg/info", "var/lib/dpkg/updates"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    fs::write(root.join("var/lib/dpkg/status"), "").unwrap();
    let dpkg = |arguments: &[&str]| {
        let mut command = Command::new("dpkg");
        // The root is empty: it has no shell and no library.
        command.arg(format!("--root={}", root.display()));
        command.args(["--force-script-chrootless", "--force-depends", "--log=/dev/null"]);
        run(command.args(arguments))
    };
    let package = package.display().to_string();
    dpkg(&["--install", &package]);
    let users = fs::read_to_string(root.join("etc/passwd")).unwrap();
    assert!(users.contains("trilogue:"), "{users}");
    assert!(!root.join("etc/trilogue").exists(), "the configuration is the administrator's");
    let configuration = root.join("etc/trilogue/trilogue.toml");
    fs::create_dir(root.join("etc/trilogue")).unwrap();
    fs::write(&configuration, "").unwrap();
    dpkg(&["--purge", "trilogue"]);
    assert!(!root.join("usr/bin/trilogue").exists() && configuration.exists());
    // The second installation is an upgrade.
    dpkg(&["--install", &package]);
    dpkg(&["--install", &package]);
}

#[tokio::test]
async fn the_same_binary_makes_the_same_packages_and_they_name_what_is_in_it() {
    let home = Home::new();
    let first = Packages::make(&home, "first").await;
    let second = Packages::make(&home, "second").await;
    let names = |packages: &Packages| -> BTreeSet<_> {
        fs::read_dir(&packages.dir).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    };
    assert_eq!(names(&first), names(&second));
    for name in names(&first) {
        let read = |packages: &Packages| fs::read(packages.dir.join(&name)).unwrap();
        assert!(read(&first) == read(&second), "{} differs", name.display());
    }
    let sbom = first.sbom();
    is_valid(&sbom);
    names_what_is_built(&sbom);
}

/// Asserts that the official schema accepts it.
fn is_valid(sbom: &Value) {
    let folder = cyclonedx_schema().unwrap();
    let read = |name: &str| -> Value {
        let path = folder.join(format!("{name}.SNAPSHOT.schema.json"));
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    };
    let schema = read("bom-1.6");
    let base = schema["$id"].as_str().unwrap().rsplit_once('/').unwrap().0.to_owned();
    let mut registry = jsonschema::Registry::new();
    for name in ["spdx", "jsf-0.82", "cryptography-defs"] {
        let resource = jsonschema::Resource::from_contents(read(name));
        registry = registry.add(format!("{base}/{name}.SNAPSHOT.schema.json"), resource).unwrap();
    }
    let registry = registry.prepare().unwrap();
    let validator = jsonschema::options().with_registry(&registry).build(&schema).unwrap();
    let errors: Vec<_> = validator
        .iter_errors(sbom)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{errors:#?}");
    assert!(!validator.is_valid(&serde_json::json!({"bomFormat": "CycloneDX"})));
}

/// Asserts that the list has the crates of the cargo build, each with its licence, and third-party crates with the lock file's checksum.
fn names_what_is_built(sbom: &Value) {
    let tree = |edges: &str| -> BTreeSet<String> {
        let mut command = cargo();
        command.current_dir(REPOSITORY).args(["tree", "--locked", "--package", "trilogue"]);
        let text = run(command.args(["--edges", edges, "--prefix", "none", "--format", "{p}"]));
        let names = text.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            Some(format!("{}@{}", words.next()?, words.next()?.trim_start_matches('v')))
        });
        names.filter(|name| !name.starts_with("trilogue@")).collect()
    };
    let components = sbom["components"].as_array().unwrap();
    let of_scope = |scope: &str| -> BTreeSet<String> {
        let components = components.iter().filter(|it| it["scope"] == scope);
        components
            .map(|it| {
                format!("{}@{}", it["name"].as_str().unwrap(), it["version"].as_str().unwrap())
            })
            .filter(|name| !name.starts_with("sqlite@"))
            .collect()
    };
    let linked = tree("normal,no-proc-macro");
    assert_eq!(of_scope("required"), linked);
    let only_built: BTreeSet<_> = tree("no-dev").difference(&linked).cloned().collect();
    assert_eq!(of_scope("excluded"), only_built);
    for absent in ["xtask@", "trilogue-testkit@", "avt@", "proptest@"] {
        assert!(!linked.union(&only_built).any(|name| name.starts_with(absent)), "{absent}");
    }

    let lock = fs::read_to_string(Path::new(REPOSITORY).join("Cargo.lock")).unwrap();
    for component in components {
        let name = component["name"].as_str().unwrap();
        assert!(component["licenses"][0].is_object(), "{component}");
        match component["hashes"][0]["content"].as_str() {
            Some(hash) => assert!(lock.contains(&format!("checksum = \"{hash}\"")), "{component}"),
            None => assert!(name.starts_with("trilogue-") || name == "sqlite", "{component}"),
        }
    }
    let references: BTreeSet<_> = components
        .iter()
        .chain([&sbom["metadata"]["component"]])
        .map(|it| it["bom-ref"].as_str().unwrap())
        .collect();
    assert_eq!(references.len(), components.len() + 1);
    for node in sbom["dependencies"].as_array().unwrap() {
        let needs = node["dependsOn"].as_array().into_iter().flatten();
        for reference in needs.chain([&node["ref"]]) {
            assert!(references.contains(reference.as_str().unwrap()), "{reference}");
        }
    }
}
