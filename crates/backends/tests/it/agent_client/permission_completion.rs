//! A permission request has only the changed members of its tool call: omitted members keep their values.

use serde_json::{Value, json};
use trilogue_backends::permission::{Rule, RuleText, Rules, Verdict};
use trilogue_domain::event::InterruptEvent;
use trilogue_domain::interrupt::Effect;
use trilogue_domain::{Answer, Body, RunStatus};
use trilogue_mapping::agent_client::{ClientQuestion, client_question};
use trilogue_store::rows::RunRow;
use trilogue_wire::agent_client::ClientCapabilities;

use super::rig::Rig;

/// An update of a tool call, and a permission request about it.
fn script(call: &Value, options: &str, asked: &Value) -> String {
    let mut update = call.clone();
    update["sessionUpdate"] = json!("tool_call");
    update["toolCallId"] = json!("k");
    format!("raw:{update}\nmay:{options}:{asked}")
}

async fn rule_of(rig: &Rig, run: &RunRow) -> Option<(String, bool)> {
    rig.events(run).await.into_iter().find_map(|event| match event.body {
        Body::Interrupt(InterruptEvent::RuleApplied { rule, allowed, .. }) => Some((rule, allowed)),
        _ => None,
    })
}

#[tokio::test]
async fn rules_decide_by_all_of_the_call() {
    let rule = |name: &str, kind: Option<&str>, path: Option<&str>, verdict| {
        Rule::new(RuleText {
            name: name.to_owned(),
            kinds: kind.map(|kind| vec![kind.to_owned()]),
            tool: None,
            path: path.map(str::to_owned),
            verdict,
        })
        .unwrap()
    };
    let rules = Rules::new(vec![
        rule("secrets", None, Some("**/*.env"), Verdict::Deny),
        rule("deletes", Some("delete"), None, Verdict::Deny),
        rule("sources", Some("edit"), Some("src/**"), Verdict::Allow),
    ]);
    let rig = Rig::with_rules(&[], rules.unwrap(), |_| {}).await;
    let root = rig.folder.path().canonicalize().unwrap();
    let at = |path: &str| json!([{ "path": root.join(path) }]);
    let diff = |path: &str| json!([{ "type": "diff", "path": root.join(path), "newText": "x" }]);
    let source = json!({ "kind": "edit", "locations": at("src/a.rs") });
    let only = json!({ "toolCallId": "k" });
    let both = "allow_once,reject_once";
    let (allowed, denied) = (Some(("sources", true)), |rule| Some((rule, false)));
    for (call, options, asked, decided, said) in [
        (&source, both, &only, allowed, "allow_once"),
        (&json!({ "kind": "delete" }), both, &only, denied("deletes"), "reject_once"),
        (&json!({ "locations": at("src/.env") }), both, &only, denied("secrets"), "reject_once"),
        // The agent offers no option that rejects.
        (&json!({ "kind": "delete" }), "allow_once", &only, denied("deletes"), "cancelled"),
        // The effect of the call is in its input, independent of what the call shows.
        (
            &json!({ "kind": "edit", "locations": at("src/a.rs"), "rawInput": { "file_path": root.join("src/.env") } }),
            both,
            &only,
            denied("secrets"),
            "reject_once",
        ),
        (
            &json!({ "kind": "edit", "locations": at("src/a.rs"), "rawInput": { "command": "cat src/.env" } }),
            both,
            &only,
            denied("secrets"),
            "reject_once",
        ),
        // Members of the request take precedence.
        (
            &source,
            both,
            &json!({ "toolCallId": "k", "kind": "delete" }),
            denied("deletes"),
            "reject_once",
        ),
        (
            &source,
            both,
            &json!({ "toolCallId": "k", "content": diff("src/.env") }),
            denied("secrets"),
            "reject_once",
        ),
    ] {
        let run = rig.run(&rig.thread, &script(call, options, asked)).await;
        let decided = decided.map(|(rule, allowed)| (rule.to_owned(), allowed));
        assert_eq!(rule_of(&rig, &run).await, decided, "{call} {asked}");
        assert_eq!(run.status, RunStatus::Completed, "{call} {asked}");
        assert_eq!(rig.reply_text(&run).await, format!("permission: {said}"), "{call} {asked}");
    }
    // An omitted path prevents a rule from allowing the call, like a path in the request.
    let outside = json!({ "kind": "read", "locations": [{ "path": "/etc/passwd" }] });
    let inside = json!({ "toolCallId": "k", "kind": "edit", "content": diff("src/a.rs") });
    let moved = json!({ "toolCallId": "k", "locations": "src/a.rs" });
    // So does an input that names another file, or a command, which may use any file.
    let with_input = |input: Value| {
        let mut call = source.clone();
        call["rawInput"] = input;
        call
    };
    let other = with_input(json!({ "path": root.join("README") }));
    let listed = with_input(json!({ "changes": { (root.join("README").to_string_lossy()): {} } }));
    let command = with_input(json!({ "command": ["make", "all"] }));
    for (call, asked) in [
        (&outside, &inside),
        (&source, &moved),
        (&other, &only),
        (&listed, &only),
        (&command, &only),
    ] {
        let run = rig.run(&rig.thread, &script(call, both, asked)).await;
        assert_eq!(run.status, RunStatus::Interrupted, "{call} {asked}");
        rig.cancel(&run).await;
    }
    rig.end().await;
}

#[tokio::test]
async fn who_is_asked_sees_all_of_the_call_and_clients_get_what_came() {
    let rig = Rig::new(&[]).await;
    let call = json!({
        "title": "Remove build", "name": "rm", "kind": "delete", "locations": [{ "path": "/b" }],
        "content": [
            { "type": "diff", "path": "/b/a", "oldText": "old", "newText": "new" },
            { "type": "content", "content": { "type": "text", "text": "as you said" } },
        ],
        "rawInput": { "cmd": "rm -rf" },
    });
    let asked = json!({ "toolCallId": "k", "title": "Remove it", "kind": null });
    let run = rig.run(&rig.thread, &script(&call, "allow_once,reject_once", &asked)).await;
    assert_eq!(run.status, RunStatus::Interrupted);
    let interrupt = rig.pending(&run).await;
    let shown = interrupt.payload.to_value()["toolCall"].take();
    let mut whole = call;
    whole["toolCallId"] = json!("k");
    whole["title"] = json!("Remove it");
    assert_eq!(shown, whole);
    let words: Vec<_> = interrupt.prompt.iter().filter_map(|part| part.as_text()).collect();
    assert_eq!(words, ["Remove it", "as you said"]);
    let ClientQuestion::Permission(params) =
        client_question(&interrupt, "s", &ClientCapabilities::default())
    else {
        panic!("it is no permission")
    };
    let params: Value = serde_json::from_slice(&params).unwrap();
    assert_eq!(params["toolCall"], asked);
    let members: Vec<_> = params.as_object().unwrap().keys().cloned().collect();
    assert_eq!(members.len(), 3, "{members:?}");
    let reject = interrupt.options.iter().find(|option| option.effect == Effect::Reject).unwrap();
    let run = rig.answer(&run, Answer::Option(reject.id.clone())).await;
    assert_eq!(rig.reply_text(&run).await, "permission: reject_once");
    rig.end().await;
}
