use serde_json::{Map, Value};
use trilogue_domain::error::Result;
use trilogue_domain::event::{RunEvent, StateEvent};
use trilogue_domain::{
    AgentCard, AgentName, Answer, Body, Code, Error, Failure, Input, InputKind, Interrupt,
    InterruptKind, Json, Violation,
};

use super::input::admit;
use super::schema::{Mismatch, Schema};

#[derive(Debug)]
pub(crate) struct Schemas {
    agent: AgentName,
    input: Option<Schema>,
    output: Option<Schema>,
    state: Option<Schema>,
    config: Option<Schema>,
    settings: Option<SettingNames>,
    update: Option<Schema>,
    interrupts: Vec<InterruptSchemas>,
    /// Whether the agent may raise only the custom interrupts that it declares.
    is_closed: bool,
    errors: Vec<ErrorSchema>,
    default_config: Option<Json>,
}

/// The settings that a configuration schema names. Absent if the schema allows further ones: the agent would drop those.
#[derive(Debug)]
struct SettingNames(Vec<String>);

#[derive(Debug)]
struct InterruptSchemas {
    kind: String,
    payload: Schema,
    answer: Schema,
    answer_json: Json,
}

#[derive(Debug)]
struct ErrorSchema {
    code: String,
    transient: bool,
    data: Option<Schema>,
}

// === impl Schemas ===

impl Schemas {
    pub(crate) fn of(card: &AgentCard) -> Result<Self> {
        let compile = |what: &str, json: &Json| {
            Schema::compile(json).map_err(|why| {
                Error::new(
                    Code::InvalidRequest,
                    format!("the {what} of the agent '{}' is not a JSON Schema: {why}", card.name),
                )
                .hint("schemas are self-contained: no remote references")
            })
        };
        let optional = |what: &str, json: Option<&Json>| json.map(|json| compile(what, json));
        let input = match &card.input {
            InputKind::Chat => None,
            InputKind::Schema(schema) => Some(compile("input schema", schema)?),
        };
        let interrupts = card.interrupts.iter().map(|declared| {
            let what = |which| format!("{which} schema of the interrupt '{}'", declared.kind);
            Ok(InterruptSchemas {
                kind: declared.kind.clone(),
                payload: compile(&what("payload"), &declared.payload_schema)?,
                answer: compile(&what("answer"), &declared.answer_schema)?,
                answer_json: declared.answer_schema.clone(),
            })
        });
        let errors = card.errors.iter().map(|declared| {
            let what = format!("data schema of the error '{}'", declared.code);
            Ok(ErrorSchema {
                code: declared.code.clone(),
                transient: declared.transient,
                data: optional(&what, declared.data_schema.as_ref()).transpose()?,
            })
        });
        let config = optional("configuration schema", card.config_schema.as_ref()).transpose()?;
        let settings =
            card.config_schema.as_ref().and_then(|schema| SettingNames::of(&schema.to_value()));
        let default_config = match (&config, &card.config_schema) {
            (Some(schema), Some(json)) => defaults(schema, &json.to_value()),
            _ => None,
        };
        Ok(Self {
            agent: card.name.clone(),
            input,
            output: optional("output schema", card.output_schema.as_ref()).transpose()?,
            state: optional("state schema", card.state_schema.as_ref()).transpose()?,
            config,
            settings,
            update: optional("update schema", card.update_schema.as_ref()).transpose()?,
            interrupts: interrupts.collect::<Result<_>>()?,
            is_closed: !card.interrupts.is_empty() || card.descriptor.is_some(),
            errors: errors.collect::<Result<_>>()?,
            default_config,
        })
    }

    /// The configuration of a run without one: the schema's defaults.
    pub(super) fn default_config(&self) -> Option<&Json> {
        self.default_config.as_ref()
    }

    pub(crate) fn check_config(&self, config: &Json) -> Result<()> {
        let what = || format!("the configuration does not fit the agent '{}'", self.agent);
        fits(self.config.as_ref(), config, Code::ConfigInvalid, what)
            .map_err(|error| error.hint("the agent's 'config_schema' says what fits"))?;
        match &self.settings {
            Some(settings) => settings.check(config, what),
            None => Ok(()),
        }
    }

    pub(crate) fn check_state(&self, state: &Json) -> Result<()> {
        let what = || format!("the state does not fit the agent '{}'", self.agent);
        fits(self.state.as_ref(), state, Code::StateInvalid, what)
            .map_err(|error| error.hint("the agent's 'state_schema' says what fits"))
    }

    /// Converts a run's input to the form that the agent takes, and checks it. Fails with `invalid_input`, which names the paths that do not fit.
    pub(crate) fn admit(&self, card: &AgentCard, input: Input) -> Result<Input> {
        admit(card, self.input.as_ref(), input)
    }

    /// Whether a payload fits the interrupt of this kind that the agent declares.
    pub(crate) fn is_payload_of(&self, kind: &str, payload: &Json) -> bool {
        let declared = self.interrupts.iter().find(|declared| declared.kind == kind);
        declared.is_some_and(|declared| declared.payload.check(payload).is_ok())
    }

    pub(super) fn checks(&self, body: &Body) -> bool {
        self.event_schema(body).is_some()
    }

    pub(super) fn check_event(&self, body: &Body) -> Result<()> {
        let Some((schema, value, what, code)) = self.event_schema(body) else { return Ok(()) };
        let what = || format!("{what} does not fit what the agent '{}' declares", self.agent);
        fits(Some(schema), value, code, what)
    }

    /// The schema for an event, the value that it applies to, its name, and the error code.
    fn event_schema<'a>(
        &'a self,
        body: &'a Body,
    ) -> Option<(&'a Schema, &'a Json, &'static str, Code)> {
        let (schema, value, what, code) = match body {
            Body::Run(RunEvent::Result(value)) => {
                (&self.output, value, "the result", Code::ResultInvalid)
            }
            Body::State(StateEvent::Output(value)) => {
                (&self.output, value, "the output so far", Code::ResultInvalid)
            }
            Body::State(StateEvent::Values(value)) => {
                (&self.state, value, "the state", Code::StateInvalid)
            }
            Body::State(StateEvent::Custom { data, .. }) => {
                (&self.update, data, "the update", Code::UpdateInvalid)
            }
            _ => return None,
        };
        Some((schema.as_ref()?, value, what, code))
    }

    /// Checks an interrupt against the card. One of a declared kind gets the declared answer schema if it has none.
    pub(super) fn check_interrupt(&self, interrupt: &mut Interrupt) -> Result<()> {
        let declared = self.interrupt_schemas(interrupt);
        if let Some(InterruptSchemas { payload, kind, .. }) = declared {
            let what = || {
                let agent = &self.agent;
                format!("the interrupt '{kind}' does not fit what the agent '{agent}' declares")
            };
            fits(Some(payload), &interrupt.payload, Code::InterruptInvalid, what)?;
        } else if let (true, InterruptKind::Custom(kind)) = (self.is_closed, &interrupt.kind) {
            let (agent, kind) = (&self.agent, kind.escape_debug());
            return Err(Error::new(
                Code::InterruptInvalid,
                format!(
                    "the agent '{agent}' raised the interrupt '{kind}', which it does not declare"
                ),
            ));
        }
        match (&interrupt.schema, declared) {
            (None, Some(declared)) => interrupt.schema = Some(declared.answer_json.clone()),
            (Some(schema), Some(declared)) if *schema == declared.answer_json => {}
            (Some(schema), _) => {
                Schema::compile(schema).map_err(|why| {
                    Error::new(
                        Code::InterruptInvalid,
                        format!("the answer schema of the interrupt is not a JSON Schema: {why}"),
                    )
                })?;
            }
            (None, None) => {}
        }
        Ok(())
    }

    pub(crate) fn check_answer(&self, interrupt: &Interrupt, answer: &Answer) -> Result<()> {
        let Answer::Json(value) = answer else { return Ok(()) };
        let what = || format!("the answer does not fit the interrupt '{}'", interrupt.id);
        let own;
        let schema = match (&interrupt.schema, self.interrupt_schemas(interrupt)) {
            (Some(json), Some(declared)) if *json == declared.answer_json => Some(&declared.answer),
            (Some(json), _) => {
                own = Schema::compile(json)
                    .map_err(|why| Error::new(Code::AnswerInvalid, format!("{}: {why}", what())))?;
                Some(&own)
            }
            (None, declared) => declared.map(|declared| &declared.answer),
        };
        fits(schema, value, Code::AnswerInvalid, what)
            .map_err(|error| error.hint("the interrupt's 'schema' says what fits"))
    }

    /// A failure as the card declares it: the card says whether a declared error is transient. Data that does not fit is kept.
    pub(super) fn declared_failure(&self, mut failure: Failure) -> Failure {
        let Some(declared) = self.errors.iter().find(|error| error.code == failure.code) else {
            return failure;
        };
        failure.transient = declared.transient;
        if let (Some(schema), Some(data)) = (&declared.data, &failure.data)
            && let Err(why) = schema.check(data)
        {
            let (agent, code) = (&self.agent, &declared.code);
            tracing::warn!(%agent, %code, why = ?why.to_string(), "the data of an agent's error does not fit what the agent declares");
        }
        failure
    }

    fn interrupt_schemas(&self, interrupt: &Interrupt) -> Option<&InterruptSchemas> {
        let InterruptKind::Custom(kind) = &interrupt.kind else { return None };
        self.interrupts.iter().find(|declared| declared.kind == *kind)
    }
}

// === impl SettingNames ===

impl SettingNames {
    /// `None` if the schema has any keyword about further members.
    fn of(schema: &Value) -> Option<Self> {
        const OPENS: [&str; 11] = [
            "additionalProperties",
            "unevaluatedProperties",
            "patternProperties",
            "propertyNames",
            "$ref",
            "$dynamicRef",
            "allOf",
            "anyOf",
            "oneOf",
            "if",
            "dependentSchemas",
        ];
        let schema = schema.as_object()?;
        let properties = schema.get("properties")?.as_object()?;
        let is_open = OPENS.iter().any(|word| schema.contains_key(*word));
        (!is_open).then(|| Self(properties.keys().cloned().collect()))
    }

    /// Errors: `config_schema_violation`, which names every unknown setting.
    fn check(&self, config: &Json, what: impl FnOnce() -> String) -> Result<()> {
        let Some(given) = config.members() else { return Ok(()) };
        let unknown: Vec<_> = given.keys().filter(|name| !self.0.contains(name)).collect();
        let Some(first) = unknown.first() else { return Ok(()) };
        let violation = |name: &&String| Violation {
            path: format!("/{}", name.replace('~', "~0").replace('/', "~1")),
            message: "is not a setting of this agent".to_owned(),
        };
        let message = format!("{}: unknown setting '{}'", what(), first.escape_debug());
        Err(Error::new(Code::ConfigInvalid, message)
            .hint(format!("the settings: {}", self.0.join(", ")))
            .violations(unknown.iter().map(violation).collect()))
    }
}

/// Checks a value. The error's message has the first violation, and the error has all of them.
fn fits(
    schema: Option<&Schema>,
    value: &Json,
    code: Code,
    what: impl FnOnce() -> String,
) -> Result<()> {
    let Some(schema) = schema else { return Ok(()) };
    schema.check(value).map_err(|why: Mismatch| {
        Error::new(code, format!("{}: {why}", what())).violations(why.into_violations())
    })
}

/// The default of a configuration schema: its own, or those of its properties. `None` without a default, or if the properties' defaults do not fit the schema by themselves.
fn defaults(schema: &Schema, json: &Value) -> Option<Json> {
    let made = match json.get("default") {
        Some(value) => value.clone(),
        None => {
            let properties = json.get("properties")?.as_object()?;
            let given = properties.iter().filter_map(|(name, property)| {
                Some((name.clone(), property.get("default")?.clone()))
            });
            let given: Map<String, Value> = given.collect();
            if given.is_empty() {
                return None;
            }
            Value::Object(given)
        }
    };
    let made = Json::from_value(&made);
    schema.check(&made).is_ok().then_some(made)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn settings_that_a_schema_does_not_name_are_none_unless_it_allows_them() {
        let check = |schema: Value, config: Value| {
            let settings = SettingNames::of(&schema)?;
            let checked = settings.check(&Json::from_value(&config), || "misfit".to_owned());
            checked.err().map(|error| error.violated()[0].path.clone())
        };
        let style = || json!({ "properties": { "style": { "type": "string" } } });
        assert_eq!(check(style(), json!({ "style": "x" })), None);
        assert_eq!(check(style(), json!({ "a/b": 1 })).as_deref(), Some("/a~1b"));
        assert_eq!(check(json!({ "type": "object" }), json!({ "any": 1 })), None);
        for word in ["additionalProperties", "patternProperties", "anyOf", "$ref"] {
            let mut open = style();
            open[word] = json!(true);
            assert_eq!(check(open, json!({ "any": 1 })), None, "{word}");
        }
    }

    #[test]
    fn defaults_of_a_configuration_are_used_where_they_are_one() {
        let made = |schema: Value| {
            let compiled = Schema::compile(&Json::from_value(&schema)).unwrap();
            defaults(&compiled, &schema).map(|json| json.to_value())
        };
        let style = json!({ "type": "string", "default": "formal" });
        let of_style = json!({ "properties": { "style": style, "length": {} } });
        assert_eq!(made(of_style), Some(json!({ "style": "formal" })));
        assert_eq!(made(json!({ "default": { "a": 1 } })), Some(json!({ "a": 1 })));
        assert_eq!(made(json!({ "properties": { "style": {} } })), None);
        let incomplete = json!({ "properties": { "style": style }, "required": ["key"] });
        assert_eq!(made(incomplete), None);
        assert_eq!(made(json!(true)), None);
    }
}
