//! The programs that tests start: our binary and examples, built first if they are out of date, and the programs that `scripts/foreign` has installed.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use tokio::process::Command;
use tokio::sync::OnceCell;

pub(crate) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Set where all targets of the workspace are built, as `scripts/test` sets it. To ask cargo takes a second of each test.
const IS_BUILT: &str = "TRILOGUE_IS_BUILT";

/// The `trilogue` binary: `TRILOGUE_BIN`, or the one next to this test.
pub(crate) async fn trilogue() -> Result<PathBuf> {
    static PROGRAM: OnceCell<PathBuf> = OnceCell::const_new();
    let build = || async {
        let mut arguments = vec!["--quiet", "--workspace", "--bin", "trilogue"];
        if !profile()?.ends_with("release") {
            // Building an example too gives the libraries the features of the tests, so that they are not built twice.
            arguments.extend(["--exclude", "trilogue-bench", "--example", "scripted_agent"]);
        }
        build(&arguments).await.map(|profile| profile.join("trilogue"))
    };
    let program = given_or("TRILOGUE_BIN", &PROGRAM, build).await?;
    ensure!(program.is_file(), "{} is missing", program.display());
    Ok(program)
}

/// The program with the agents of the official client suites: `TRILOGUE_CONFORMANCE`, or the one next to this test.
pub async fn conformance_agents() -> Result<PathBuf> {
    static PROGRAM: OnceCell<PathBuf> = OnceCell::const_new();
    given_or("TRILOGUE_CONFORMANCE", &PROGRAM, || example("conformance_agents")).await
}

/// Our agent that does what its prompts say: `TRILOGUE_SCRIPTED_AGENT`, or the program next to this test.
pub async fn scripted_agent() -> Result<PathBuf> {
    static PROGRAM: OnceCell<PathBuf> = OnceCell::const_new();
    given_or("TRILOGUE_SCRIPTED_AGENT", &PROGRAM, || example("scripted_agent")).await
}

/// The program that builds the packages of a release.
pub async fn xtask() -> Result<PathBuf> {
    // Building an example too gives the libraries the features of the tests, so that they are not built twice.
    let arguments = ["--quiet", "--workspace", "--exclude", "trilogue-bench", "--bin", "xtask"];
    let arguments = [&arguments[..], &["--example", "scripted_agent"]].concat();
    build(&arguments).await.map(|profile| profile.join("xtask"))
}

/// The folder of the official schema of CycloneDX, in its official npm package.
pub fn cyclonedx_schema() -> Result<PathBuf> {
    let library = "node_modules/@cyclonedx/cyclonedx-library/res/schema";
    installed("cyclonedx").map(|folder| folder.join(library))
}

/// The folder of the scripts that drive the inspector's page in a browser.
pub fn inspector_packages() -> Result<PathBuf> {
    installed("inspector")
}

/// The folder of the programs on the Rust SDK, which are a separate workspace.
pub(crate) async fn official_rust() -> Result<PathBuf> {
    static FOLDER: OnceCell<PathBuf> = OnceCell::const_new();
    let build = || async {
        let target = installed("agent_client/rust")?;
        let manifest = Path::new(ROOT).join("foreign/agent_client/rust/Cargo.toml");
        let mut command = cargo_build(&target);
        command.args(["--quiet", "--locked", "--offline", "--manifest-path"]).arg(manifest);
        // As `scripts/foreign` has built it, without the linter that may build the tests.
        command.env_remove("RUSTC_WORKSPACE_WRAPPER");
        run(command).await?;
        Ok(target.join("debug"))
    };
    FOLDER.get_or_try_init(build).await.cloned()
}

pub(crate) fn installed(name: &str) -> Result<PathBuf> {
    let target = target()?;
    let folder = target.join("foreign").join(name);
    ensure!(
        folder.join("made-from").is_file(),
        "foreign/{name} is not installed: run `CARGO_TARGET_DIR={} scripts/foreign`",
        target.display()
    );
    Ok(folder)
}

/// The program that a variable names; otherwise a program that is built once.
async fn given_or<F: Future<Output = Result<PathBuf>>>(
    variable: &str,
    program: &OnceCell<PathBuf>,
    build: impl FnOnce() -> F,
) -> Result<PathBuf> {
    match std::env::var_os(variable) {
        Some(path) => Ok(PathBuf::from(path)),
        None => program.get_or_try_init(build).await.cloned(),
    }
}

pub async fn example(name: &str) -> Result<PathBuf> {
    let arguments = ["--quiet", "--workspace", "--exclude", "trilogue-bench", "--example", name];
    build(&arguments).await.map(|profile| profile.join("examples").join(name))
}

/// Builds into the target folder, with the profile of this test. Returns the profile's folder. Cheap if nothing has changed.
async fn build(arguments: &[&str]) -> Result<PathBuf> {
    let profile = profile()?;
    if is_built(&profile) {
        return Ok(profile);
    }
    let mut command = cargo_build(&target()?);
    command.args(arguments).current_dir(ROOT);
    if profile.ends_with("release") {
        command.arg("--release");
    }
    run(command).await?;
    Ok(profile)
}

/// Whether the programs in this profile's folder are built already, so that no test has to look. The tests are not built for a release.
#[must_use]
pub fn is_built(profile: &Path) -> bool {
    std::env::var_os(IS_BUILT).is_some() && !profile.ends_with("release")
}

fn cargo_build(target: &Path) -> Command {
    let mut command = Command::from(cargo());
    command.arg("build").arg("--target-dir").arg(target);
    command
}

/// cargo as a shell starts it. It does not inherit the variables of the test's package: some build scripts would see a change in them, and everything that depends on these would be built again.
#[must_use]
pub fn cargo() -> std::process::Command {
    const OF_PACKAGE: [&str; 2] = ["CARGO_PKG_", "CARGO_MANIFEST_"];
    let mut command =
        std::process::Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let is_of_package =
            |name: &str| OF_PACKAGE.into_iter().any(|begin| name.starts_with(begin));
        if name.to_str().is_some_and(is_of_package) {
            command.env_remove(name);
        }
    }
    command
}

async fn run(mut command: Command) -> Result<()> {
    let output = command.output().await.context("cargo could not be started")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn profile() -> Result<PathBuf> {
    let me = std::env::current_exe()?;
    let profile = me.ancestors().nth(2).context("the test binary lies in no target folder")?;
    Ok(profile.to_owned())
}

fn target() -> Result<PathBuf> {
    Ok(profile()?.parent().context("the profile's folder has none above it")?.to_owned())
}
