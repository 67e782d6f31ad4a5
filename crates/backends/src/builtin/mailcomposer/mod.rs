//! `mailcomposer`: writes mails in a conversation, and sends only approved ones.

mod descriptor;
mod letter;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use serde_json::json;
use trilogue_domain::lock;
use trilogue_sdk::prelude::*;

pub use letter::{Mail, Style};

use super::name;
use letter::{MailRequest, wants_mail};

pub const NAME: &str = "mailcomposer";
/// The most mails that the outbox keeps. The oldest are removed first.
pub const MAX_OUTBOX_MAILS: usize = 100;
pub const MAX_MESSAGE_BYTES: usize = 64 * 1024;
/// The most bytes of messages that the state keeps. The oldest turns are removed first.
pub const MAX_STATE_BYTES: usize = 512 * 1024;

/// Writes mails. "Sending" puts a mail into a box in memory.
#[derive(Clone, Debug, Default)]
pub struct MailComposer {
    outbox: Arc<Mutex<VecDeque<Mail>>>,
}

#[derive(Deserialize, Default)]
struct Ask {
    #[serde(default)]
    message: String,
}

#[derive(Deserialize, Default)]
struct Config {
    #[serde(default)]
    style: Style,
}

/// The thread's state: messages of user and agent in turn.
#[derive(Serialize, Deserialize, Default)]
struct State {
    #[serde(default)]
    messages: Vec<String>,
}

#[derive(Deserialize)]
struct Approval {
    approved: bool,
    #[serde(default)]
    reason: Option<String>,
}

/// The state that a suspended turn needs: both sides of the turn so far. The mail itself is in the interrupt's payload.
#[derive(Serialize, Deserialize)]
struct Saved {
    said: String,
    asked: String,
    style: Style,
}

// === impl MailComposer ===

impl MailComposer {
    /// The mails that were sent, oldest first.
    #[must_use]
    pub fn outbox(&self) -> Vec<Mail> {
        lock(&self.outbox).iter().cloned().collect()
    }

    async fn start(&self, input: Input, context: &Context) -> Result<Outcome, AgentError> {
        let Ask { message: said } = input.parse()?;
        if said.len() > MAX_MESSAGE_BYTES {
            let size = said.len();
            let message = format!("the message has {size} bytes; {MAX_MESSAGE_BYTES} is the most");
            return Err(AgentError::invalid_input(message));
        }
        let Config { style } = context.config()?;
        let state: State = context.state().await?;
        let reply = match plan(&said, &state.messages, style) {
            Step::Say(reply) => reply,
            Step::Send(mail) => {
                let asked = approval_prompt(&mail, style);
                let question = Question::custom(descriptor::APPROVAL)
                    .prompt(&asked)
                    .payload(serde_json::to_value(&mail)?)
                    .schema(descriptor::approval_answer());
                let saved = serde_json::to_value(Saved { said, asked, style })?;
                return Outcome::suspended(question, saved);
            }
        };
        answer(context, state, [said, reply]).await
    }

    async fn resume(
        &self,
        shown: &Json,
        given: &Json,
        saved: &Json,
        context: &Context,
    ) -> Result<Outcome, AgentError> {
        let Saved { said, asked, style } = serde_json::from_slice(saved.as_bytes())?;
        let Approval { approved, reason } = serde_json::from_slice(given.as_bytes())?;
        // Send exactly the mail that was shown.
        let mail: Mail = serde_json::from_slice(shown.as_bytes())?;
        let reason = reason.filter(|reason| !reason.trim().is_empty());
        let (decision, reply) = if approved {
            let reply = approved_reply(&mail, style);
            self.send(mail);
            ("Approved.".to_owned(), reply)
        } else {
            let reply = declined_reply(reason.as_deref(), style);
            (reason.map_or_else(|| "Declined.".to_owned(), |why| format!("Declined: {why}")), reply)
        };
        let state = context.state().await?;
        answer(context, state, [said, asked, decision, reply]).await
    }

    fn send(&self, mail: Mail) {
        tracing::info!(recipients = mail.recipients.len(), "a mail was put into the outbox");
        let mut outbox = lock(&self.outbox);
        if outbox.len() == MAX_OUTBOX_MAILS {
            outbox.pop_front();
        }
        outbox.push_back(mail);
    }
}

#[async_trait]
impl Agent for MailComposer {
    fn card(&self) -> Card {
        Card::schema(NAME, descriptor::DESCRIPTION, descriptor::message())
            .title(descriptor::TITLE)
            .version(descriptor::VERSION)
            .url(descriptor::HOMEPAGE)
            .output(descriptor::message())
            .state(descriptor::thread_state())
            .config(descriptor::config())
            .interrupt(
                descriptor::APPROVAL,
                descriptor::approval_payload(),
                descriptor::approval_answer(),
            )
    }

    async fn run(&self, turn: Turn, context: Context) -> Result<Outcome, AgentError> {
        match turn {
            Turn::Start { input } => self.start(input, &context).await,
            Turn::Resume { interrupt, answer: Answer::Json(given), saved } => {
                self.resume(&interrupt.payload, &given, &saved, &context).await
            }
            Turn::Resume { .. } => Err(AgentError::new(
                "answer_invalid",
                "an approval is a JSON object with 'approved'",
            )),
        }
    }
}

enum Step {
    Say(String),
    Send(Mail),
}

/// Decides by the message and, if the last reply asked for a missing part, by the message before it.
fn plan(said: &str, before: &[String], style: Style) -> Step {
    if let Some(reply) = name::recalled(said, before) {
        return Step::Say(reply);
    }
    let request = match before {
        [.., earlier, reply] if is_request(reply) => MailRequest::read(earlier, Some(said)),
        _ if wants_mail(said) => MailRequest::read(said, None),
        _ => {
            let greeting = name::introduced(said).map(|name| name::greeting(&name));
            return Step::Say(greeting.unwrap_or_else(|| introduction(style)));
        }
    };
    match request.compose(style) {
        Some(mail) => Step::Send(mail),
        None if request.recipients.is_empty() => Step::Say(ask_recipient(style).to_owned()),
        None => Step::Say(ask_content(style).to_owned()),
    }
}

/// Ends the turn: the state holds both sides of it, the result is the last message.
async fn answer<const N: usize>(
    context: &Context,
    mut state: State,
    said: [String; N],
) -> Result<Outcome, AgentError> {
    let reply = said.last().cloned().unwrap_or_default();
    state.messages.extend(said);
    let mut bytes: usize = state.messages.iter().map(String::len).sum();
    let mut dropped = 0;
    for turn in state.messages.chunks(2).take((state.messages.len() / 2).saturating_sub(1)) {
        if bytes <= MAX_STATE_BYTES {
            break;
        }
        bytes -= turn.iter().map(String::len).sum::<usize>();
        dropped += turn.len();
    }
    state.messages.drain(..dropped);
    context.set_state(serde_json::to_value(state)?).await?;
    context.result(json!({ "message": reply })).await?;
    Ok(Outcome::Completed)
}

fn ask_recipient(style: Style) -> &'static str {
    match style {
        Style::Formal => "To which mail address should I write?",
        Style::Friendly => "Sure! Which mail address should it go to?",
    }
}

fn ask_content(style: Style) -> &'static str {
    match style {
        Style::Formal => "What should the mail say?",
        Style::Friendly => "Got it! What should it say?",
    }
}

/// Whether a reply asked for a missing part.
fn is_request(reply: &str) -> bool {
    let styles = [Style::Formal, Style::Friendly];
    styles.iter().any(|style| reply == ask_recipient(*style) || reply == ask_content(*style))
}

fn introduction(style: Style) -> String {
    match style {
        Style::Formal => {
            "I compose mails. Please tell me to which address I should write, and what the mail should say."
        }
        Style::Friendly => "Hi! I write mails for you. Just tell me who gets it and what to say.",
    }
    .to_owned()
}

fn approval_prompt(mail: &Mail, style: Style) -> String {
    let Mail { subject, body, recipients } = mail;
    let question = match style {
        Style::Formal => "Please approve this mail before it goes to the outbox.",
        Style::Friendly => "Here is your mail! Shall I put it into the outbox?",
    };
    format!("{question}\n\nTo: {}\nSubject: {subject}\n\n{body}", recipients.join(", "))
}

/// The text about an approved mail. Nothing here really sends mails.
fn approved_reply(mail: &Mail, style: Style) -> String {
    let (subject, recipients) = (&mail.subject, mail.recipients.join(", "));
    match style {
        Style::Formal => format!(
            "The mail “{subject}” to {recipients} is in the outbox of this sample agent, which sends no mails."
        ),
        Style::Friendly => format!(
            "Done! “{subject}” to {recipients} is in my outbox. I am a sample, so it goes no further."
        ),
    }
}

fn declined_reply(reason: Option<&str>, style: Style) -> String {
    match (style, reason) {
        (Style::Formal, Some(reason)) => {
            format!("The mail is not in the outbox. Your reason: “{reason}”")
        }
        (Style::Formal, None) => "The mail is not in the outbox. No reason was given.".to_owned(),
        (Style::Friendly, Some(reason)) => {
            format!("No worries, I kept nothing. You said: “{reason}”")
        }
        (Style::Friendly, None) => "No worries, I kept nothing.".to_owned(),
    }
}
