//! `[notify]`: a person is notified that an agent waits.

use serde_json::Value;

use crate::harness::{Home, Server, until};
use crate::webhooks::Listening;

/// Starts a server with an agent that asks before it sends a mail, and these settings.
fn serve(home: &Home, settings: &str) -> Server {
    let config = home.write(
        "trilogue.toml",
        &format!(
            "[agents.mailcomposer]\nkind = \"builtin\"\n[store]\nurl = \"sqlite:t.db\"\n{settings}"
        ),
    );
    home.start(&["serve", "--config", config.to_str().unwrap(), "--listen", "127.0.0.1:0"])
}

fn ask(server: &Server) -> String {
    let mail = "Write to ada@example.com saying that lunch is at noon";
    server.run(&["run", "mailcomposer", mail]).expect(3);
    let waiting = server.run(&["inbox", "-q"]).expect(0).out;
    waiting.trim().to_owned()
}

#[test]
fn a_command_is_told_of_each_question_once() {
    let home = Home::new();
    let told = home.work().join("told");
    let script = format!("cat >> {}", told.display());
    let settings = format!("[notify]\ncommand = [\"sh\", \"-c\", {script:?}]\n");
    let server = serve(&home, &settings);
    let question = ask(&server);
    let line = until(|| std::fs::read_to_string(&told).ok().filter(|it| it.ends_with('\n')));
    let notice: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(notice["type"], "interrupt.raised", "{notice}");
    assert_eq!(notice["interrupt_id"], question.as_str(), "{notice}");
    assert_eq!(notice["agent"], "mailcomposer", "{notice}");
    assert_eq!(notice["kind"], "mail_send_approval", "{notice}");
    // The command in the notice answers the question.
    let answer = notice["answer"].as_str().unwrap();
    assert!(answer.contains("approve") && answer.contains(&question), "{notice}");
    server.run(&["approve", &question, "--yes"]).expect(0);
    let second = ask(&server);
    let lines = until(|| {
        let text = std::fs::read_to_string(&told).unwrap();
        (text.lines().count() > 1).then_some(text)
    });
    assert_eq!(lines.lines().count(), 2, "{lines}");
    assert!(lines.lines().nth(1).unwrap().contains(&second), "{lines}");
}

#[test]
fn an_address_is_told_with_a_signature() {
    let home = Home::new();
    // It uses the secret of this user's server, which the server creates when it starts.
    drop(serve(&home, ""));
    let listening = Listening::start(&home, &["--count", "1", "--json"]);
    let settings = format!(
        "[notify]\nurl = \"http://{}/waits\"\n[egress]\nallow = [\"127.0.0.1\"]\n",
        listening.address
    );
    let server = serve(&home, &settings);
    let question = ask(&server);
    let lines = listening.end();
    assert_eq!(lines.len(), 1, "{lines:?}");
    let delivery: Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!((&delivery["verdict"], &delivery["path"]), (&"verified".into(), &"/waits".into()));
    assert_eq!(delivery["body"]["type"], "interrupt.raised", "{delivery}");
    assert_eq!(delivery["body"]["interrupt_id"], question.as_str(), "{delivery}");
}
