//! The events of a run, so that two runs of the same turn can be compared.

use std::collections::HashMap;

use serde_json::{Value, json};

/// The members that differ from run to run.
const VARYING: [&str; 6] = ["id", "number", "run_number", "run_id", "at", "original"];
/// The members with an id that other events repeat.
const IDS: [&str; 2] = ["message_id", "call_id"];

/// Returns the events of this run without its ids and times, and with each text in one piece. The events of a restart are left out.
///
/// Ids that events share become the number of their first use. Each `(text, name)` of `names` is replaced in the result.
pub fn comparable_events(events: &[Value], run: &str, names: &[(&str, &str)]) -> Vec<String> {
    let mut known: HashMap<String, usize> = HashMap::new();
    let mut joined: Vec<(Value, String)> = Vec::new();
    for event in events {
        let kind = event["type"].as_str().unwrap_or_default();
        if event["run_id"] != run || ["run.created", "run.resumed"].contains(&kind) {
            continue;
        }
        let mut event = event.clone();
        if let Some(members) = event.as_object_mut() {
            VARYING.iter().for_each(|name| drop(members.remove(*name)));
        }
        for name in IDS {
            if let Some(id) = event[name].as_str() {
                let next = known.len();
                event[name] = json!(*known.entry(id.to_owned()).or_insert(next));
            }
        }
        if event["kind"] == "turn_result" {
            event["data"]["userMessageId"] = Value::Null;
        }
        let text = event["text"].as_str().unwrap_or_default().to_owned();
        event["text"] = Value::Null;
        match joined.last_mut() {
            Some((last, whole)) if *last == event && !text.is_empty() => whole.push_str(&text),
            _ => joined.push((event, text)),
        }
    }
    let texts = joined.into_iter().map(|(event, text)| {
        let line = format!("{event} {text}");
        names.iter().fold(line, |line, (text, name)| line.replace(text, name))
    });
    texts.collect()
}
