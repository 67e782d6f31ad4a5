//! Makes what a release has: a tarball, a Debian package, a wheel, an npm package, a list of what is in the binary, and the checksums of all.
//!
//! The same binary and commit give the same bytes, on every machine: entries are sorted, owners and modes are fixed, and every time is the commit's or `SOURCE_DATE_EPOCH`.

mod archive;
mod debian;
mod graph;
mod install_tree;
mod licences;
mod npm;
mod platform;
mod program;
mod release;
mod sbom;
mod wheel;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest as _, Sha256};

use crate::say;
use platform::Platform;
use program::Program;
use release::Release;

/// The folder of packages, unless `--out` names another.
const OUT: &str = "target/dist-packages";
const CHECKSUMS: &str = "SHA256SUMS";

/// The options of the command line.
#[derive(Default, Debug)]
struct DistOptions {
    /// A binary that is built; without one it is built here.
    binary: Option<PathBuf>,
    out: Option<PathBuf>,
    /// The platform's triple; this machine's when `None`.
    target: Option<String>,
}

/// A finished file of the release.
#[derive(Debug)]
struct Package {
    name: String,
    bytes: Vec<u8>,
}

/// Makes every package that the platform has.
pub(crate) fn run(root: &Path, arguments: &[&str]) -> Result<bool> {
    let options = DistOptions::parse(arguments)?;
    let platform = Platform::new(&match options.target.clone() {
        Some(target) => target,
        None => host()?,
    })?;
    let binary = match &options.binary {
        Some(path) => path.clone(),
        None => build(root, options.target.as_deref())?,
    };
    let program = Program::read(&binary, &platform)?;
    let release = Release::new(root, platform, program)?;
    let packages = packages(&release)?;

    let out = options.out.unwrap_or_else(|| root.join(OUT));
    fs::create_dir_all(&out).with_context(|| format!("{}", out.display()))?;
    let mut sums = String::new();
    for package in &packages {
        let path = out.join(&package.name);
        fs::write(&path, &package.bytes).with_context(|| format!("{}", path.display()))?;
        sums.push_str(&format!("{}  {}\n", sha256(&package.bytes), package.name));
        say(&format!("{} ({} KiB)", path.display(), package.bytes.len() / 1024));
    }
    fs::write(out.join(CHECKSUMS), sums)?;
    Ok(true)
}

/// Every file of the release but its checksums, sorted by name.
fn packages(release: &Release) -> Result<Vec<Package>> {
    let mut packages = vec![
        install_tree::tarball(release)?,
        wheel::package(release)?,
        npm::package(release)?,
        Package { name: release.file_name("cdx.json"), bytes: release.sbom.clone() },
    ];
    packages.extend(debian::package(release)?);
    packages.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(packages)
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

// === impl DistOptions ===

impl DistOptions {
    fn parse(arguments: &[&str]) -> Result<Self> {
        let mut options = Self::default();
        let mut arguments = arguments.iter();
        while let Some(&name) = arguments.next() {
            let mut value = || {
                let value = arguments.next().with_context(|| format!("{name} needs a value"))?;
                Ok::<_, anyhow::Error>((*value).to_owned())
            };
            match name {
                "--binary" => options.binary = Some(value()?.into()),
                "--out" => options.out = Some(value()?.into()),
                "--target" => options.target = Some(value()?),
                _ => bail!(
                    "unknown argument '{name}': expected --binary PATH, --out DIR or --target TRIPLE"
                ),
            }
        }
        Ok(options)
    }
}

/// The triple of this machine.
fn host() -> Result<String> {
    let output = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .arg("-vV")
        .output()
        .context("rustc could not be started")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc does not name its host")
}

fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

/// Builds the released binary. Returns its path.
fn build(root: &Path, target: Option<&str>) -> Result<PathBuf> {
    let folder =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into);
    let mut command = cargo(root);
    command.args(["build", "--profile", "dist", "--locked", "--package", "trilogue"]);
    command.arg("--target-dir").arg(&folder);
    if let Some(target) = target {
        command.args(["--target", target]);
    }
    // The folder of the build must not show in a release, nor change its bytes.
    let mut flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    let home = std::env::var("CARGO_HOME")
        .ok()
        .or_else(|| std::env::var("HOME").ok().map(|home| format!("{home}/.cargo")));
    for (path, name) in [(Some(root.display().to_string()), "/trilogue"), (home, "/cargo")] {
        if let Some(path) = path.filter(|path| !path.contains(' ')) {
            flags.push_str(&format!(" --remap-path-prefix={path}={name}"));
        }
    }
    command.env("RUSTFLAGS", flags.trim());
    ensure!(command.status()?.success(), "the binary could not be built");
    let folder = target.map_or(folder.clone(), |target| folder.join(target));
    Ok(folder.join("dist/trilogue"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_or_refused() {
        let options = DistOptions::parse(&["--out", "a", "--target", "b"]).unwrap();
        assert_eq!((options.out, options.target), (Some("a".into()), Some("b".to_owned())));
        for wrong in [&["--out"][..], &["--other", "a"], &["a"]] {
            assert!(DistOptions::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
