//! Asks the person at the terminal.

use std::io;

use dialoguer::console::Term;
use dialoguer::{Confirm, Input, Select};
use serde_json::{Map, Value};
use trilogue_wire::native::{AnswerCreate, Effect, Interrupt, Json, Part};

use super::{permission, print, safe, style};
use crate::exit::{CliError, ExitStatus, Result};

/// The most fields of a form that are asked for one by one; a larger form is asked for as JSON.
const MAX_FIELDS: usize = 32;

#[derive(Clone, PartialEq, Debug)]
struct Field {
    name: String,
    title: String,
    kind: FieldKind,
    required: bool,
}

#[derive(Clone, PartialEq, Debug)]
enum FieldKind {
    Text,
    Boolean,
    Number,
    Choice(Vec<String>),
}

/// Asks a yes-or-no question. Without a terminal, fails with the option that answers it.
pub(crate) async fn confirm(question: &str, option: &str) -> Result<bool> {
    if !print::can_ask() {
        return Err(CliError::usage(format!("confirm this first: {question}"))
            .hint(format!("pass {option} where nobody can be asked")));
    }
    let question = question.to_owned();
    blocking(move || Confirm::new().with_prompt(question).default(false).interact()).await
}

/// Reads one line. `None` at the end of the input.
pub(crate) async fn read_line(prompt: &str) -> Result<Option<String>> {
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

pub(crate) fn show(interrupt: &Interrupt) {
    let words: String = interrupt.prompt.iter().filter_map(Part::as_text).collect();
    if !words.is_empty() {
        print::note(&style::bold(&safe::block(&words)));
    }
    let payload = interrupt.payload.to_value();
    if let Some(lines) = permission::lines(&payload) {
        for line in lines {
            print::note(&format!("  {line}"));
        }
    } else {
        show_payload(interrupt, payload);
    }
    show_options(interrupt);
}

/// Shows a question's payload. Of an elicitation of the Agent Client Protocol it shows only the URL: the rest is asked for.
fn show_payload(interrupt: &Interrupt, payload: Value) {
    let is_elicitation = matches!(interrupt.kind.as_str(), "form" | "url")
        && payload.get("mode").is_some_and(Value::is_string);
    if is_elicitation {
        if let Some(url) = payload.get("url").and_then(Value::as_str) {
            print::note(&format!("  url: {}", safe::visible(url)));
        }
        return;
    }
    match payload {
        Value::Null => {}
        Value::Object(members) => {
            for (name, value) in members {
                let value = match value {
                    Value::String(text) => {
                        text.split('\n').map(safe::visible).collect::<Vec<_>>().join("\n    ")
                    }
                    other => safe::visible(&other.to_string()),
                };
                print::note(&format!("  {}: {value}", safe::visible(&name)));
            }
        }
        other => print::note(&format!("  {}", safe::visible(&other.to_string()))),
    }
}

fn show_options(interrupt: &Interrupt) {
    for option in &interrupt.options {
        let effect = if option.effect == Effect::Allow { "allows" } else { "rejects" };
        let always = if option.always { ", for later calls too" } else { "" };
        print::note(&format!(
            "  {} — {} ({effect}{always})",
            safe::visible(&option.id),
            safe::visible(&option.name)
        ));
    }
}

/// Shows a question and asks for its answer.
pub(crate) async fn answer(interrupt: &Interrupt) -> Result<AnswerCreate> {
    show(interrupt);
    let interrupt = interrupt.clone();
    blocking(move || match interrupt.kind.as_str() {
        "permission" => choose(&interrupt),
        "message" => Ok(AnswerCreate {
            text: Some(Input::new().with_prompt("answer").interact_text()?),
            ..AnswerCreate::default()
        }),
        "url" => {
            let done = Confirm::new().with_prompt("done?").default(true).interact()?;
            Ok(value(&Value::Bool(done)))
        }
        _ => match interrupt.schema.as_ref().and_then(|schema| fields(&schema.to_value())) {
            Some(fields) => fill(&fields),
            None => free(),
        },
    })
    .await
}

fn choose(interrupt: &Interrupt) -> dialoguer::Result<AnswerCreate> {
    let names: Vec<_> =
        interrupt.options.iter().map(|option| safe::visible(&option.name)).collect();
    let chosen = Select::new().with_prompt("choose").items(&names).interact()?;
    let option = interrupt.options.get(chosen).map(|option| option.id.clone());
    Ok(AnswerCreate { option, ..AnswerCreate::default() })
}

fn fill(fields: &[Field]) -> dialoguer::Result<AnswerCreate> {
    let mut members = Map::new();
    for field in fields {
        let prompt = safe::visible(&field.title);
        let filled = match &field.kind {
            FieldKind::Boolean => Some(Value::Bool(Confirm::new().with_prompt(prompt).interact()?)),
            FieldKind::Choice(choices) => {
                let shown: Vec<_> = choices.iter().map(|choice| safe::visible(choice)).collect();
                let chosen = Select::new().with_prompt(prompt).items(&shown).interact()?;
                choices.get(chosen).cloned().map(Value::String)
            }
            FieldKind::Text => {
                let text: String = Input::new()
                    .with_prompt(prompt)
                    .allow_empty(!field.required)
                    .interact_text()?;
                (field.required || !text.is_empty()).then_some(Value::String(text))
            }
            FieldKind::Number => {
                let text: String = Input::new()
                    .with_prompt(prompt)
                    .allow_empty(!field.required)
                    .validate_with(|text: &String| number(text).map(drop).ok_or("not a number"))
                    .interact_text()?;
                number(&text).flatten()
            }
        };
        if let Some(filled) = filled {
            members.insert(field.name.clone(), filled);
        }
    }
    Ok(value(&Value::Object(members)))
}

fn free() -> dialoguer::Result<AnswerCreate> {
    let text: String = Input::new()
        .with_prompt("answer, as JSON")
        .validate_with(|text: &String| {
            serde_json::from_str::<Value>(text).map(drop).map_err(|error| error.to_string())
        })
        .interact_text()?;
    Ok(value(&serde_json::from_str(&text).unwrap_or_default()))
}

pub(crate) fn value(value: &Value) -> AnswerCreate {
    AnswerCreate { value: Some(Json::from_value(value)), ..AnswerCreate::default() }
}

/// `None` for text that is not a number, `Some(None)` for no text.
fn number(text: &str) -> Option<Option<Value>> {
    if text.is_empty() {
        return Some(None);
    }
    serde_json::from_str::<serde_json::Number>(text).ok().map(|number| Some(number.into()))
}

/// The fields of a form, where its schema is simple enough to ask for them one by one.
fn fields(schema: &Value) -> Option<Vec<Field>> {
    let properties = schema.get("properties")?.as_object()?;
    if properties.is_empty() || properties.len() > MAX_FIELDS {
        return None;
    }
    let required = schema.get("required").and_then(Value::as_array);
    properties
        .iter()
        .map(|(name, member)| {
            let choices = member.get("enum").and_then(Value::as_array);
            let kind = match (choices, member.get("type").and_then(Value::as_str)) {
                (Some(choices), _) => {
                    let text = |choice: &Value| choice.as_str().map(str::to_owned);
                    FieldKind::Choice(choices.iter().map(text).collect::<Option<_>>()?)
                }
                (None, Some("string")) => FieldKind::Text,
                (None, Some("boolean")) => FieldKind::Boolean,
                (None, Some("number" | "integer")) => FieldKind::Number,
                _ => return None,
            };
            let title = member.get("title").or_else(|| member.get("description"));
            let title = title.and_then(Value::as_str).unwrap_or(name).to_owned();
            let required =
                required.is_some_and(|names| names.iter().any(|it| it.as_str() == Some(name)));
            Some(Field { name: name.clone(), title, kind, required })
        })
        .collect()
}

/// Runs a prompt outside the event loop.
async fn blocking<T: Send + 'static>(
    ask: impl FnOnce() -> dialoguer::Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(ask).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(dialoguer::Error::IO(error))) if error.kind() == io::ErrorKind::Interrupted => {
            // A prompt hides the cursor, and Ctrl-C leaves it hidden. An error means that the terminal is gone.
            let _ = Term::stderr().show_cursor();
            Err(CliError::silent(ExitStatus::Interrupted))
        }
        Ok(Err(error)) => Err(CliError::failed(format!("cannot read the terminal: {error}"))),
        Err(error) => Err(CliError::failed(format!("cannot read the terminal: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_simple_schema_is_asked_field_by_field() {
        let schema = json!({"type": "object", "required": ["approved"], "properties": {
            "approved": {"type": "boolean", "title": "Send it?"},
            "reason": {"type": "string"},
            "tone": {"enum": ["dry", "warm"]},
            "copies": {"type": "integer"},
        }});
        let fields = fields(&schema).unwrap();
        let of = |name: &str| fields.iter().find(|field| field.name == name).unwrap();
        assert_eq!(of("approved").title, "Send it?");
        assert!(of("approved").required && !of("reason").required);
        assert_eq!(of("tone").kind, FieldKind::Choice(vec!["dry".to_owned(), "warm".to_owned()]));
        assert_eq!(of("copies").kind, FieldKind::Number);
    }

    #[test]
    fn other_schemas_are_asked_as_json() {
        for schema in [
            json!({}),
            json!(true),
            json!({"properties": {}}),
            json!({"properties": {"list": {"type": "array"}}}),
            json!({"properties": {"mixed": {"enum": [1, "a"]}}}),
        ] {
            assert_eq!(fields(&schema), None, "{schema}");
        }
    }
}
