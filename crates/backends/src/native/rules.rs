//! Permission rules for agents in this process.

use serde::Deserialize;
use serde_json::Value;
use trilogue_domain::Interrupt;

use crate::permission::{RuleDecision, Rules, Subject};

/// The members of a payload that rules use. Members of another type are ignored.
#[derive(Deserialize, Default)]
struct CallDetails {
    #[serde(default)]
    kind: Value,
    #[serde(default)]
    tool: Value,
    #[serde(default)]
    path: Value,
}

/// The answer of a rule to an interrupt.
pub(super) async fn answer(rules: &Rules, question: &Interrupt) -> Option<RuleDecision> {
    if rules.is_empty() {
        return None;
    }
    let call: CallDetails = serde_json::from_slice(question.payload.as_bytes()).unwrap_or_default();
    let paths = match &call.path {
        Value::Array(paths) => paths.as_slice(),
        path => std::slice::from_ref(path),
    };
    // A path that is not a string matches no rule that allows.
    let paths = paths.iter().filter(|path| !path.is_null());
    let subject = Subject {
        kind: call.kind.as_str(),
        tool: call.tool.as_str(),
        paths: paths.map(|path| path.as_str().unwrap_or_default()).collect(),
        ..Subject::default()
    };
    rules.answer(&subject, question).await
}
