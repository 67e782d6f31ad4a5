//! Commands that work, or are refused, without a server.

use std::os::unix::fs::PermissionsExt as _;

use crate::harness::Home;

fn check(home: &Home, config: &str) -> (i32, String) {
    home.write("t.toml", config);
    let ended = home.run(&["serve", "--config", "t.toml", "--check"]);
    (ended.code, ended.err)
}

#[test]
fn a_slip_in_the_configuration_names_place_and_nearest_key() {
    let home = Home::new();
    let (code, err) = check(&home, "[server]\nlisten = \"127.0.0.1:1\"\nno_aut = true\n");
    assert_eq!(code, 2);
    assert_eq!(err, "error: t.toml:3:1: unknown key `no_aut`, did you mean `no_auth`?\n");
    let (code, err) = check(&home, "[agents.a]\nkind = \"builtin\"\nbuiltin = \"ecko\"\n");
    assert_eq!(code, 2);
    assert!(err.contains("unknown built-in agent 'ecko'") && err.contains("\"echo\""), "{err}");
    let (code, err) =
        check(&home, "[agents.a]\nkind = \"agent-connect\"\ncwd = \"x\"\nurl = \"http://x\"\n");
    assert_eq!(code, 2);
    assert!(err.contains("`agents.a.cwd` is for a server that `command` starts"), "{err}");
    let (code, err) = check(&home, "[store]\nurl = \"mysql://user:secret@host/db\"\n");
    assert_eq!(code, 2);
    assert!(err.contains("'mysql:…'") && !err.contains("secret"), "{err}");
    let url = "postgres://user:secret@host/db?sslmode=prefer";
    let (code, err) = check(&home, &format!("[store]\nurl = \"{url}\"\n"));
    assert_eq!(code, 2);
    assert!(err.contains("sslmode 'prefer'") && !err.contains("secret"), "{err}");
    let text = "[store]\nurl = \"postgres://user:hunter2@host/db\"\n";
    home.write("t.toml", text);
    let ended = home.run(&["serve", "--config", "t.toml", "--check"]).expect(0);
    assert!(ended.out.contains("\"postgres://host:5432/db\""), "{}", ended.out);
    assert!(!format!("{}{}", ended.out, ended.err).contains("hunter2"), "{}", ended.out);
    let (code, err) = check(&home, "[cluster]\nname = \"a b\"\n");
    assert_eq!(code, 2);
    assert!(err.contains("`cluster.name`") && err.contains("hint"), "{err}");
    let ended = home.run(&["serve", "--config", "missing.toml"]);
    assert_eq!(ended.code, 2);
    assert!(ended.err.contains("missing.toml"), "{}", ended.err);
}

#[test]
fn check_explains_each_setting_and_where_it_came_from() {
    let home = Home::new();
    home.write("t.toml", "[log]\nlevel = \"warn\"\n[agents.echo]\nkind = \"builtin\"\n");
    let arguments = ["serve", "--config", "t.toml", "--check", "--store", "memory:"];
    let ended = home.run(&arguments).expect(0);
    let row = |key: &str| {
        let row = ended.out.lines().find(|line| line.split_whitespace().next() == Some(key));
        row.unwrap().split_whitespace().skip(1).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(row("log.level"), "\"warn\" t.toml:2");
    assert_eq!(row("store.url"), "\"memory:\" --store");
    assert_eq!(row("server.shutdown_deadline"), "\"30s\" default");
    let json = home.run(&[&arguments[..], &["--json"]].concat()).expect(0).json();
    assert!(json["settings"].as_array().unwrap().len() > 20, "{json}");
    assert!(!home.state().exists(), "a check starts nothing");
}

#[test]
#[expect(clippy::print_stderr, reason = "a test that cannot make its check says so")]
fn a_state_folder_of_another_user_starts_no_server() {
    if !rustix::process::geteuid().is_root() {
        let why = "only root can give a folder to another user";
        assert!(std::env::var_os("CI").is_none(), "CI has to check this: {why}");
        eprintln!("NOT CHECKED: {why}");
        return;
    }
    let home = Home::new();
    std::fs::create_dir_all(home.state()).unwrap();
    std::os::unix::fs::chown(home.state(), Some(65_534), None).unwrap();
    let ended = home.run(&["demo", "--listen", "127.0.0.1:0"]);
    assert!(ended.code != 0 && ended.err.contains("belongs to user 65534"), "{ended:?}");
    assert_eq!(std::fs::read_dir(home.state()).unwrap().count(), 0, "nothing is written there");
}

#[test]
fn a_public_bind_is_refused_with_the_fix() {
    let home = Home::new();
    let public = "[server]\nlisten = \"0.0.0.0:0\"\n";
    let (code, err) = check(&home, public);
    assert_eq!(code, 2);
    assert!(err.contains("hint: put a TLS proxy in front"), "{err}");
    let (code, err) = check(&home, &format!("{public}no_auth = true\n"));
    assert_eq!(code, 2);
    assert!(err.contains("hint: remove `no_auth`"), "{err}");
    home.write("t.toml", "");
    let flags = ["serve", "--config", "t.toml", "--listen", "0.0.0.0:0", "--no-auth"];
    home.run(&flags).complains(2, "no_auth");
    let (code, err) = check(&home, &format!("{public}dangerously_plain_http = true\n"));
    assert_eq!(code, 0);
    assert!(err.contains("override in force: server.dangerously_plain_http"), "{err}");
}

#[test]
fn without_a_server_the_error_names_the_address_and_what_to_start() {
    let home = Home::new();
    let ended = home.run(&["agents", "--url", "http://127.0.0.1:1"]).expect(6);
    assert!(ended.err.starts_with("error: no server answers at http://127.0.0.1:1: "), "{ended:?}");
    assert!(ended.err.contains("hint: start one with `trilogue demo`"), "{ended:?}");
    assert_eq!(ended.out, "");
    home.run(&["agents", "--url", "ftp://x"]).expect(2);
    home.run(&["agents", "--url", "nonsense"]).expect(2);
}

#[test]
fn a_token_file_that_others_can_read_is_not_used() {
    let home = Home::new();
    let folder = home.state().join("tokens");
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("127.0.0.1-1");
    std::fs::write(&file, "tril_x\n").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    home.run(&["agents", "--url", "http://127.0.0.1:1"]).complains(5, "chmod 600");
}

#[test]
fn usage_errors_help_and_completions_keep_their_streams() {
    let home = Home::new();
    let ended = home.run(&["nonsense"]).expect(2);
    assert!(ended.out.is_empty() && ended.err.contains("nonsense"));
    let ended = home.run(&["--help"]).expect(0);
    assert!(ended.err.is_empty() && ended.out.contains("Exit codes:"));
    for shell in ["bash", "zsh", "fish"] {
        let ended = home.run(&["completions", shell]).expect(0);
        assert!(ended.out.contains("mailcomposer") || ended.out.contains("completions"));
    }
    home.run(&["run", "echo", "x", "--save", "out", "--raw", "--json"]).complains(2, "--raw");
}

#[test]
fn the_reference_of_the_configuration_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/configuration.md");
    let written = std::fs::read_to_string(path).unwrap();
    assert!(written == trilogue::config::reference(), "run: cargo xtask tidy --bless");
}

#[test]
fn settings_that_others_can_change_or_that_mean_nothing_are_refused() {
    let home = Home::new();
    for (setting, told) in [
        ("allowed_hosts = \"*\"", "patterns are not"),
        ("allowed_hosts = [\"*.example.com\"]", "patterns are not"),
        ("allowed_origins = \"https://app.example.com/x\"", "https://app.example.com"),
    ] {
        let (code, err) = check(&home, &format!("[server]\n{setting}\n"));
        assert!(code == 2 && err.contains(told), "{code} {err}");
    }
    let file = home.write("t.toml", "");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
    home.run(&["serve", "--config", "t.toml", "--check"]).complains(2, "chmod o-w");
}

#[test]
fn the_way_between_two_protocols_is_shown_without_a_server() {
    let home = Home::new();
    let ended = home.run(&["fidelity", "--from", "client", "--to", "native", "--json"]).expect(0);
    let rows = ended.json()["items"].as_array().unwrap().clone();
    let state = rows.iter().find(|row| row["concept"] == "state").unwrap();
    assert_eq!((&state["protocol"], &state["to"]), (&"client".into(), &"native".into()));
    assert_eq!(state["verdict"], "lost", "{state}");
    let all = home.run(&["fidelity"]).expect(0).out;
    assert!(all.lines().count() > rows.len() * 3, "{all}");
    let refused = home.run(&["fidelity", "--to", "acp"]).expect(2);
    assert!(refused.err.contains("native, communication, connect, client"), "{}", refused.err);
}

#[test]
fn a_word_of_other_programs_is_explained() {
    let home = Home::new();
    for (word, hint) in [
        (
            "restart",
            "stop your server with `trilogue stop`, and start it again with `trilogue demo`",
        ),
        ("ps", "see the server with `trilogue status`, and its runs with `trilogue runs`"),
        ("statsu", "did you mean 'status'?"),
        ("zzz", "list the commands with --help"),
    ] {
        let err = home.run(&[word]).expect(2).err;
        assert_eq!(err, format!("error: unknown command '{word}'\nhint: {hint}\n"));
    }
    home.run(&["token", "ls"]).complains(2, "ls");
    home.run(&["serve", "--check"]).complains(2, "hint: write one with `trilogue init --file");
    let (code, err) = check(&home, "[agents.a]\nkind = \"agent-client\"\nargs = [\"--acp\"]\n");
    assert_eq!(code, 2);
    assert!(err.contains("hint: write the arguments behind the program: command = ["), "{err}");
    let (code, err) = check(&home, "[agents.a]\ncommand = \"x\"\n");
    assert!(code == 2 && err.contains("the key `kind` is missing"), "{err}");
    assert!(err.contains("kind = \"agent-client\" for a command"), "{err}");
    let (code, err) = check(&home, "[log]\nlevel = \"warning\"\n");
    assert!(code == 2 && err.contains("unknown level `warning`, did you mean `warn`?"), "{err}");
    let (code, err) = check(&home, "[log]\nlevel = \"info,trilogue_store=debg\"\n");
    assert!(code == 2 && err.contains("unknown level `debg`, did you mean `debug`?"), "{err}");
    let (code, err) = check(&home, "[log]\nlevel = \"debug,h2=info\"\n");
    assert_eq!(code, 0, "{err}");
}
