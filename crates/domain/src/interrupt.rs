//! Interrupts: a run waits for a decision or data.

use std::time::Duration;

use crate::content::Part;
use crate::error::{Code, Error};
use crate::id::{InterruptId, PrincipalId};
use crate::json::Json;

/// What a run waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interrupt {
    /// Its id; every face shows it and accepts it back.
    pub id: InterruptId,
    /// What kind of answer it wants.
    pub kind: InterruptKind,
    /// The question in words and media; may be empty.
    pub prompt: Vec<Part>,
    /// The question as data; `null` where there is none.
    pub payload: Json,
    /// The choices of a permission, in the order in which they are shown.
    pub options: Vec<PermissionOption>,
    /// The JSON Schema of the answer.
    pub schema: Option<Json>,
    /// What it outlives.
    pub survives: Survives,
    /// How long it waits while nobody who may answer is connected; `None` waits without end.
    pub patience: Option<Duration>,
}

/// What kind of answer an interrupt wants.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum InterruptKind {
    /// One of the offered options.
    Permission,
    /// A message.
    Message,
    /// JSON that fits the schema.
    Form,
    /// That the user has visited an address.
    Url,
    /// The agent's own kind, by its name.
    Custom(String),
}

/// One choice of a permission.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PermissionOption {
    /// The id that an answer names.
    pub id: String,
    /// What the user reads.
    pub name: String,
    /// Whether choosing it allows or rejects.
    pub effect: Effect,
    /// Whether the choice holds for later calls too.
    pub always: bool,
}

/// Whether an option allows or rejects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// The agent may go on.
    Allow,
    /// The agent may not.
    Reject,
}

/// What an interrupt outlives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Survives {
    /// Only as long as the agent's process or task waits.
    Process,
    /// A restart of the server.
    Restart,
}

/// What somebody answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The option with this id.
    Option(String),
    /// JSON.
    Json(Json),
    /// A message's parts.
    Message(Vec<Part>),
}

/// Whose a permission rule is.
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
    /// Somebody answered.
    Answered {
        /// Who.
        by: PrincipalId,
        /// What.
        answer: Answer,
        /// SHA-256 of the payload that was shown, in hexadecimal.
        digest: String,
        /// What the answer carried beyond it, as an object for whoever asked in the same protocol; at most [`MAX_ANSWER_EXTRA_BYTES`](crate::limits::MAX_ANSWER_EXTRA_BYTES).
        extra: Option<Json>,
    },
    /// Nobody answered in time; for a permission the option that rejects this call was taken.
    TimedOut {
        /// The option that was taken, where there is one.
        option: Option<String>,
    },
    /// The run was cancelled.
    Cancelled,
    /// It went with what raised it.
    Withdrawn {
        /// Why, as a stable code.
        reason: Code,
    },
}

// === impl RuleOrigin ===

impl RuleOrigin {
    /// Its stable name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Settings => "settings",
            Self::Run => "run",
        }
    }

    /// The origin with this name.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        [Self::Settings, Self::Run].into_iter().find(|it| it.as_str() == text)
    }
}

// === impl InterruptKind ===

impl InterruptKind {
    /// The kind's name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Custom(name) => name,
            known => known.family(),
        }
    }

    /// The kind's name, and `custom` for every kind of an agent's own: one of five words.
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

    /// The kind with this name.
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
    /// How the interrupt ended, in one word.
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
    /// A choice that holds once.
    #[must_use]
    pub fn once(id: &str, name: &str, effect: Effect) -> Self {
        Self { id: id.to_owned(), name: name.to_owned(), effect, always: false }
    }
}

// === impl Interrupt ===

impl Interrupt {
    /// A question of this kind that says nothing yet. It survives its process only, and waits without end.
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

    /// The option that rejects this call only: what may be taken where nobody chose. One that holds for later calls too is for people to choose.
    #[must_use]
    pub fn reject_option(&self) -> Option<&PermissionOption> {
        self.options.iter().find(|option| option.effect == Effect::Reject && !option.always)
    }

    /// Checks the form of an answer: a permission takes one of its options, a message takes parts or text, the others take JSON. An agent that waits in its process can also be told that somebody chose no option of a permission, which is the answer `null` and allows nothing.
    ///
    /// # Errors
    /// [`Code::AnswerInvalid`], naming what would fit.
    pub fn check(&self, answer: &Answer) -> Result<(), Error> {
        let fits = match (&self.kind, answer) {
            (InterruptKind::Permission, Answer::Option(id)) => {
                return if self.options.iter().any(|option| option.id == *id) {
                    Ok(())
                } else {
                    Err(self.no_such_option(id))
                };
            }
            (InterruptKind::Permission, Answer::Json(value)) => {
                self.survives == Survives::Process && value.as_str() == "null"
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
        let names: Vec<_> = self.options.iter().map(|option| option.id.as_str()).collect();
        Error::new(
            Code::AnswerInvalid,
            format!("the interrupt '{}' has no option '{}'", self.id, id.escape_debug()),
        )
        .hint(format!("its options are: {}", names.join(", ")))
    }
}
