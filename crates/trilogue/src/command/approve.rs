//! `trilogue approve`.

use clap::Args;
use serde_json::{Map, Value, json};
use trilogue_wire::native::{AnswerCreate, Effect, Interrupt};

use crate::exit::{CliError, Result};
use crate::globals::{Globals, json as json_option};
use crate::remote;
use crate::terminal::{ask, print, safe};

/// Answer a run's question.
///
/// Without an option it asks on a terminal. Elsewhere it approves: with a permission's option that allows this once, or with `approved: true` where the form has that member.
#[derive(Args, Debug)]
pub(crate) struct Approve {
    /// The interrupt's id, from `trilogue inbox`.
    interrupt: String,
    /// Approve without asking.
    #[arg(long, conflicts_with_all = ["option", "reject", "value"])]
    yes: bool,
    /// Choose this option of a permission.
    #[arg(long, value_name = "ID", conflicts_with_all = ["reject", "value", "message"])]
    option: Option<String>,
    /// Reject: with a permission's option that rejects this once, with `approved: false` where the form has that member, or the form as a whole.
    #[arg(long, conflicts_with = "value")]
    reject: bool,
    /// Answer with this JSON value.
    #[arg(long, value_name = "JSON", conflicts_with = "message")]
    value: Option<String>,
    /// Answer with this text, or give a decision this reason. Permissions and links take no text.
    #[arg(long, value_name = "TEXT")]
    message: Option<String>,
}

// === impl Approve ===

impl Approve {
    pub(crate) async fn execute(&self, globals: &Globals) -> Result {
        let client = remote::open(globals)?;
        let interrupt = client.interrupt(&self.interrupt).await?;
        let silent = !self.yes && self.option.is_none() && !self.reject;
        let silent = silent && self.value.is_none() && self.message.is_none();
        let answer = if silent && print::can_ask() && interrupt.resolution.is_none() {
            ask::answer(&interrupt).await?
        } else {
            self.answer(&interrupt)?
        };
        let resolved = client.answer(&self.interrupt, &answer).await?;
        if globals.json {
            return print::json(&resolved);
        }
        print::note(&format!("answered: {}", safe::visible(&self.interrupt)));
        if let Some(run) = &resolved.run_id {
            let run = safe::visible(run);
            print::hint(&format!(
                "follow the run with `trilogue tail {run} --follow{}`",
                globals.elsewhere()
            ));
        }
        Ok(())
    }

    fn answer(&self, interrupt: &Interrupt) -> Result<AnswerCreate> {
        if let Some(option) = &self.option {
            return Ok(AnswerCreate { option: Some(option.clone()), ..AnswerCreate::default() });
        }
        if let Some(text) = &self.value {
            let value = json_option("--value", text)?;
            return Ok(AnswerCreate { value: Some(value), ..AnswerCreate::default() });
        }
        match interrupt.kind.as_str() {
            "permission" => self.decide_permission(interrupt),
            "message" => match &self.message {
                Some(text) => {
                    Ok(AnswerCreate { text: Some(text.clone()), ..AnswerCreate::default() })
                }
                None => Err(unanswered(interrupt, "--message TEXT")),
            },
            "url" => {
                self.takes_no_message(interrupt, "--yes or --reject")?;
                Ok(ask::value(&Value::Bool(!self.reject)))
            }
            _ => self.decide_form(interrupt),
        }
    }

    /// The option with the wanted effect, preferably for this call only.
    fn decide_permission(&self, interrupt: &Interrupt) -> Result<AnswerCreate> {
        self.takes_no_message(interrupt, "--option ID, --yes or --reject")?;
        let effect = if self.reject { Effect::Reject } else { Effect::Allow };
        let fitting = || interrupt.options.iter().filter(|option| option.effect == effect);
        let option = fitting().find(|option| !option.always).or_else(|| fitting().next());
        let option = option.ok_or_else(|| unanswered(interrupt, "--option ID"))?;
        Ok(AnswerCreate { option: Some(option.id.clone()), ..AnswerCreate::default() })
    }

    /// Refuses text that the agent would never receive: it must not turn into consent.
    fn takes_no_message(&self, interrupt: &Interrupt, options: &str) -> Result<()> {
        if self.message.is_none() {
            return Ok(());
        }
        Err(CliError::usage(format!(
            "the interrupt '{}' ({}) takes no text",
            safe::visible(&interrupt.id),
            safe::visible(&interrupt.kind)
        ))
        .hint(format!("pass {options} alone")))
    }

    /// A decision has the member `approved`, and often `reason`. Any other form can be rejected as a whole, and approved only without fields.
    fn decide_form(&self, interrupt: &Interrupt) -> Result<AnswerCreate> {
        let schema = interrupt.schema.as_ref().map(|schema| schema.to_value()).unwrap_or_default();
        let kind = |name: &str| {
            schema.pointer(&format!("/properties/{name}/type")).and_then(Value::as_str)
        };
        if kind("approved") != Some("boolean") {
            return match (&self.message, self.reject) {
                _ if interrupt.kind != "form" => Err(unanswered(interrupt, "--value JSON")),
                (None, true) => Ok(ask::value(&Value::Bool(false))),
                (None, false) if has_no_fields(&schema) => Ok(ask::value(&json!({}))),
                _ => Err(unanswered(interrupt, "--value JSON or --reject")),
            };
        }
        if self.message.is_some() && !self.yes && !self.reject {
            return Err(unanswered(interrupt, "--yes or --reject beside the message"));
        }
        let mut members = Map::new();
        members.insert("approved".to_owned(), json!(!self.reject));
        if let Some(text) = &self.message {
            if kind("reason") != Some("string") {
                return Err(unanswered(interrupt, "--value JSON"));
            }
            members.insert("reason".to_owned(), json!(text));
        }
        Ok(ask::value(&Value::Object(members)))
    }
}

fn has_no_fields(schema: &Value) -> bool {
    let properties = schema.get("properties").and_then(Value::as_object);
    schema["type"] == "object" && properties.is_none_or(Map::is_empty)
}

fn unanswered(interrupt: &Interrupt, option: &str) -> CliError {
    let schema = interrupt.schema.as_ref().map(|schema| format!(" that fits {}", schema.as_str()));
    CliError::usage(format!(
        "the interrupt '{}' ({}) needs a different answer",
        safe::visible(&interrupt.id),
        safe::visible(&interrupt.kind)
    ))
    .hint(format!("pass {option}{}", safe::visible(&schema.unwrap_or_default())))
}
