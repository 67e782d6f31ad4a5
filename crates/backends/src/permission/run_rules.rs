//! Permission rules in a run's configuration, in its member `permissions`.

use std::borrow::Cow;

use serde::Deserialize;
use trilogue_domain::Json;
use trilogue_wire::agent_client::splice;

use super::{InvalidRule, Rule, RuleText, Rules, Verdict};

/// The member of a run's configuration with its rules.
pub const RULES_MEMBER: &str = "permissions";

/// A rule as a run writes it. A member that is not set matches everything.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct RunRule {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    kind: Option<Vec<String>>,
    #[serde(default)]
    tool: Option<String>,
    #[serde(default)]
    path: Option<String>,
    decision: Verdict,
}

// === impl Rules ===

impl Rules {
    /// The rules of a run's configuration.
    /// Errors: [`InvalidRule`].
    pub fn of_config(config: &Json) -> Result<Self, InvalidRule> {
        let Some(written) = splice::get(config.as_str(), &[RULES_MEMBER]) else {
            return Ok(Self::default());
        };
        let written: Vec<RunRule> =
            serde_json::from_str(written).map_err(|error| InvalidRule::new(error.to_string()))?;
        let rules = (1..).zip(written).map(|(number, rule)| {
            let RunRule { name, kind, tool, path, decision } = rule;
            let name = name.unwrap_or_else(|| format!("rule {number} of the run"));
            Rule::new(RuleText { name, kinds: kind, tool, path, verdict: decision })
                .map(Rule::of_run)
        });
        Self::new(rules.collect::<Result<_, _>>()?)
    }

    /// These rules, followed by those of a run's configuration: the configured rules decide first.
    #[must_use]
    pub fn of_run(&self, config: Option<&Json>) -> Cow<'_, Self> {
        // Invalid rules have already failed the run.
        let rules = config.map(Self::of_config).and_then(Result::ok).unwrap_or_default();
        if rules.is_empty() {
            return Cow::Borrowed(self);
        }
        Cow::Owned(Self(self.0.iter().cloned().chain(rules.0).collect()))
    }
}
