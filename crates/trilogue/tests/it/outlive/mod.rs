//! Turns that continue when their server is killed or restarted.

mod lives;
mod upgrade;

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use trilogue_testkit::Seed;

use self::lives::{Lives, SERVE, check_equal, events_of, processes};
use crate::harness::{BINARY, until};

/// The instructions of a turn that waits twice, for the files `first` and `second`.
fn instructions(lives: &Lives) -> Vec<String> {
    let wait = |name: &str| format!("wait:{}", lives.file(name).display());
    let lines = [
        "say:one",
        "chunks:20",
        "tool",
        "think:hard",
        "noise",
        "line:{broken",
        "FIRST",
        "say:two",
        "two",
        "tool",
        "states",
        "chunks:20",
        "blocks",
        "SECOND",
        "unknown",
        "noise",
        "say:three",
    ];
    let lines = lines.iter().map(|line| match *line {
        "FIRST" => wait("first"),
        "SECOND" => wait("second"),
        line => line.to_owned(),
    });
    lines.collect()
}

#[test]
fn a_turn_continues_while_its_server_is_gone_and_nothing_is_lost_or_doubled() {
    let expected = {
        let lives = Lives::start();
        ["first", "second"].iter().for_each(|name| fs::write(lives.file(name), "").unwrap());
        let run = lives.complete(&instructions(&lives));
        events_of(&lives, &run)
    };
    for signal in [Signal::KILL, Signal::TERM] {
        let mut lives = Lives::start();
        let run = lives.run(&instructions(&lives));
        lives.wait_for("one");
        lives.end(signal);
        assert!(processes(&lives) > 0, "{signal:?}: the agent works on");
        fs::write(lives.file("first"), "").unwrap();
        lives.begin();
        lives.wait_for("two");
        lives.end(signal);
        lives.begin();
        fs::write(lives.file("second"), "").unwrap();
        let ended = lives.wait_for_end(&run);
        assert_eq!(ended["status"], "completed", "{signal:?}: {ended}");
        check_equal(&events_of(&lives, &run), &expected, &format!("{signal:?}"));
        // The agent is asked again in the same process.
        lives.complete(&["say:again".to_owned()]);
        let heard = fs::read_to_string(lives.file("heard")).unwrap();
        assert_eq!(heard.matches("\"initialize\"").count(), 1, "{heard}");
    }
}

/// `TRILOGUE_KILL_ROUNDS` is how many turns are killed again and again.
#[test]
fn a_turn_that_is_killed_at_any_moment_is_as_one_that_is_not() {
    let (seed, mut random) = Seed::from_env("TRILOGUE_SEED");
    let rounds = std::env::var("TRILOGUE_KILL_ROUNDS").map_or(1, |rounds| rounds.parse().unwrap());
    let lines: Vec<String> = (0..60)
        .flat_map(|number| {
            let work = ["chunks:3", "tool", "two", "think:hard", "states", "blocks", "tool-done"];
            let work = work[number % work.len()].to_owned();
            [format!("say:{number}"), work, "slow:40".to_owned()]
        })
        .collect();
    let expected = {
        let lives = Lives::start();
        let run = lives.complete(&lines);
        events_of(&lives, &run)
    };
    for round in 0..rounds {
        let mut lives = Lives::start();
        let run = lives.run(&lines);
        lives.wait_for("0");
        let mut kills = 0;
        // The turn takes longer than these kills together.
        while kills < 8 && lives.show(&run)["status"] == "running" {
            let killed_at = Instant::now() + Duration::from_millis(random.below(300));
            std::thread::sleep(killed_at.saturating_duration_since(Instant::now()));
            lives.end(Signal::KILL);
            lives.begin();
            kills += 1;
        }
        let what = format!("TRILOGUE_SEED={seed}, round {round}, {kills} kills");
        assert!(kills > 1, "{what}");
        let ended = lives.wait_for_end(&run);
        assert_eq!(ended["status"], "completed", "{what}: {ended}");
        check_equal(&events_of(&lives, &run), &expected, &what);
    }
}

#[test]
fn an_open_question_of_a_turn_is_answered_after_a_restart() {
    for signal in [Signal::KILL, Signal::TERM] {
        let mut lives = Lives::start();
        let lines = ["say:one", "permission", "say:two", "ask-form", "say:three"];
        let run = lives.run(&lines.map(str::to_owned));
        let question = |lives: &Lives| {
            let open = lives.server().run(&["inbox", "-q"]).expect(0).out;
            open.lines().next().map(str::to_owned)
        };
        let first = until(|| question(&lives));
        lives.server().run(&["approve", &first, "--yes"]).expect(0);
        lives.wait_for("two");
        let second = until(|| question(&lives));
        assert_ne!(first, second);
        lives.end(signal);
        lives.begin();
        // The agent asks again: no client can answer the question of before.
        let again = until(|| question(&lives));
        assert_ne!(again, second);
        lives.server().run(&["approve", &again, "--value", r#"{"name":"Ada"}"#]).expect(0);
        let ended = lives.wait_for_end(&run);
        assert_eq!(ended["status"], "completed", "{signal:?}: {ended}");
        let thread = lives.thread();
        assert!(thread.contains("Ada"), "{thread}");
        assert_eq!(thread.matches("\"content\":\"two\"").count(), 1, "{thread}");
    }
}

/// The command is a child of the server, which ends it. The agent learns that, and the command does not run a second time.
#[test]
fn a_command_of_a_turn_is_not_run_again_after_a_restart() {
    let mut lives = Lives::start();
    let count = lives.file("folder/count");
    let line = format!("term:echo run $$ >> {}; sleep 1000", count.display());
    let run = lives.run(&["say:before".to_owned(), line, "say:after".to_owned()]);
    lives.wait_for("before");
    until(|| fs::read_to_string(&count).ok().filter(|text| text.ends_with('\n')));
    lives.end(Signal::KILL);
    lives.begin();
    let ended = lives.wait_for_end(&run);
    assert_eq!(ended["status"], "completed", "{ended}");
    let thread = lives.thread();
    assert!(thread.contains("may have been carried out") && thread.contains("after"), "{thread}");
    let text = fs::read_to_string(&count).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    // It is a process of the agent's namespaces, so its number is another one here.
    let mut find = Command::new("pgrep");
    find.args(["-f", "--", &format!("{}; sleep 1000", count.display())]);
    assert!(!find.stdout(Stdio::null()).status().unwrap().success(), "the command still runs");
}

#[test]
fn an_agent_ends_with_its_server_when_its_user_stops_it_or_its_settings_say_so() {
    for (settings, signal) in [("", Signal::INT), ("outlive = false\n", Signal::TERM)] {
        let mut lives = Lives::with(settings);
        let run = lives.run(&["say:one", "slow:60000"].map(str::to_owned));
        lives.wait_for("one");
        lives.end(signal);
        assert_eq!(processes(&lives), 0, "{signal:?}");
        lives.begin();
        let ended = lives.wait_for_end(&run);
        assert_eq!(ended["outcome"]["error"]["code"], "agent_lost", "{ended}");
    }
}

/// A server of another store shares the state folder.
#[test]
fn a_server_of_another_store_leaves_the_agent_alone() {
    let mut lives = Lives::start();
    let lines = ["say:one".to_owned(), format!("wait:{}", lives.file("first").display())];
    let run = lives.run(&lines);
    lives.wait_for("one");
    lives.end(Signal::KILL);
    let other = lives.home.demo();
    other.run(&["run", "echo", "hello"]).expect(0);
    assert!(other.stop(Signal::TERM).success());
    lives.begin();
    fs::write(lives.file("first"), "").unwrap();
    assert_eq!(lives.wait_for_end(&run)["status"], "completed");
}

/// Only one of two servers gets the store, and that one continues the turn.
#[test]
fn a_turn_continues_also_if_two_servers_start_at_once() {
    let mut lives = Lives::start();
    let lines = ["say:one".to_owned(), format!("wait:{}", lives.file("first").display())];
    let run = lives.run(&lines);
    for _ in 0..6 {
        lives.wait_for("one");
        lives.end(Signal::KILL);
        let mut second = lives.home.program(BINARY);
        let mut second =
            second.args(SERVE).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let first = lives.try_begin();
        if first {
            assert!(!until(|| second.try_wait().unwrap()).success());
        } else {
            // It has the store. It ends as a crash does, and the turn waits for the next one.
            second.kill().unwrap();
            second.wait().unwrap();
            lives.begin();
        }
    }
    fs::write(lives.file("first"), "").unwrap();
    let ended = lives.wait_for_end(&run);
    assert_eq!(ended["status"], "completed", "{ended}");
}

/// A server that is killed while it takes over an agent leaves a second record of it, without the policy.
#[test]
fn a_turn_continues_also_if_its_agent_has_several_records() {
    let mut lives = Lives::start();
    let lines = ["say:one".to_owned(), format!("wait:{}", lives.file("first").display())];
    let run = lives.run(&lines);
    lives.wait_for("one");
    lives.end(Signal::KILL);
    let children = lives.home.state().join("children");
    let records = fs::read_dir(&children).unwrap().map(|entry| entry.unwrap().path());
    let records = records.filter(|path| path.is_dir()).flat_map(|path| fs::read_dir(path).unwrap());
    let mut records = records.map(|entry| entry.unwrap().path());
    let record =
        records.find(|path| !path.ends_with("lock") && path.extension().is_none()).unwrap();
    // Their order in the folder is arbitrary.
    for number in 0..8 {
        let folder = children.join(format!("00000000-0000-4000-8000-00000000000{number}"));
        fs::create_dir(&folder).unwrap();
        fs::copy(&record, folder.join(record.file_name().unwrap())).unwrap();
    }
    lives.begin();
    fs::write(lives.file("first"), "").unwrap();
    let ended = lives.wait_for_end(&run);
    assert_eq!(ended["status"], "completed", "{ended}");
}

#[test]
fn the_cause_of_an_agents_end_is_known_after_a_restart() {
    let mut lives = Lives::start();
    let lines = [
        "say:one".to_owned(),
        format!("wait:{}", lives.file("first").display()),
        "crash".to_owned(),
    ];
    let run = lives.run(&lines);
    lives.wait_for("one");
    lives.end(Signal::KILL);
    fs::write(lives.file("first"), "").unwrap();
    until(|| (processes(&lives) <= 1).then_some(()));
    lives.begin();
    let ended = lives.wait_for_end(&run);
    let message = ended["outcome"]["error"]["message"].as_str().unwrap();
    assert!(message.contains("was killed by signal 6"), "{ended}");
}

#[test]
fn an_agent_without_a_turn_ends_soon_after_its_server() {
    let mut lives = Lives::start();
    lives.complete(&["say:one".to_owned()]);
    assert!(processes(&lives) > 0);
    lives.end(Signal::KILL);
    until(|| (processes(&lives) == 0).then_some(()));
}
