//! What a prompt carries beyond its message.

use serde_json::{Value, json};
use trilogue_domain::{Json, MessageId};
use trilogue_mapping::agent_client::{
    blocks_of_message, extra_of_message, extra_of_prompt, keep_extra, message_of_prompt,
};
use trilogue_wire::agent_client::{ContentBlock, Rules, read};

fn block(value: &Value) -> ContentBlock {
    read(value.to_string().as_bytes(), Rules::Lenient).unwrap()
}

#[test]
fn what_a_prompt_carries_beyond_its_message_comes_back_from_it() {
    let params = r#"{"sessionId":"s","session_id":"t","a\"b":1.50,"prompt":[],"messageId":"m","_meta":{"x":1},"deep":{"sessionId":"kept"},"n":null}"#;
    let expected = r#"{"a\"b":1.50,"deep":{"sessionId":"kept"},"n":null}"#;
    let extra = extra_of_prompt(params).unwrap();
    assert_eq!(extra.as_str(), expected);
    for first in [
        json!({"type": "text", "text": "hi"}),
        json!({"type": "text", "text": "hi", "annotations": {"audience": ["user"]}, "more": 1}),
        json!({"type": "unheard_of", "of": [1]}),
        json!({"type": "image", "data": "no base64", "mimeType": "image/png"}),
    ] {
        let blocks = [block(&first), block(&json!({"type": "text", "text": "second"}))];
        let mut message = message_of_prompt(&blocks, MessageId::generate());
        assert_eq!(extra_of_message(&message), None);
        keep_extra(&mut message, &extra);
        assert_eq!(extra_of_message(&message).unwrap().as_str(), expected);
        // The blocks are the same as before.
        assert_eq!(blocks_of_message(&message), blocks, "{first}");
    }
}

#[test]
fn a_prompt_without_more_has_nothing_to_keep() {
    for params in ["{}", r#"{"sessionId":"s","prompt":[],"_meta":{}}"#, "[]", "5"] {
        assert_eq!(extra_of_prompt(params), None, "{params}");
    }
    let mut empty = message_of_prompt(&[], MessageId::generate());
    keep_extra(&mut empty, &Json::parse("{\"a\":1}").unwrap());
    assert_eq!(extra_of_message(&empty), None);
}

#[test]
fn nobody_chooses_another_session_by_what_is_kept() {
    let text = block(&json!({"type": "text", "text": "hi"}));
    let mut message = message_of_prompt(&[text], MessageId::generate());
    let kept = json!({"x_trilogue": {"prompt": {"sessionId": "other", "prompt": [], "a": 1}}});
    message.parts[0].extra = Some(Json::from_value(&kept));
    assert_eq!(extra_of_message(&message).unwrap().as_str(), "{\"a\":1}");
}
