//! A run's request in responses, and the address of its callback.

use serde_json::{Value, json};
use trilogue_domain::{Code, limits};
use trilogue_mapping::connect;
use trilogue_wire::agent_connect::{RunCreate, decode};

use crate::published::{assert_valid, document};
use crate::sample::{full, json_of};

fn creation(body: &Value, is_stateless: bool) -> Value {
    let kept = connect::creation(&full(), &json_of(body), is_stateless).unwrap();
    assert!(kept.as_bytes().len() <= limits::MAX_KEPT_REQUEST_BYTES);
    kept.to_value()
}

#[test]
fn a_request_is_shown_with_the_defaults_filled_in() {
    let document = document();
    let shown = creation(&json!({ "input": { "message": "hi" }, "after_seconds": null }), true);
    assert_eq!(
        shown,
        json!({
            "agent_id": "3f1e2549-5799-4321-91ae-2a4881d55526",
            "input": { "message": "hi" },
            "stream_mode": null,
            "on_disconnect": "cancel",
            "multitask_strategy": "reject",
            "on_completion": "delete"
        })
    );
    assert_valid(document.as_ref(), "RunCreateStateless", &shown);
    let shown = creation(&json!({ "agent_id": "full", "if_not_exists": "create" }), false);
    assert_eq!(shown["agent_id"], "full");
    assert_eq!(shown["if_not_exists"], "create");
    assert_eq!(shown["stream_subgraphs"], false);
    assert_eq!(shown.get("on_completion"), None);
    assert_valid(document.as_ref(), "RunCreateStateful", &shown);
}

#[test]
fn either_reading_of_the_configuration_keeps_the_published_schema() {
    let document = document();
    for (config, wanted) in [
        (json!({ "style": "formal" }), json!({ "style": "formal" })),
        (
            json!({ "configurable": { "style": "x" }, "tags": null }),
            json!({ "configurable": { "style": "x" } }),
        ),
        (json!("formal"), json!({ "configurable": "formal" })),
        (json!([1]), json!({ "configurable": [1] })),
    ] {
        let shown = creation(&json!({ "config": config }), true);
        assert_eq!(shown["config"], wanted);
        assert_valid(document.as_ref(), "RunCreateStateless", &shown);
    }
}

#[test]
fn credentials_are_never_shown_again() {
    let body = json!({
        "config": { "configurable": { "key": "secret", "style": "x" } },
        "webhook": "https://user:secret@example.com/a?b#c",
        "callback": { "url": "https://secret@example.com", "events": ["status"] }
    });
    let shown = creation(&body, true);
    assert_eq!(shown["config"], json!({ "configurable": { "style": "x" } }));
    assert_eq!(shown["webhook"], "https://example.com/a?b#c");
    let callback = json!({ "url": "https://example.com", "events": ["status"] });
    assert_eq!(shown["callback"], callback);
    assert!(
        !creation(&json!({ "config": { "key": "secret" } }), true).to_string().contains("secret")
    );
}

#[test]
fn a_request_that_is_too_large_loses_its_input_first() {
    let long = "x".repeat(limits::MAX_KEPT_REQUEST_BYTES);
    let shown = creation(&json!({ "input": long, "metadata": { "k": 1 } }), true);
    assert_eq!((shown.get("input"), &shown["metadata"]["k"]), (None, &json!(1)));
    let shown = creation(&json!({ "input": 1, "metadata": { "k": long } }), true);
    assert_eq!(shown.get("metadata"), None);
    let shown = creation(&json!({ "agent_id": "x".repeat(70_000) }), true);
    assert_eq!(shown["agent_id"], "3f1e2549-5799-4321-91ae-2a4881d55526");
    let error = connect::creation(&full(), &json_of(&json!([])), true).unwrap_err();
    assert_eq!(error.code(), Code::InvalidJson);
}

#[test]
fn a_callback_is_an_address_with_what_it_is_called_of() {
    let callback = |body: Value| {
        let request: RunCreate = decode(body.to_string().as_bytes()).unwrap();
        connect::callback(&request)
            .map(|it| it.map(|it| (it.url.to_string(), [it.status, it.values, it.updates])))
            .map_err(|error| error.code())
    };
    let status = Ok(Some(("http://x/".to_owned(), [true, false, false])));
    assert_eq!(callback(json!({})), Ok(None));
    assert_eq!(callback(json!({ "webhook": "http://x/" })), status);
    assert_eq!(callback(json!({ "callback": "http://x/" })), status);
    assert_eq!(callback(json!({ "callback": "http://x/", "webhook": "http://x/" })), status);
    let events = json!({ "callback": { "url": "http://x/", "events": ["values", "custom"] } });
    assert_eq!(callback(events), Ok(Some(("http://x/".to_owned(), [false, true, true]))));
    let two = json!({ "callback": "http://x/", "webhook": "http://y/" });
    assert_eq!(callback(two), Err(Code::InvalidWebhook));
    assert_eq!(callback(json!({ "webhook": "" })), Err(Code::InvalidWebhook));
    assert_eq!(callback(json!({ "webhook": "x".repeat(70_000) })), Err(Code::InvalidWebhook));
}
