//! Asks the person at the terminal.
//!
//! Every answer is typed at a cue and sent with Enter. Keys that were pressed before the cue is shown do not count, and neither does a pasted choice.

use std::io;

use serde_json::{Map, Value};
use trilogue_wire::native::{AnswerCreate, Interrupt, Json};

use super::choice;
use super::form::{self, Field};
use super::keyboard::Keyboard;
use super::prompt::{Entry, Paste, read_line};
use super::{print, question, style};
use crate::exit::{CliError, ExitStatus, Result};

/// What leaves a question open, beside the Esc key.
const LATER: &str = "later";

/// Asks a yes-or-no question. Without a terminal, fails with the option that answers it.
pub(crate) async fn confirm(question: &str, option: &str) -> Result<bool> {
    if !print::can_ask() {
        return Err(CliError::usage(format!("confirm this first: {question}"))
            .hint(format!("pass {option} where nobody can be asked")));
    }
    let cue = format!("{question} yes or no: ");
    let confirmed = blocking(move || {
        enter(&mut Keyboard::open()?, &cue, Paste::Refuse, |text| match text {
            LATER => Ok(false),
            text => form::yes_or_no(text),
        })
    });
    Ok(confirmed.await?.unwrap_or(false))
}

/// Reads one line of a conversation. `None` at the end of the input.
pub(crate) async fn next_line(prompt: &str) -> Result<Option<String>> {
    if print::can_ask() {
        print::aside(&style::bold(prompt));
    }
    blocking(|| {
        let mut line = String::new();
        let read = io::stdin().read_line(&mut line)?;
        Ok((read > 0).then(|| line.trim_end_matches(['\n', '\r']).to_owned()))
    })
    .await
}

/// Shows a question and asks for its answer; `None` leaves the question open.
pub(crate) async fn answer(interrupt: &Interrupt) -> Result<Option<AnswerCreate>> {
    let interrupt = interrupt.clone();
    blocking(move || {
        let mut keyboard = Keyboard::open()?;
        question::show(&interrupt);
        print::note(&style::dim("Enter sends an answer. Esc leaves the question open."));
        match interrupt.kind.as_str() {
            "permission" => choose(&mut keyboard, &interrupt),
            "message" => say(&mut keyboard),
            "url" => {
                let done = decide(&mut keyboard, "done? ")?;
                Ok(done.map(|done| value(&Value::Bool(done))))
            }
            _ => {
                let schema = interrupt.schema.as_ref().map(Json::to_value).unwrap_or_default();
                match form::fields(&schema) {
                    Some(fields) => fill(&mut keyboard, fields),
                    None if interrupt.kind == "form" && form::has_no_fields(&schema) => {
                        consent(&mut keyboard)
                    }
                    None => write_json(&mut keyboard),
                }
            }
        }
    })
    .await
}

pub(crate) fn value(value: &Value) -> AnswerCreate {
    AnswerCreate { value: Some(Json::from_value(value)), ..AnswerCreate::default() }
}

fn choose(keyboard: &mut Keyboard, interrupt: &Interrupt) -> io::Result<Option<AnswerCreate>> {
    let options = &interrupt.options;
    let choices = choice::of_options(options);
    let chosen = enter(keyboard, "choose by number or name, or later: ", Paste::Refuse, |text| {
        choice::find(&choices, text)
    })?;
    let option = chosen.and_then(|place| options.get(place)).map(|option| option.id.clone());
    Ok(option.map(|id| AnswerCreate { option: Some(id), ..AnswerCreate::default() }))
}

/// Asks whether to accept a form without fields, or to decline it.
fn consent(keyboard: &mut Keyboard) -> io::Result<Option<AnswerCreate>> {
    let decision = decide(keyboard, "")?;
    Ok(decision.map(|accepts| match accepts {
        true => value(&Value::Object(Map::new())),
        false => value(&Value::Bool(false)),
    }))
}

fn decide(keyboard: &mut Keyboard, question: &str) -> io::Result<Option<bool>> {
    let cue = format!("{question}yes, no or later: ");
    enter(keyboard, &cue, Paste::Refuse, form::yes_or_no)
}

fn say(keyboard: &mut Keyboard) -> io::Result<Option<AnswerCreate>> {
    let text = enter(keyboard, "answer: ", Paste::Insert, |text| match text.trim() {
        "" => Err("type an answer".to_owned()),
        _ => Ok(text.to_owned()),
    })?;
    Ok(text.map(|text| AnswerCreate { text: Some(text), ..AnswerCreate::default() }))
}

fn fill(keyboard: &mut Keyboard, fields: Vec<Field>) -> io::Result<Option<AnswerCreate>> {
    let mut values = Vec::new();
    for field in fields {
        question::show_field(&field);
        let paste = if field.takes_any_text() { Paste::Insert } else { Paste::Refuse };
        let Some(entered) = enter(keyboard, &field.cue(), paste, |text| field.read(text))? else {
            return Ok(None);
        };
        values.push((field, entered));
    }
    Ok(Some(value(&form::answer(values))))
}

fn write_json(keyboard: &mut Keyboard) -> io::Result<Option<AnswerCreate>> {
    let json = enter(keyboard, "answer, as JSON: ", Paste::Insert, |text| {
        serde_json::from_str::<Value>(text).map_err(|error| error.to_string())
    })?;
    Ok(json.map(|json| value(&json)))
}

/// Asks until a line is an answer; `None` leaves the question open.
fn enter<T>(
    keyboard: &mut Keyboard,
    cue: &str,
    paste: Paste,
    read: impl Fn(&str) -> Result<T, String>,
) -> io::Result<Option<T>> {
    loop {
        let Entry::Line(line) = read_line(keyboard, cue, paste)? else { return Ok(None) };
        match read(&line) {
            Ok(answer) => return Ok(Some(answer)),
            Err(_) if line.trim().eq_ignore_ascii_case(LATER) => return Ok(None),
            Err(why) => print::note(&why),
        }
    }
}

/// Runs a prompt outside the event loop.
async fn blocking<T: Send + 'static>(
    ask: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(ask).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {
            Err(CliError::silent(ExitStatus::Interrupted))
        }
        Ok(Err(error)) => Err(CliError::failed(format!("cannot read the terminal: {error}"))),
        Err(error) => Err(CliError::failed(format!("cannot read the terminal: {error}"))),
    }
}
