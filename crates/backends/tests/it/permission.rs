//! Permission rules of agents in this process.

use std::sync::Arc;

use serde_json::{Value, json};
use trilogue_backends::permission::{Rule, RuleText, Rules, Verdict};
use trilogue_domain::event::InterruptEvent;
use trilogue_domain::{Body, RuleOrigin, RunStatus};
use trilogue_runtime::{Input, RunRequest};
use trilogue_sdk::Effect;
use trilogue_sdk::prelude::*;

use super::harness::{Harness, native, settle, user_input};

/// Asks for permission to do what its input says, in its task or suspended, and reports the answer.
struct Doer {
    suspends: bool,
    /// The payload of its permission request.
    payload: Value,
    /// The settings that it declares.
    settings: Option<Value>,
}

#[async_trait]
impl Agent for Doer {
    fn card(&self) -> Card {
        let card = Card::chat("doer", "Does things.");
        match &self.settings {
            Some(properties) => card.config(json!({ "type": "object", "properties": properties })),
            None => card,
        }
    }

    async fn run(&self, turn: Turn, context: Context) -> Result<Outcome, AgentError> {
        let question = Question::permission("May I?")
            .option_always("ever", "Always", Effect::Allow)
            .option("yes", "Yes", Effect::Allow)
            .option("no", "No", Effect::Reject)
            .payload(&self.payload);
        let chosen = match turn {
            Turn::Resume { answer: Answer::Option(option), .. } => option,
            _ if self.suspends => return Outcome::suspended(question, Value::Null),
            _ => context.ask_permission(question).await?.option.unwrap_or_default(),
        };
        context.text(&chosen).await?;
        Ok(Outcome::Completed)
    }
}

fn rules() -> Arc<Rules> {
    let rule = |name: &str, kind: &str, path: Option<&str>, verdict| {
        let (kinds, path) = (Some(vec![kind.to_owned()]), path.map(str::to_owned));
        Rule::new(RuleText { name: name.to_owned(), kinds, tool: None, path, verdict }).unwrap()
    };
    let rules = vec![
        rule("reads", "read", Some("src/**"), Verdict::Allow),
        rule("asks", "fetch", None, Verdict::Ask),
        rule("runs", "execute", None, Verdict::Deny),
    ];
    Arc::new(Rules::new(rules).unwrap())
}

async fn permission_harness(suspends: bool, payload: &Value) -> Harness {
    let doer = Doer { suspends, payload: payload.clone(), settings: None };
    Harness::with(vec![native(doer).with_rules(rules())]).await
}

fn order() -> Input {
    user_input("go")
}

#[tokio::test]
async fn a_rule_answers_and_the_log_says_which() {
    for suspends in [false, true] {
        for (payload, rule, allowed, chosen) in [
            (json!({ "kind": "read", "path": "src/a.rs" }), "reads", true, "yes"),
            (json!({ "kind": "read", "path": ["src/a.rs", "src/b"] }), "reads", true, "yes"),
            (json!({ "kind": "execute", "tool": "sh" }), "runs", false, "no"),
        ] {
            let house = permission_harness(suspends, &payload).await;
            let run = house.settle("doer", order()).await;
            assert_eq!(run.status, RunStatus::Completed, "{payload}: {:?}", run.outcome);
            let events = house.events(&run).await;
            let interrupts: Vec<_> = events
                .into_iter()
                .filter_map(|event| match event.body {
                    Body::Interrupt(event) => Some(event),
                    _ => None,
                })
                .collect();
            let origin = Some(RuleOrigin::Settings);
            let expected = InterruptEvent::RuleApplied { rule: rule.to_owned(), allowed, origin };
            assert_eq!(interrupts, [expected], "{payload}");
            assert_eq!(house.messages(&run).await.last().unwrap().text(), chosen);
        }
    }
}

#[tokio::test]
async fn what_no_rule_decides_is_asked() {
    for payload in [
        json!({ "kind": "fetch" }),
        json!({ "kind": "edit", "path": "src/a.rs" }),
        json!({ "kind": "read" }),
        json!({ "kind": "read", "path": "README" }),
        json!({ "kind": "read", "path": ["src/a.rs", "/etc/passwd"] }),
        json!({ "kind": "read", "path": ["src/a.rs", 5] }),
        json!({ "kind": 5, "path": "src/a.rs" }),
        json!("read"),
    ] {
        let house = permission_harness(true, &payload).await;
        let run = house.settle("doer", order()).await;
        assert_eq!(run.status, RunStatus::Interrupted, "{payload}");
        let run = house.answer(&run, Answer::Option("no".to_owned())).await;
        assert_eq!(run.status, RunStatus::Completed);
        assert_eq!(house.messages(&run).await.last().unwrap().text(), "no");
    }
}

#[tokio::test]
async fn a_run_brings_rules_that_come_behind_the_configured_ones() {
    let allow = json!([{ "name": "--allow edit,execute", "kind": ["edit", "execute"], "decision": "allow" }]);
    for (settings, kind, config, chosen) in [
        (None, "edit", json!({ "permissions": allow }), Some("yes")),
        (Some(json!({ "style": {} })), "edit", json!({ "permissions": allow }), Some("yes")),
        (
            Some(json!({ "style": {} })),
            "edit",
            json!({ "permissions": allow, "style": 1 }),
            Some("yes"),
        ),
        // A configured rule denies.
        (None, "execute", json!({ "permissions": allow }), Some("no")),
        (None, "move", json!({ "permissions": allow }), None),
        // The agent declares this name with another meaning.
        (Some(json!({ "permissions": {} })), "edit", json!({ "permissions": allow }), None),
        (None, "edit", json!({ "permissions": ["all"] }), None),
    ] {
        let doer = Doer { suspends: true, payload: json!({ "kind": kind }), settings };
        let house = Harness::with(vec![native(doer).with_rules(rules())]).await;
        let config = Some(trilogue_domain::Json::from_value(&config));
        let request = RunRequest { config, ..house.run("doer", order()) };
        let run = settle(house.runtime.submit(&house.by, request).await.unwrap()).await;
        match chosen {
            None => assert_eq!(run.status, RunStatus::Interrupted, "{kind}"),
            Some(chosen) => {
                assert_eq!(run.status, RunStatus::Completed, "{kind}: {:?}", run.outcome);
                assert_eq!(house.messages(&run).await.last().unwrap().text(), chosen);
            }
        }
    }
}

#[tokio::test]
async fn rules_of_a_run_that_do_not_fit_are_refused() {
    let settings = Some(json!({ "style": {} }));
    let doer = Doer { suspends: true, payload: json!({ "kind": "edit" }), settings };
    let house = Harness::with(vec![native(doer)]).await;
    let config = json!({ "permissions": [{ "kind": ["edit"], "decision": "perhaps" }] });
    let config = Some(trilogue_domain::Json::from_value(&config));
    let request = RunRequest { config, ..house.run("doer", order()) };
    let refused = house.runtime.submit(&house.by, request).await.unwrap_err();
    assert!(refused.to_string().contains("perhaps"), "{refused}");
}
