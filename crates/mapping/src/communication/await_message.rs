use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use trilogue_domain::content::BlobRef;
use trilogue_domain::interrupt::{Effect, PermissionOption};
use trilogue_domain::{Content, Interrupt, InterruptKind, Json, Part};
use trilogue_wire::json::{DEFAULT_MAX_TREE_BYTES, is_too_complex};

use super::part::write_part_with;
use crate::choice::{list, one_choice};

/// A question as data. Its JSON stays as it is written: its values would need far more memory.
#[derive(Serialize, Deserialize)]
struct QuestionData<'q> {
    interrupt_id: Cow<'q, str>,
    kind: Cow<'q, str>,
    options: Vec<OptionData>,
    #[serde(borrow)]
    payload: &'q RawValue,
    #[serde(borrow, default)]
    schema: Option<&'q RawValue>,
}

#[derive(Serialize, Deserialize)]
struct OptionData {
    always: bool,
    effect: EffectData,
    name: String,
    option_id: String,
}

/// The effect of choosing an option.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum EffectData {
    Allow,
    Reject,
}

/// Renders the parts of the await message. A question for a message has only its prompt; others also list the valid answers, as text and as JSON.
pub(super) fn parts(
    interrupt: &Interrupt,
    strict: bool,
    link: impl Fn(&BlobRef) -> String + Copy,
) -> Vec<Vec<u8>> {
    let mut parts = interrupt.prompt.clone();
    if interrupt.kind != InterruptKind::Message {
        if parts.is_empty() {
            parts.push(Part::text(in_words(interrupt)));
        }
        if let Some(options) = options_in_words(interrupt) {
            parts.push(Part::text(options));
        }
        let data = as_data(interrupt).unwrap_or_default();
        parts.push(Part::new("application/json", Content::Text(data.into())));
    }
    let mut named = Map::new();
    named.insert("interrupt_id".to_owned(), Value::from(interrupt.id.as_str()));
    let rendered = parts.iter().enumerate().map(|(place, part)| {
        let mut out = Vec::new();
        let ours = if place == 0 { named.clone() } else { Map::new() };
        write_part_with(part, ours, strict, link, &mut out);
        out
    });
    rendered.collect()
}

fn in_words(interrupt: &Interrupt) -> String {
    match &interrupt.kind {
        InterruptKind::Permission => "The agent asks for permission.".to_owned(),
        InterruptKind::Url => "The agent asks you to visit an address.".to_owned(),
        InterruptKind::Form | InterruptKind::Message => "The agent asks for data.".to_owned(),
        InterruptKind::Custom(kind) => format!("The agent asks: {kind}."),
    }
}

fn options_in_words(interrupt: &Interrupt) -> Option<String> {
    if interrupt.options.is_empty() {
        let (_, choices) = one_choice(&interrupt.schema.as_ref()?.to_value())?;
        // A yes or no needs no list, and does not accept a number.
        if choices.iter().any(|choice| choice.value.is_boolean()) {
            return None;
        }
        return Some(format!(
            "\nAnswer with one of these, or with its number:\n{}",
            list(&choices)
        ));
    }
    let options = interrupt.options.iter().map(|option| format!("{} ({})", option.id, option.name));
    Some(format!("\nAnswer with one of: {}", options.collect::<Vec<_>>().join(", ")))
}

fn as_data(interrupt: &Interrupt) -> serde_json::Result<String> {
    let schema = interrupt.schema.as_ref().map(raw).transpose()?;
    serde_json::to_string(&QuestionData {
        interrupt_id: interrupt.id.as_str().into(),
        kind: interrupt.kind.as_str().into(),
        options: interrupt.options.iter().map(OptionData::of).collect(),
        payload: raw(&interrupt.payload)?,
        schema,
    })
}

fn raw(json: &Json) -> serde_json::Result<&RawValue> {
    serde_json::from_slice(json.as_bytes())
}

/// Takes the question that one of our servers shows as data in the last of these parts, under the server's id for it; also removes the parts that repeat it as text.
/// Returns `None` if the question is missing or incomplete: then only the parts are known.
pub(super) fn interrupt_of_data(id: &str, parts: &mut Vec<Part>) -> Option<Interrupt> {
    let Content::Text(text) = &parts.last()?.content else { return None };
    // The values of the payload and the schema are read later, whenever the question is shown.
    if is_too_complex(text.as_bytes(), DEFAULT_MAX_TREE_BYTES) {
        return None;
    }
    let data: QuestionData<'_> = serde_json::from_str(text).ok()?;
    if data.interrupt_id != id {
        return None;
    }
    let read = |json: &RawValue| Json::parse(json.get().to_owned()).ok();
    let interrupt = Interrupt {
        payload: read(data.payload)?,
        options: data.options.into_iter().map(OptionData::into_option).collect(),
        schema: match data.schema {
            Some(schema) => Some(read(schema)?),
            None => None,
        },
        ..Interrupt::new(InterruptKind::from_text(&data.kind))
    };
    parts.pop();
    for words in [options_in_words(&interrupt), Some(in_words(&interrupt))] {
        parts.pop_if(|part| words.is_some() && part.as_text() == words.as_deref());
    }
    Some(interrupt)
}

// === impl OptionData ===

impl OptionData {
    fn of(option: &PermissionOption) -> Self {
        let effect = match option.effect {
            Effect::Allow => EffectData::Allow,
            Effect::Reject => EffectData::Reject,
        };
        let (name, option_id) = (option.name.clone(), option.id.clone());
        Self { always: option.always, effect, name, option_id }
    }

    fn into_option(self) -> PermissionOption {
        let Self { always, effect, name, option_id: id } = self;
        let effect = match effect {
            EffectData::Allow => Effect::Allow,
            EffectData::Reject => Effect::Reject,
        };
        PermissionOption { id, name, effect, always }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trilogue_domain::InterruptId;

    use super::*;

    fn interrupt(kind: InterruptKind, prompt: Vec<Part>) -> Interrupt {
        Interrupt {
            id: InterruptId::parse("i").unwrap(),
            prompt,
            payload: Json::from_value(&json!({ "command": "rm" })),
            ..Interrupt::new(kind)
        }
    }

    fn rendered_parts(interrupt: &Interrupt) -> Vec<Value> {
        let parts = parts(interrupt, false, |_| String::new());
        parts.iter().map(|part| serde_json::from_slice(part).unwrap()).collect()
    }

    #[test]
    fn a_question_for_a_message_is_its_prompt_and_nothing_else() {
        assert_eq!(
            rendered_parts(&interrupt(InterruptKind::Message, Vec::new())),
            Vec::<Value>::new()
        );
        let prompt = vec![Part::text("Who?"), Part::text("Where?")];
        let parts = rendered_parts(&interrupt(InterruptKind::Message, prompt));
        let texts: Vec<_> = parts.iter().map(|part| part["content"].as_str().unwrap()).collect();
        assert_eq!(texts, ["Who?", "Where?"]);
        assert_eq!(parts[0]["x_trilogue"], json!({ "interrupt_id": "i" }));
        assert_eq!(parts[1].get("x_trilogue"), None);
    }

    #[test]
    fn every_other_question_says_in_words_and_as_data_what_fits() {
        let kinds = [
            InterruptKind::Permission,
            InterruptKind::Form,
            InterruptKind::Url,
            InterruptKind::Custom("pick".to_owned()),
        ];
        for kind in kinds {
            let mut asks = interrupt(kind.clone(), Vec::new());
            asks.schema = Some(Json::from_value(&json!({ "type": "boolean" })));
            let parts = rendered_parts(&asks);
            assert_eq!(parts.len(), 2, "{kind:?}");
            assert!(!parts[0]["content"].as_str().unwrap().is_empty(), "{kind:?}");
            assert_eq!(parts[0]["x_trilogue"], json!({ "interrupt_id": "i" }));
            assert_eq!(parts[1]["content_type"], "application/json");
            let data: Value = serde_json::from_str(parts[1]["content"].as_str().unwrap()).unwrap();
            assert_eq!(
                data,
                json!({
                    "interrupt_id": "i",
                    "kind": kind.as_str(),
                    "payload": { "command": "rm" },
                    "options": [],
                    "schema": { "type": "boolean" }
                })
            );
        }
    }

    #[test]
    fn a_long_question_goes_whole() {
        let command = format!("ls; {}rm -rf ~", "echo ".repeat(20_000));
        let mut asks = interrupt(InterruptKind::Permission, vec![Part::text(command.as_str())]);
        asks.payload = Json::from_value(&json!({ "command": command }));
        let parts = rendered_parts(&asks);
        assert_eq!(parts[0]["content"], command);
        let data: Value = serde_json::from_str(parts[1]["content"].as_str().unwrap()).unwrap();
        assert_eq!(data["payload"]["command"], command);
    }

    /// Another server decides what is in the question. A list of small objects needs 90 times its text.
    #[test]
    fn a_question_of_many_small_values_is_neither_read_nor_shown_as_values() {
        let question = |count: usize| {
            let payload = vec!["{\"a\":0}"; count].join(",");
            let data = format!(
                "{{\"interrupt_id\":\"i\",\"kind\":\"form\",\"options\":[],\"payload\":[{payload}]}}"
            );
            vec![Part::text("q?"), Part::new("application/json", Content::Text(data.into()))]
        };
        let mut small = question(100);
        let mut known = interrupt_of_data("i", &mut small).unwrap();
        assert_eq!((small.len(), &known.kind), (1, &InterruptKind::Form));
        let mut large = question(100_000);
        let bytes = allocation_counter::measure(|| {
            assert_eq!(interrupt_of_data("i", &mut large), None);
        });
        assert!(bytes.bytes_max < 64 * 1024, "{bytes:?}");
        assert_eq!(large.len(), 2);

        // A store can hold such a payload already.
        let payload = format!("[{}]", vec!["{\"a\":0}"; 100_000].join(","));
        let size = payload.len() as u64;
        known.payload = Json::parse(payload).unwrap();
        known.id = InterruptId::parse("i").unwrap();
        let bytes = allocation_counter::measure(|| drop(parts(&known, false, |_| String::new())));
        assert!(bytes.bytes_max < 16 * size, "{bytes:?}");
    }

    #[test]
    fn the_options_of_a_permission_stand_behind_its_prompt() {
        let mut asks = interrupt(InterruptKind::Permission, vec![Part::text("Delete it?")]);
        asks.options = vec![PermissionOption::once("once", "Just now", Effect::Allow)];
        let parts = rendered_parts(&asks);
        assert_eq!(parts[0]["content"], "Delete it?");
        let options = parts[1]["content"].as_str().unwrap();
        assert!(options.contains("once") && options.contains("Just now"), "{options}");
        let data: Value = serde_json::from_str(parts[2]["content"].as_str().unwrap()).unwrap();
        assert_eq!(data["options"][0]["option_id"], "once");
    }
}
