//! Agents from templates: in Rust on this checkout, in other languages on the official libraries of the Agent Client Protocol.

use std::path::{Path, PathBuf};
use std::process::Command;

use trilogue_testkit::model::Model;

use crate::connect_editor::OnDemand;
use crate::harness::{BINARY, Home, ProgramOutput, finish};

/// The path of a file below the folder of `scripts/foreign`.
fn foreign(path: &str) -> PathBuf {
    let target = Path::new(BINARY).ancestors().nth(2).unwrap();
    let place = target.join("foreign/agent_client").join(path);
    assert!(place.exists(), "{} is missing: run scripts/foreign agent_client", place.display());
    place
}

fn new_agent(home: &Home, language: &str) -> PathBuf {
    home.run(&["new", "agent", "--language", language, "my-agent"]).expect(0);
    home.work().join("my-agent")
}

fn run(home: &Home, agent: &[&str], variables: &[(&str, &str)]) -> ProgramOutput {
    let mut command = home.program(BINARY);
    command.args(["run", "Hello", "--"]).args(agent).envs(variables.iter().copied());
    finish(command, "")
}

#[test]
fn the_python_template_answers() {
    let home = Home::new();
    let _demand = OnDemand::unconfigured(&home);
    let (folder, python) = (new_agent(&home, "python"), foreign("python/bin/python"));
    let agent = folder.join("agent.py");
    let ran = run(&home, &[python.to_str().unwrap(), agent.to_str().unwrap()], &[]).expect(0);
    assert!(ran.out.contains("You said: Hello"), "{}", ran.out);
    // The templates pin the tested versions.
    let pinned = include_str!("../../../../foreign/agent_client/python/requirements.txt");
    let wanted = std::fs::read_to_string(folder.join("requirements.txt")).unwrap();
    assert!(pinned.contains(wanted.trim()), "{wanted}");
}

#[test]
fn the_python_template_with_a_model_answers() {
    let home = Home::new();
    let _demand = OnDemand::unconfigured(&home);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let model = runtime.block_on(Model::start()).unwrap();
    let (folder, python) = (new_agent(&home, "python"), foreign("python/bin/python"));
    let agent = folder.join("model_agent.py");
    let url = model.url();
    let variables = [("OPENAI_BASE_URL", url.as_str()), ("OPENAI_MODEL", "fake-model")];
    let words = [python.to_str().unwrap(), agent.to_str().unwrap()];
    let ran = run(&home, &words, &variables).expect(0);
    assert!(ran.out.contains("It is done."), "{}", ran.out);
    let asked = model.requests();
    assert_eq!(asked[0]["model"], "fake-model");
    assert!(asked[0]["messages"].to_string().contains("Hello"), "{asked:?}");
}

#[test]
fn the_typescript_template_compiles_and_answers() {
    let home = Home::new();
    let _demand = OnDemand::unconfigured(&home);
    let (folder, modules) = (new_agent(&home, "typescript"), foreign("typescript/node_modules"));
    std::os::unix::fs::symlink(&modules, folder.join("node_modules")).unwrap();
    let mut compile = Command::new(modules.join(".bin/tsc"));
    compile.current_dir(&folder);
    finish(compile, "").expect(0);
    let agent = folder.join("dist/agent.js");
    let ran = run(&home, &["node", agent.to_str().unwrap()], &[]).expect(0);
    assert!(ran.out.contains("You said: Hello"), "{}", ran.out);
    let pinned = include_str!("../../../../foreign/agent_client/typescript/package.json");
    let wanted = std::fs::read_to_string(folder.join("package.json")).unwrap();
    for line in wanted.lines().filter(|line| line.contains('@') || line.contains("\"zod\"")) {
        assert!(pinned.contains(line.trim().trim_end_matches(',')), "{line}");
    }
}

/// Builds the generated project as it is, offline, with the versions of this checkout.
#[test]
fn the_rust_template_builds_and_answers() {
    let home = Home::new();
    let _demand = OnDemand::unconfigured(&home);
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let sdk = checkout.join("crates/sdk");
    let arguments = ["new", "agent", "--language", "rust", "my-agent", "--sdk"];
    home.run(&[&arguments[..], &[sdk.to_str().unwrap()]].concat()).expect(0);
    let folder = home.work().join("my-agent");
    std::fs::copy(checkout.join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    // What is built stays there, so that only the first build takes long.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rust-template");
    let mut build = Command::new(env!("CARGO"));
    build.current_dir(&folder).args(["build", "--offline", "--quiet"]);
    build.env("CARGO_TARGET_DIR", &target).env("CARGO_PROFILE_DEV_DEBUG", "0");
    build.env("CARGO_INCREMENTAL", "0");
    let built = build.output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let agent = target.join("debug/my-agent");
    let ran = run(&home, &[agent.to_str().unwrap()], &[]).expect(0);
    assert!(ran.out.contains("You said: Hello"), "{}", ran.out);
}

#[test]
fn a_rust_agent_needs_a_checkout_of_the_sdk() {
    let home = Home::new();
    let elsewhere = home.work().join("bin");
    std::fs::create_dir(&elsewhere).unwrap();
    let program = elsewhere.join("trilogue");
    std::fs::copy(BINARY, &program).unwrap();
    let new = |arguments: &[&str]| {
        let mut command = home.program(&program);
        command.args(["new", "agent", "my-agent", "--language"]).args(arguments);
        finish(command, "")
    };
    new(&["rust"]).complains(2, "--sdk");
    new(&["rust", "--sdk", "bin"]).complains(2, "bin is not the folder of trilogue-sdk");
    new(&["python", "--sdk", "bin"]).complains(2, "only for --language rust");
    assert!(!home.work().join("my-agent").exists());

    let sdk = home.work().join("crates/sdk");
    std::fs::create_dir_all(&sdk).unwrap();
    std::fs::write(sdk.join("Cargo.toml"), "name = \"trilogue-sdk\"\n").unwrap();
    new(&["rust"]).expect(0);
    let manifest = std::fs::read_to_string(home.work().join("my-agent/Cargo.toml")).unwrap();
    let line = format!("path = {:?}", sdk.canonicalize().unwrap());
    assert!(manifest.contains(&line), "{manifest}");
}

#[test]
fn a_folder_with_files_is_left_alone() {
    let home = Home::new();
    new_agent(&home, "python");
    let again = ["new", "agent", "--language", "python", "my-agent"];
    home.run(&again).complains(7, "is not empty");
    home.run(&["new", "agent", "--language", "python", "My Agent"]).complains(2, "lower-case");
}

#[test]
fn the_page_shows_the_templates() {
    let page = include_str!("../../../../docs/agents-in-python-and-typescript.md");
    for template in [
        include_str!("../../src/templates/python/agent.py"),
        include_str!("../../src/templates/typescript/agent.ts"),
    ] {
        let body = template.lines().skip(2).collect::<Vec<_>>().join("\n");
        assert!(page.contains(body.trim()), "the page does not show:\n{body}");
    }
}
