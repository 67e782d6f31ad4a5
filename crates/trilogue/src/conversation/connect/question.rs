//! Translates questions of the Agent Connect Protocol into those that the terminal asks.

use serde_json::{Map, Value};
use trilogue_sdk::client::connect::{Descriptor, RunInterrupt};
use trilogue_wire::native::{Effect, Interrupt, Json, Part, PermissionOption};

use super::super::plain_interrupt;

/// The kinds of questions that our servers describe and the terminal asks in ways of their own.
const KNOWN_KINDS: [&str; 4] = ["permission", "form", "message", "url"];

/// The question. Our own servers name it and give the schema of its answers; for any other server, the descriptor does.
pub(super) fn interrupt(asked: RunInterrupt, descriptor: Option<&Descriptor>) -> Interrupt {
    let keyed = match asked.interrupt.to_value() {
        Value::Object(members) => members.into_iter().next(),
        _ => None,
    };
    let payload = match (asked.interrupt_payload, &keyed) {
        (Some(payload), _) => payload,
        (None, Some((_, payload))) => Json::from_value(payload),
        (None, None) => asked.interrupt,
    };
    let kind = asked.interrupt_type.or(keyed.map(|(kind, _)| kind));
    let kind = kind.unwrap_or_else(|| "interrupt".to_owned());
    let declared = descriptor.and_then(|descriptor| descriptor.specs.interrupts.as_ref());
    let declared = declared.into_iter().flatten().find(|spec| spec.interrupt_type == kind);
    let schema = asked.resume_schema.or_else(|| declared.map(|spec| spec.resume_payload.clone()));
    let id = asked.interrupt_id.unwrap_or_default();
    let is_known = !id.is_empty() && KNOWN_KINDS.contains(&kind.as_str());
    let mut question = Interrupt { payload, schema, ..plain_interrupt(id, kind) };
    if is_known {
        describe(&mut question);
    }
    question
}

/// Takes the text and the options out of the payload that our servers write.
fn describe(question: &mut Interrupt) {
    let Value::Object(mut members) = question.payload.to_value() else { return };
    if let Some(Value::String(text)) = members.remove("message") {
        question.prompt.push(Part {
            content_type: "text/plain".to_owned(),
            content: Some(text),
            ..Part::default()
        });
    }
    if let Some(Value::Array(options)) = members.remove("options") {
        question.options = options.iter().filter_map(option).collect();
    }
    let beside = members.remove("tool_call").or_else(|| members.remove("payload"));
    if let Some(beside) = beside {
        members = match beside {
            Value::Object(beside) => beside.into_iter().chain(members).collect(),
            other => Map::from_iter([("payload".to_owned(), other)]),
        };
    }
    question.payload = match members.is_empty() {
        true => Json::null(),
        false => Json::from_value(&Value::Object(members)),
    };
}

fn option(option: &Value) -> Option<PermissionOption> {
    let member = |name: &str| option.get(name).and_then(Value::as_str);
    let kind = member("kind").unwrap_or_default();
    Some(PermissionOption {
        id: member("option_id")?.to_owned(),
        name: member("name").or(member("option_id"))?.to_owned(),
        effect: if kind.starts_with("allow") { Effect::Allow } else { Effect::Reject },
        always: kind.ends_with("always"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(asked: &str, descriptor: Option<&Descriptor>) -> Interrupt {
        interrupt(serde_json::from_str(asked).unwrap(), descriptor)
    }

    #[test]
    fn our_questions_are_described_and_others_keep_their_payload() {
        let ours = ask(
            r#"{"interrupt":{},"interrupt_type":"permission","interrupt_payload":{"message":"Send?","options":[{"option_id":"y","name":"Yes","kind":"allow_always"},{"option_id":"n","name":"No","kind":"reject_once"},{"name":"odd"}],"tool_call":{"to":"ada"}},"interrupt_id":"i-7"}"#,
            None,
        );
        assert_eq!((ours.id.as_str(), ours.kind.as_str()), ("i-7", "permission"));
        assert_eq!(ours.prompt[0].content.as_deref(), Some("Send?"));
        assert_eq!(ours.payload.as_str(), r#"{"to":"ada"}"#);
        let options: Vec<_> =
            ours.options.iter().map(|it| (it.id.as_str(), it.effect, it.always)).collect();
        assert_eq!(options, [("y", Effect::Allow, true), ("n", Effect::Reject, false)]);

        let message = ask(
            r#"{"interrupt":{},"interrupt_type":"message","interrupt_payload":{"message":"Who?"},"interrupt_id":"i","resume_schema":{"type":"object"}}"#,
            None,
        );
        assert_eq!((message.payload, message.prompt.len()), (Json::null(), 1));

        let own = ask(
            r#"{"interrupt":{"approval":{"message":"Send?"}},"interrupt_type":"approval","interrupt_payload":{"message":"Send?"},"interrupt_id":"i"}"#,
            None,
        );
        assert_eq!((own.payload.as_str(), own.prompt.len()), (r#"{"message":"Send?"}"#, 0));
    }

    #[test]
    fn another_servers_question_has_its_type_as_key_and_its_schema_in_the_descriptor() {
        let descriptor = r#"{"metadata":{"ref":{"name":"n","version":"1"},"description":""},"specs":{"capabilities":{},"input":{},"output":{},"config":{},"interrupts":[{"interrupt_type":"approval","interrupt_payload":{},"resume_payload":{"type":"object","properties":{"ok":{"type":"boolean"}}}}]}}"#;
        let descriptor: Descriptor = serde_json::from_str(descriptor).unwrap();
        let other = ask(r#"{"interrupt":{"approval":{"q":1}}}"#, Some(&descriptor));
        assert_eq!((other.id.as_str(), other.kind.as_str()), ("", "approval"));
        assert_eq!(other.payload.as_str(), r#"{"q":1}"#);
        assert!(other.schema.unwrap().as_str().contains("ok"));
        let odd = ask(r#"{"interrupt":"words"}"#, Some(&descriptor));
        assert_eq!((odd.kind.as_str(), odd.payload.as_str()), ("interrupt", r#""words""#));
        assert_eq!(odd.schema, None);
    }
}
