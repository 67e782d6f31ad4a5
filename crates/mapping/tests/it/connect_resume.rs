//! Questions and their answers.

use serde_json::{Value, json};
use trilogue_domain::{Answer, Code, DeclaredInterrupt, Interrupt, InterruptKind, Part};
use trilogue_mapping::connect;

use crate::published::{assert_valid, document};
use crate::sample::{approval, full, interrupt, json_of, links};

fn resume_result(interrupt: &Interrupt, body: &Value) -> Result<(Option<String>, Answer), Code> {
    connect::resume(&full(), interrupt, &json_of(body))
        .map(|(id, answer)| (id.map(|id| id.as_str().to_owned()), answer))
        .map_err(|error| error.code())
}

fn value(value: &Value) -> Answer {
    Answer::Json(json_of(value))
}

#[test]
fn a_question_stands_under_its_type_and_beside_it() {
    let shown = serde_json::to_value(connect::interrupt(&approval("i-1"), &links())).unwrap();
    assert_eq!(
        shown,
        json!({
            "interrupt": { "approval": { "question": "?" } },
            "interrupt_type": "approval",
            "interrupt_payload": { "question": "?" },
            "interrupt_id": "i-1"
        })
    );
}

#[test]
fn questions_of_every_kind_keep_the_published_schema_and_say_what_fits() {
    let document = document();
    let kinds = [
        InterruptKind::Permission,
        InterruptKind::Message,
        InterruptKind::Form,
        InterruptKind::Url,
        InterruptKind::Custom("own".to_owned()),
    ];
    for kind in kinds {
        let mut asks = interrupt("i", kind.clone(), &json!({ "tool": "rm" }));
        asks.prompt = vec![Part::text("Really?"), Part::bytes("image/png", "x")];
        let mut shown = serde_json::to_value(connect::interrupt(&asks, &links())).unwrap();
        shown["type"] = json!("interrupt");
        assert_valid(document.as_ref(), "RunInterrupt", &shown);
        let payload = shown["interrupt_payload"].clone();
        assert_eq!(shown["interrupt"], json!({ kind.as_str(): payload }));
        match kind {
            InterruptKind::Custom(_) => assert_eq!(payload, json!({ "tool": "rm" })),
            InterruptKind::Permission => {
                assert_eq!(payload["tool_call"], json!({ "tool": "rm" }));
                let option =
                    json!({ "option_id": "once", "name": "Just now", "kind": "allow_once" });
                assert_eq!(payload["options"], json!([option]));
                let ids = &shown["resume_schema"]["properties"]["option_id"]["enum"];
                assert_eq!(*ids, json!(["once"]));
            }
            _ => {
                assert_eq!(payload["message"], "Really?");
                assert_eq!(payload["content"][1]["type"], "image");
                assert_eq!(payload["payload"], json!({ "tool": "rm" }));
            }
        }
    }
}

#[test]
fn an_answer_comes_in_three_forms() {
    let asked = approval("i-1");
    let plain = json!({ "ok": true });
    let same = || Ok((None, value(&plain)));
    let named = json!({ "interrupt_type": "approval", "resume_payload": plain });
    assert_eq!(resume_result(&asked, &named), same());
    assert_eq!(resume_result(&asked, &json!({ "approval": plain })), same());
    assert_eq!(resume_result(&asked, &plain), same());
    for any in [json!(5), json!("x"), json!([1]), json!(null), json!({})] {
        assert_eq!(resume_result(&asked, &any), Ok((None, value(&any))), "{any}");
    }
    let mut by_id = named.clone();
    by_id["interrupt_id"] = json!("i-1");
    assert_eq!(resume_result(&asked, &by_id), Ok((Some("i-1".to_owned()), value(&plain))));
    let mut more = named;
    more["other"] = json!(1);
    assert_eq!(resume_result(&asked, &more), Ok((None, value(&more))));
}

#[test]
fn an_answer_to_another_question_is_refused() {
    let other = json!({ "interrupt_type": "other", "resume_payload": {} });
    assert_eq!(resume_result(&approval("i"), &other), Err(Code::AnswerInvalid));
    let error = connect::resume(&full(), &approval("i"), &json_of(&other)).unwrap_err();
    assert_eq!(error.violated()[0].path, "/interrupt_type");
    assert!(error.message().contains("'approval'"), "{error}");
}

#[test]
fn a_property_of_the_answer_is_no_wrapper() {
    let mut card = full();
    card.interrupts = vec![DeclaredInterrupt {
        kind: "approval".to_owned(),
        payload_schema: json_of(&json!({})),
        answer_schema: json_of(&json!({ "properties": { "approval": { "type": "boolean" } } })),
    }];
    let body = json_of(&json!({ "approval": true }));
    let (_, answer) = connect::resume(&card, &approval("i"), &body).unwrap();
    assert_eq!(answer, Answer::Json(body));
}

#[test]
fn a_permission_takes_an_option() {
    let asked = interrupt("i", InterruptKind::Permission, &Value::Null);
    let once = || Ok((None, Answer::Option("once".to_owned())));
    for body in [
        json!({ "option_id": "once" }),
        json!("once"),
        json!({ "permission": { "option_id": "once" } }),
        json!({ "interrupt_type": "permission", "resume_payload": { "option_id": "once" } }),
    ] {
        assert_eq!(resume_result(&asked, &body), once(), "{body}");
    }
    let error = connect::resume(&full(), &asked, &json_of(&json!({ "ok": true }))).unwrap_err();
    assert_eq!(error.code(), Code::AnswerInvalid);
    assert!(error.hint_text().unwrap().contains("once"));
}

#[test]
fn a_question_for_a_message_takes_one_in_any_dress() {
    let asked = interrupt("i", InterruptKind::Message, &Value::Null);
    let said = || Ok((None, Answer::Message(vec![Part::text("hi")])));
    for body in [
        json!("hi"),
        json!({ "message": "hi" }),
        json!({ "content": "hi" }),
        json!({ "message": { "role": "user", "content": "hi" } }),
        json!({ "interrupt_type": "message", "resume_payload": { "message": "hi" } }),
    ] {
        assert_eq!(resume_result(&asked, &body), said(), "{body}");
    }
    let others =
        [json!({ "a": 1 }), json!(5), json!({}), json!([]), json!(null), json!({ "message": 5 })];
    for other in others {
        let error = connect::resume(&full(), &asked, &json_of(&other)).unwrap_err();
        assert_eq!(error.code(), Code::AnswerInvalid, "{other}");
        assert!(error.hint_text().unwrap().contains("message"), "{other}");
    }
    let schema = Some(json_of(&json!({ "type": "object" })));
    let typed = Interrupt { schema, ..asked };
    let other = json!({ "a": 1 });
    assert_eq!(resume_result(&typed, &other), Ok((None, value(&other))));
}
