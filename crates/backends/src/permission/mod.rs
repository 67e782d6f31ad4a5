//! Permission rules: what an agent may do without anybody being asked, and what it may not.
//!
//! # Invariants
//! - The first rule that fits decides; where none fits, somebody is asked. Nothing is ever allowed but by a rule that says so.
//! - A rule allows what it names and no more: every path of a call has to fit its pattern, as it is written and where it really leads. One path that fits is enough to deny.
//! - A rule allows one call. What would be allowed for later calls too, which the rules would not see, is for a person to choose.

mod path;
mod rule;

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trilogue_domain::event::InterruptEvent;
use trilogue_domain::interrupt::{Effect, PermissionOption};
use trilogue_domain::{
    Answer, Body, Error, Interrupt, InterruptKind, Json, PrincipalId, Resolution,
};

use path::Places;
pub use rule::{NotARule, Rule, RuleText};

/// The most rules of one agent.
pub const MAX_RULES: usize = 256;

/// Rules, in the order in which they are tried.
#[derive(Clone, Debug, Default)]
pub struct Rules(Vec<Rule>);

/// What a permission rule decides.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Let the agent do it.
    Allow,
    /// Refuse.
    Deny,
    /// Ask.
    Ask,
}

/// What an agent wants to do.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Subject<'a> {
    /// The kind of tool, such as `read` or `execute`.
    pub kind: Option<&'a str>,
    /// The tool's name.
    pub tool: Option<&'a str>,
    /// The files that it is about.
    pub paths: Vec<&'a str>,
    /// The folder in which the agent works, an absolute path: relative patterns and paths begin there.
    pub root: Option<&'a Path>,
}

/// A rule that decided a question, with the answer that it chose.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Applied {
    /// The rule's name.
    pub rule: String,
    /// Whether it allowed.
    pub allowed: bool,
    /// The id of the option that it chose. `None` where nothing that is offered rejects: then none is chosen, which allows nothing.
    pub option: Option<String>,
}

// === impl Rules ===

impl Rules {
    /// These rules, tried in this order.
    ///
    /// # Errors
    /// [`NotARule`] where there are more than [`MAX_RULES`], or two of one name.
    pub fn new(rules: Vec<Rule>) -> Result<Self, NotARule> {
        if rules.len() > MAX_RULES {
            return Err(NotARule::new(format!("there are more than {MAX_RULES} rules")));
        }
        for (index, rule) in rules.iter().enumerate() {
            if rules.iter().take(index).any(|other| other.name() == rule.name()) {
                return Err(NotARule::new(format!("two rules are called '{}'", rule.name())));
            }
        }
        Ok(Self(rules))
    }

    /// Whether there are none, so that everything is asked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What the first rule that fits says, and its name. `None` where none fits: then somebody is asked.
    ///
    /// Where a rule names paths, this looks at the file system, to see where the paths of the call lead, and waits for it: it is not for a task.
    #[must_use]
    pub fn decide(&self, subject: &Subject<'_>) -> Option<(&str, Verdict)> {
        let looks = self.looks(subject)?;
        let places = if looks { Places::of(subject) } else { Places::default() };
        self.first(subject, &places)
    }

    /// The answer that the rules give to a question for permission. `None` where somebody is to be asked: no rule fits, the one that fits says so, it cannot be seen where a path leads, or nothing that the question offers would say what the rule says.
    ///
    /// An option that allows later calls too is never chosen; one that rejects them only where there is no other. What is denied and offers no such option is answered with none, where whoever asked can be told so.
    pub async fn answer(&self, subject: &Subject<'_>, question: &Interrupt) -> Option<Applied> {
        if self.is_empty() || question.kind != InterruptKind::Permission {
            return None;
        }
        let places =
            if self.looks(subject)? { Places::look(subject).await? } else { Places::default() };
        let (rule, verdict) = self.first(subject, &places)?;
        let (option, allowed) = match verdict {
            Verdict::Allow => (Some(allow_option(question)?), true),
            Verdict::Deny => (reject_option(question), false),
            Verdict::Ask => return None,
        };
        let applied = Applied {
            rule: rule.to_owned(),
            allowed,
            option: option.map(|option| option.id.clone()),
        };
        question.check(&applied.answer()).is_ok().then_some(applied)
    }

    fn first(&self, subject: &Subject<'_>, places: &Places) -> Option<(&str, Verdict)> {
        let rule = self.0.iter().find(|rule| rule.fits(subject, places))?;
        Some((rule.name(), rule.verdict()))
    }

    /// Whether it has to be looked where paths lead. `None` where no rule fits wherever that is.
    fn looks(&self, subject: &Subject<'_>) -> Option<bool> {
        self.0.iter().find(|rule| rule.is_about(subject)).map(Rule::looks)
    }
}

/// The option that allows this call and no other.
fn allow_option(question: &Interrupt) -> Option<&PermissionOption> {
    question.options.iter().find(|option| option.effect == Effect::Allow && !option.always)
}

/// The option that rejects, and this call only where there is a choice.
fn reject_option(question: &Interrupt) -> Option<&PermissionOption> {
    let rejecting = || question.options.iter().filter(|option| option.effect == Effect::Reject);
    rejecting().find(|option| !option.always).or_else(|| rejecting().next())
}

// === impl Applied ===

impl Applied {
    /// What the log says of it.
    #[must_use]
    pub fn event(&self) -> Body {
        Body::Interrupt(InterruptEvent::RuleApplied {
            rule: self.rule.clone(),
            allowed: self.allowed,
        })
    }

    /// The answer.
    #[must_use]
    pub fn answer(&self) -> Answer {
        match &self.option {
            Some(option) => Answer::Option(option.clone()),
            None => Answer::Json(Json::null()),
        }
    }

    /// How the question ended, as if somebody called `rule:NAME` had answered.
    ///
    /// # Errors
    /// `invalid_id` where the rule's name could not stand in a principal's id, which no [`Rule`] has.
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
    /// Its word.
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
