//! `trilogue approve`.

use clap::Args;
use serde_json::{Map, Value, json};
use trilogue_domain::interrupt::NO_OPTION;
use trilogue_wire::native::{AnswerCreate, Effect, Interrupt, Json, ResolutionKind};

use crate::command::globals::{Globals, json as json_option};
use crate::conversation::closing_reason;
use crate::conversation::remote;
use crate::conversation::short_id;
use crate::terminal::ask::{self, TypedReply};
use crate::terminal::exit::{CliError, ExitStatus, Result};
use crate::terminal::form::{self, Field, FieldKind};
use crate::terminal::{choice, print, question, safe, table};

/// Answer a run's question.
///
/// Without an option it asks on a terminal. Elsewhere it refuses to decide. Without an interrupt it answers the only question that is open.
#[derive(Args, Debug)]
pub(crate) struct Approve {
    /// The interrupt, from `trilogue inbox`. By default the only open one.
    interrupt: Option<String>,
    /// Approve without asking: with a permission's option that allows this once, or with `approved: true` where the form has that member.
    #[arg(long, conflicts_with_all = ["option", "reject", "value"])]
    yes: bool,
    /// Choose this option of a permission, or this value of a form that asks for one choice: by id or value, title, or number. `none` chooses no option, which allows nothing.
    #[arg(long, value_name = "CHOICE", conflicts_with_all = ["reject", "value", "message"])]
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
        let named = match &self.interrupt {
            Some(text) => client.interrupt(&short_id::interrupt(&client, text).await?).await?,
            None => short_id::only_question(short_id::open_questions(&client).await?)?,
        };
        // A sub-agent can still ask what an ended run of its parent has asked.
        let open = match &named.resolution {
            Some(resolution) if resolution.kind == ResolutionKind::Withdrawn => {
                short_id::question_behind(&client, &named).await
            }
            _ => None,
        };
        let interrupt = open.unwrap_or(named);
        let id = table::noted_id(&interrupt.id);
        if interrupt.resolution.is_some() {
            let message = format!("the interrupt '{id}' was answered before, or its run has ended");
            return Err(CliError::new(ExitStatus::Conflict, message)
                .hint("a question that is asked again has a new id: `trilogue inbox` shows it"));
        }
        let answer = if self.decides() {
            self.answer(&interrupt)?
        } else if !print::can_ask() {
            question::show(&interrupt);
            return Err(CliError::usage(format!(
                "the interrupt '{id}' ({}) needs a decision, and asking for it needs a terminal",
                safe::visible(&interrupt.kind)
            ))
            .hint(format!("pass {}", options_for(&interrupt))));
        } else {
            match ask::answer(&interrupt, async || closing_reason(&client, &interrupt.id).await)
                .await?
            {
                TypedReply::Answer(answer) => answer,
                TypedReply::Later => {
                    let message = format!("the interrupt '{id}' stays open");
                    return Err(CliError::new(ExitStatus::Waiting, message)
                        .hint(format!("answer it with `trilogue approve {id}`")));
                }
                TypedReply::Closed(why) => {
                    // The error begins behind what the person has typed.
                    print::note("");
                    let message = format!("the interrupt '{id}' is closed: {why}");
                    return Err(CliError::new(ExitStatus::Conflict, message));
                }
            }
        };
        let resolved = client.answer(&interrupt.id, &answer).await?;
        if globals.json {
            return print::json(&resolved);
        }
        print::note(&format!("answered: {id}"));
        if let Some(run) = &resolved.run_id {
            let run = table::noted_id(run);
            print::hint(&format!(
                "follow the run with `trilogue tail {run} --follow{}`",
                globals.url_option()
            ));
        }
        Ok(())
    }

    /// Whether the options decide, so that no question is shown.
    fn decides(&self) -> bool {
        let chosen = self.option.is_some() || self.value.is_some() || self.message.is_some();
        self.yes || self.reject || chosen
    }

    fn answer(&self, interrupt: &Interrupt) -> Result<AnswerCreate> {
        if let Some(text) = &self.option {
            return choose(interrupt, text);
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
                None => Err(wrong_answer_error(interrupt, "--message TEXT")),
            },
            "url" => {
                self.takes_no_message(interrupt, "--yes or --reject")?;
                Ok(ask::value(&Value::Bool(!self.reject)))
            }
            _ => self.decide_form(interrupt),
        }
    }

    /// The option with the wanted effect for this call only. One that holds for later calls too is chosen by its name.
    fn decide_permission(&self, interrupt: &Interrupt) -> Result<AnswerCreate> {
        self.takes_no_message(interrupt, "--option ID, --yes or --reject")?;
        let effect = if self.reject { Effect::Reject } else { Effect::Allow };
        let options = &interrupt.options;
        // An id that names options of both effects would let the agent choose.
        let is_ambiguous = |id: &str| options.iter().any(|it| it.id == id && it.effect != effect);
        let fitting = || options.iter().filter(|it| it.effect == effect && !is_ambiguous(&it.id));
        let option = match fitting().find(|it| !it.always) {
            Some(once) => &once.id,
            None if self.reject && fitting().next().is_none() => NO_OPTION,
            None => return Err(no_option_for_once(interrupt, effect)),
        };
        Ok(AnswerCreate { option: Some(option.to_owned()), ..AnswerCreate::default() })
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
                _ if interrupt.kind != "form" => Err(wrong_answer_error(interrupt, "--value JSON")),
                (None, true) => Ok(ask::value(&Value::Bool(false))),
                (None, false) if form::has_no_fields(&schema) => Ok(ask::value(&json!({}))),
                _ => Err(wrong_answer_error(interrupt, "--value JSON or --reject")),
            };
        }
        if self.message.is_some() && !self.yes && !self.reject {
            return Err(wrong_answer_error(interrupt, "--yes or --reject beside the message"));
        }
        let mut members = Map::new();
        members.insert("approved".to_owned(), json!(!self.reject));
        if let Some(text) = &self.message {
            if kind("reason") != Some("string") {
                return Err(wrong_answer_error(interrupt, "--value JSON"));
            }
            members.insert("reason".to_owned(), json!(text));
        }
        Ok(ask::value(&Value::Object(members)))
    }
}

/// The answer that chooses an option of a permission, or the value of a form's only choice.
fn choose(interrupt: &Interrupt, text: &str) -> Result<AnswerCreate> {
    let misfit = |why: String| CliError::usage(format!("--option {}: {why}", safe::visible(text)));
    if interrupt.kind == "permission" {
        let by_id = interrupt.options.iter().find(|option| option.id == text);
        let found = || choice::find(&choice::of_options(&interrupt.options), text).map_err(misfit);
        let option = match by_id {
            Some(option) => Some(option.id.clone()),
            None if text == NO_OPTION => Some(NO_OPTION.to_owned()),
            None => interrupt.options.get(found()?).map(|option| option.id.clone()),
        };
        return Ok(AnswerCreate { option, ..AnswerCreate::default() });
    }
    let schema = interrupt.schema.as_ref().map(Json::to_value).unwrap_or_default();
    let fields = form::fields(&schema).unwrap_or_default();
    match <[Field; 1]>::try_from(fields) {
        Ok([field @ Field { kind: FieldKind::Choice(_), .. }]) => {
            let value = form::value(field.choices(), text).map_err(misfit)?;
            Ok(ask::value(&form::answer(vec![(field, Some(value))])))
        }
        _ => Err(wrong_answer_error(interrupt, "--value JSON")),
    }
}

/// The options of this command that answer such a question.
fn options_for(interrupt: &Interrupt) -> &'static str {
    match interrupt.kind.as_str() {
        "permission" => "--yes, --reject or --option CHOICE",
        "message" => "--message TEXT",
        "url" => "--yes or --reject",
        _ => "--yes, --reject, --option CHOICE or --value JSON",
    }
}

fn no_option_for_once(interrupt: &Interrupt, effect: Effect) -> CliError {
    let verb = if effect == Effect::Allow { "allows" } else { "rejects" };
    let fitting = interrupt.options.iter().filter(|option| option.effect == effect);
    let choices: Vec<_> =
        fitting.map(|option| format!("--option {}", safe::visible(&option.id))).collect();
    let error = CliError::usage(format!(
        "no option of the interrupt '{}' (permission) {verb} this once",
        safe::visible(&interrupt.id)
    ));
    if choices.is_empty() {
        return error.hint("pass --option CHOICE");
    }
    error.hint(format!("for this call and later ones, pass {}", choices.join(" or ")))
}

fn wrong_answer_error(interrupt: &Interrupt, option: &str) -> CliError {
    let schema = interrupt.schema.as_ref().map(|schema| format!(" that fits {}", schema.as_str()));
    CliError::usage(format!(
        "the interrupt '{}' ({}) needs a different answer",
        safe::visible(&interrupt.id),
        safe::visible(&interrupt.kind)
    ))
    .hint(format!("pass {option}{}", safe::visible(&schema.unwrap_or_default())))
}
