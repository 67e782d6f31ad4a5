//! Audit lines, as a server that logs nothing else writes them.

use serde_json::Value;

use crate::approval::waiting;
use crate::harness::Home;

const CONFIG: &str = r#"
[agents.mailcomposer]
kind = "builtin"

[log]
level = "error"

[egress]
allow = ["10.9.8.7"]
"#;

#[test]
fn who_did_what_is_in_the_log_in_one_form() {
    let home = Home::new();
    home.write("t.toml", CONFIG);
    let arguments =
        ["serve", "--config", "t.toml", "--listen", "127.0.0.1:0", "--store", "memory:"];
    let server = home.start(&arguments);
    let create = ["token", "create", "--label", "a", "--right", "read", "--right", "answer"];
    let made = server.run(&[&create[..], &["--json"]].concat()).expect(0).json();
    let (id, secret) = (made["token"]["id"].as_str().unwrap(), made["secret"].as_str().unwrap());
    let (run, interrupt) = waiting(&server);
    let answer = ["approve", interrupt.as_str(), "--yes", "--token", secret];
    server.run(&answer).expect(0);
    server.run(&["token", "revoke", id]).expect(0);
    server.run(&["agents", "--token", secret]).expect(5);

    let log = home.log();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let audits: Vec<_> = lines.filter(|line| line["target"] == "trilogue_audit").collect();
    let of = |event: &str| -> Vec<&Value> {
        audits.iter().filter(|line| line["audit"] == event).collect()
    };
    let only = |event: &str| match of(event)[..] {
        [line] => line,
        _ => panic!("{event}: {log}"),
    };
    let created = only("token_created");
    assert_eq!((&created["tenant"], &created["principal"]), (&"default".into(), &"owner".into()));
    assert_eq!(created["subject"], id);
    assert!(created["detail"].as_str().unwrap().contains("rights read answer"), "{created}");
    let answered = only("question_answered");
    assert_eq!((&answered["token"], &answered["subject"]), (&id.into(), &interrupt.into()));
    let detail = answered["detail"].as_str().unwrap();
    assert!(detail.contains("mailcomposer") && detail.contains(&run), "{detail}");
    let revoked = only("token_revoked");
    assert_eq!((&revoked["subject"], &revoked["token"]), (&id.into(), &created["token"]));
    let failed = *of("authentication_failed").last().unwrap();
    assert!(failed.get("principal").is_none(), "{failed}");
    let settings = of("setting_in_force");
    let setting = settings.iter().find(|line| line["subject"] == "egress.allow").unwrap();
    assert!(setting["detail"].as_str().unwrap().contains("10.9.8.7"), "{setting}");
    let of_agents =
        settings.iter().find(|line| line["subject"].as_str().unwrap().starts_with("agents."));
    assert!(of_agents.is_none(), "agents without settings have none to mention: {of_agents:?}");
    assert!(!log.contains(secret), "a secret is in the log");
}
