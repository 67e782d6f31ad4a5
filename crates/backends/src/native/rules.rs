//! Permission rules for agents in this process.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use trilogue_domain::error::Result;
use trilogue_domain::{AgentCard, Code, Error, Interrupt, Json};
use trilogue_wire::agent_client::splice;

use crate::permission::{RULES_MEMBER, RuleDecision, Rules, Subject};

/// The owner of the member [`RULES_MEMBER`] in a run's configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RulesMember {
    /// The agent declares a setting of this name.
    Agent,
    /// The agent declares its settings, without this one.
    Server,
    /// The agent declares nothing: the member holds rules if it has their form, and the agent sees it too.
    Shared,
}

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

// === impl RulesMember ===

impl RulesMember {
    pub(super) fn of(card: &AgentCard) -> Self {
        match &card.config_schema {
            None => Self::Shared,
            Some(schema) if schema.to_value()["properties"].get(RULES_MEMBER).is_some() => {
                Self::Agent
            }
            Some(_) => Self::Server,
        }
    }

    /// The configuration that the agent gets. `None` if it would be empty.
    ///
    /// # Errors
    /// `config_invalid` if the rules do not fit.
    pub(super) fn config_of_agent(self, config: &Json) -> Result<Option<Cow<'_, Json>>> {
        if self != Self::Server || splice::get(config.as_str(), &[RULES_MEMBER]).is_none() {
            return Ok(Some(Cow::Borrowed(config)));
        }
        let invalid = |why: String| Error::new(Code::ConfigInvalid, why);
        Rules::of_config(config).map_err(|error| invalid(format!("`{RULES_MEMBER}`: {error}")))?;
        let rest = splice::remove(config.as_str(), &[RULES_MEMBER]).into_owned();
        let rest = Json::parse(rest).map_err(|error| invalid(error.to_string()))?;
        let is_empty = rest.to_value().as_object().is_some_and(serde_json::Map::is_empty);
        Ok((!is_empty).then_some(Cow::Owned(rest)))
    }

    /// The rules of a run, after the configured ones.
    pub(super) fn rules_of_run(self, configured: &Arc<Rules>, config: Option<&Json>) -> Arc<Rules> {
        match configured.of_run(config.filter(|_| self != Self::Agent)) {
            Cow::Borrowed(_) => Arc::clone(configured),
            Cow::Owned(rules) => Arc::new(rules),
        }
    }
}
