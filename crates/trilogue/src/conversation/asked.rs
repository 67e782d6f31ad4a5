//! What a run of the Agent Connect Protocol asks, in the words that the terminal asks it in.

use serde_json::{Map, Value};
use trilogue_sdk::connect::{Descriptor, RunInterrupt};
use trilogue_wire::native::{Effect, Interrupt, Json, Part, PermissionOption, Survives};

/// The kinds of questions that servers of ours describe, and that are asked in their own ways.
const KNOWN_KINDS: [&str; 4] = ["permission", "form", "message", "url"];

/// The question. A server of ours names it and says what fits as an answer; of any other the descriptor says that, where it is known.
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
    let mut question = Interrupt {
        id,
        run_id: None,
        thread_id: None,
        agent: None,
        raised_at: None,
        kind,
        prompt: Vec::new(),
        payload,
        options: Vec::new(),
        schema,
        survives: Survives::Restart,
        patience_ms: None,
        resolution: None,
        resolved_at: None,
    };
    if is_known {
        describe(&mut question);
    }
    question
}

/// Takes the words and the options out of the payload that a server of ours makes.
fn describe(question: &mut Interrupt) {
    let Value::Object(mut members) = question.payload.to_value() else { return };
    if let Some(Value::String(words)) = members.remove("message") {
        question.prompt.push(Part {
            content_type: "text/plain".to_owned(),
            content: Some(words),
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
    fn a_question_of_ours_is_described_and_any_other_is_what_it_says() {
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
    fn of_another_server_the_first_key_is_the_type_and_the_descriptor_has_the_schema() {
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
