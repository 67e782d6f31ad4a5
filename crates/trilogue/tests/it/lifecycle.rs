//! Servers that start, stop, are killed, and start again.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};
use serde_json::json;
use trilogue_testkit::Seed;

use crate::approval::start_waiting_run;
use crate::harness::{BINARY, Home, Server, demo, finish, lasting_address, pid, until};
use crate::webhooks::{Listening, run_with_callback};

/// The number of restores that are killed at random times.
const KILLED_RESTORES: u32 = 12;

const CONFIG: &str = "[store]\nurl = \"sqlite:t.db\"\n[agents.echo]\nkind = \"builtin\"\n[agents.mailcomposer]\nkind = \"builtin\"\n[agents.writer]\nkind = \"builtin\"\nbuiltin = \"researcher\"\n";

#[test]
fn the_token_is_private_and_used_again() {
    let home = Home::new();
    let address = lasting_address();
    let server = home.start(&["demo", "--listen", &address]);
    let file = server.token_file();
    let mode = fs::metadata(&file).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let token = fs::read_to_string(&file).unwrap();
    assert!(token.starts_with("tril_") && token.trim().len() == 5 + 43, "{token}");
    assert!(server.stop(Signal::TERM).success());
    let server = home.start(&["demo", "--listen", &address]);
    assert_eq!(fs::read_to_string(&file).unwrap(), token);
    // A revoked token is replaced.
    let listed = server.run(&["token", "list", "--json"]).expect(0).json();
    let id = listed["items"][0]["id"].as_str().unwrap();
    server.run(&["token", "revoke", id]).expect(0);
    assert!(server.stop(Signal::TERM).success());
    let server = home.start(&["demo", "--listen", &address]);
    assert_ne!(fs::read_to_string(&file).unwrap(), token);
    server.run(&["agents"]).expect(0);
}

#[test]
fn a_kill_loses_nothing_and_waiting_runs_can_be_answered_after_it() {
    let (home, server) = demo();
    server.run(&["run", "echo", "remember", "--thread", "t"]).expect(0);
    let (run, interrupt) = start_waiting_run(&server);
    server.stop(Signal::KILL);
    let server = home.demo();
    let shown = server.run(&["threads", "show", "t"]).expect(0).out;
    assert!(shown.contains("remember"), "{shown}");
    server.run(&["approve", &interrupt, "--yes"]).expect(0);
    let ended = server.run(&["tail", &run, "--follow"]).expect(0);
    assert!(ended.out.contains("run.ended"), "{}", ended.out);
}

#[test]
fn a_stop_says_what_keeps_waiting() {
    let (home, server) = demo();
    let (run, _) = start_waiting_run(&server);
    assert!(server.stop(Signal::TERM).success());
    let log = home.log();
    assert!(log.contains(&format!("still waiting for an answer: {run}")), "{log}");
    assert!(log.contains("stopped"), "{log}");
}

#[test]
fn a_stop_ends_at_its_deadline_and_says_what_it_abandoned() {
    let home = Home::new();
    home.write("t.toml", &format!("[server]\nshutdown_deadline = \"1ms\"\n{CONFIG}"));
    let serve = ["serve", "--config", "t.toml", "--listen", "127.0.0.1:0"];
    let server = home.start(&serve);
    // The longest possible topic: the answer has more than four hundred words, with a pause after each.
    let topic = ["x"; 100].join(" ");
    let run = server.run(&["run", "writer", &topic, "--no-wait"]).expect(0).out;
    let run = run.trim();
    until(|| {
        let shown = server.run(&["runs", "show", run, "--json"]).expect(0).json();
        assert_ne!(shown["status"], "completed", "it was over before the server could stop");
        (shown["status"] == "running").then_some(())
    });
    assert!(server.stop(Signal::TERM).success());
    let log = home.log();
    let last = log.lines().rfind(|line| line.contains("the server has stopped")).unwrap();
    let last: serde_json::Value = serde_json::from_str(last).unwrap();
    assert_eq!(last["abandoned"], run, "{log}");
    let server = home.start(&serve);
    let shown = server.run(&["runs", "show", run, "--json"]).expect(0).json();
    assert_eq!(shown["outcome"]["error"]["code"], "agent_lost", "{shown}");
    let ended = server.run(&["tail", run, "--follow"]).expect(0);
    assert!(ended.out.contains("agent_lost"), "{}", ended.out);
}

#[test]
fn serve_follows_its_configuration() {
    let home = Home::new();
    home.write("t.toml", CONFIG);
    let server = home.start(&["serve", "--config", "t.toml", "--listen", "127.0.0.1:0"]);
    let agents = server.run(&["agents", "-q"]).expect(0).out;
    assert_eq!(agents, "echo\nmailcomposer\nwriter\n");
    server.run(&["run", "writer", "bees?"]).expect(0);
    assert!(home.work().join("t.db").exists());
    assert!(home.log().contains(&format!("listening: http://{}", server.address)));
}

#[test]
fn a_second_server_on_one_store_or_address_is_refused() {
    let home = Home::new();
    home.write("t.toml", CONFIG);
    let server = home.start(&["serve", "--config", "t.toml", "--listen", "127.0.0.1:0"]);
    let ended = home.run(&["serve", "--config", "t.toml", "--listen", "127.0.0.1:0"]).expect(7);
    assert!(ended.err.contains("t.db") && ended.err.contains("hint: "), "{}", ended.err);
    home.run(&["serve", "--config", "t.toml", "--listen", &server.address])
        .complains(7, &server.address);
    server.run(&["agents"]).expect(0);
}

#[test]
fn a_backup_is_verified_restored_and_nothing_newer_or_damaged_is() {
    let (home, server) = demo();
    server.run(&["run", "echo", "precious", "--thread", "t"]).expect(0);
    // The leftovers of a killed backup do not block the next one.
    fs::write(home.work().join("b.db.partial"), "half").unwrap();
    server.run(&["backup", "b.db"]).expect(0);
    server.run(&["backup", "b.db"]).expect(7);
    assert!(server.stop(Signal::TERM).success());
    let ended = home.run(&["restore", "b.db", "--verify", "--json"]).expect(0).json();
    assert_eq!(ended["damage"], serde_json::json!([]));
    let restored = home.run(&["restore", "b.db", "--to", "restored.db"]).expect(0);
    assert!(restored.err.contains("1 tokens of the backup were left out"), "{restored:?}");
    home.run(&["restore", "b.db", "--to", "restored.db"]).expect(7);
    let server = home.start(&["demo", "--listen", "127.0.0.1:0", "--store", "sqlite:restored.db"]);
    let shown = server.run(&["threads", "show", "t"]).expect(0).out;
    assert!(shown.contains("precious"), "{shown}");
    drop(server);

    let backup = home.work().join("b.db");
    let sound = fs::read(&backup).unwrap();
    let mut damaged = sound.clone();
    let at = sound.windows(8).rposition(|it| it == b"precious").unwrap();
    damaged[at] ^= 1;
    fs::write(&backup, &damaged).unwrap();
    home.run(&["restore", "b.db", "--verify"]).complains(1, "damaged");
    home.run(&["restore", "missing.db", "--verify"]).expect(2);

    // SQLite stores the number that is used as the schema's version in bytes 60 to 63 of its header.
    let mut newer = sound;
    newer[60..64].copy_from_slice(&9_999_u32.to_be_bytes());
    fs::write(&backup, &newer).unwrap();
    for arguments in
        [["restore", "b.db", "--verify", "--json"], ["restore", "b.db", "--to", "n.db"]]
    {
        home.run(&arguments).complains(7, "newer");
    }
    assert!(!home.work().join("n.db").exists());
}

#[test]
fn a_backup_admits_the_holders_of_its_tokens_only_on_demand() {
    let (home, server) = demo();
    let secret = server.run(&["token", "create", "--label", "l"]).expect(0).out.trim().to_owned();
    server.run(&["backup", "b.db"]).expect(0);
    assert!(server.stop(Signal::TERM).success());
    for (more, code) in [(&[][..], 5), (&["--with-tokens"], 0)] {
        let restore = ["restore", "b.db", "--to", "restored.db", "--force"];
        home.run(&[&restore[..], more].concat()).expect(0);
        let store = "sqlite:restored.db";
        let server = home.start(&["demo", "--listen", "127.0.0.1:0", "--store", store]);
        server.run(&["threads", "--token", &secret]).expect(code);
        // The server's own user is admitted either way.
        server.run(&["threads"]).expect(0);
        assert!(server.stop(Signal::TERM).success());
    }
}

/// The backup has a run that has not ended, so that the restore prepares a copy first. It replaces a store, or writes a new file.
#[test]
fn a_killed_restore_leaves_the_old_store_or_the_backup_and_nothing_beside_it() {
    let (seed, mut random) = Seed::from_env("TRILOGUE_SEED");
    let home = Home::new();
    let demo = |store: &str| {
        let store = format!("sqlite:{store}");
        home.start(&["demo", "--listen", "127.0.0.1:0", "--store", &store])
    };
    let server = demo("old.db");
    server.run(&["run", "echo", &"x".repeat(100_000), "--thread", "kept"]).expect(0);
    start_waiting_run(&server);
    server.run(&["backup", "b.db"]).expect(0);
    server.run(&["run", "echo", "y", "--thread", "newer"]).expect(0);
    assert!(server.stop(Signal::TERM).success());
    let old = fs::read(home.work().join("old.db")).unwrap();
    let restore = |store: &str| {
        let mut command = home.program(BINARY);
        command.args(["restore", "b.db", "--force", "--to", store]);
        command
    };
    let begun = Instant::now();
    finish(restore("whole.db"), "").expect(0);
    let duration = begun.elapsed();
    for round in 0..KILLED_RESTORES {
        let (name, is_new) = (format!("{round}.db"), round % 3 == 0);
        let store = home.work().join(&name);
        if !is_new {
            fs::write(&store, &old).unwrap();
        }
        let mut command = restore(&name);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let wait = duration.mul_f64(random.below(110) as f64 / 100.0);
        let killed_at = Instant::now() + wait;
        while Instant::now() < killed_at && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        // It may have ended.
        let _ = child.kill();
        child.wait().unwrap();
        let what =
            format!("TRILOGUE_SEED={seed}, round {round}, killed after {wait:?} of {duration:?}");
        let is_begun = fs::read_dir(home.work()).unwrap().any(|entry| {
            entry.unwrap().file_name().to_string_lossy().starts_with(&format!("{name}.restoring"))
        });
        // The next start finishes a restore whose copy is complete.
        let is_complete = home.work().join(format!("{name}.restored")).exists();
        if is_new && !store.exists() && is_begun && !is_complete {
            let serve = ["demo", "--listen", "127.0.0.1:0", "--store", &format!("sqlite:{name}")];
            let refused = home.run(&serve);
            assert_ne!(refused.code, 0, "{what}: {refused:?}");
            assert!(refused.err.contains("`trilogue restore` again"), "{what}: {refused:?}");
            finish(restore(&name), "").expect(0);
        }
        if is_new && !store.exists() && !is_complete {
            continue;
        }
        let server = demo(&name);
        if is_complete {
            let log = home.log();
            let of_store = |text: &str| {
                let name = format!("/{name}");
                log.lines().any(|line| line.contains(text) && line.contains(&name))
            };
            let is_named = of_store("finished a restore that had been interrupted");
            assert!(is_named && !of_store("changed nothing"), "{what}: {log}");
        }
        let threads = server.run(&["threads", "-q"]).expect(0).out;
        let is_old = threads.contains("newer");
        assert_eq!(threads.lines().count(), if is_old { 3 } else { 2 }, "{what}: {threads}");
        let open = server.run(&["inbox", "-q"]).expect(0).out;
        assert_eq!(open.lines().count(), usize::from(is_old), "{what}: {open}");
        assert!(server.stop(Signal::TERM).success());
        home.run(&["restore", &name, "--verify"]).expect(0);
        let left: Vec<_> =
            fs::read_dir(home.work()).unwrap().map(|it| it.unwrap().path()).collect();
        let is_of_restore = |path: &&std::path::PathBuf| path.to_string_lossy().contains("restor");
        assert_eq!(left.iter().find(is_of_restore), None, "{what}");
    }
}

#[test]
fn runs_of_a_backup_start_only_on_demand() {
    let (home, server) = demo();
    let curl = |server: &Server, path: &str, body: Option<&str>| {
        let secret = fs::read_to_string(server.token_file()).unwrap();
        let mut command = home.program("curl");
        command.args(["--silent", "--show-error", "--header"]);
        command.arg(format!("Authorization: Bearer {}", secret.trim()));
        command.args(body.iter().flat_map(|body| ["--json", body]));
        command.arg(format!("{}{path}", server.url()));
        finish(command, "").expect(0).json()
    };
    let later = r#"{"agent_id":"echo","after_seconds":3600,"on_completion":"keep","input":{"messages":[{"role":"user","content":"later"}]}}"#;
    let scheduled = curl(&server, "/connect/runs", Some(later));
    let run = format!("/api/v1/runs/{}", scheduled["run_id"].as_str().unwrap());
    server.run(&["backup", "b.db"]).expect(0);
    assert!(server.stop(Signal::TERM).success());
    let restore = ["restore", "b.db", "--to", "restored.db", "--force"];
    for (more, status) in [(&[][..], "cancelled"), (&["--with-runs"], "queued")] {
        let restored = home.run(&[&restore[..], more].concat()).expect(0);
        assert_eq!(restored.err.contains("were cancelled"), more.is_empty(), "{restored:?}");
        let store = "sqlite:restored.db";
        let server = home.start(&["demo", "--listen", "127.0.0.1:0", "--store", store]);
        let found = curl(&server, &run, None);
        assert_eq!(found["status"], status, "{found}");
        if more.is_empty() {
            assert!(found["outcome"].to_string().contains("run_not_restored"), "{found}");
        }
        assert!(server.stop(Signal::TERM).success());
    }
    // Nothing of the copy in which they were cancelled is left.
    let left = fs::read_dir(home.work()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(left.into_iter().all(|name| !name.to_string_lossy().contains("restoring")));
}

#[test]
fn callbacks_of_a_backup_are_sent_only_on_demand() {
    let home = Home::new();
    let store = |file: &str| format!("sqlite:{file}");
    let start = |file: &str| {
        let store = store(file);
        home.start(&[
            "demo",
            "--listen",
            "127.0.0.1:0",
            "--allow-egress",
            "127.0.0.1",
            "--store",
            &store,
        ])
    };
    // Nothing listens yet, so the callback waits for its next attempt.
    let receiver = lasting_address();
    let callback = json!(format!("http://{receiver}/hook"));
    let server = start("own.db");
    let old = run_with_callback(&server, &callback);
    let old = old["run_id"].as_str().unwrap();
    server.run(&["tail", old, "--follow"]).expect(0);
    server.run(&["backup", "b.db"]).expect(0);
    assert!(server.stop(Signal::TERM).success());
    let restore = ["restore", "b.db", "--to", "restored.db", "--force"];
    for more in [&[][..], &["--with-runs"]] {
        let restored = home.run(&[&restore[..], more].concat()).expect(0);
        let has_note = restored.err.contains("1 callbacks of the backup were left out");
        assert_eq!(has_note, more.is_empty(), "{restored:?}");
        let listening = Listening::start(&home, &["--listen", &receiver, "--count", "1"]);
        let server = start("restored.db");
        let new;
        let expected = match more {
            // A callback of the backup is due first.
            [] => {
                new = run_with_callback(&server, &callback);
                new["run_id"].as_str().unwrap()
            }
            _ => old,
        };
        let lines = listening.end();
        assert!(lines[0].contains(expected), "{more:?}: {lines:#?}");
        assert!(server.stop(Signal::TERM).success());
    }
}

#[test]
fn a_store_whose_file_is_gone_or_empty_is_not_begun_anew() {
    let home = Home::new();
    home.write("t.toml", CONFIG);
    let serve = ["serve", "--config", "t.toml", "--listen", "127.0.0.1:0"];
    let server = home.start(&serve);
    server.run(&["run", "echo", "precious", "--thread", "t"]).expect(0);
    server.run(&["backup", "b.db"]).expect(0);
    server.stop(Signal::KILL);
    let [file, log, record] =
        ["t.db", "t.db-wal", "t.db.commits"].map(|name| home.work().join(name));
    let whole = [&file, &log, &record].map(|file| fs::read(file).unwrap());
    for (left, length) in [
        (&[&log, &record][..], None),
        (&[&log], Some(0)),
        (&[&record], Some(0)),
        (&[&record], Some(1)),
        (&[&log, &record], Some(1)),
    ] {
        for file in [&file, &log, &record] {
            let _ = fs::remove_file(file);
        }
        for (file, bytes) in [&log, &record].into_iter().zip(&whole[1..]) {
            if left.contains(&file) {
                fs::write(file, bytes).unwrap();
            }
        }
        if let Some(length) = length {
            fs::write(&file, &whole[0][..length]).unwrap();
        }
        let refused = home.run(&serve);
        assert_ne!(refused.code, 0, "{refused:?}");
        for name in left {
            assert!(refused.err.contains(name.to_str().unwrap()), "{refused:?}");
        }
        for text in ["hint: ", "trilogue restore BACKUP --to", "move"] {
            assert!(refused.err.contains(text), "{text}: {refused:?}");
        }
        // The remaining files are unchanged.
        for (file, bytes) in [&log, &record].into_iter().zip(&whole[1..]) {
            assert!(!left.contains(&file) || fs::read(file).unwrap() == *bytes, "{left:?}");
        }
    }
    // The hint's suggestions work: with the file restored, with a backup, and with the other files moved away.
    for (file, bytes) in [&file, &log, &record].into_iter().zip(&whole) {
        fs::write(file, bytes).unwrap();
    }
    let server = home.start(&serve);
    let shown = server.run(&["threads", "show", "t"]).expect(0).out;
    assert!(shown.contains("precious"), "{shown}");
    server.stop(Signal::KILL);
    fs::write(&file, "").unwrap();
    home.run(&["restore", "b.db", "--to", "t.db", "--force"]).expect(0);
    let server = home.start(&serve);
    server.run(&["threads", "show", "t"]).expect(0);
    server.stop(Signal::KILL);
    fs::remove_file(&file).unwrap();
    for file in [&log, &record] {
        let _ = fs::rename(file, file.with_extension("aside"));
    }
    let server = home.start(&serve);
    assert_eq!(server.run(&["threads", "-q"]).expect(0).out, "");
}

#[test]
fn ctrl_c_cancels_the_run() {
    let (home, server) = demo();
    // The answer repeats its topic, so a long topic keeps the run busy.
    let topic = ["bees"; 40].join(" ");
    let mut command = server.command(&["run", "researcher", &topic, "--thread", "t", "--json"]);
    let out = home.work().join("run.out");
    command.stdin(Stdio::null()).stdout(fs::File::create(&out).unwrap()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    // Once an event is printed, the command handles the signal; the server knows the run even earlier.
    until(|| {
        let is_over = child.try_wait().unwrap().is_some();
        assert!(!is_over, "the run was over before it could be cancelled");
        fs::read_to_string(&out).unwrap().contains("run.started").then_some(())
    });
    kill_process(pid(&child), Signal::INT).unwrap();
    let status = until(|| child.try_wait().unwrap());
    assert_eq!(status.code(), Some(130));
    let runs = server.run(&["runs", "--thread", "t", "-q"]).expect(0).out;
    let shown = server.run(&["runs", "show", runs.trim(), "--json"]).expect(0).json();
    assert_eq!(shown["status"], "cancelled");
}

#[test]
fn a_stream_goes_on_after_the_server_was_away() {
    let home = Home::new();
    let address = lasting_address();
    let server = home.start(&["demo", "--listen", &address]);
    let (run, interrupt) = start_waiting_run(&server);
    let mut tail = server.command(&["tail", &run, "--follow", "--json"]);
    let out = home.work().join("tail.out");
    let err = home.work().join("tail.err");
    tail.stdin(Stdio::null());
    tail.stdout(fs::File::create(&out).unwrap()).stderr(fs::File::create(&err).unwrap());
    let mut child = tail.spawn().unwrap();
    until(|| fs::read_to_string(&out).unwrap().contains("interrupt.raised").then_some(()));
    server.stop(Signal::KILL);
    let server = home.start(&["demo", "--listen", &address]);
    server.run(&["approve", &interrupt, "--yes"]).expect(0);
    let status = until(|| child.try_wait().unwrap());
    let (out, err) = (fs::read_to_string(&out).unwrap(), fs::read_to_string(&err).unwrap());
    assert!(status.success(), "{out}\n{err}");
    assert!(err.contains("resuming after event"), "{err}");
    let number = |line: &str| {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        event["run_number"].as_u64().unwrap()
    };
    let numbers: Vec<_> = out.lines().map(number).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
}

#[test]
fn a_backup_that_fails_leaves_nothing() {
    let (home, server) = demo();
    let create = ["token", "create", "--label", "a", "--right", "admin", "--json"];
    let made = server.run(&create).expect(0).json();
    let secret = made["secret"].as_str().unwrap();
    server.run(&["backup", "b.db", "--token", secret]).complains(5, "'server'");
    let names = || -> Vec<_> {
        let all = fs::read_dir(home.work()).unwrap();
        let names = all.map(|it| it.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("b.db")).collect()
    };
    assert_eq!(names(), Vec::<String>::new());
    // The copy fails after its first pieces, because the process may not write more.
    let shell = format!("ulimit -f 1; exec {BINARY} backup b.db");
    let mut command = home.program("sh");
    command.env("TRILOGUE_URL", server.url()).args(["-c", &format!("trap '' XFSZ; {shell}")]);
    let ended = finish(command, "");
    assert_ne!(ended.code, 0, "{ended:?}");
    assert_eq!(names(), Vec::<String>::new(), "{ended:?}");
}
