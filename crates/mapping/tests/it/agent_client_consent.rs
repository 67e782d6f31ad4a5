//! Consent, and answers that an agent cannot receive.

use serde_json::{Value, json};
use trilogue_domain::{Answer, Interrupt, InterruptKind, Json, MessageId};
use trilogue_mapping::agent_client::{
    ClientQuestion, answer_of_prompt, client_question, elicitation_outcome, form_values,
    message_of_prompt,
};
use trilogue_wire::agent_client::{ClientCapabilities, ContentBlock, CreateElicitationResponse};

use super::agent_client_asking::{answer_resolution, elicitation, form_request, own, read_as};
use super::sample::{THREAD, json_of};

fn visit() -> Interrupt {
    elicitation(
        &json!({ "mode": "url", "sessionId": "s", "message": "Log in", "elicitationId": "e", "url": "https://a/b" }),
    )
}

/// Users' answers to a request for consent, with the action that the agent receives.
const CONSENTS: [(&str, &str); 12] = [
    ("yes", "accept"),
    (" Done\n", "accept"),
    ("OK", "accept"),
    ("accept", "accept"),
    ("no", "decline"),
    ("no, never!", "decline"),
    ("yes, but first tell me why", "decline"),
    ("what is this?", "decline"),
    ("null", "decline"),
    ("{\"action\":\"accept\"}", "decline"),
    ("", "cancel"),
    (" \n", "cancel"),
];

fn in_words(interrupt: &Interrupt, words: &str) -> Value {
    let said = message_of_prompt(&[ContentBlock::text(words)], MessageId::generate());
    let answer = answer_of_prompt(interrupt, &said).unwrap();
    interrupt.check(&answer).unwrap();
    assert_eq!(
        form_values(interrupt, &answer).map(|filled| filled.is_some()),
        Ok(words_fill(interrupt, &answer))
    );
    serde_json::to_value(elicitation_outcome(interrupt, &answer_resolution(answer))).unwrap()
}

fn words_fill(interrupt: &Interrupt, answer: &Answer) -> bool {
    interrupt.kind == InterruptKind::Form && *answer == Answer::Json(json_of(&json!({})))
}

#[test]
fn a_form_without_fields_is_consented_to_by_nothing_but_a_yes() {
    let schema = json!({ "type": "object", "properties": {} });
    let sent = json!({ "mode": "form", "sessionId": "s", "message": "Delete all?", "requestedSchema": schema });
    let interrupt = elicitation(&sent);
    let ClientQuestion::Text(text) =
        client_question(&interrupt, THREAD, &ClientCapabilities::new())
    else {
        panic!()
    };
    assert_eq!(text, "Delete all?\n\nAnswer `yes` to accept. Any other answer declines.");
    for (words, action) in CONSENTS {
        assert_eq!(in_words(&interrupt, words)["action"], action, "{words}");
    }
}

#[test]
fn what_no_agent_could_be_told_is_no_answer() {
    let answer = |value: &Value| Answer::Json(json_of(value));
    let form = elicitation(&form_request());
    let object = answer(&json!({ "name": "Ada", "n": 1.5, "of": ["a"], "sure": false }));
    assert_eq!(
        form_values(&form, &object).map(|json| json.map(Json::to_value)),
        Ok(Some(json!({ "name": "Ada", "n": 1.5, "of": ["a"], "sure": false })))
    );
    for nothing in [json!(false), json!(null)] {
        assert_eq!(form_values(&form, &answer(&nothing)), Ok(None));
    }
    for (value, path) in [
        (json!([1]), ""),
        (json!(5), ""),
        (json!(true), ""),
        (json!("Ada"), ""),
        (json!({ "name": { "x": 1 } }), "/name"),
        (json!({ "a/b": [1] }), "/a~1b/0"),
    ] {
        assert_eq!(form_values(&form, &answer(&value)).unwrap_err().path, path, "{value}");
    }
    let visit = visit();
    for fits in [json!(true), json!(false), json!(null)] {
        assert_eq!(form_values(&visit, &answer(&fits)), Ok(None));
    }
    for other in [json!("no"), json!("yes"), json!({}), json!(1)] {
        assert_eq!(form_values(&visit, &answer(&other)).unwrap_err().path, "", "{other}");
    }
    // A native agent checks the answers to its own questions itself.
    assert_eq!(form_values(&own(None), &answer(&json!([1]))), Ok(None));
}

#[test]
fn an_address_is_visited_by_nothing_but_a_yes() {
    let interrupt = visit();
    for (words, action) in CONSENTS {
        assert_eq!(in_words(&interrupt, words), json!({ "action": action }), "{words}");
    }
    let link = json!({ "type": "resource_link", "uri": "yes", "name": "yes" });
    let file = json!({ "uri": "file:///a.txt", "mimeType": "text/plain", "text": "yes" });
    let file = json!({ "type": "resource", "resource": file });
    for attached in [link, file] {
        let alone = [read_as(&attached)];
        let both = [ContentBlock::text("yes"), read_as(&attached)];
        for said in [alone.as_slice(), both.as_slice()] {
            let said = message_of_prompt(said, MessageId::generate());
            let answer = answer_resolution(answer_of_prompt(&interrupt, &said).unwrap());
            let told = elicitation_outcome(&interrupt, &answer);
            assert!(matches!(told, CreateElicitationResponse::Decline(_)), "{attached}");
        }
    }
}
