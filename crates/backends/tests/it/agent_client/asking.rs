//! An agent's requests: rules decide first, then a client or person; files and terminals come from the server's folder or from the client.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};
use trilogue_backends::agent_client::{ClientTools, Processes};
use trilogue_backends::permission::{Rule, RuleText, Rules, Verdict};
use trilogue_backends::workspace::Files;
use trilogue_domain::event::InterruptEvent;
use trilogue_domain::interrupt::Effect;
use trilogue_domain::{Answer, Body, Code, InterruptKind, Json, Principal, Resolution, RunStatus};
use trilogue_runtime::{CallError, Client, ClientProfile};

use super::rig::{HEARD, Rig, alice, editor, json};

fn option(rig_interrupt: &trilogue_domain::Interrupt, effect: Effect) -> Answer {
    let mut options = rig_interrupt.options.iter();
    Answer::Option(
        options.find(|option| option.effect == effect && !option.always).unwrap().id.clone(),
    )
}

#[tokio::test]
async fn a_permission_is_asked_for_and_answered() {
    let rig = Rig::new(&[]).await;
    for (effect, said) in [(Effect::Allow, "permission: once"), (Effect::Reject, "permission: no")]
    {
        let run = rig.run(&rig.thread, "permission:edit:/a").await;
        assert_eq!(run.status, RunStatus::Interrupted);
        let interrupt = rig.pending(&run).await;
        assert_eq!(interrupt.kind, InterruptKind::Permission);
        let payload = interrupt.payload.to_value();
        assert_eq!(payload["toolCall"]["name"], "change_file");
        assert_eq!(payload.get("sessionId"), None);
        let run = rig.answer(&run, option(&interrupt, effect)).await;
        assert_eq!(
            (run.status, rig.reply_text(&run).await),
            (RunStatus::Completed, said.to_owned())
        );
    }
    rig.end().await;
}

#[tokio::test]
async fn a_permission_that_is_pending_goes_with_its_run() {
    let rig = Rig::new(&[]).await;
    let run = rig.run(&rig.thread, "permission").await;
    let run = rig.cancel(&run).await;
    assert_eq!(run.status, RunStatus::Cancelled);
    assert_eq!(rig.reply_text(&run).await, "permission: cancelled");
    rig.end().await;
}

#[tokio::test]
async fn rules_decide_before_anybody_is_asked() {
    let rule = |name: &str, kind: &str, path: Option<&str>, verdict| {
        Rule::new(RuleText {
            name: name.to_owned(),
            kinds: Some(vec![kind.to_owned()]),
            tool: Some("change_*".to_owned()),
            path: path.map(str::to_owned),
            verdict,
        })
        .unwrap()
    };
    let rules = Rules::new(vec![
        rule("reads", "read", None, Verdict::Allow),
        rule("sources", "edit", Some("src/**"), Verdict::Allow),
        rule("deletes", "delete", None, Verdict::Deny),
    ]);
    let rig = Rig::with_rules(&[], rules.unwrap(), |_| {}).await;
    let root = rig.folder.path().canonicalize().unwrap();
    let inside = format!("permission:edit:{}/src/a.rs", root.display());
    for (prompt, name, said) in [
        ("permission:read:/etc/passwd", "reads", "permission: once"),
        (&*inside, "sources", "permission: once"),
        ("permission:delete:/a", "deletes", "permission: no"),
    ] {
        let run = rig.run(&rig.thread, prompt).await;
        assert_eq!(
            (run.status, rig.reply_text(&run).await),
            (RunStatus::Completed, said.to_owned())
        );
        let events = rig.events(&run).await;
        let applied = events.iter().find_map(|event| match &event.body {
            Body::Interrupt(InterruptEvent::RuleApplied { rule, .. }) => Some(rule.clone()),
            _ => None,
        });
        assert_eq!(applied.as_deref(), Some(name));
    }
    let run = rig.run(&rig.thread, "permission:edit:/etc/passwd").await;
    assert_eq!(run.status, RunStatus::Interrupted);
    rig.cancel(&run).await;
    rig.end().await;
}

#[tokio::test]
async fn questions_are_asked_and_answered() {
    let rig = Rig::new(&[]).await;
    let run = rig.run(&rig.thread, "ask-form").await;
    assert_eq!(rig.pending(&run).await.kind, InterruptKind::Form);
    let answer = Answer::Json(Json::from_value(&json!({ "name": "Ada" })));
    let run = rig.answer(&run, answer).await;
    let said = rig.reply_text(&run).await;
    let answer: Value = serde_json::from_str(said.strip_prefix("answer: ").unwrap()).unwrap();
    assert_eq!(answer, json!({ "action": "accept", "content": { "name": "Ada" } }));
    let run = rig.run(&rig.thread, "ask-url").await;
    assert_eq!(rig.pending(&run).await.kind, InterruptKind::Url);
    let run = rig.cancel(&run).await;
    assert_eq!(run.status, RunStatus::Cancelled);
    rig.end().await;
}

#[tokio::test]
async fn what_an_answer_carries_beyond_itself_comes_with_it() {
    let rig = Rig::new(&[]).await;
    let run = rig.run(&rig.thread, "permission").await;
    let allow = option(&rig.pending(&run).await, Effect::Allow);
    let run = rig.answer_with(&run, allow, r#"{"more":1.50,"outcome":{"why":"so"}}"#).await;
    assert_eq!(rig.reply_text(&run).await, "permission: once");
    let kept = rig.events(&run).await.into_iter().find_map(|event| match event.body {
        Body::Interrupt(InterruptEvent::Resolved {
            resolution: Resolution::Answered { extra, .. },
            ..
        }) => extra,
        _ => None,
    });
    assert_eq!(kept.as_ref().map(Json::as_str), Some(r#"{"more":1.50,"outcome":{"why":"so"}}"#));
    let run = rig.run(&rig.thread, "ask-form").await;
    let filled = Answer::Json(json(r#"{"name":"Ada"}"#));
    let run = rig.answer_with(&run, filled, r#"{"more":[null]}"#).await;
    assert_eq!(
        rig.reply_text(&run).await,
        r#"answer: {"action":"accept","content":{"name":"Ada"},"more":[null]}"#
    );
    let heard = std::fs::read_to_string(rig.path(HEARD)).unwrap();
    let answers = heard.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let chosen = answers.into_iter().find(|line| line["answered"] == "session/request_permission");
    assert_eq!(
        chosen.unwrap()["result"],
        json!({ "more": 1.5, "outcome": { "outcome": "selected", "optionId": "once", "why": "so" } })
    );
    rig.end().await;
}

#[tokio::test]
async fn what_is_asked_about_a_prompt_is_asked_in_its_session() {
    for processes in [Processes::Thread, Processes::Shared] {
        for word in ["ask-call", "ask-call-text"] {
            let rig = Rig::with(&[], |launch| launch.processes = processes).await;
            let (thread, other) = (rig.thread().await, rig.thread().await);
            // A shared process has more than one session.
            rig.run(&other, "say:x").await;
            let run = rig.run(&thread, word).await;
            assert_eq!(rig.pending(&run).await.kind, InterruptKind::Form, "{processes:?}");
            let answer = Answer::Json(Json::from_value(&json!({ "name": "Ada" })));
            let run = rig.answer(&run, answer).await;
            assert!(rig.reply_text(&run).await.contains("accept"), "{processes:?}");
            rig.end().await;
        }
    }
}

#[tokio::test]
async fn files_and_terminals_are_ours_where_they_are_granted_and_nobody_s_else() {
    let rig = Rig::new(&[]).await;
    let told = rig.reply_to("init\nread:/etc/passwd\nterm:true").await;
    let lines: Vec<_> = told.lines().collect();
    let init: Value = serde_json::from_str(lines[0]).unwrap();
    let can = &init["clientCapabilities"];
    assert_eq!((&can["fs"]["readTextFile"], &can["terminal"]), (&json!(false), &json!(false)));
    assert_eq!(can["elicitation"], json!({ "form": {}, "url": {} }));
    assert!(lines[1].starts_with("read failed: -32601"), "{}", lines[1]);
    assert!(lines[2].starts_with("term failed: -32601"), "{}", lines[2]);
    rig.end().await;

    let rig = Rig::with(&[], |launch| {
        launch.grants.files = Files::Write;
        launch.grants.terminals = true;
    })
    .await;
    let file = rig.path("new.txt").display().to_string();
    let told = rig.reply_to(&format!("init\nwrite:{file}:hello\nread:{file}\nread:/etc/passwd\nterm:cat new.txt; echo $TRILOGUE_AGENT_INSTANCE")).await;
    let lines: Vec<_> = told.lines().collect();
    let init: Value = serde_json::from_str(lines[0]).unwrap();
    assert_eq!(init["clientCapabilities"]["fs"]["writeTextFile"], true);
    assert_eq!(lines[1], "write: {}");
    assert_eq!(lines[2], r#"read: {"content":"hello"}"#);
    assert!(lines[3].starts_with("read failed: -32602"), "{}", lines[3]);
    let output: Value = serde_json::from_str(lines[4].strip_prefix("term: ").unwrap()).unwrap();
    let output = output["output"].as_str().unwrap();
    assert!(output.starts_with("hello"), "{output}");
    assert!(uuid::Uuid::parse_str(output.trim_start_matches("hello").trim()).is_ok(), "{output}");
    assert_eq!(std::fs::read_to_string(file).unwrap(), "hello");
    rig.end().await;
}

#[tokio::test]
async fn rules_decide_about_files_and_terminals_of_ours_too() {
    let rule = |name: &str, kind: &str, path: Option<&str>, verdict| {
        let (kinds, path) = (Some(vec![kind.to_owned()]), path.map(str::to_owned));
        Rule::new(RuleText { name: name.to_owned(), kinds, tool: None, path, verdict }).unwrap()
    };
    let rules = |execute| {
        Rules::new(vec![
            rule("no secrets", "edit", Some("secrets/**"), Verdict::Deny),
            rule("notes", "edit", Some("notes/**"), Verdict::Ask),
            rule("no secrets in commands", "execute", Some("secrets/**"), Verdict::Deny),
            rule("commands", "execute", None, execute),
        ])
        .unwrap()
    };
    for execute in [Verdict::Allow, Verdict::Deny] {
        let rig = Rig::with_rules(&[], rules(execute), |launch| {
            launch.grants.files = Files::Write;
            launch.grants.terminals = true;
        })
        .await;
        for folder in ["secrets", "notes", "src"] {
            std::fs::create_dir(rig.path(folder)).unwrap();
        }
        std::os::unix::fs::symlink("secrets", rig.path("link")).unwrap();
        let at = |path: &str| rig.path(path).display().to_string();
        let written = [
            format!("write:{}:x", at("secrets/key")),
            format!("write:{}:x", at("link/key")),
            format!("write:{}:x", at("src/a")),
            "term:touch ran".to_owned(),
            "term:touch secrets/key".to_owned(),
        ];
        let run = rig.run(&rig.thread, &written.join("\n")).await;
        assert_eq!(run.status, RunStatus::Completed);
        let told = rig.reply_text(&run).await;
        let lines: Vec<_> = told.lines().collect();
        let denied = "failed: -32602 the permission rule 'no secrets' denies fs/write_text_file";
        assert_eq!(lines[0], format!("write {denied}"));
        assert_eq!(lines[1], format!("write {denied}"));
        assert_eq!(lines[2], "write: {}");
        let may_run = execute == Verdict::Allow;
        assert_eq!(lines[3].starts_with("term: {"), may_run, "{}", lines[3]);
        assert!(lines[4].contains("'no secrets in commands' denies"), "{}", lines[4]);
        assert!(!rig.path("secrets/key").exists() && rig.path("src/a").exists());
        assert_eq!(rig.path("ran").exists(), may_run);
        let events = rig.events(&run).await;
        let applied = events.iter().filter(|event| {
            matches!(
                event.body,
                Body::Interrupt(InterruptEvent::RuleApplied { allowed: false, .. })
            )
        });
        assert_eq!(applied.count(), if may_run { 3 } else { 4 });
        // A rule that asks makes the server ask a person about the call itself.
        for effect in [Effect::Reject, Effect::Allow] {
            let run = rig.run(&rig.thread, &format!("write:{}:noted", at("notes/a"))).await;
            assert_eq!(run.status, RunStatus::Interrupted);
            let interrupt = rig.pending(&run).await;
            let payload = interrupt.payload.to_value();
            assert_eq!(payload["toolCall"]["rawInput"]["content"], "noted");
            assert_eq!(payload["toolCall"]["locations"][0]["path"], at("notes/a"));
            assert!(!rig.path("notes/a").exists());
            rig.answer(&run, option(&interrupt, effect)).await;
            assert_eq!(rig.path("notes/a").exists(), effect == Effect::Allow);
        }
        rig.end().await;
    }
}

/// An editor that returns the request's content in every response.
#[derive(Debug)]
pub(super) struct Editor(pub(super) ClientProfile, pub(super) Principal);

#[async_trait]
impl Client for Editor {
    fn profile(&self) -> &ClientProfile {
        &self.0
    }

    fn principal(&self) -> &Principal {
        &self.1
    }

    async fn call(&self, method: &str, params: Json) -> Result<Json, CallError> {
        match method {
            "fs/read_text_file" => {
                let path = params.to_value()["path"].clone();
                Ok(Json::from_value(&json!({ "content": path })))
            }
            "_scripted/ask" => Ok(params),
            _ => Err(CallError::new(-32002, "Resource not found: x")),
        }
    }

    async fn notify(&self, _: &str, _: Json) {}
}

#[tokio::test]
async fn the_prompting_client_serves_what_is_forwarded() {
    let client = Arc::new(Editor(
        editor(r#"{"fs":{"readTextFile":true,"writeTextFile":true},"x":{}}"#),
        alice(),
    ));
    let script = "init\nread:/a/b\nwrite:/a:b\next";
    for forward in [true, false] {
        let rig = Rig::with(&[], |launch| {
            launch.client_tools = if forward { ClientTools::Forward } else { ClientTools::None };
        })
        .await;
        let row = rig.store.thread(&rig.by.scope(), &rig.thread).await.unwrap().unwrap();
        let attached = rig.runtime.attach(&row, client.clone());
        attached.take_control();
        let run = rig.run(&rig.thread, script).await;
        let told = rig.reply_text(&run).await;
        let lines: Vec<_> = told.lines().collect();
        let init: Value = serde_json::from_str(lines[0]).unwrap();
        assert_eq!(init["clientCapabilities"]["fs"]["readTextFile"], forward);
        assert_eq!(init["clientCapabilities"].get("x"), None, "what it means is not known");
        if forward {
            assert_eq!(init["clientInfo"]["name"], "editor");
            assert_eq!(lines[1], r#"read: {"content":"/a/b"}"#);
            assert_eq!(lines[2], "write failed: -32002 Resource not found: x");
        } else {
            assert_eq!(init["clientInfo"]["name"], "trilogue");
            assert!(lines[1].starts_with("read failed: -32601"), "{}", lines[1]);
        }
        assert_eq!(lines[3], r#"ext: {"later":[1.5,null],"sessionId":""}"#);
        drop(attached);
        rig.end().await;
    }
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_refused_and_the_question_stays() {
    let rig = Rig::new(&[]).await;
    let run = rig.run(&rig.thread, "ask-form").await;
    for (value, path) in [
        ("[1]", ""),
        ("5", ""),
        ("true", ""),
        ("\"Ada\"", ""),
        ("{}", ""),
        ("{\"name\":5}", "/name"),
        ("{\"name\":\"Ada\",\"deep\":{\"x\":1}}", "/deep"),
    ] {
        let refused = rig.answer_error(&run, Answer::Json(json(value))).await;
        assert_eq!(refused.code(), Code::AnswerInvalid, "{value}");
        assert_eq!(refused.violated()[0].path, path, "{value}");
        assert!(refused.hint_text().is_some());
    }
    let run = rig.answer(&run, Answer::Json(json("{\"name\":\"Ada\"}"))).await;
    assert_eq!(
        rig.reply_text(&run).await,
        r#"answer: {"action":"accept","content":{"name":"Ada"}}"#
    );
    for (value, action) in [("false", "decline"), ("null", "cancel")] {
        let run = rig.run(&rig.thread, "ask-form").await;
        let run = rig.answer(&run, Answer::Json(json(value))).await;
        assert_eq!(rig.reply_text(&run).await, format!(r#"answer: {{"action":"{action}"}}"#));
    }
    let run = rig.run(&rig.thread, "ask-url").await;
    for value in ["\"no, never!\"", "\"yes\"", "{}", "1"] {
        let refused = rig.answer_error(&run, Answer::Json(json(value))).await;
        assert_eq!(refused.code(), Code::AnswerInvalid, "{value}");
    }
    let run = rig.answer(&run, Answer::Json(json("true"))).await;
    assert_eq!(rig.reply_text(&run).await, r#"answer: {"action":"accept"}"#);
    for (value, action) in [("false", "decline"), ("null", "cancel")] {
        let run = rig.run(&rig.thread, "ask-url").await;
        let run = rig.answer(&run, Answer::Json(json(value))).await;
        assert_eq!(rig.reply_text(&run).await, format!(r#"answer: {{"action":"{action}"}}"#));
    }
    rig.end().await;
}

/// A refusal must never be an id that the agent takes for consent.
#[tokio::test]
async fn a_denied_call_gets_no_option_that_also_allows() {
    let deny = RuleText {
        name: "no".to_owned(),
        kinds: None,
        tool: None,
        path: None,
        verdict: Verdict::Deny,
    };
    let rules = Rules::new(vec![Rule::new(deny).unwrap()]).unwrap();
    let rig = Rig::with_rules(&["--heard", "{store}-heard"], rules, |_| {}).await;
    let option = |id: &str, kind: &str| json!({ "optionId": id, "name": kind, "kind": kind });
    let (allow, reject) = (option("x", "allow_once"), option("x", "reject_once"));
    let distinct = option("no", "reject_once");
    for (id, options, chosen) in [
        ("a", json!([allow, reject]), None),
        ("b", json!([reject, allow]), None),
        ("c", json!([]), None),
        ("d", json!([allow, reject, distinct]), Some("no")),
        ("e", json!([reject, reject]), Some("x")),
    ] {
        let call = json!({ "toolCallId": "c", "title": "rm", "kind": "execute" });
        let params = json!({ "sessionId": "SESSION", "toolCall": call, "options": options });
        let request = json!({
            "jsonrpc": "2.0", "id": id, "method": "session/request_permission", "params": params,
        });
        let run = rig.run(&rig.thread, &format!("put:{request}\nsay:behind")).await;
        assert_eq!(run.status, RunStatus::Completed, "{id}");
        let answer = super::malformed::answer(&rig, &format!("\"{id}\"")).await;
        assert_eq!(answer["result"]["outcome"]["optionId"].as_str(), chosen, "{id}: {answer}");
    }
    rig.end().await;
}
