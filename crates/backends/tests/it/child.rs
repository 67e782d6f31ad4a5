//! Child processes: none is left behind, for every kind of start and every kind of end of the server.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use trilogue_backends::child::{
    Children, Confinement, INHERITED, MARKER, Program, StartedChild, join_folders, search_folders,
};

use crate::agent_client_program;

/// Where the helper stores its state.
const HELPER: &str = "TRILOGUE_TEST_HELPER";
const AGENTS: usize = 24;

pub(crate) async fn start(children: &Children, command: &[&str], cwd: &Path) -> StartedChild {
    let command: Vec<_> = command.iter().map(|&it| it.to_owned()).collect();
    children.start(program(&command, cwd)).await.unwrap()
}

/// A program with no variables of its own, outside of a sandbox.
pub(crate) fn program<'a>(command: &'a [String], cwd: &'a Path) -> Program<'a> {
    let confinement = Confinement::NONE;
    let (env, inherit) = (&[], &[]);
    Program {
        name: "test",
        command,
        cwd,
        env,
        inherit,
        confinement,
        can_outlive: false,
        broker: None,
    }
}

pub(crate) fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // A dead process that its parent has not reaped counts as gone.
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

pub(crate) fn pid_in(file: &Path) -> Option<u32> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

pub(crate) fn records(state: &Path) -> Vec<String> {
    let names = |folder: PathBuf| {
        let entries = std::fs::read_dir(folder).into_iter().flatten();
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect::<Vec<_>>()
    };
    let all = state.join("children");
    let lives = names(all.clone()).into_iter().map(|life| all.join(life));
    lives.flat_map(names).filter(|name| name != "lock").collect()
}

pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = tokio::time::Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(tokio::time::Instant::now() < end, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_process_of_a_child_is_known_by_its_parents_and_by_its_marker() {
    let folder = TempDir::new().unwrap();
    let children = Children::open(None).await.unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    // One still has its parents, one has left them, and one has hidden its marker.
    let line = format!(
        "sh -c 'echo $$ > {}; exec sleep 1000' & (setsid sh -c 'echo $$ > {}; exec sleep 1000' &) ; env -i /bin/sh -c 'echo $$ > {}; exec sleep 1000'",
        file("below"),
        file("left"),
        file("hidden"),
    );
    let started = start(&children, &["sh", "-c", &line], folder.path()).await;
    for name in ["below", "left", "hidden"] {
        let path = folder.path().join(name);
        until("it runs", || pid_in(&path).is_some()).await;
        assert!(children.has_process(pid_in(&path).unwrap()), "{name}");
    }
    // The agents of one server are known to the others of the machine.
    let others = Children::open(None).await.unwrap();
    for name in ["below", "left", "hidden"] {
        assert!(others.has_process(pid_in(&folder.path().join(name)).unwrap()), "{name}");
    }
    assert!(!others.has_process(std::process::id()));
    assert!(!children.has_process(std::process::id()));
    assert!(!children.has_process(std::os::unix::process::parent_id()));
    let mut stranger = Command::new("sleep").arg("1000").spawn().unwrap();
    assert!(!children.has_process(stranger.id()), "it was not started by an agent");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    assert!(children.has_process(stranger.id()), "nobody knows what it was");
    drop(started);
    children.close().await;
}

/// The kernel shows no variables of a process while it becomes another program.
#[tokio::test]
async fn a_process_that_becomes_other_programs_all_the_time_keeps_its_marker() {
    let folder = TempDir::new().unwrap();
    let children = Children::open(None).await.unwrap();
    let (script, file) = (folder.path().join("again"), folder.path().join("pid"));
    std::fs::write(&script, format!("echo $$ > {}; exec sh \"$0\"", file.display())).unwrap();
    let line = format!("(setsid sh {} &); exec sleep 1000", script.display());
    let started = start(&children, &["sh", "-c", &line], folder.path()).await;
    until("it runs", || pid_in(&file).is_some()).await;
    let pid = pid_in(&file).unwrap();
    // Another server of this machine knows it by its marker alone.
    let others = Children::open(None).await.unwrap();
    for round in 0..3_000 {
        assert!(others.has_process(pid), "round {round}");
    }
    drop(started);
    children.close().await;
}

#[tokio::test]
async fn a_child_ends_by_itself_when_its_input_does_and_its_record_goes() {
    let folder = TempDir::new().unwrap();
    let children = Children::open(Some(folder.path().to_owned())).await.unwrap();
    let started = start(&children, &["cat"], folder.path()).await;
    assert_eq!((records(folder.path()).len(), children.count()), (1, 1));
    drop(started.input);
    assert!(started.child.exited().await.is_success());
    let is_gone = || records(folder.path()).is_empty() && children.count() == 0;
    until("the record goes", is_gone).await;
}

#[tokio::test]
async fn everything_that_a_wrapper_started_goes_with_it() {
    let folder = TempDir::new().unwrap();
    let children = Children::open(None).await.unwrap();
    let (agent, stray) = (folder.path().join("agent"), folder.path().join("stray"));
    // The shell forwards no signal, the agent does not notice the end of its input, and its child has a separate session.
    let script = format!(
        "{} --ignore-eof --pid-file {} --stray {}; true",
        agent_client_program(),
        agent.display(),
        stray.display(),
    );
    for kills in [false, true] {
        let started = start(&children, &["sh", "-c", &script], folder.path()).await;
        until("both run", || pid_in(&agent).is_some() && pid_in(&stray).is_some()).await;
        let pids = [started.child.pid().unwrap(), pid_in(&agent).unwrap(), pid_in(&stray).unwrap()];
        assert!(pids.iter().all(|pid| is_running(*pid)));
        drop(started.input);
        if kills {
            started.child.kill().await;
        } else {
            started.child.stop().await;
        }
        assert!(pids.iter().all(|pid| !is_running(*pid)), "{pids:?}");
        std::fs::remove_file(&agent).unwrap();
        std::fs::remove_file(&stray).unwrap();
    }
}

#[tokio::test]
async fn what_outlives_a_child_that_ended_is_ended_too() {
    let folder = TempDir::new().unwrap();
    let children = Children::open(None).await.unwrap();
    let file = folder.path().join("pid");
    let script = format!("setsid sleep 1000 & echo $! > {}", file.display());
    let mut started = start(&children, &["sh", "-c", &script], folder.path()).await;
    started.child.stop().await;
    let pid = pid_in(&file).unwrap();
    assert!(!is_running(pid));
    let mut said = Vec::new();
    started.output.read_to_end(&mut said).await.unwrap();
    assert_eq!(said, b"");
}

/// The whole environment of a child: what every child inherits, what its owner names, and its marker.
#[tokio::test]
async fn a_child_knows_no_variable_but_those_that_it_may() {
    let children = Children::open(None).await.unwrap();
    let command = ["env", "-0"].map(str::to_owned);
    let given = ("GIVEN".to_owned(), "1".to_owned());
    let inherit = ["CARGO_MANIFEST_DIR", "NOT_SET_ANYWHERE"].map(str::to_owned);
    let mut expected: BTreeMap<_, _> =
        INHERITED.iter().filter_map(|name| Some(((*name).to_owned(), variable(name)?))).collect();
    let all = std::env::vars().count();
    assert!(all > expected.len() + 1, "this process has more variables than a child may have");
    // Relative folders are left out: `a_child_finds_no_program_by_a_relative_search_path`.
    let path = search_folders(&expected["PATH"]).collect::<Vec<_>>();
    expected.insert("PATH".to_owned(), join_folders(&path).unwrap());
    for (env, inherit) in [(&[][..], &[][..]), (&[given.clone()][..], &inherit[..])] {
        let program = Program { env, inherit, ..program(&command, Path::new("/")) };
        let mut started = children.start(program).await.unwrap();
        let mut said = String::new();
        started.output.read_to_string(&mut said).await.unwrap();
        let lines = said.split_terminator('\0').map(|line| line.split_once('=').unwrap());
        let got: BTreeMap<_, _> =
            lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let mut expected = expected.clone();
        expected.insert(MARKER.to_owned(), started.child.instance().to_string());
        expected.extend(env.iter().cloned());
        expected.extend(inherit.iter().filter_map(|name| Some((name.clone(), variable(name)?))));
        assert_eq!(got, expected);
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[tokio::test]
async fn a_child_finds_no_program_by_a_relative_search_path() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = TempDir::new().unwrap();
    for name in ["env", "sh"] {
        let file = folder.path().join(name);
        std::fs::write(&file, "#!/bin/sh\necho theirs\n").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o700)).unwrap();
    }
    let children = Children::open(None).await.unwrap();
    let path = std::env::var("PATH").unwrap();
    let command = ["sh".to_owned(), "-c".to_owned(), "pwd; echo \"$PWD\"; env".to_owned()];
    let env = [("PATH".to_owned(), format!(".::{path}")), ("PWD".to_owned(), "/".to_owned())];
    let program = Program { env: &env, ..program(&command, folder.path()) };
    let mut started = children.start(program).await.unwrap();
    let mut said = String::new();
    started.output.read_to_string(&mut said).await.unwrap();
    assert!(!said.contains("theirs"), "{said}");
    let here = folder.path().canonicalize().unwrap();
    assert!(said.lines().take(2).all(|line| Path::new(line) == here), "{said}");
    assert!(said.lines().any(|line| line == format!("PATH={path}")), "{said}");
}

#[tokio::test]
async fn a_server_leaves_those_of_another_that_lives_alone() {
    let folder = TempDir::new().unwrap();
    let helper = helper(folder.path(), 1);
    let agent = folder.path().join("agent-0");
    until("it runs", || pid_in(&agent).is_some_and(is_running)).await;
    let pid = pid_in(&agent).unwrap();
    for _ in 0..2 {
        let beside = Children::open(Some(folder.path().to_owned())).await.unwrap();
        assert_eq!((beside.strays(), is_running(pid)), (0, true));
    }
    end(helper);
    let next = Children::open(Some(folder.path().to_owned())).await.unwrap();
    assert!(next.strays() > 0 && !is_running(pid));
}

/// A server that is killed. The other tests run it as a separate process.
#[tokio::test]
#[ignore = "other tests run it"]
async fn helper_server() {
    let state = PathBuf::from(std::env::var(HELPER).unwrap());
    let children = Children::open(Some(state.clone())).await.unwrap();
    let count: usize = std::env::var("COUNT").unwrap().parse().unwrap();
    let mut all = Vec::new();
    for number in 0..count {
        let script = format!(
            "{} --ignore-eof --pid-file {state}/agent-{number} --stray {state}/stray-{number}; true",
            agent_client_program(),
            state = state.display(),
        );
        all.push(start(&children, &["sh", "-c", &script], &state).await);
    }
    std::fs::write(state.join("ready"), "").unwrap();
    std::future::pending::<()>().await;
}

fn helper(state: &Path, count: usize) -> std::process::Child {
    drop(std::fs::remove_file(state.join("ready")));
    let helper = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child::helper_server", "--ignored", "--nocapture"])
        .env(HELPER, state)
        .env("COUNT", count.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while !state.join("ready").exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    helper
}

fn end(mut helper: std::process::Child) {
    helper.kill().unwrap();
    helper.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_leaves_no_stray_to_the_next_one() {
    let folder = TempDir::new().unwrap();
    let state = folder.path().to_owned();
    let helper = tokio::task::spawn_blocking({
        let state = state.clone();
        move || helper(&state, AGENTS)
    });
    let helper = helper.await.unwrap();
    let files = |what: &str| {
        (0..AGENTS).map(|number| state.join(format!("{what}-{number}"))).collect::<Vec<_>>()
    };
    let files: Vec<_> = files("agent").into_iter().chain(files("stray")).collect();
    until("all run", || files.iter().all(|file| pid_in(file).is_some_and(is_running))).await;
    let pids: Vec<_> = files.iter().map(|file| pid_in(file).unwrap()).collect();
    end(helper);
    // They do not exit by themselves.
    assert!(pids.iter().all(|pid| is_running(*pid)));
    let children = Children::open(Some(state.clone())).await.unwrap();
    assert!(children.strays() >= pids.len(), "{}", children.strays());
    let left: Vec<_> = pids.iter().filter(|pid| is_running(**pid)).collect();
    assert_eq!(left, Vec::<&u32>::new());
    assert_eq!(records(&state), Vec::<String>::new());
    // A third life finds nothing to clean up.
    drop(children);
    assert_eq!(Children::open(Some(state)).await.unwrap().strays(), 0);
}
