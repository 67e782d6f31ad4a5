//! Asks the person at the terminal.
//!
//! Every answer is given at a cue and sent with Enter. Keys that were pressed before the cue is shown do not count, and neither does a pasted choice.

use std::io;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::signal::unix::Signal;
use trilogue_domain::interrupt::NO_OPTION;
use trilogue_mapping::choice::Choice;
use trilogue_wire::native::{AnswerCreate, Effect, Interrupt, Json};

use super::choice;
use super::form::{self, Field, FieldKind};
use super::keyboard::{Keyboard, Withdrawal};
use super::menu::{LATER, Menu, MenuOutcome};
use super::prompt::{LineInput, Paste, read_line};
use super::question::{self, QuestionText};
use super::{print, style};
use crate::terminal::exit::{CliError, ExitStatus, Result};

/// How often a question on the screen is looked up: another client may answer it.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// The result of a question.
#[derive(Debug)]
pub(crate) enum TypedReply {
    Answer(AnswerCreate),
    /// The person leaves it open.
    Later,
    /// It is over without this terminal, and why.
    Closed(String),
}

/// What a person did with a field of a form.
enum FieldInput {
    Value(Value),
    /// Enter alone: its default, or nothing.
    Untouched(Option<Value>),
}

/// Asks a yes-or-no question. Without a terminal, fails with the option that answers it.
pub(crate) async fn confirm(question: &str, option: &str) -> Result<bool> {
    if !print::can_ask() {
        return Err(CliError::usage(format!("confirm this first: {question}"))
            .hint(format!("without a terminal, pass {option}")));
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

/// Reads one line of a conversation. `None` at the end of the input. Ctrl-C and SIGTERM interrupt.
pub(crate) async fn next_line(prompt: &str, termination: &mut Signal) -> Result<Option<String>> {
    if print::can_ask() {
        print::aside(&style::bold(prompt));
    }
    let read = blocking(|| {
        let mut line = String::new();
        let read = io::stdin().read_line(&mut line)?;
        Ok((read > 0).then(|| line.trim_end_matches(['\n', '\r']).to_owned()))
    });
    tokio::select! {
        line = read => {
            if let (Ok(None), true) = (&line, print::can_ask()) {
                // Ctrl-D leaves the cursor behind the prompt.
                print::note("");
            }
            line
        }
        // A run that was listened for before has taken the signal away from the system.
        _ = tokio::signal::ctrl_c() => {
            print::note("");
            Err(CliError::silent(ExitStatus::Interrupted))
        }
        _ = termination.recv() => Err(CliError::silent(ExitStatus::Interrupted)),
    }
}

/// Waits until the person presses Enter.
pub(crate) async fn pause(cue: &'static str) -> Result {
    blocking(move || read_line(&mut Keyboard::open()?, cue, Paste::Refuse).map(drop)).await
}

/// Shows a question and asks for its answer, and meanwhile looks whether it is still open: `closing_reason` says why not.
pub(crate) async fn answer(
    interrupt: &Interrupt,
    closing_reason: impl AsyncFn() -> Option<String>,
) -> Result<TypedReply> {
    let withdrawal = Withdrawal::default();
    let mut asking = std::pin::pin!(ask(interrupt.clone(), withdrawal.clone()));
    let closed = async {
        loop {
            if let Some(reason) = closing_reason().await {
                return reason;
            }
            tokio::time::sleep(WATCH_INTERVAL).await;
        }
    };
    let reason = tokio::select! {
        biased;
        answer = &mut asking => {
            return Ok(match answer? {
                Some(answer) => TypedReply::Answer(answer),
                None => closing_reason().await.map_or(TypedReply::Later, TypedReply::Closed),
            });
        }
        reason = closed => reason,
    };
    withdrawal.withdraw();
    // The terminal is as before when the question has let go of it.
    match asking.await {
        Err(error) if error.exit == ExitStatus::Interrupted => Err(error),
        _ => Ok(TypedReply::Closed(reason)),
    }
}

async fn ask(interrupt: Interrupt, withdrawal: Withdrawal) -> Result<Option<AnswerCreate>> {
    blocking(move || {
        let mut keyboard = Keyboard::open_until(withdrawal)?;
        if !show_whole(&mut keyboard, &interrupt)? {
            return Ok(None);
        }
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

/// Shows a question. If it is longer than the screen, its middle is hidden until the person asks for it, and an answer has to wait until then. `false` leaves it open.
fn show_whole(keyboard: &mut Keyboard, interrupt: &Interrupt) -> io::Result<bool> {
    let text = QuestionText::of(interrupt, print::columns().unwrap_or(print::DEFAULT_COLUMNS));
    let hidden = text.show_ends(print::rows().unwrap_or(print::DEFAULT_ROWS));
    if hidden == 0 {
        return Ok(true);
    }
    print::note("Read all of it before you answer.");
    let cue = format!("Enter shows the {hidden} hidden rows, later leaves the question open: ");
    let is_wanted = enter(keyboard, &cue, Paste::Refuse, |line| match line.trim() {
        "" => Ok(()),
        _ => Err("first press Enter: the answer comes after the whole question".to_owned()),
    })?;
    if is_wanted.is_some() {
        text.show_all();
    }
    Ok(is_wanted.is_some())
}

pub(crate) fn value(value: &Value) -> AnswerCreate {
    AnswerCreate { value: Some(Json::from_value(value)), ..AnswerCreate::default() }
}

fn choose(keyboard: &mut Keyboard, interrupt: &Interrupt) -> io::Result<Option<AnswerCreate>> {
    let options = &interrupt.options;
    if options.is_empty() {
        return choose_none(keyboard);
    }
    let choices = choice::of_options(options);
    let once = |effect| options.iter().position(|it| it.effect == effect && !it.always);
    let menu = Menu {
        labels: question::option_labels(interrupt),
        yes: once(Effect::Allow),
        no: once(Effect::Reject),
        ..Menu::new("choose: ", &choices)
    };
    let chosen = match menu.ask(keyboard)? {
        MenuOutcome::Choices(places) => places.first().and_then(|place| options.get(*place)),
        MenuOutcome::Default(_) | MenuOutcome::Nothing | MenuOutcome::Later => None,
    };
    let option = chosen.map(|option| option.id.clone());
    Ok(option.map(|id| AnswerCreate { option: Some(id), ..AnswerCreate::default() }))
}

/// Asks for the only answer to a permission that offers no options.
fn choose_none(keyboard: &mut Keyboard) -> io::Result<Option<AnswerCreate>> {
    let choices = [Choice::new(Value::from(NO_OPTION), None)];
    let menu = Menu {
        labels: vec![format!("{NO_OPTION}  it offers no options: nothing is allowed")],
        no: Some(0),
        ..Menu::new("choose: ", &choices)
    };
    let is_chosen = matches!(menu.ask(keyboard)?, MenuOutcome::Choices(_));
    let option = Some(NO_OPTION.to_owned());
    Ok(is_chosen.then(|| AnswerCreate { option, ..AnswerCreate::default() }))
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
    match pick_bool(keyboard, &cue, None, false)? {
        Some(FieldInput::Value(decision)) => Ok(decision.as_bool()),
        Some(FieldInput::Untouched(_)) | None => Ok(None),
    }
}

/// Asks for yes or no; returns `None` if the person leaves the question for later.
fn pick_bool(
    keyboard: &mut Keyboard,
    cue: &str,
    default: Option<bool>,
    optional: bool,
) -> io::Result<Option<FieldInput>> {
    let choices = [(true, "yes"), (false, "no")];
    let choices = choices.map(|(value, name)| Choice::new(Value::Bool(value), Some(name)));
    let menu = Menu {
        labels: choices.iter().map(|choice| choice.name.clone()).collect(),
        yes: Some(0),
        no: Some(1),
        default: default.map(|yes| usize::from(!yes)),
        optional,
        ..Menu::new(cue, &choices)
    };
    let value = |places: Vec<usize>| Value::Bool(places == [0]);
    Ok(match menu.ask(keyboard)? {
        MenuOutcome::Choices(places) => Some(FieldInput::Value(value(places))),
        MenuOutcome::Default(places) => Some(FieldInput::Untouched(Some(value(places)))),
        MenuOutcome::Nothing => Some(FieldInput::Untouched(None)),
        MenuOutcome::Later => None,
    })
}

fn say(keyboard: &mut Keyboard) -> io::Result<Option<AnswerCreate>> {
    let text = enter(keyboard, "answer: ", Paste::Insert, |text| match text.trim() {
        "" => Err("type an answer".to_owned()),
        _ => Ok(text.to_owned()),
    })?;
    Ok(text.map(|text| AnswerCreate { text: Some(text), ..AnswerCreate::default() }))
}

fn fill(keyboard: &mut Keyboard, fields: Vec<Field>) -> io::Result<Option<AnswerCreate>> {
    let (mut values, mut is_touched, count) = (Vec::new(), false, fields.len());
    for (number, field) in (1..).zip(fields) {
        if count > 1 {
            print::note(&style::dim(&format!("field {number} of {count}")));
        }
        question::show_field(&field);
        let Some(entered) = fill_one(keyboard, &field)? else { return Ok(None) };
        let value = match entered {
            FieldInput::Value(value) => {
                is_touched = true;
                Some(value)
            }
            FieldInput::Untouched(value) => value,
        };
        values.push((field, value));
    }
    // An untouched form is not an answer.
    if !is_touched && !sends_untouched(keyboard)? {
        return Ok(None);
    }
    Ok(Some(value(&form::answer(values))))
}

/// Whether the person wants to send a form in which nothing was entered.
fn sends_untouched(keyboard: &mut Keyboard) -> io::Result<bool> {
    print::note("nothing was entered");
    let cue = "send it like this? yes or later: ";
    let sent = enter(keyboard, cue, Paste::Refuse, |text| match form::yes_or_no(text) {
        Ok(true) => Ok(()),
        _ => Err("type yes or later".to_owned()),
    })?;
    Ok(sent.is_some())
}

/// Asks for the value of a field; returns `None` if the question stays open.
fn fill_one(keyboard: &mut Keyboard, field: &Field) -> io::Result<Option<FieldInput>> {
    let cue = field.cue();
    let several = match &field.kind {
        FieldKind::Text { .. } | FieldKind::Number { .. } => {
            let paste = if field.takes_any_text() { Paste::Insert } else { Paste::Refuse };
            return enter(keyboard, &cue, paste, |text| {
                Ok(match (Field::is_untouched(text), field.read(text)?) {
                    (false, Some(value)) => FieldInput::Value(value),
                    (_, value) => FieldInput::Untouched(value),
                })
            });
        }
        FieldKind::Boolean => {
            return pick_bool(keyboard, &cue, field.default_bool(), !field.required);
        }
        FieldKind::Choice(_) => None,
        FieldKind::Several(_) => Some(field.default_places()),
    };
    let choices = field.choices();
    let menu = Menu {
        labels: question::choice_labels(field),
        default: field.default_places().first().copied().filter(|_| several.is_none()),
        several,
        optional: !field.required,
        ..Menu::new(&cue, choices)
    };
    let value = |place: &usize| choices.get(*place).map(|choice| choice.value.clone());
    let values = |places: Vec<usize>| match &field.kind {
        FieldKind::Several(_) => Some(places.iter().filter_map(value).collect()),
        _ => places.first().and_then(value),
    };
    Ok(match menu.ask(keyboard)? {
        MenuOutcome::Later => None,
        MenuOutcome::Nothing => Some(FieldInput::Untouched(None)),
        MenuOutcome::Default(places) => Some(FieldInput::Untouched(values(places))),
        MenuOutcome::Choices(places) => {
            Some(values(places).map_or(FieldInput::Untouched(None), FieldInput::Value))
        }
    })
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
        let LineInput::Line(line) = read_line(keyboard, cue, paste)? else { return Ok(None) };
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
        Ok(Err(error)) => Err(CliError::failure(format!("cannot read the terminal: {error}"))),
        Err(error) => Err(CliError::failure(format!("cannot read the terminal: {error}"))),
    }
}
