use serde_json::{Map, Value, json};
use trilogue_domain::error::Result;
use trilogue_domain::interrupt::{Effect, PermissionOption};
use trilogue_domain::{AgentCard, Answer, Interrupt, InterruptKind, Json, Part, Survives};
use trilogue_wire::agent_connect as wire;
use trilogue_wire::agent_connect::RunInterrupt;

use super::input::{message_payload, no_links};
use crate::connect::block::read_block;
use crate::native::read_json;

/// The type of a question without one from its server.
const UNNAMED: &str = "interrupt";

/// Returns a remote run's question in any of the forms that servers use: with its type and its payload next to each other, the payload under its type, or the payload alone.
/// `is_of` returns whether a payload alone fits the agent's declared interrupt of this type.
/// Fails with `json_too_deep`.
pub fn remote_interrupt(
    asked: &RunInterrupt,
    card: &AgentCard,
    is_of: impl Fn(&str, &Json) -> bool,
) -> Result<Interrupt> {
    let (kind, payload) = typed(asked, card, is_of)?;
    let declared = card.interrupts.iter().find(|declared| declared.kind == kind);
    let schema = match &asked.resume_schema {
        Some(schema) => Some(read_json(schema.clone())?),
        None => declared.map(|declared| declared.answer_schema.clone()),
    };
    let own = || Interrupt {
        payload: payload.clone(),
        schema: schema.clone(),
        survives: Survives::Restart,
        ..Interrupt::new(InterruptKind::Custom(kind.clone()))
    };
    let known = InterruptKind::from_text(&kind);
    if declared.is_some() || matches!(known, InterruptKind::Custom(_)) {
        return Ok(own());
    }
    let Value::Object(mut members) = payload.to_value() else { return Ok(own()) };
    let options = take_options(&mut members);
    if known == InterruptKind::Permission && options.is_empty() {
        return Ok(own());
    }
    let prompt = take_prompt(&mut members)?;
    let key = if known == InterruptKind::Permission { "tool_call" } else { "payload" };
    let data = members.remove(key).unwrap_or(Value::Null);
    // Other servers can send more, which is not part of the question's own form.
    let data = match (data, members.is_empty()) {
        (data, true) => data,
        (data, false) => {
            members.insert(key.to_owned(), data);
            Value::Object(members)
        }
    };
    // A permission's valid answers follow from its choices, and a message needs no schema.
    let schema =
        schema.filter(|_| !matches!(known, InterruptKind::Permission | InterruptKind::Message));
    Ok(Interrupt {
        prompt,
        payload: Json::from_value(&data),
        options,
        schema,
        survives: Survives::Restart,
        ..Interrupt::new(known)
    })
}

/// Returns the question's type and its payload.
fn typed(
    asked: &RunInterrupt,
    card: &AgentCard,
    is_of: impl Fn(&str, &Json) -> bool,
) -> Result<(String, Json)> {
    let whole = read_json(asked.interrupt.clone())?;
    let value = whole.to_value();
    let declares = |kind: &str| card.interrupts.iter().any(|declared| declared.kind == kind);
    let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let inner = |name: &str| value.get(name).map(Json::from_value);
    let only = value.as_object().filter(|members| members.len() == 1);
    let only = only.and_then(|members| members.keys().next());
    if let Some(kind) = &asked.interrupt_type {
        let payload = match &asked.interrupt_payload {
            Some(payload) => read_json(payload.clone())?,
            None if only == Some(kind) => inner(kind).unwrap_or_else(Json::null),
            None => whole,
        };
        return Ok((kind.clone(), payload));
    }
    if let Some(kind) = text("interrupt_type") {
        let payload = inner("interrupt_payload").or_else(|| inner("payload"));
        return Ok((kind, payload.unwrap_or(whole)));
    }
    if let Some(kind) = only.filter(|kind| declares(kind)) {
        return Ok((kind.clone(), inner(kind).unwrap_or_else(Json::null)));
    }
    let fits = |kind: &&str| is_of(kind, &whole);
    if let Some(kind) = card.interrupts.iter().map(|it| it.kind.as_str()).find(fits) {
        return Ok((kind.to_owned(), whole));
    }
    Ok(match (only, card.interrupts.as_slice()) {
        // The agent declares other types, or none: the one key is still its type.
        (Some(kind), _) if value[kind].is_object() => {
            (kind.clone(), inner(kind).unwrap_or_else(Json::null))
        }
        (_, [declared]) => (declared.kind.clone(), whole),
        _ => (UNNAMED.to_owned(), whole),
    })
}

fn take_options(members: &mut Map<String, Value>) -> Vec<PermissionOption> {
    let read = |option: &Value| {
        let text = |name: &str| option.get(name).and_then(Value::as_str);
        let id = text("option_id")?;
        let kind = text("kind").unwrap_or("allow_once");
        let effect = if kind.starts_with("reject") { Effect::Reject } else { Effect::Allow };
        let named = PermissionOption::once(id, text("name").unwrap_or(id), effect);
        Some(PermissionOption { always: kind.ends_with("_always"), ..named })
    };
    let options = members.get("options").and_then(Value::as_array);
    let read: Option<Vec<_>> =
        options.map(|all| all.iter().map(read).collect()).unwrap_or_default();
    let read = read.unwrap_or_default();
    if !read.is_empty() {
        members.remove("options");
    }
    read
}

/// Takes the question as text, or as blocks if it has other content.
fn take_prompt(members: &mut Map<String, Value>) -> Result<Vec<Part>> {
    let words = match members.remove("message") {
        Some(Value::String(words)) => Some(words),
        Some(other) => {
            members.insert("message".to_owned(), other);
            None
        }
        None => None,
    };
    let blocks = members
        .get("content")
        .and_then(|blocks| serde_json::from_value::<Vec<wire::Block>>(blocks.clone()).ok());
    if let Some(blocks) = blocks {
        members.remove("content");
        let links = no_links();
        return blocks.iter().map(|block| read_block(block, &links)).collect();
    }
    Ok(words.map(Part::text).into_iter().collect())
}

/// Returns the payload that answers a remote agent's question.
#[must_use]
pub fn remote_answer(answer: &Answer) -> wire::Json {
    crate::native::json(&match answer {
        Answer::Option(id) => Json::from_value(&json!({ "option_id": id })),
        Answer::Json(value) => value.clone(),
        Answer::Message(parts) => message_payload(parts),
    })
}

#[cfg(test)]
mod tests {
    use trilogue_domain::{AgentName, DeclaredInterrupt, InputKind};

    use super::*;
    use crate::connect::interrupt;

    fn card(declared: &[&str]) -> AgentCard {
        let any = || Json::from_value(&json!({}));
        let declare = |kind: &&str| DeclaredInterrupt {
            kind: (*kind).to_owned(),
            payload_schema: any(),
            answer_schema: Json::from_value(&json!({ "title": kind })),
        };
        let card = AgentCard::new(AgentName::parse("a").unwrap(), InputKind::Chat);
        AgentCard { interrupts: declared.iter().map(declare).collect(), ..card }
    }

    fn read(asked: &Value, declared: &[&str]) -> Interrupt {
        let asked = serde_json::from_value(asked.clone()).unwrap();
        let is_of = |kind: &str, payload: &Json| payload.to_value()["of"] == kind;
        remote_interrupt(&asked, &card(declared), is_of).unwrap()
    }

    #[test]
    fn a_question_of_a_server_of_ours_comes_back_whole() {
        let prompt = vec![Part::text("May I?"), Part::url("image/png", "http://x/y.png")];
        let schema = Some(Json::from_value(&json!({ "type": "object" })));
        let payload = Json::from_value(&json!({ "command": "rm" }));
        let always = PermissionOption::once("r", "No", Effect::Reject);
        let options = vec![
            PermissionOption::once("a", "Yes", Effect::Allow),
            PermissionOption { always: true, ..always },
        ];
        let of = |kind| Interrupt { prompt: prompt.clone(), ..Interrupt::new(kind) };
        for asked in [
            Interrupt { options, payload: payload.clone(), ..of(InterruptKind::Permission) },
            of(InterruptKind::Message),
            Interrupt { schema, payload: payload.clone(), ..of(InterruptKind::Form) },
            Interrupt { payload, ..Interrupt::new(InterruptKind::Custom("mail".to_owned())) },
        ] {
            let wire = serde_json::to_value(interrupt(&asked, &no_links())).unwrap();
            let again = read(&wire, &[]);
            let again = Interrupt { id: asked.id.clone(), survives: asked.survives, ..again };
            assert_eq!(again, asked, "{wire}");
        }
    }

    #[test]
    fn a_question_is_known_in_every_form_that_servers_write() {
        let question = json!({ "of": "b", "text": "Go on?" });
        for (asked, declared, kind) in [
            (json!({ "interrupt": { "b": question } }), &["a", "b"][..], "b"),
            (json!({ "interrupt": question }), &["a", "b"], "b"),
            (
                json!({ "interrupt": { "interrupt_type": "b", "interrupt_payload": question } }),
                &["a"],
                "b",
            ),
            (json!({ "interrupt": { "b": question }, "interrupt_type": "b" }), &[], "b"),
            (json!({ "interrupt": { "b": question } }), &[], "b"),
            (json!({ "interrupt": question }), &["a"], "a"),
            (json!({ "interrupt": question }), &[], "interrupt"),
        ] {
            let read = read(&asked, declared);
            assert_eq!(read.kind, InterruptKind::Custom(kind.to_owned()), "{asked}");
            assert_eq!(read.payload.to_value(), question, "{asked}");
            assert_eq!(read.schema.is_some(), declared.contains(&kind), "{asked}");
        }
    }

    #[test]
    fn answers_are_payloads() {
        let said = |answer: &Answer| remote_answer(answer).to_value();
        assert_eq!(said(&Answer::Option("a".to_owned())), json!({ "option_id": "a" }));
        assert_eq!(said(&Answer::Message(vec![Part::text("hi")])), json!({ "message": "hi" }));
        let mixed = Answer::Message(vec![Part::text("hi"), Part::url("image/png", "http://x")]);
        assert_eq!(said(&mixed)["content"].as_array().map(Vec::len), Some(2));
    }
}
