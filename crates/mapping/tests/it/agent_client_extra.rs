//! The additional members of prompts and answers.

use serde_json::{Value, json};
use trilogue_domain::{
    Answer, Interrupt, InterruptId, InterruptKind, Json, MessageId, PrincipalId, Resolution,
};
use trilogue_mapping::agent_client::{
    blocks_of_message, elicitation_outcome, extra_of_elicitation, extra_of_message,
    extra_of_permission, extra_of_prompt, interrupt_of_elicitation, interrupt_of_permission,
    keep_extra, message_of_prompt, permission_outcome,
};
use trilogue_wire::agent_client::{ContentBlock, Rules, read};

fn block(value: &Value) -> ContentBlock {
    read(value.to_string().as_bytes(), Rules::Lenient).unwrap()
}

#[test]
fn what_a_prompt_carries_beyond_its_message_comes_back_from_it() {
    let params = r#"{"sessionId":"s","session_id":"t","a\"b":1.50,"prompt":[],"messageId":"m","_meta":{"x":1,"session_id":"EVIL"},"deep":{"sessionId":"kept"},"n":null}"#;
    let expected = r#"{"a\"b":1.50,"_meta":{"x":1},"deep":{"sessionId":"kept"},"n":null}"#;
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
        // The blocks do not change.
        assert_eq!(blocks_of_message(&message), blocks, "{first}");
    }
}

#[test]
fn a_prompt_without_more_has_nothing_to_keep() {
    for params in ["{}", r#"{"sessionId":"s","prompt":[],"messageId":"m"}"#, "[]", "5"] {
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

fn permission() -> Interrupt {
    let raw = r#"{"toolCall":{"toolCallId":"c"},"options":[{"optionId":"yes","name":"Yes","kind":"allow_once"}]}"#;
    let params = r#"{"sessionId":"s","toolCall":{"toolCallId":"c"},"options":[{"optionId":"yes","name":"Yes","kind":"allow_once"}]}"#;
    let read = read(params.as_bytes(), Rules::Lenient).unwrap();
    interrupt_of_permission(&read, raw, InterruptId::generate())
}

fn question() -> Interrupt {
    let raw = r#"{"mode":"form","message":"?","requestedSchema":{"type":"object","properties":{"a":{"type":"string"}}},"sessionId":"s"}"#;
    let read = read(raw.as_bytes(), Rules::Lenient).unwrap();
    interrupt_of_elicitation(&read, raw, InterruptId::generate())
}

fn answer_resolution(answer: Answer, extra: Option<Json>) -> Resolution {
    let by = PrincipalId::parse("p").unwrap();
    Resolution::Answered { by, answer, digest: String::new(), extra }
}

#[test]
fn what_a_choice_carries_beyond_it_comes_to_the_agent() {
    let interrupt = permission();
    let result = r#"{"x":{"_meta":1,"n":1.50},"_meta":{"session_id":"other"},"outcome":{"outcome":"selected","optionId":"yes","option_id":"no","_meta":{"a":1},"why":"a\"b"}}"#;
    let extra = extra_of_permission(&interrupt, result);
    let kept = r#"{"x":{"_meta":1,"n":1.50},"outcome":{"why":"a\"b"}}"#;
    assert_eq!(extra.as_ref().map(Json::as_str), Some(kept));
    let chosen = answer_resolution(Answer::Option("yes".to_owned()), extra.clone());
    assert_eq!(
        serde_json::to_string(&permission_outcome(&interrupt, &chosen)).unwrap(),
        r#"{"outcome":{"outcome":"selected","optionId":"yes","why":"a\"b"},"x":{"_meta":1,"n":1.50}}"#
    );
    // The additional members alone select no option.
    let none = answer_resolution(Answer::Json(Json::null()), extra);
    assert_eq!(
        serde_json::to_string(&permission_outcome(&interrupt, &none)).unwrap(),
        r#"{"outcome":{"outcome":"cancelled","why":"a\"b"},"x":{"_meta":1,"n":1.50}}"#
    );
    let plain = answer_resolution(Answer::Option("yes".to_owned()), None);
    assert_eq!(
        serde_json::to_value(permission_outcome(&interrupt, &plain)).unwrap(),
        json!({"outcome": {"outcome": "selected", "optionId": "yes"}})
    );
}

#[test]
fn what_an_answer_carries_beyond_it_comes_to_the_agent() {
    let interrupt = question();
    for (result, answer, told) in [
        (
            r#"{"action":"accept","content":{"a":"b"},"_meta":{},"x":[1.0]}"#,
            r#"{"a":"b"}"#,
            r#"{"action":"accept","content":{"a":"b"},"x":[1.0]}"#,
        ),
        (r#"{"action":"decline","x":null}"#, "false", r#"{"action":"decline","x":null}"#),
        (r#"{"x":{},"action":"cancel"}"#, "null", r#"{"action":"cancel","x":{}}"#),
    ] {
        let extra = extra_of_elicitation(&interrupt, result);
        let answer = Answer::Json(Json::parse(answer).unwrap());
        let outcome = elicitation_outcome(&interrupt, &answer_resolution(answer, extra));
        assert_eq!(serde_json::to_string(&outcome).unwrap(), told, "{result}");
    }
}

#[test]
fn an_answer_carries_nothing_to_who_did_not_ask_in_its_form() {
    let chosen = r#"{"outcome":{"outcome":"selected","optionId":"yes"},"x":1}"#;
    let filled = r#"{"action":"accept","x":1}"#;
    assert_eq!(extra_of_permission(&question(), chosen), None);
    assert_eq!(extra_of_elicitation(&permission(), filled), None);
    let native = Interrupt { payload: Json::null(), ..permission() };
    assert_eq!(extra_of_permission(&native, chosen), None);
    let form = Interrupt { kind: InterruptKind::Form, ..native };
    assert_eq!(extra_of_elicitation(&form, filled), None);
    for bare in [r#"{"outcome":{"outcome":"cancelled","_meta":{}},"_meta":{}}"#, "null", "[]"] {
        assert_eq!(extra_of_permission(&permission(), bare), None, "{bare}");
        assert_eq!(extra_of_elicitation(&question(), r#"{"action":"cancel"}"#), None);
    }
}
