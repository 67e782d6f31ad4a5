//! Written values can be read again, with any content, and no input makes the reader panic.

use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use trilogue_wire::agent_communication::{
    AwaitRequest, CitationMetadata, ContentEncoding, ErrorBody, ErrorCode, Event, Extra, Json,
    Message, MessagePart, Metadata, OptionalTime, Role, Rules, Run, RunCreateRequest, RunMode,
    RunStatus, Session, Time, TrajectoryMetadata, Uuid, read, sse,
};

use crate::communication::written;

fn json() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        ".*".prop_map(Into::into),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Into::into),
            proptest::collection::btree_map(".*", inner, 0..4)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
    .prop_map(|value| Json::from_value(&value))
}

fn object() -> impl Strategy<Value = Json> {
    proptest::collection::btree_map(".*", json(), 0..3).prop_map(|map| {
        let map = map.iter().map(|(key, value)| (key.clone(), value.to_value())).collect();
        Json::from_value(&serde_json::Value::Object(map))
    })
}

fn metadata() -> impl Strategy<Value = Metadata> {
    let citation = (of(any::<i64>()), of(any::<i64>()), of(".*"), of(".*"), of(".*")).prop_map(
        |(start_index, end_index, url, title, description)| {
            let extra = Extra::new();
            let citation =
                CitationMetadata { start_index, end_index, url, title, description, extra };
            Metadata::Citation(citation)
        },
    );
    let trajectory = (of(".*"), of(".*"), of(object()), of(object())).prop_map(
        |(message, tool_name, tool_input, tool_output)| {
            let extra = Extra::new();
            let step = TrajectoryMetadata { message, tool_name, tool_input, tool_output, extra };
            Metadata::Trajectory(step)
        },
    );
    prop_oneof![citation, trajectory]
}

fn part() -> impl Strategy<Value = MessagePart> {
    let place = prop_oneof![
        Just((None, None)),
        ".*".prop_map(|content| (Some(content), None)),
        "[a-z]{1,9}".prop_map(|path| (
            None,
            Some(
                format!("https://example.com/{path}?é=1#x")
                    .parse::<url::Url>()
                    .unwrap()
                    .to_string()
            )
        )),
    ];
    let encoding = prop_oneof![Just(ContentEncoding::Plain), Just(ContentEncoding::Base64)];
    let extra = proptest::collection::btree_map("x_.*", json(), 0..3);
    let content_type = prop_oneof![4 => Just("text/plain".to_owned()), 1 => ".*"];
    (of(".*"), content_type, place, encoding, of(metadata()), extra).prop_map(
        |(name, content_type, (content, content_url), content_encoding, metadata, extra)| {
            MessagePart {
                name,
                content_type,
                content,
                content_encoding,
                content_url,
                metadata,
                extra: Extra(extra.into_iter().collect()),
                ..MessagePart::default()
            }
        },
    )
}

fn time() -> impl Strategy<Value = Time> {
    any::<i64>().prop_map(Time::from_micros)
}

fn when() -> impl Strategy<Value = OptionalTime> {
    prop_oneof![
        Just(OptionalTime::Absent),
        Just(OptionalTime::Null),
        time().prop_map(OptionalTime::At)
    ]
}

fn message() -> impl Strategy<Value = Message> {
    let role = prop_oneof![
        Just(Role::User),
        Just(Role::Agent),
        "[a-zA-Z0-9_-]{1,20}".prop_map(Role::Named)
    ];
    let extra = proptest::collection::btree_map("y_.*", json(), 0..3);
    (role, vec(part(), 0..4), when(), when(), of(object()), extra).prop_map(
        |(role, parts, created_at, completed_at, extension, extra)| Message {
            role,
            parts,
            created_at,
            completed_at,
            extension,
            extra: Extra(extra.into_iter().collect()),
            ..Message::default()
        },
    )
}

fn id() -> impl Strategy<Value = Uuid> {
    any::<u128>().prop_map(|bits| uuid::Uuid::from_u128(bits).into())
}

fn run() -> impl Strategy<Value = Run> {
    let error = (".*", of(object())).prop_map(|(message, data)| ErrorBody {
        data,
        ..ErrorBody::new(ErrorCode::NotFound, message)
    });
    let status = proptest::sample::select(RunStatus::ALL.to_vec());
    (
        id(),
        ".*",
        of(id()),
        status,
        of(message()),
        vec(message(), 0..3),
        of(error),
        time(),
        of(time()),
    )
        .prop_map(
            |(
                run_id,
                agent_name,
                session_id,
                status,
                asked,
                output,
                error,
                created_at,
                finished_at,
            )| Run {
                run_id,
                agent_name,
                session_id,
                status,
                await_request: asked.map(|message| AwaitRequest { message }),
                output,
                error,
                created_at,
                finished_at,
            },
        )
}

proptest! {
    #[test]
    fn a_message_comes_back_as_it_was(message in message()) {
        let text = written(|out| message.write(out));
        prop_assert_eq!(read(text.as_bytes(), Rules::Lenient), Ok(message));
    }

    #[test]
    fn a_run_and_its_events_come_back_as_they_were(run in run()) {
        let text = written(|out| run.write(out));
        prop_assert_eq!(read(text.as_bytes(), Rules::Lenient), Ok(run.clone()));
        let event = Event::RunInProgress { run: Box::new(run) };
        let mut text = written(|out| event.write(out)).into_bytes();
        sse::safe(&mut text);
        let shown = String::from_utf8(text).unwrap();
        let broken = shown.contains(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']);
        prop_assert!(!broken);
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        prop_assert_eq!(value(&shown), value(&written(|out| event.write(out))));
        prop_assert_eq!(read::<Event>(shown.as_bytes(), Rules::Lenient).unwrap().kind(), event.kind());
    }

    #[test]
    fn a_request_comes_back_as_it_was(input in vec(message(), 0..3), session in of(id()), history in vec("[a-z]{1,9}", 0..3), config in of(json().prop_filter("null is none", |json| json.as_str() != "null"))) {
        let mut request = RunCreateRequest::new("a", input, RunMode::Stream);
        request.session_id = session;
        request.config = config;
        request.session = session.map(|id| Session {
            id,
            history: history.iter().map(|path| format!("http://h/{path}")).collect(),
            state: None,
        });
        let text = serde_json::to_vec(&request).unwrap();
        prop_assert_eq!(read(&text, Rules::Lenient), Ok(request));
    }

    #[test]
    fn any_text_is_read_or_refused(text in ".*", cut in any::<prop::sample::Index>(), message in message()) {
        for rules in [Rules::Compatible, Rules::Strict, Rules::Lenient] {
            let _ = read::<RunCreateRequest>(text.as_bytes(), rules);
            let _ = read::<Event>(text.as_bytes(), rules);
        }
        let whole = written(|out| message.write(out)).into_bytes();
        let cut = cut.index(whole.len());
        prop_assert!(read::<Message>(&whole[..cut], Rules::Lenient).is_err());
    }

    #[test]
    fn what_the_strict_rules_take_the_compatible_ones_take_too(message in message()) {
        let text = written(|out| message.write(out));
        if let Ok(strict) = read::<Message>(text.as_bytes(), Rules::Strict) {
            prop_assert!(strict.check(Rules::Strict).is_ok());
            prop_assert_eq!(read(text.as_bytes(), Rules::Compatible), Ok(strict));
        }
    }
}
