//! Interrupts: a run waits for a decision or data.

use std::time::Duration;

use crate::content::Part;
use crate::error::{Code, Error};
use crate::id::{InterruptId, PrincipalId};
use crate::json::Json;

/// The option of a permission that chooses none of the offered options, which allows nothing.
pub const NO_OPTION: &str = "none";

/// A question that a run waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interrupt {
    /// The id. Every protocol shows it and accepts it in an answer.
    pub id: InterruptId,
    /// The kind of answer.
    pub kind: InterruptKind,
    /// The question for people, as text and media; may be empty.
    pub prompt: Vec<Part>,
    /// The question as data; `null` if it has none.
    pub payload: Json,
    /// The options of a permission, in the order in which they are shown.
    pub options: Vec<PermissionOption>,
    /// The JSON Schema of the answer.
    pub schema: Option<Json>,
    /// Whether the question survives a restart.
    pub survives: Survives,
    /// How long the question waits while no client that may answer is connected; `None` waits without limit.
    pub patience: Option<Duration>,
}

/// The kind of answer that an interrupt requires.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum InterruptKind {
    /// One of the offered options.
    Permission,
    /// A message.
    Message,
    /// JSON that fits the schema.
    Form,
    /// Confirmation that the user has visited a URL.
    Url,
    /// The agent's own kind, with its name.
    Custom(String),
}

/// One option of a permission.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PermissionOption {
    /// The id that an answer uses.
    pub id: String,
    /// The name for people.
    pub name: String,
    /// Whether the option allows or rejects.
    pub effect: Effect,
    /// Whether the decision also holds for later calls.
    pub always: bool,
}

/// Whether an option allows or rejects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// The agent may do it.
    Allow,
    /// The agent may not do it.
    Reject,
}

/// How long an interrupt survives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Survives {
    /// As long as the agent's process or task waits.
    Process,
    /// Across a restart of the server.
    Restart,
}

/// An answer to an interrupt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The option with this id.
    Option(String),
    /// JSON.
    Json(Json),
    /// A message's parts.
    Message(Vec<Part>),
}

/// The owner of a permission rule.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RuleOrigin {
    /// The agent's settings.
    Settings,
    /// The request for the run.
    Run,
}

/// How an interrupt ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Resolution {
    /// The interrupt was answered.
    Answered {
        /// Who answered.
        by: PrincipalId,
        /// The answer.
        answer: Answer,
        /// The SHA-256 of the payload that was shown, in hexadecimal.
        digest: String,
        /// More members of the answer, as an object for an asker that uses the same protocol; at most [`MAX_ANSWER_EXTRA_BYTES`](crate::limits::MAX_ANSWER_EXTRA_BYTES).
        extra: Option<Json>,
    },
    /// The interrupt got no answer in time. For a permission, the option that rejects this call was taken.
    TimedOut {
        /// The option that was taken, if any.
        option: Option<String>,
    },
    /// The run was cancelled.
    Cancelled,
    /// The interrupt ended together with its agent.
    Withdrawn {
        /// The reason, as a stable code.
        reason: Code,
    },
}

// === impl RuleOrigin ===

impl RuleOrigin {
    /// Returns the stable name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Settings => "settings",
            Self::Run => "run",
        }
    }

    /// Returns the origin with this name.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        [Self::Settings, Self::Run].into_iter().find(|it| it.as_str() == text)
    }
}

// === impl InterruptKind ===

impl InterruptKind {
    /// Returns the name of the kind.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Custom(name) => name,
            known => known.family(),
        }
    }

    /// Returns the name of the kind, or `custom` for an agent's own kind: one of five words.
    #[must_use]
    pub fn family(&self) -> &'static str {
        match self {
            Self::Permission => "permission",
            Self::Message => "message",
            Self::Form => "form",
            Self::Url => "url",
            Self::Custom(_) => "custom",
        }
    }

    /// Returns the kind with this name.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        match text {
            "permission" => Self::Permission,
            "message" => Self::Message,
            "form" => Self::Form,
            "url" => Self::Url,
            other => Self::Custom(other.to_owned()),
        }
    }
}

// === impl Resolution ===

impl Resolution {
    /// Returns the resolution as one word.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Answered { .. } => "answered",
            Self::TimedOut { .. } => "timed_out",
            Self::Cancelled => "cancelled",
            Self::Withdrawn { .. } => "withdrawn",
        }
    }
}

// === impl PermissionOption ===

impl PermissionOption {
    /// Returns an option that holds once.
    #[must_use]
    pub fn once(id: &str, name: &str, effect: Effect) -> Self {
        Self { id: id.to_owned(), name: name.to_owned(), effect, always: false }
    }
}

// === impl Interrupt ===

impl Interrupt {
    /// Returns an empty question of this kind. It survives only its process and waits without limit.
    #[must_use]
    pub fn new(kind: InterruptKind) -> Self {
        Self {
            id: InterruptId::generate(),
            kind,
            prompt: Vec::new(),
            payload: Json::null(),
            options: Vec::new(),
            schema: None,
            survives: Survives::Process,
            patience: None,
        }
    }

    /// Returns the option that rejects only this call. It may be taken after a timeout; an option that also holds for later calls needs a person's choice.
    #[must_use]
    pub fn reject_option(&self) -> Option<&PermissionOption> {
        let rejects = |option: &&PermissionOption| option.effect == Effect::Reject;
        self.distinct_options().filter(rejects).find(|option| !option.always)
    }

    /// Returns the options whose ids name only one effect.
    pub fn distinct_options(&self) -> impl Iterator<Item = &PermissionOption> {
        self.options.iter().filter(|option| !self.is_ambiguous(&option.id))
    }

    /// Whether this id names an option that allows and one that rejects. The asker could take such an id for consent, so it is never sent.
    #[must_use]
    pub fn is_ambiguous(&self, id: &str) -> bool {
        let has = |effect| self.options.iter().any(|it| it.id == id && it.effect == effect);
        has(Effect::Allow) && has(Effect::Reject)
    }

    /// Whether the asker accepts that no option is chosen, which allows nothing.
    #[must_use]
    pub fn takes_no_option(&self) -> bool {
        self.kind == InterruptKind::Permission && self.survives == Survives::Process
    }

    /// Checks the form of an answer. A permission takes one of its options, a message takes parts or text, and the other kinds take JSON. A permission that waits in its process also accepts `null` and the option [`NO_OPTION`]: the user chose no option, which allows nothing.
    ///
    /// # Errors
    /// [`Code::AnswerInvalid`] with a description of the expected form.
    pub fn check(&self, answer: &Answer) -> Result<(), Error> {
        let fits = match (&self.kind, answer) {
            (InterruptKind::Permission, Answer::Option(id)) => {
                let is_none = id == NO_OPTION && self.takes_no_option();
                return if is_none || self.options.iter().any(|option| option.id == *id) {
                    Ok(())
                } else {
                    Err(self.no_such_option(id))
                };
            }
            (InterruptKind::Permission, Answer::Json(value)) => {
                self.takes_no_option() && value.as_str() == "null"
            }
            (InterruptKind::Permission, Answer::Message(_)) => false,
            (InterruptKind::Message, Answer::Message(_) | Answer::Json(_)) => true,
            (InterruptKind::Message, Answer::Option(_)) => false,
            (_, Answer::Json(_)) => true,
            (_, Answer::Option(_) | Answer::Message(_)) => false,
        };
        if fits {
            return Ok(());
        }
        let wanted = match self.kind {
            InterruptKind::Permission => "'option' with the id of one of its options",
            InterruptKind::Message => "'message' with parts",
            _ => "'value' with JSON",
        };
        Err(Error::new(
            Code::AnswerInvalid,
            format!("the interrupt '{}' takes another form of answer", self.id),
        )
        .hint(format!("a {} interrupt takes {wanted}", self.kind.as_str())))
    }

    fn no_such_option(&self, id: &str) -> Error {
        let mut names: Vec<_> = self.options.iter().map(|option| option.id.as_str()).collect();
        if self.takes_no_option() && !names.contains(&NO_OPTION) {
            names.push(NO_OPTION);
        }
        Error::new(
            Code::AnswerInvalid,
            format!("the interrupt '{}' has no option '{}'", self.id, id.escape_debug()),
        )
        .hint(format!("its options are: {}", names.join(", ")))
    }
}
