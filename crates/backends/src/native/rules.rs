//! What a question of an agent in this process is about, as permission rules see it.

use serde::Deserialize;
use serde_json::Value;
use trilogue_domain::Interrupt;

use crate::permission::{Applied, Rules, Subject};

/// The members of a payload that say what it is about. What is of another kind says nothing.
#[derive(Deserialize, Default)]
struct Told {
    #[serde(default)]
    kind: Value,
    #[serde(default)]
    tool: Value,
    #[serde(default)]
    path: Value,
}

/// What the rules answer to a question, where they do.
pub(super) async fn answer(rules: &Rules, question: &Interrupt) -> Option<Applied> {
    if rules.is_empty() {
        return None;
    }
    let told: Told = serde_json::from_slice(question.payload.as_bytes()).unwrap_or_default();
    let paths = match &told.path {
        Value::Array(paths) => paths.as_slice(),
        path => std::slice::from_ref(path),
    };
    // A path that is no text fits no rule that allows.
    let paths = paths.iter().filter(|path| !path.is_null());
    let subject = Subject {
        kind: told.kind.as_str(),
        tool: told.tool.as_str(),
        paths: paths.map(|path| path.as_str().unwrap_or_default()).collect(),
        root: None,
    };
    rules.answer(&subject, question).await
}
