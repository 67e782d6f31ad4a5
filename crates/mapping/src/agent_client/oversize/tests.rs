use bytes::Bytes;
use trilogue_domain::MessageId;
use trilogue_domain::event::ToolStatus;

use super::*;

fn original() -> Original {
    Original { dialect: Arc::from("d"), version: 1, bytes: Bytes::from(vec![b' '; 17 << 20]) }
}

#[test]
fn a_text_comes_in_pieces_that_are_the_text_again() {
    let text = "ä".repeat(3 * MAX_PIECE_BYTES / 4) + "end";
    let message = MessageId::parse("m").unwrap();
    let delta = MessageEvent::Delta { message, text: Arc::from(&*text) };
    let events = split_oversize(Body::Message(delta), Some(&original()));
    let texts = events.iter().map(|body| match body {
        Body::Message(MessageEvent::Delta { text, .. }) => {
            assert!(text.len() <= MAX_PIECE_BYTES);
            &**text
        }
        other => panic!("{}", other.name()),
    });
    assert_eq!(texts.collect::<String>(), text);
    assert_eq!(events.len(), 2);
}

#[test]
fn a_tool_call_still_ends_and_its_output_stays_where_it_is_small() {
    let small = Json::parse("{\"lines\":1}".to_owned()).unwrap();
    let large = Json::parse(format!("\"{}\"", "x".repeat(MAX_PIECE_BYTES))).unwrap();
    for (output, kept) in [(small.clone(), Some(small)), (large, None)] {
        let (call, status) = ("c".to_owned(), ToolStatus::Completed);
        let ended = ToolEvent::Ended { call: call.clone(), status, output: Some(output) };
        let expected = Body::Tool(ToolEvent::Ended { call, status, output: kept });
        assert_eq!(split_oversize(Body::Tool(ended), Some(&original())), [expected]);
    }
}

#[test]
fn what_has_no_smaller_form_leaves_a_note_of_its_size() {
    let events = split_oversize(Body::Opaque, Some(&original()));
    let [Body::State(StateEvent::Custom { kind, data })] = &*events else { panic!("{events:?}") };
    assert_eq!((&**kind, data.as_str()), ("update_too_large", "{\"bytes\":17825792}"));
}
