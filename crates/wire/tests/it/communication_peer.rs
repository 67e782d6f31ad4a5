//! A client reads everything from servers that can be understood.

use serde_json::{Value, json};
use trilogue_wire::agent_communication::{
    AgentManifest, AgentsList, ErrorBody, ErrorCode, Event, EventsList, Json, Message, MessagePart,
    Metadata, Role, Rules, Run, RunMode, RunResumeRequest, RunsList, Session,
};

use crate::communication::{read_value, written};

const RUN_ID: &str = "2a4496e1-b907-4b65-9cec-2ae5658024fe";

fn peer<T: trilogue_wire::agent_communication::Read>(value: &Value) -> Result<T, String> {
    read_value(value, Rules::Lenient).map_err(|violation| violation.to_string())
}

#[test]
fn metadata_of_an_unknown_kind_passes_as_it_came() {
    for metadata in [json!({"kind": "mood", "b": 1}), json!({}), json!({"kind": 5})] {
        let part: MessagePart = peer(&json!({"content": "x", "metadata": metadata})).unwrap();
        let Some(Metadata::Other(json)) = &part.metadata else { panic!("no other metadata") };
        assert_eq!(json.to_value(), metadata);
        let sent: Value = serde_json::from_str(&written(|out| part.write(out))).unwrap();
        assert_eq!(sent["metadata"], metadata);
    }
    let error = peer::<MessagePart>(&json!({"metadata": "mood"})).unwrap_err();
    assert_eq!(error, "metadata must be an object, not a string");
}

#[test]
fn what_may_be_left_out_may_be_null() {
    let message: Message = peer(&json!({"role": null, "parts": [{"content_type": null}]})).unwrap();
    assert_eq!((message.role, message.parts.len()), (Role::User, 1));
    let run: Run = peer(&json!({"run_id": RUN_ID, "agent_name": "a", "status": "failed", "created_at": 0, "output": null})).unwrap();
    assert_eq!((run.output.len(), run.session_id, run.error), (0, None, None));
    let manifest: AgentManifest =
        peer(&json!({"name": "a", "metadata": null, "input_content_types": null})).unwrap();
    assert_eq!(manifest, AgentManifest::new("a", ""));
    let message = json!({"role": "user", "parts": []});
    let resume: RunResumeRequest =
        peer(&json!({"await_resume": {"type": null, "message": message}, "mode": null})).unwrap();
    assert_eq!(resume.mode, RunMode::Sync);
    let session: Session = peer(&json!({"id": RUN_ID, "history": null})).unwrap();
    assert_eq!(session.history, Vec::<String>::new());
}

#[test]
fn an_unknown_status_or_role_is_named_and_an_unknown_event_kept() {
    let run = json!({"run_id": RUN_ID, "agent_name": "a", "status": "paused", "created_at": 0});
    let statuses = "created, in-progress, awaiting, cancelling, cancelled, completed, failed";
    assert_eq!(peer::<Run>(&run), Err(format!("status must be one of {statuses}, not \"paused\"")));
    let event = json!({"type": "run.paused", "run": run});
    let Event::Generic { generic } = peer(&event).unwrap() else { panic!("a known type") };
    assert_eq!(generic.to_value(), event);
    assert_eq!(
        peer::<Event>(&json!({"type": 1, "run": run})),
        Err("type must be a string, not a number".to_owned())
    );
    let event = json!({"type": "run.awaiting", "run": run});
    assert_eq!(
        peer::<Event>(&event),
        Err(format!("run.status must be one of {statuses}, not \"paused\""))
    );
    assert_eq!(peer::<Event>(&json!({"run": run})), Err("type is missing".to_owned()));
    assert_eq!(peer::<Event>(&json!({"type": "generic"})), Err("generic is missing".to_owned()));
    assert_eq!(
        peer::<Event>(&json!({"type": "generic", "generic": [1]})),
        Err("generic must be a JSON object".to_owned())
    );
    let error = peer::<Event>(
        &json!({"type": "message.created", "message": {"role": "robot", "parts": []}}),
    )
    .unwrap_err();
    assert!(error.starts_with("message.role must be"), "{error}");
    let list = json!({"events": [{"type": "generic", "generic": {}}, {"type": "message.part", "part": {"content": 1}}]});
    assert_eq!(
        peer::<EventsList>(&list),
        Err("events[1].part.content must be a string, not a number".to_owned())
    );
}

#[test]
fn members_of_other_events_do_not_matter() {
    let event: Event =
        peer(&json!({"type": "generic", "generic": {"a": 1}, "message": 5, "run": null})).unwrap();
    assert_eq!(event, Event::Generic { generic: Json::parse(r#"{"a":1}"#).unwrap() });
    let part = json!({"content_type": "text/plain", "content": "x"});
    let event: Event = peer(&json!({"part": part, "type": "message.part"})).unwrap();
    assert_eq!(event, Event::MessagePart { part: MessagePart::text("x") });
}

#[test]
fn an_unknown_error_code_is_a_servers_error() {
    let error: ErrorBody =
        peer(&json!({"code": "rate_limited", "message": "slow", "data": [1]})).unwrap();
    assert_eq!((error.code, error.data.unwrap().as_str()), (ErrorCode::ServerError, "[1]"));
    let read = |value: &Value| {
        read_value::<ErrorBody>(value, Rules::Compatible).map_err(|violation| violation.to_string())
    };
    assert_eq!(
        read(&json!({"code": "rate_limited", "message": "slow"})),
        Err("code must be \"server_error\", \"invalid_input\" or \"not_found\", not \"rate_limited\"".to_owned())
    );
    assert_eq!(
        read(&json!({"code": "not_found", "message": "x", "data": "y"})),
        Err("data must be a JSON object".to_owned())
    );
    assert_eq!(
        peer::<ErrorBody>(&json!({"detail": "Not Found"})),
        Err("code is missing".to_owned())
    );
}

#[test]
fn a_manifest_with_members_that_make_no_sense_is_read_and_loses_nothing() {
    let metadata = json!({
        "links": [{"type": "video", "url": "https://h/"}],
        "annotations": {"beeai_ui": {"ui_type": "hologram"}, "more": 1},
        "license": 7, "created_at": "yesterday", "tags": ["a", 5], "framework": "F", "env": [],
    });
    let manifest: AgentManifest =
        peer(&json!({"name": "a", "metadata": metadata, "status": {}})).unwrap();
    assert_eq!(manifest.metadata.framework.as_deref(), Some("F"));
    assert_eq!((&manifest.metadata.links, &manifest.metadata.tags), (&None, &None));
    let kept: Vec<&str> = manifest.metadata.extra.iter().map(|(name, _)| name).collect();
    assert_eq!(kept.len(), 5, "{kept:?}");
    assert_eq!(manifest.metadata.extra.get("links").unwrap().to_value(), metadata["links"]);
    let annotations = manifest.metadata.annotations.unwrap();
    assert_eq!((annotations.beeai_ui, annotations.extra.iter().count()), (None, 2));

    let strict = |value: &Value| {
        read_value::<AgentManifest>(value, Rules::Compatible)
            .map_err(|violation| violation.to_string())
    };
    assert_eq!(
        strict(&json!({"name": "a", "metadata": {"links": [{"type": "video", "url": "https://h/"}]}})),
        Err("metadata.links[0].type must be one of source-code, container-image, homepage, documentation, not \"video\"".to_owned())
    );
    assert_eq!(
        strict(
            &json!({"name": "a", "metadata": {"annotations": {"beeai_ui": {"ui_type": "chat", "tools": [{"name": "t"}]}}}})
        ),
        Err("metadata.annotations.beeai_ui.tools[0].description is missing".to_owned())
    );
    assert_eq!(
        strict(&json!({"name": "a", "metadata": null})),
        Err("metadata must not be null; it may be left out".to_owned())
    );
    assert_eq!(
        strict(&json!({"name": "a", "metadata": {"tags": ["a", 5]}})),
        Err("metadata.tags[1] must be a string, not a number".to_owned())
    );
}

#[test]
fn a_url_that_is_none_stays_as_it_came() {
    let part: MessagePart = peer(&json!({"content_url": "files/a.png"})).unwrap();
    assert_eq!(part.content_url.as_deref(), Some("files/a.png"));
    let error = peer::<Session>(&json!({"id": RUN_ID, "history": ["files/a"]})).unwrap_err();
    assert_eq!(error, "history[0] must be a valid absolute http or https URL, not \"files/a\"");
}

#[test]
fn lists_are_read() {
    let agents: AgentsList =
        peer(&json!({"agents": [{"name": "a"}, {"name": "b", "more": 1}]})).unwrap();
    assert_eq!(agents.agents.len(), 2);
    assert_eq!(
        peer::<AgentsList>(&json!({"agents": [{"description": "x"}]})),
        Err("agents[0].name is missing".to_owned())
    );
    let run = json!({"run_id": RUN_ID, "agent_name": "a", "status": "created", "created_at": 0});
    let runs: RunsList = peer(&json!({"runs": [run], "next": "n"})).unwrap();
    assert_eq!((runs.runs.len(), runs.next.as_deref()), (1, Some("n")));
    assert_eq!(peer::<RunsList>(&json!({})), Err("runs is missing".to_owned()));
}

#[test]
fn a_type_of_the_protocol_can_be_part_of_another_type() {
    let pair: (Message, Event) = serde_json::from_value::<(Value, Value)>(json!([
        {"parts": [{"content": "x"}]},
        {"type": "generic", "generic": {}}
    ]))
    .map(|(message, event)| {
        (
            serde_json::from_str(&message.to_string()).unwrap(),
            serde_json::from_str(&event.to_string()).unwrap(),
        )
    })
    .unwrap();
    assert_eq!(pair.0.plain_text(), "x");
    let error =
        serde_json::from_str::<Vec<Message>>(r#"[{"parts":[{"content_url":"a","content":"b"}]}]"#)
            .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("parts[0] must have only one of content and content_url, not both"),
        "{error}"
    );
}
