//! A store that outgrows its machine: a server on a file, a copy, and a server on the database.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;
use trilogue_testkit::services::{new_schema, service};
use trilogue_testkit::until;

use crate::approval::start_waiting_run;
use crate::harness::{BINARY, Home, audits, lasting_address};
use crate::webhooks::run_with_callback;

/// Longer than a copy takes.
const LIMIT: Duration = Duration::from_secs(60);

/// A new schema in the tests' private PostgreSQL, with a password that no output may show.
pub(crate) fn empty_database() -> String {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (_, schema) = runtime.block_on(new_schema("copy")).unwrap();
    let server = service("TRILOGUE_POSTGRES").unwrap();
    let server = server.replace('@', ":sesame@");
    format!("{server}?options=-csearch_path%3D{schema}")
}

#[test]
fn a_server_moves_to_postgresql_with_its_conversations_questions_and_tokens() {
    // Before the server starts: it fails if PostgreSQL is missing.
    let [to, rehearsed] = [empty_database(), empty_database()];
    let home = Home::new();
    let address = lasting_address();
    let server = home.start(&["demo", "--listen", &address]);
    server.run(&["run", "echo", "remember", "--thread", "t"]).expect(0);
    let (run, interrupt) = start_waiting_run(&server);
    let threads = server.run(&["threads", "-q"]).expect(0).out;
    let conversation = server.run(&["threads", "show", "t", "--json"]).expect(0).json();
    let from = format!("sqlite:{}", home.state().join("trilogue.db").display());

    // A server may use the store during a rehearsal.
    let rehearsal = home.run(&["copy", &from, &rehearsed, "--json"]).expect(0);
    assert!(!rehearsal.out.contains("sesame"), "{}", rehearsal.out);
    let report = rehearsal.json();
    assert_eq!((&report["threads"], &report["runs"]), (&2.into(), &2.into()), "{report}");

    assert!(server.stop(Signal::TERM).success());
    let copied = home.run(&["copy", &from, &to, "--with-tokens", "--with-runs"]).expect(0);
    assert!(copied.out.starts_with("copied: 2 threads, 2 runs, "), "{}", copied.out);
    assert!(copied.err.contains("verified: ") && copied.err.contains("`store.url`"), "{copied:?}");
    assert!(!copied.err.contains("sesame"), "{}", copied.err);
    let [line] = &audits(&copied.err, "store_copied")[..] else { panic!("{}", copied.err) };
    assert!(line["subject"].as_str().unwrap().starts_with("postgres://"), "{line}");
    let user = rustix::process::getuid().as_raw();
    let detail = format!(
        "by the user {user} of the system; from {from:?}; runs that had not ended: taken; tokens: taken"
    );
    assert_eq!(line["detail"], detail, "{line}");
    let again = home.run(&["copy", &from, &to]).expect(7);
    assert!(again.err.contains("hint: name an empty database"), "{}", again.err);
    assert!(!again.err.contains("sesame"), "{}", again.err);

    let agents = "[agents.echo]\nkind = \"builtin\"\n[agents.mailcomposer]\nkind = \"builtin\"\n";
    home.write("t.toml", &format!("[store]\nurl = \"{to}\"\n{agents}"));
    let server = home.start(&["serve", "--config", "t.toml", "--listen", &address]);
    assert_eq!(server.run(&["threads", "-q"]).expect(0).out, threads);
    let shown = server.run(&["threads", "show", "t", "--json"]).expect(0).json();
    assert_eq!(shown["messages"], conversation["messages"]);
    assert!(conversation["messages"].as_array().is_some_and(|all| all.len() == 2), "{shown}");
    assert_eq!(server.run(&["inbox", "-q"]).expect(0).out.trim(), interrupt);
    server.run(&["approve", &interrupt, "--yes"]).expect(0);
    let events = server.run(&["tail", &run, "--follow", "--json"]).expect(0).lines();
    assert_eq!(events.last().unwrap()["outcome"]["status"], "completed");
    server.run(&["run", "echo", "goes on", "--thread", "t"]).expect(0);
    let shown = server.run(&["threads", "show", "t"]).expect(0).out;
    assert!(shown.contains("remember") && shown.contains("goes on"), "{shown}");
}

#[test]
fn a_copy_tells_of_cancelled_runs_only_if_there_were_some() {
    let (none, one) = (empty_database(), empty_database());
    let home = Home::new();
    let from = format!("sqlite:{}", home.state().join("trilogue.db").display());
    let server = home.start(&["demo", "--listen", &lasting_address()]);
    server.run(&["run", "echo", "ended", "--thread", "t"]).expect(0);
    let copied = home.run(&["copy", &from, &none]).expect(0);
    assert!(!copied.err.contains("cancelled"), "{}", copied.err);
    start_waiting_run(&server);
    let copied = home.run(&["copy", &from, &one]).expect(0);
    assert!(copied.err.contains("had not ended: 1. Their open runs were cancelled"), "{copied:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn callbacks_are_copied_only_on_demand() {
    let home = Home::new();
    let from = format!("sqlite:{}", home.state().join("trilogue.db").display());
    let demo = ["demo", "--listen", &lasting_address(), "--allow-egress", "127.0.0.1"];
    let server = home.start(&demo);
    // Nothing listens there.
    let run = run_with_callback(&server, &json!(format!("http://{}/hook", lasting_address())));
    server.run(&["tail", run["run_id"].as_str().unwrap(), "--follow"]).expect(0);
    assert!(server.stop(Signal::TERM).success());
    for (more, expected) in [(&[][..], 0), (&["--with-runs"], 1)] {
        let (database, schema) = new_schema("copy").await.unwrap();
        let to =
            format!("{}?options=-csearch_path%3D{schema}", service("TRILOGUE_POSTGRES").unwrap());
        let copied = home.run(&[&["copy", &from, &to][..], more].concat()).expect(0);
        let has_note =
            copied.err.contains("callbacks that were not delivered: 1. They were left out");
        assert_eq!(has_note, more.is_empty(), "{copied:?}");
        let sql = format!("SELECT count(*) FROM {schema}.queue WHERE kind = 'callback'");
        let callbacks: i64 = database.query_one(&sql, &[]).await.unwrap().get(0);
        assert_eq!(callbacks, expected, "{more:?}");
        database.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_is_killed_has_no_run_that_could_start() {
    let (database, schema) = new_schema("copy").await.unwrap();
    let to = format!("{}?options=-csearch_path%3D{schema}", service("TRILOGUE_POSTGRES").unwrap());
    let home = Home::new();
    let from = format!("sqlite:{}", home.state().join("trilogue.db").display());
    let server = home.start(&["demo", "--listen", &lasting_address()]);
    start_waiting_run(&server);
    assert!(server.stop(Signal::TERM).success());

    let mut copy = home.program(BINARY).args(["copy", &from, &to]).spawn().unwrap();
    // As soon as a server could open the copy, the command ends.
    let runs = format!("SELECT count(*) FROM {schema}.runs");
    let copied = async || {
        let found = database.query_one(&runs, &[]).await.ok()?;
        (found.get::<_, i64>(0) > 0).then_some(())
    };
    until("the copy", LIMIT, copied).await.unwrap();
    copy.kill().unwrap();
    copy.wait().unwrap();
    let agents = "[agents.echo]\nkind = \"builtin\"\n[agents.mailcomposer]\nkind = \"builtin\"\n";
    home.write("t.toml", &format!("[store]\nurl = \"{to}\"\n{agents}"));
    let server = home.start(&["serve", "--config", "t.toml", "--listen", "127.0.0.1:0"]);
    assert_eq!(server.run(&["inbox", "-q"]).expect(0).out, "");
    drop(server);
    database.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).await.unwrap();
}

#[test]
fn a_copy_that_cannot_be_made_says_why() {
    let home = Home::new();
    let help = home.run(&["copy", "--help"]).expect(0).out;
    assert!(help.contains("For a final copy, stop the server first"), "{help}");
    let unreachable = "postgres://me:sesame@127.0.0.1:1/db";
    home.write("t.toml", "[store]\nurl = \"memory:\"\npassword_env = \"NO_SUCH_VARIABLE\"\n");
    home.run(&["copy", "sqlite:t.db", unreachable]).complains(2, "t.db");
    home.run(&["copy", "memory:", unreachable]).complains(2, "from SQLite to PostgreSQL");
    home.run(&["copy", "sqlite:t.db", unreachable, "--config", "t.toml"])
        .complains(2, "NO_SUCH_VARIABLE");
    home.write("not-a-store.db", "not a database");
    let ended = home.run(&["copy", "sqlite:not-a-store.db", unreachable]);
    assert!(ended.code != 0 && ended.err.contains("not-a-store.db"), "{ended:?}");
    assert!(!ended.err.contains("sesame"), "{ended:?}");
}
