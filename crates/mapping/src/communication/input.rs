//! Converts clients' messages, and messages at the addresses of other servers.

use std::fmt;

use serde_json::{Map, Value};
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, Input, MessageId, Role, Timestamp};
use trilogue_wire::agent_communication::{Json, Message, OptionalTime, Role as WireRole, Time};

use super::EXTENSION;
use super::part::read_parts;
use crate::message_members::{FURTHER, keep};
use crate::repeated_id;

/// Returns a run's input. A message's id is under the extension key of the message or of its first part, or new; missing times are now.
/// `max_metadata` limits the metadata of one part, in bytes of JSON.
/// Errors: `invalid_request`, naming message, part and field; `invalid_id`; `json_too_deep`.
pub fn input(messages: Vec<Message>, now: Timestamp, max_metadata: usize) -> Result<Input> {
    let messages = messages.into_iter().enumerate().map(|(place, message)| {
        check_metadata(&message, max_metadata, &format!("input[{place}]."))?;
        read(message, Some(now), format_args!("input[{place}]."))
    });
    let messages = messages.collect::<Result<Vec<_>>>()?;
    refuse_twins(&messages)?;
    Ok(Input::Messages(messages))
}

/// Refuses two messages with one id, because a history would show the first instead of both.
fn refuse_twins(messages: &[trilogue_domain::Message]) -> Result<()> {
    match repeated_id(messages) {
        None => Ok(()),
        Some(place) => Err(Error::new(
            Code::InvalidRequest,
            format!("input[{place}].{EXTENSION}.message_id is the id of an earlier message too"),
        )),
    }
}

/// Converts a message from a remote address. A missing time is unknown. Fails as [`input`].
pub fn read_message(message: Message) -> Result<trilogue_domain::Message> {
    read(message, None, format_args!(""))
}

fn read(
    mut message: Message,
    now: Option<Timestamp>,
    under: fmt::Arguments<'_>,
) -> Result<trilogue_domain::Message> {
    let id = match take(&mut message, "message_id") {
        Some(id) => MessageId::parse(&id)
            .map_err(|error| inside(&error, format_args!("{under}{EXTENSION}.message_id")))?,
        None => MessageId::generate(),
    };
    let further: Map<String, Value> =
        message.extra.iter().map(|(name, value)| (name.to_owned(), value.to_value())).collect();
    let mut parts = read_parts(message.parts, under)?;
    if !further.is_empty() {
        let own = Map::from_iter([(FURTHER.to_owned(), Value::Object(further))]);
        keep(own, &mut parts).map_err(|error| inside(&error, format_args!("{under}parts[0]")))?;
    }
    Ok(trilogue_domain::Message {
        id,
        role: match message.role {
            WireRole::User => Role::User,
            WireRole::Agent => Role::Agent,
            WireRole::Named(name) => Role::NamedAgent(name.into()),
        },
        parts,
        created_at: stated(message.created_at, now),
        completed_at: stated(message.completed_at, now),
    })
}

fn stated(when: OptionalTime, now: Option<Timestamp>) -> Option<Timestamp> {
    match when {
        OptionalTime::Absent => now,
        OptionalTime::Null => None,
        OptionalTime::At(at) => Some(Timestamp::from_micros(Time::as_micros(at))),
    }
}

/// Removes a text from the extension of a message or of its first part.
pub(super) fn take(message: &mut Message, key: &str) -> Option<String> {
    let of_message = text_in(message.extension.as_ref(), key);
    let of_part = take_of_part(message, key);
    of_message.or(of_part)
}

fn take_of_part(message: &mut Message, key: &str) -> Option<String> {
    let extra = &mut message.parts.first_mut()?.extra;
    let mut extension = extra.get(EXTENSION)?.to_value();
    let taken = extension.as_object_mut()?.remove(key)?.as_str()?.to_owned();
    if extension.as_object().is_some_and(serde_json::Map::is_empty) {
        extra.take(EXTENSION);
    } else {
        extra.set(EXTENSION, Json::from_value(&extension));
    }
    Some(taken)
}

/// Returns the same error with its field.
pub(super) fn inside(error: &Error, place: fmt::Arguments<'_>) -> Error {
    let told = Error::new(error.code(), format!("{place}: {}", error.message()));
    match error.hint_text() {
        Some(hint) => told.hint(hint.to_owned()),
        None => told,
    }
}

/// Checks the metadata of each part. Fails with `invalid_request`, naming the part.
fn check_metadata(message: &Message, most: usize, under: &str) -> Result<()> {
    for (place, part) in message.parts.iter().enumerate() {
        let Some(metadata) = &part.metadata else { continue };
        let size = serde_json::to_vec(metadata).map_or(0, |bytes| bytes.len());
        if size > most {
            return Err(Error::new(
                Code::InvalidRequest,
                format!("{under}parts[{place}].metadata has {size} bytes; {most} is the most"),
            )
            .hint("metadata says where content comes from; send the content as content"));
        }
    }
    Ok(())
}

/// Returns a text in the extension of a message or of its first part.
pub(super) fn extension(message: &Message, key: &str) -> Option<String> {
    let of_part = || text_in(message.parts.first()?.extra.get(EXTENSION), key);
    text_in(message.extension.as_ref(), key).or_else(of_part)
}

fn text_in(extension: Option<&Json>, key: &str) -> Option<String> {
    extension?.to_value().get(key)?.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use trilogue_wire::agent_communication::{Rules, read as parse};

    use super::*;

    fn messages(text: &str, most: usize) -> Result<Vec<trilogue_domain::Message>> {
        let message = parse(text.as_bytes(), Rules::Lenient).unwrap();
        match input(vec![message], Timestamp::from_micros(7), most)? {
            Input::Messages(messages) => Ok(messages),
            Input::Value(value) => panic!("{value:?}"),
        }
    }

    #[test]
    fn a_message_keeps_its_id_its_role_and_what_it_says_of_its_times() {
        let text = r#"{"role":"agent/a-b","created_at":null,"completed_at":"1970-01-01T00:00:01.000002Z",
            "parts":[{"content":"x","x_trilogue":{"message_id":"m","kept":1}}]}"#;
        let message = messages(text, 100).unwrap().remove(0);
        assert_eq!(message.id.as_str(), "m");
        assert_eq!(message.role.to_text(), "agent/a-b");
        assert_eq!(message.created_at, None);
        assert_eq!(message.completed_at, Some(Timestamp::from_micros(1_000_002)));
        let extra = message.parts[0].extra.as_ref().unwrap();
        assert_eq!(extra.as_str(), r#"{"x_trilogue":{"kept":1}}"#);
    }

    #[test]
    fn a_message_has_its_id_where_the_server_shows_it_or_in_its_first_part() {
        let own = r#""x_trilogue":{"message_id":"own","new":1}"#;
        let of_part = r#"{"content":"x","x_trilogue":{"message_id":"part"}}"#;
        for (text, id) in [
            (format!(r#"{{"parts":[{{"content":"x"}}],{own}}}"#), "own"),
            (format!(r#"{{"parts":[],{own}}}"#), "own"),
            (format!(r#"{{"parts":[{of_part}]}}"#), "part"),
            (format!(r#"{{"parts":[{of_part}],{own}}}"#), "own"),
        ] {
            let message = messages(&text, 100).unwrap().remove(0);
            assert_eq!(message.id.as_str(), id, "{text}");
            assert!(message.parts.iter().all(|part| part.extra.is_none()), "{text}");
        }
    }

    #[test]
    fn times_that_are_not_sent_are_now_and_no_parts_are_none() {
        let message = messages(r#"{"parts":[]}"#, 0).unwrap().remove(0);
        assert_eq!((message.role, message.parts.len()), (Role::User, 0));
        assert_eq!(message.created_at, Some(Timestamp::from_micros(7)));
    }

    #[test]
    fn what_cannot_be_kept_is_refused_by_its_message_its_part_and_its_field() {
        let deep = "[".repeat(70) + &"]".repeat(70);
        let id = "i".repeat(1_000);
        for (part, field) in [
            (
                format!(r#"{{"x_trilogue":{{"message_id":"{id}"}}}}"#),
                "input[0].x_trilogue.message_id: ",
            ),
            (format!(r#"{{"good":1,"own":{deep}}}"#), "input[0].parts[0].own: "),
            (
                format!(r#"{{"metadata":{{"kind":"trajectory","tool_input":{{"x":{deep}}}}}}}"#),
                "input[0].parts[0].metadata.tool_input: ",
            ),
            (
                format!(r#"{{"metadata":{{"kind":"trajectory","tool_output":{{"x":{deep}}}}}}}"#),
                "input[0].parts[0].metadata.tool_output: ",
            ),
        ] {
            let error = messages(&format!(r#"{{"parts":[{part}]}}"#), 1_000).unwrap_err();
            assert!(error.message().starts_with(field), "{error}");
        }
    }

    #[test]
    fn two_messages_of_one_request_have_two_ids() {
        let text = r#"{"parts":[{"content":"x","x_trilogue":{"message_id":"m"}}]}"#;
        let one = || parse(text.as_bytes(), Rules::Lenient).unwrap();
        let other = || Message::text("y");
        let read = |messages| input(messages, Timestamp::from_micros(7), 100);
        assert!(read(vec![one(), other(), other()]).is_ok());
        let error = read(vec![one(), other(), one()]).unwrap_err();
        let place = "input[2].x_trilogue.message_id ";
        assert!(error.message().starts_with(place), "{error}");
    }

    #[test]
    fn metadata_has_a_limit_of_its_own_and_the_part_is_named() {
        let text = r#"{"parts":[{"content":"x"},{"content":"y","metadata":{"kind":"trajectory","message":"long enough"}}]}"#;
        assert!(messages(text, 1_000).is_ok());
        let error = messages(text, 20).unwrap_err();
        assert_eq!(error.code(), Code::InvalidRequest);
        assert!(error.message().starts_with("input[0].parts[1].metadata"), "{error}");
    }
}
