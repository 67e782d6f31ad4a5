use serde_json::{Map, Value, json};
use trilogue_domain::content::BlobRef;
use trilogue_domain::interrupt::{Effect, PermissionOption};
use trilogue_domain::{Content, Interrupt, InterruptKind, Json, Part};

use super::part::write_part_with;
use crate::choice::{list, one_choice};

/// The effect of choosing an option, in the question as data.
const ALLOW: &str = "allow";
const REJECT: &str = "reject";

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
        parts.push(Part::json(&Json::from_value(&as_data(interrupt))));
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

fn as_data(interrupt: &Interrupt) -> Value {
    let options = interrupt.options.iter().map(|option| {
        let effect = match option.effect {
            Effect::Allow => ALLOW,
            Effect::Reject => REJECT,
        };
        json!({ "option_id": option.id, "name": option.name, "effect": effect, "always": option.always })
    });
    json!({
        "interrupt_id": interrupt.id.as_str(),
        "kind": interrupt.kind.as_str(),
        "payload": interrupt.payload.to_value(),
        "options": options.collect::<Vec<_>>(),
        "schema": interrupt.schema.as_ref().map(Json::to_value),
    })
}

/// Takes the question that one of our servers shows as data in the last of these parts, under the server's id for it; also removes the parts that repeat it as text.
/// Returns `None` if the question is missing or incomplete: then only the parts are known.
pub(super) fn interrupt_of_data(id: &str, parts: &mut Vec<Part>) -> Option<Interrupt> {
    let data = match &parts.last()?.content {
        Content::Text(text) => serde_json::from_str::<Value>(text).ok()?,
        _ => return None,
    };
    if data.get("interrupt_id")?.as_str()? != id {
        return None;
    }
    let options = data.get("options")?.as_array()?.iter().map(option_of);
    let interrupt = Interrupt {
        payload: Json::from_value(data.get("payload")?),
        options: options.collect::<Option<_>>()?,
        schema: data.get("schema").filter(|schema| !schema.is_null()).map(Json::from_value),
        ..Interrupt::new(InterruptKind::from_text(data.get("kind")?.as_str()?))
    };
    parts.pop();
    for words in [options_in_words(&interrupt), Some(in_words(&interrupt))] {
        parts.pop_if(|part| words.is_some() && part.as_text() == words.as_deref());
    }
    Some(interrupt)
}

fn option_of(option: &Value) -> Option<PermissionOption> {
    let text = |name: &str| option.get(name)?.as_str();
    let effect = match text("effect")? {
        ALLOW => Effect::Allow,
        REJECT => Effect::Reject,
        _ => return None,
    };
    Some(PermissionOption {
        id: text("option_id")?.to_owned(),
        name: text("name")?.to_owned(),
        effect,
        always: option.get("always")?.as_bool()?,
    })
}

#[cfg(test)]
mod tests {
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
