//! Events of a stream, as the official client's parser reads them.

use proptest::prelude::*;
use serde_json::{Value, json};
use trilogue_wire::agent_connect::sse;
use trilogue_wire::sse::{Decoder, Item};

#[test]
fn an_event_has_an_id_a_name_one_line_of_data_and_an_empty_line() {
    let event = sse::event("4.2", br#"{"type":"values"}"#);
    let wanted = b"id: 4.2\nevent: agent_event\ndata: {\"type\":\"values\"}\n\n";
    assert_eq!(event, wanted);
    assert_eq!(sse::event("1\n\r2", b"5"), b"id: 12\nevent: agent_event\ndata: 5\n\n");
    assert!(sse::PING.starts_with(b":") && sse::PING.ends_with(b"\n"));
    assert!(!sse::PING.ends_with(b"\n\n"));
}

#[test]
fn what_clients_take_for_line_ends_is_escaped() {
    let data = "{\"a\":\"\u{85}\u{2028}\u{2029}é😀\u{7f}\",\n\r\n \"b\": 1}";
    let shown = String::from_utf8(sse::ascii(data.as_bytes())).unwrap();
    let wanted = r#"{"a":"\u0085\u2028\u2029\u00e9\ud83d\ude00\u007f",    "b": 1}"#;
    assert_eq!(shown, wanted);
}

proptest! {
    #[test]
    fn any_text_comes_back_through_one_line_of_ascii(text in ".*", key in "\\PC*") {
        let value = json!({ key.as_str(): [text.as_str(), { "t": text.as_str() }] });
        for data in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
            let event = sse::event("1", data.as_bytes());
            prop_assert!(event.is_ascii());
            prop_assert_eq!(event.iter().filter(|byte| **byte == b'\n').count(), 4);
            let mut decoder = Decoder::default();
            decoder.push(&event);
            let Ok(Some(Item::Event { id, event, data })) = decoder.next() else {
                return Err(TestCaseError::fail("no event"));
            };
            prop_assert_eq!((id.as_str(), event.as_str()), ("1", sse::EVENT));
            prop_assert_eq!(serde_json::from_str::<Value>(&data).unwrap(), value.clone());
        }
    }
}
