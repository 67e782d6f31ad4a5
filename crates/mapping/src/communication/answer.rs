//! Converts a client's message to the answer to an interrupt.

use serde_json::{Value, json};
use trilogue_domain::error::Result;
use trilogue_domain::interrupt::{Effect, NO_OPTION};
use trilogue_domain::{
    Answer, Code, Content, Error, Interrupt, InterruptId, InterruptKind, Json, Part,
};
use trilogue_wire::agent_communication::Message;

use super::input::{extension, inside, take};
use super::part::read_parts;
use crate::choice::chosen;
use crate::shape::{Properties, is_json, is_of, text_property};

const PLACE: &str = "await_resume.message.";
const YES: &[&str] = &["yes", "y", "ok", "allow", "approve", "approved", "true"];
const NO: &[&str] = &["no", "n", "reject", "deny", "denied", "false"];
/// Words for yes to a request for consent.
const DONE: &[&str] = &["accept", "accepted", "done", "visited"];
/// Words for no to such a request.
const DECLINED: &[&str] = &["decline", "declined", "cancel"];

/// Returns the interrupt that an answer names in its first part.
pub fn named_interrupt(message: &Message) -> Option<String> {
    extension(message, "interrupt_id")
}

/// Returns the answer in a message to this interrupt, and the interrupt that it names.
/// A permission accepts an option by id or name, yes or no, or `{"option_id": …}`; a question for a message accepts the message; other interrupts accept JSON, or text that can be converted to it.
/// Errors: `answer_invalid`, naming the valid answers; `json_too_deep`, `invalid_id`.
pub fn answer(
    interrupt: &Interrupt,
    mut message: Message,
) -> Result<(Option<InterruptId>, Answer)> {
    let named = take(&mut message, "interrupt_id").map(|id| InterruptId::parse(&id)).transpose()?;
    let parts = read_parts(message.parts, format_args!("{PLACE}"))?;
    answer_of_parts(interrupt, parts).map(|answer| (named, answer))
}

/// Returns the answer in these parts, which can come from any protocol.
pub(crate) fn answer_of_parts(interrupt: &Interrupt, parts: Vec<Part>) -> Result<Answer> {
    if interrupt.kind == InterruptKind::Message {
        return Ok(Answer::Message(parts));
    }
    let value = json_part(&parts)?;
    if !is_alone(interrupt, &parts) {
        return Err(invalid_answer(interrupt));
    }
    let text: String = parts.iter().filter_map(Part::as_text).collect();
    let text = text.trim();
    let answer = if interrupt.kind == InterruptKind::Permission {
        option(interrupt, value.as_ref(), text).map(Answer::Option)
    } else {
        value.or_else(|| json_answer(interrupt, text)).map(Answer::Json)
    };
    answer.ok_or_else(|| invalid_answer(interrupt))
}

/// Whether a part is plain text without a name.
pub(crate) fn is_words(part: &Part) -> bool {
    part.name.is_none() && part.as_text().is_some()
}

/// Whether an answer that may consent has no attachment: an artifact does not consent, and may change the meaning of other parts.
fn is_alone(interrupt: &Interrupt, parts: &[Part]) -> bool {
    let is_value = |part: &Part| part.name.is_none() && is_json(&part.content_type);
    match interrupt.kind {
        InterruptKind::Url => {
            parts.iter().all(is_words) || matches!(parts, [part] if is_value(part))
        }
        InterruptKind::Permission => parts.iter().all(|part| is_words(part) || is_value(part)),
        _ => true,
    }
}

fn json_part(parts: &[Part]) -> Result<Option<Json>> {
    let Some((place, part)) =
        parts.iter().enumerate().find(|(_, part)| is_json(&part.content_type))
    else {
        return Ok(None);
    };
    let read = match &part.content {
        Content::Text(text) => Json::parse(text.as_bytes().to_vec()),
        Content::Bytes(bytes) => Json::parse(bytes.clone()),
        _ => return Ok(None),
    };
    read.map(Some).map_err(|error| inside(&error, format_args!("{PLACE}parts[{place}].content")))
}

fn option(interrupt: &Interrupt, value: Option<&Json>, text: &str) -> Option<String> {
    let value = value.map(Json::to_value);
    let named = value.as_ref().and_then(|value| {
        let member = |key| value.get(key).and_then(Value::as_str);
        value.as_str().or_else(|| member("option_id")).or_else(|| member("option"))
    });
    let text = named.unwrap_or(text);
    let same = |other: &str| other.to_lowercase() == text.to_lowercase();
    let options = &interrupt.options;
    let by_id = options.iter().find(|option| option.id == text);
    let by_name = || options.iter().find(|option| same(&option.name));
    let by_word = || {
        let effect = match yes_or_no(text)? {
            true => Effect::Allow,
            false => Effect::Reject,
        };
        let fitting = || interrupt.distinct_options().filter(|option| option.effect == effect);
        // A plain yes is valid for this call only.
        fitting()
            .find(|option| !option.always)
            .or_else(|| fitting().next().filter(|_| effect == Effect::Reject))
    };
    let chosen = by_id.or_else(by_name).or_else(by_word).map(|option| option.id.clone());
    // Without an option that rejects, a no chooses no option.
    let is_none = || same(NO_OPTION) || yes_or_no(text) == Some(false);
    chosen.or_else(|| (interrupt.takes_no_option() && is_none()).then(|| NO_OPTION.to_owned()))
}

fn yes_or_no(text: &str) -> Option<bool> {
    if is_one_of(text, YES) { Some(true) } else { is_one_of(text, NO).then_some(false) }
}

/// Returns whether a text is a plain word for yes or no, as an answer to a request for consent.
pub(crate) fn parse_consent(text: &str) -> Option<bool> {
    let text = text.trim();
    if is_one_of(text, DONE) {
        return Some(true);
    }
    if is_one_of(text, DECLINED) { Some(false) } else { yes_or_no(text) }
}

fn is_one_of(text: &str, words: &[&str]) -> bool {
    words.iter().any(|word| text.eq_ignore_ascii_case(word))
}

/// Converts a text to JSON: the schema's one string, its one boolean, or the text parsed as JSON.
/// Without a schema, text that is not JSON is a string. Only a plain word for yes confirms a visited address.
fn json_answer(interrupt: &Interrupt, text: &str) -> Option<Json> {
    if interrupt.kind == InterruptKind::Url {
        return parse_consent(text).map(|done| Json::from_value(&Value::Bool(done)));
    }
    let Some(schema) = interrupt.schema.as_ref().map(Json::to_value) else {
        return match text {
            "" => None,
            _ => Some(
                Json::parse(text.as_bytes().to_vec())
                    .unwrap_or_else(|_| Json::from_value(&Value::from(text))),
            ),
        };
    };
    if text.is_empty() {
        return None;
    }
    if let Some(value) = chosen(&schema, text) {
        return Some(Json::from_value(&value));
    }
    if let Some(property) = text_property(&schema) {
        return Some(Json::from_value(&json!({ property: text })));
    }
    let kind = schema.get("type").and_then(Value::as_str);
    if let Some(truth) = yes_or_no(text) {
        if kind == Some("boolean") {
            return Some(Json::from_value(&Value::from(truth)));
        }
        if let Some(property) = truth_property(&schema) {
            return Some(Json::from_value(&json!({ property: truth })));
        }
    }
    if kind == Some("string") {
        return Some(Json::from_value(&Value::from(text)));
    }
    Json::parse(text.as_bytes().to_vec()).ok()
}

/// Returns the property for a yes or no: the only required one, or the only one, if it is a boolean.
pub(crate) fn truth_property(schema: &Value) -> Option<String> {
    let Properties { all, required } = Properties::of(schema)?;
    let is_truth = |name: &str| is_of(all, name, "boolean");
    match required.as_slice() {
        [name] if is_truth(name) => Some((*name).to_owned()),
        [] => {
            let mut truths = all.keys().filter(|name| is_truth(name));
            truths.next().filter(|_| truths.next().is_none()).cloned()
        }
        _ => None,
    }
}

fn invalid_answer(interrupt: &Interrupt) -> Error {
    let hint = if interrupt.kind == InterruptKind::Permission {
        let ids: Vec<_> = interrupt.options.iter().map(|option| option.id.as_str()).collect();
        format!("answer with one of: {}", ids.join(", "))
    } else if interrupt.kind == InterruptKind::Url {
        "answer with one of: yes, no".to_owned()
    } else {
        "answer with a part application/json that fits the schema of the question".to_owned()
    };
    let message = format!("invalid answer to the interrupt '{}'", interrupt.id);
    Error::new(Code::AnswerInvalid, message).hint(hint)
}

#[cfg(test)]
mod tests {
    use trilogue_domain::Survives;
    use trilogue_domain::interrupt::PermissionOption;
    use trilogue_wire::agent_communication::{MessagePart, Rules, read};

    use super::*;

    fn interrupt(kind: InterruptKind, schema: Option<Value>) -> Interrupt {
        let option = |id: &str, name: &str, effect, always| PermissionOption {
            id: id.to_owned(),
            name: name.to_owned(),
            effect,
            always,
        };
        let options = match kind {
            InterruptKind::Permission => vec![
                option("a-always", "Always", Effect::Allow, true),
                option("a-once", "Go on", Effect::Allow, false),
                option("r", "Stop it", Effect::Reject, false),
            ],
            _ => Vec::new(),
        };
        Interrupt {
            id: InterruptId::parse("i").unwrap(),
            options,
            schema: schema.map(|schema| Json::from_value(&schema)),
            survives: Survives::Restart,
            ..Interrupt::new(kind)
        }
    }

    fn answer_with_part(
        interrupt: &Interrupt,
        part: &MessagePart,
    ) -> std::result::Result<Answer, Code> {
        let message = Message::user(vec![part.clone()]);
        answer(interrupt, message).map(|(_, answer)| answer).map_err(|error| error.code())
    }

    fn json_part_of(value: &Value) -> MessagePart {
        MessagePart::json(&trilogue_wire::agent_communication::Json::from_value(value))
    }

    #[test]
    fn a_permission_takes_ids_names_words_and_json() {
        let asked = interrupt(InterruptKind::Permission, None);
        for (text, id) in [
            ("a-always", "a-always"),
            ("go ON", "a-once"),
            (" yes\n", "a-once"),
            ("No", "r"),
            ("Stop it", "r"),
        ] {
            let answer = answer_with_part(&asked, &MessagePart::text(text));
            assert_eq!(answer, Ok(Answer::Option(id.to_owned())), "{text}");
        }
        for value in [json!({ "option_id": "r" }), json!({ "option": "r" }), json!("r")] {
            assert_eq!(
                answer_with_part(&asked, &json_part_of(&value)),
                Ok(Answer::Option("r".to_owned()))
            );
        }
        for text in ["", "perhaps", "yes please"] {
            assert_eq!(
                answer_with_part(&asked, &MessagePart::text(text)),
                Err(Code::AnswerInvalid),
                "{text}"
            );
        }
    }

    #[test]
    fn a_plain_yes_never_allows_for_ever() {
        let mut asked = interrupt(InterruptKind::Permission, None);
        asked.options.retain(|option| option.id != "a-once");
        assert_eq!(answer_with_part(&asked, &MessagePart::text("yes")), Err(Code::AnswerInvalid));
    }

    #[test]
    fn forms_take_json_or_a_text_that_stands_for_it() {
        let form = |schema: Value| interrupt(InterruptKind::Form, Some(schema));
        let say =
            |schema: Value, text: &str| answer_with_part(&form(schema), &MessagePart::text(text));
        let value = |value: Value| Ok(Answer::Json(Json::from_value(&value)));
        let approved = json!({ "properties": { "approved": { "type": "boolean" }, "reason": { "type": "string" } }, "required": ["approved"] });
        assert_eq!(say(approved.clone(), "yes"), value(json!({ "approved": true })));
        assert_eq!(
            say(approved.clone(), "{\"approved\":false}"),
            value(json!({ "approved": false }))
        );
        assert_eq!(say(json!({ "type": "boolean" }), "no"), value(json!(false)));
        let name = json!({ "properties": { "name": { "type": "string" } } });
        assert_eq!(say(name, "Bob"), value(json!({ "name": "Bob" })));
        assert_eq!(say(json!({ "type": "string" }), "Bob"), value(json!("Bob")));
        assert_eq!(say(json!({}), "[1]"), value(json!([1])));
        assert_eq!(say(approved, "perhaps"), Err(Code::AnswerInvalid));
        assert_eq!(answer_with_part(&form(json!({})), &json_part_of(&json!(5))), value(json!(5)));
    }

    #[test]
    fn where_no_schema_says_what_fits_every_text_does() {
        let value = |value: Value| Ok(Answer::Json(Json::from_value(&value)));
        let url = interrupt(InterruptKind::Url, None);
        assert_eq!(answer_with_part(&url, &MessagePart::text("Done")), value(json!(true)));
        assert_eq!(answer_with_part(&url, &MessagePart::text("no")), value(json!(false)));
        for text in ["no, never!", "yes or no?", "done with this", ""] {
            assert_eq!(
                answer_with_part(&url, &MessagePart::text(text)),
                Err(Code::AnswerInvalid),
                "{text}"
            );
        }
        let nothing = answer(&url, Message::user(Vec::new())).map(|(_, answer)| answer);
        assert_eq!(nothing.map_err(|error| error.code()), Err(Code::AnswerInvalid));
        let own = interrupt(InterruptKind::Custom("pick".to_owned()), None);
        assert_eq!(answer_with_part(&own, &MessagePart::text("[1]")), value(json!([1])));
        assert_eq!(
            answer_with_part(&own, &MessagePart::text("the first")),
            value(json!("the first"))
        );
        assert_eq!(answer_with_part(&own, &MessagePart::text("")), Err(Code::AnswerInvalid));
    }

    #[test]
    fn what_is_attached_consents_to_nothing() {
        let artifact = |part: MessagePart| MessagePart { name: Some("x".to_owned()), ..part };
        let yes = || MessagePart::text("yes");
        let value = || json_part_of(&json!(true));
        for (kind, good) in [
            (InterruptKind::Url, Answer::Json(Json::from_value(&json!(true)))),
            (InterruptKind::Permission, Answer::Option("a-once".to_owned())),
        ] {
            let asked = interrupt(kind.clone(), None);
            let say = |parts| answer(&asked, Message::user(parts)).map(|(_, answer)| answer);
            assert_eq!(say(vec![yes()]), Ok(good), "{kind:?}");
            let chosen = json_part_of(&json!("a-once"));
            for parts in [
                vec![artifact(yes())],
                vec![yes(), artifact(MessagePart::text("a file"))],
                vec![artifact(value())],
                vec![artifact(chosen)],
            ] {
                let refused = say(parts).map_err(|error| error.code());
                assert_eq!(refused, Err(Code::AnswerInvalid), "{kind:?}");
            }
        }
        let url = interrupt(InterruptKind::Url, None);
        let say = |parts| answer(&url, Message::user(parts)).map(|(_, answer)| answer);
        assert!(say(vec![value()]).is_ok());
        assert!(say(vec![MessagePart::text("no, never"), value()]).is_err());
    }

    #[test]
    fn json_that_is_none_is_refused_by_its_part() {
        let asked = interrupt(InterruptKind::Form, Some(json!({})));
        let broken = MessagePart {
            content_type: "application/json".to_owned(),
            ..MessagePart::text("{not json")
        };
        let error =
            answer(&asked, Message::user(vec![MessagePart::text("x"), broken])).unwrap_err();
        let place = "await_resume.message.parts[1].content: ";
        assert!(error.message().starts_with(place), "{error}");
    }

    #[test]
    fn a_question_for_a_message_takes_its_parts_even_none() {
        let asked = interrupt(InterruptKind::Message, None);
        let none = answer(&asked, Message::user(Vec::new())).unwrap();
        assert_eq!(none, (None, Answer::Message(Vec::new())));
        let text = r#"{"parts":[{"content":"hi","x_trilogue":{"interrupt_id":"i"}}]}"#;
        let message: Message = read(text.as_bytes(), Rules::Lenient).unwrap();
        assert_eq!(named_interrupt(&message).as_deref(), Some("i"));
        let (named, given) = answer(&asked, message).unwrap();
        assert_eq!(named, Some(asked.id));
        assert_eq!(given, Answer::Message(vec![Part::text("hi")]));
    }
}
