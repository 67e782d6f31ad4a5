//! Permission rules: they decide before a person is asked.
//!
//! # Invariants
//! - The first matching rule decides. If none matches, a person is asked.
//! - A rule allows a call only if all its paths match, as written and after links are resolved. One matching path is enough to deny.
//! - A rule about paths never allows a command, because the files that a command uses are unknown. A word of a command is enough to deny.
//! - A rule allows one call. Only a person can allow later calls too, because the rules would not see them.

mod path;
mod rule;
mod run_rules;
pub(crate) mod unattended;

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trilogue_domain::event::InterruptEvent;
use trilogue_domain::interrupt::{Effect, PermissionOption};
use trilogue_domain::{
    Answer, Body, Error, Interrupt, InterruptKind, Json, PrincipalId, Resolution, RuleOrigin,
};

use path::CallPaths;
pub(crate) use path::real as real_path;
pub use rule::{InvalidRule, Rule, RuleText};
pub use run_rules::RULES_MEMBER;
pub use unattended::is_unattended;

pub const MAX_RULES: usize = 256;

#[derive(Clone, Debug, Default)]
pub struct Rules(Vec<Rule>);

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Allow,
    Deny,
    Ask,
}

/// A call for which an agent requests permission.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Subject<'a> {
    /// The kind of tool, such as `read` or `execute`.
    pub kind: Option<&'a str>,
    pub tool: Option<&'a str>,
    pub paths: Vec<&'a str>,
    /// Texts that may name files, such as the words of a command. Only rules that deny or ask use them.
    pub mentions: Vec<&'a str>,
    /// Whether it runs a command. It then also counts as kind `execute`, in addition to the kind that it has.
    pub runs_command: bool,
    /// The agent's working directory, an absolute path. Relative patterns and paths begin there.
    pub root: Option<&'a Path>,
}

/// The files of a call could not be found in time, so no rule can decide.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the files of the call could not be found in time")]
pub struct UnresolvedPaths;

/// The decision of a rule about an interrupt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleDecision {
    pub rule: String,
    pub origin: RuleOrigin,
    pub allowed: bool,
    /// The id of the chosen option. `None` if the agent offers no option that rejects.
    pub option: Option<String>,
}

// === impl Rules ===

impl Rules {
    /// Errors: [`InvalidRule`] for more than [`MAX_RULES`] rules, or two with one name.
    pub fn new(rules: Vec<Rule>) -> Result<Self, InvalidRule> {
        if rules.len() > MAX_RULES {
            return Err(InvalidRule::new(format!("there are more than {MAX_RULES} rules")));
        }
        for (index, rule) in rules.iter().enumerate() {
            if rules.iter().take(index).any(|other| other.name() == rule.name()) {
                return Err(InvalidRule::new(format!("two rules are called '{}'", rule.name())));
            }
        }
        Ok(Self(rules))
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The name and the verdict of the first matching rule.
    ///
    /// It blocks on the file system if a rule names paths.
    #[must_use]
    pub fn decide(&self, subject: &Subject<'_>) -> Option<(&str, Verdict)> {
        let needs_paths = self.needs_paths(subject)?;
        let paths = if needs_paths { CallPaths::of(subject) } else { CallPaths::default() };
        self.first(subject, &paths).map(|rule| (rule.name(), rule.verdict()))
    }

    /// The decision about a permission interrupt. `None` if a person must be asked: no rule matches, the matching rule requires it, a path cannot be resolved, or no option has the rule's effect.
    ///
    /// Never chooses an option that also allows later calls, or an id that names options of both effects. Chooses one that also rejects later calls only if no other option rejects. If no option rejects, a denied call is answered without an option, provided that the agent accepts such an answer.
    pub async fn answer(
        &self,
        subject: &Subject<'_>,
        question: &Interrupt,
    ) -> Option<RuleDecision> {
        if self.is_empty() || question.kind != InterruptKind::Permission {
            return None;
        }
        let rule = self.judge(subject).await.ok()??;
        let (option, allowed) = match rule.verdict() {
            Verdict::Allow => (Some(allow_option(question)?), true),
            Verdict::Deny => (reject_option(question), false),
            Verdict::Ask => return None,
        };
        let applied = RuleDecision {
            rule: rule.name().to_owned(),
            origin: rule.origin(),
            allowed,
            option: option.map(|option| option.id.clone()),
        };
        question.check(&applied.answer()).is_ok().then_some(applied)
    }

    /// The first matching rule, without blocking the task.
    /// Errors: [`UnresolvedPaths`].
    pub async fn judge(&self, subject: &Subject<'_>) -> Result<Option<&Rule>, UnresolvedPaths> {
        let Some(needs_paths) = self.needs_paths(subject) else { return Ok(None) };
        let paths = if needs_paths {
            CallPaths::resolve(subject).await.ok_or(UnresolvedPaths)?
        } else {
            CallPaths::default()
        };
        Ok(self.first(subject, &paths))
    }

    /// The name of the first rule that allows anything.
    fn first_that_allows(&self) -> Option<&str> {
        self.0.iter().find(|rule| rule.verdict() == Verdict::Allow).map(Rule::name)
    }

    fn first(&self, subject: &Subject<'_>, paths: &CallPaths) -> Option<&Rule> {
        self.0.iter().find(|rule| rule.matches(subject, paths))
    }

    /// Whether paths must be resolved. `None` if no rule can match, independent of the paths.
    fn needs_paths(&self, subject: &Subject<'_>) -> Option<bool> {
        self.0.iter().find(|rule| rule.matches_tool(subject)).map(Rule::has_path)
    }
}

/// The option that allows only this call.
fn allow_option(question: &Interrupt) -> Option<&PermissionOption> {
    let allowing = |option: &&PermissionOption| option.effect == Effect::Allow;
    question.distinct_options().filter(allowing).find(|option| !option.always)
}

/// The option that rejects, preferably only this call.
fn reject_option(question: &Interrupt) -> Option<&PermissionOption> {
    let rejecting = || question.distinct_options().filter(|option| option.effect == Effect::Reject);
    rejecting().find(|option| !option.always).or_else(|| rejecting().next())
}

// === impl RuleDecision ===

impl RuleDecision {
    #[must_use]
    pub fn event(&self) -> Body {
        Body::Interrupt(InterruptEvent::RuleApplied {
            rule: self.rule.clone(),
            allowed: self.allowed,
            origin: Some(self.origin),
        })
    }

    #[must_use]
    pub fn answer(&self) -> Answer {
        match &self.option {
            Some(option) => Answer::Option(option.clone()),
            None => Answer::Json(Json::null()),
        }
    }

    /// The resolution of the interrupt, by the principal `rule:NAME`.
    /// Errors: `invalid_id` if the name does not fit into a principal's id, which a [`Rule`] makes sure of.
    pub fn resolution(&self, question: &Interrupt) -> Result<Resolution, Error> {
        Ok(Resolution::Answered {
            by: PrincipalId::parse(&format!("rule:{}", self.rule))?,
            answer: self.answer(),
            digest: question.payload.digest(),
            extra: None,
        })
    }
}

// === impl Verdict ===

impl Verdict {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Ask => "ask",
        }
    }
}

#[cfg(test)]
mod tests;
