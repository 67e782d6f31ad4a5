//! Compares the table of what a protocol carries with this server.

use std::collections::HashSet;

use serde_json::Value;

use crate::rig::{Rig, text};

/// Collects every string of the document, to find an operation or an event type in it.
fn strings<'a>(node: &'a Value, found: &mut HashSet<&'a str>) {
    match node {
        Value::Object(members) => members.values().for_each(|value| strings(value, found)),
        Value::Array(items) => items.iter().for_each(|item| strings(item, found)),
        Value::String(text) => {
            found.insert(text);
        }
        _ => {}
    }
}

/// Whether the document defines `Type`, `Type.member`, an operation or an event type.
fn stands_in(document: &Value, strings: &HashSet<&str>, name: &str) -> bool {
    let (kind, member) = name.split_once('.').unwrap_or((name, ""));
    // The members that all events share are in a separate schema.
    let kind = if kind == "Event" { "EventHead" } else { kind };
    match document["components"]["schemas"].get(kind) {
        None => strings.contains(name),
        Some(schema) => member.is_empty() || !schema["properties"][member].is_null(),
    }
}

#[tokio::test]
async fn what_the_table_says_of_our_own_face_is_there() {
    let rig = Rig::start().await;
    let table = rig.alice().get("/api/v1/fidelity").await.unwrap().ok().unwrap();
    let document = rig.alice().get("/api/v1/openapi.json").await.unwrap().ok().unwrap();
    let mut found = HashSet::from(["traceparent"]);
    strings(&document, &mut found);
    let (mut checked, mut lost) = (0, 0);
    let rows = table["items"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["protocol"] == "communication"));
    for row in rows.iter().filter(|row| row["protocol"] == "native") {
        let concept = text(row, "/concept");
        if row["verdict"] == "lost" {
            assert!(row["carrier"].is_null() && !text(row, "/because").is_empty(), "{concept}");
            lost += 1;
            continue;
        }
        assert!(row["because"].is_null(), "{concept}");
        let names = text(row, "/carrier").split('`').skip(1).step_by(2);
        for name in names {
            assert!(stands_in(&document, &found, name), "{concept}: there is no `{name}`");
            checked += 1;
        }
    }
    assert!(checked >= 40 && lost >= 1, "{checked} {lost}");
    assert!(!stands_in(&document, &found, "Run.nothing"));
}

#[tokio::test]
async fn the_way_from_one_protocol_to_another_is_no_better_than_its_ends() {
    let rig = Rig::start().await;
    let alice = rig.alice();
    let rows = alice.get("/api/v1/fidelity?from=connect&to=communication").await.unwrap();
    let rows = rows.ok().unwrap();
    let row = |concept: &str| {
        let rows = rows["items"].as_array().unwrap();
        rows.iter().find(|row| row["concept"] == concept).unwrap().clone()
    };
    assert_eq!(
        (text(&row("text"), "/verdict"), text(&row("text"), "/to")),
        ("carried", "communication")
    );
    assert_eq!(text(&row("citation"), "/verdict"), "extension");
    let schedule = row("schedule");
    assert_eq!(text(&schedule, "/verdict"), "lost");
    assert!(text(&schedule, "/because").starts_with("communication: "), "{schedule}");
    assert!(schedule["carrier"].is_string() && schedule["to_carrier"].is_null(), "{schedule}");
    for refused in ["from=acp", "to=", "from=client&to=client"] {
        let refused = alice.get(&format!("/api/v1/fidelity?{refused}")).await.unwrap();
        assert_eq!(refused.status, 400);
    }
}
