//! Permission rules of agents in this process.

use std::sync::Arc;

use serde_json::{Value, json};
use trilogue_backends::permission::{Rule, RuleText, Rules, Verdict};
use trilogue_domain::event::InterruptEvent;
use trilogue_domain::{Body, RunStatus};
use trilogue_runtime::Input;
use trilogue_sdk::Effect;
use trilogue_sdk::prelude::*;

use super::harness::{Harness, native, said};

/// Asks whether it may do what it is told, waiting in its task or not, and says what the answer was.
struct Doer {
    suspends: bool,
    /// What it says of what it wants to do.
    payload: Value,
}

#[async_trait]
impl Agent for Doer {
    fn card(&self) -> Card {
        Card::chat("doer", "Does things.")
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

async fn house(suspends: bool, payload: &Value) -> Harness {
    let doer = Doer { suspends, payload: payload.clone() };
    Harness::with(vec![native(doer).with_rules(rules())]).await
}

fn order() -> Input {
    said("go")
}

#[tokio::test]
async fn a_rule_answers_and_the_log_says_which() {
    for suspends in [false, true] {
        for (payload, rule, allowed, chosen) in [
            (json!({ "kind": "read", "path": "src/a.rs" }), "reads", true, "yes"),
            (json!({ "kind": "read", "path": ["src/a.rs", "src/b"] }), "reads", true, "yes"),
            (json!({ "kind": "execute", "tool": "sh" }), "runs", false, "no"),
        ] {
            let house = house(suspends, &payload).await;
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
            let expected = InterruptEvent::RuleApplied { rule: rule.to_owned(), allowed };
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
        let house = house(true, &payload).await;
        let run = house.settle("doer", order()).await;
        assert_eq!(run.status, RunStatus::Interrupted, "{payload}");
        let run = house.answer(&run, Answer::Option("no".to_owned())).await;
        assert_eq!(run.status, RunStatus::Completed);
        assert_eq!(house.messages(&run).await.last().unwrap().text(), "no");
    }
}
