//! The protocol's document, example by example: each request is sent unchanged, and each response must have the documented shape, apart from ids.
//!
//! `crates/testkit/documents/agent_connect.json` holds the examples. The members `expect` and `documented` are compared with the responses of every mount:
//! the first has what the interface description says, the second what the document says.
//!
//! | in an expected value | stands for |
//! |---|---|
//! | an object | an object that has at least these members |
//! | `["...", X]` | one or more items, each of which is an `X`; any other array has exactly these items |
//! | `"*"`, `"#"`, `"?"` | text, a number, a truth value |
//! | `"{name}"` | the value that an earlier response stored under `save` |
//! | `"@/pointer"` | a part of the document's sample descriptor |

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use http::Method;
use serde_json::{Value, json};
use trilogue_egress::Policy;
use trilogue_gateway::{ConnectOptions, Mount};
use trilogue_testkit::callback::Receiver;
use trilogue_testkit::{Reply, documents, until};

use crate::connect::{BASE, Face};
use crate::rig::{LIMIT, Setup};

static FLOWS: LazyLock<Vec<Value>> = LazyLock::new(documents::agent_connect);
static DESCRIPTOR: LazyLock<Value> = LazyLock::new(documents::agent_connect_descriptor);

/// One flow of the document on one mount.
struct Walk {
    face: Face,
    receiver: Receiver,
    as_documented: bool,
    /// Values from earlier responses.
    known: BTreeMap<String, String>,
    what: String,
}

async fn walk(as_documented: bool) {
    for flow in FLOWS.iter() {
        let mut walk = Walk::begin(flow["name"].as_str().unwrap(), as_documented).await;
        for step in flow["steps"].as_array().unwrap() {
            walk.what = format!("{}: {step}", flow["name"]);
            walk.step(step).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_examples_of_the_document_work_on_a_mount_without_options() {
    walk(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_examples_of_the_document_work_to_the_letter_on_a_mount_as_documented() {
    walk(true).await;
}

#[test]
fn the_page_of_the_document_names_every_example() {
    let page = include_str!("../../../../docs/documents/agent-connect.md");
    for flow in FLOWS.iter() {
        let name = flow["name"].as_str().unwrap();
        assert!(page.contains(&format!("\"{name}\"")), "the page does not name {name}");
    }
}

#[test]
fn a_value_fits_only_what_it_should() {
    let fits = |wanted: Value, value: Value| misfit(&wanted, &value, "").is_none();
    let item = json!({"a": 1, "b": [2]});
    assert!(fits(json!({"a": 1}), item.clone()) && !fits(json!({"c": 1}), item.clone()));
    assert!(
        !fits(json!({"b": []}), item.clone()) && fits(json!(["...", {"a": "#"}]), json!([item]))
    );
    assert!(!fits(json!(["...", {}]), json!([])) && !fits(json!("*"), json!("")));
    assert!(fits(json!("?"), json!(true)) && !fits(json!("#"), json!("1")));
    assert!(
        fits(json!("@/specs/capabilities/threads"), json!(true)) && !fits(json!("@"), json!({}))
    );
}

// === impl Walk ===

impl Walk {
    async fn begin(name: &str, as_documented: bool) -> Self {
        let options = ConnectOptions { as_documented, ..ConnectOptions::default() };
        let mounts = Some(vec![Mount::new(options, BASE).unwrap()]);
        let egress = Policy::local();
        let face = Face::of(Setup { mounts, egress, ..Setup::default() }).await;
        let receiver = Receiver::start().await.unwrap();
        let known = BTreeMap::from([("callme".to_owned(), receiver.url())]);
        Self { face, receiver, as_documented, known, what: name.to_owned() }
    }

    async fn step(&mut self, step: &Value) {
        if let Some(wanted) = step.get("callback") {
            let delivery = self.receiver.wait_for(1, LIMIT).await.unwrap().remove(0);
            let body = serde_json::from_slice(&delivery.body).unwrap();
            return self.assert_fits(step, wanted, &body);
        }
        if let Some(wanted) = step.get("events") {
            return self.streamed(step, wanted).await;
        }
        let status = step.get("status").map_or(200, |status| status.as_u64().unwrap());
        let reply = match step.get("until") {
            None => self.send(step).await,
            Some(_) => {
                let look = async || {
                    let reply = self.send(step).await;
                    self.misfit(&step["expect"], &reply.json()).is_none().then_some(reply)
                };
                until(&self.what, LIMIT, look).await.unwrap()
            }
        };
        assert_eq!(u64::from(reply.status), status, "{}: {}", self.what, reply.json());
        if status != 204 {
            let body = reply.json();
            self.assert_fits(step, &step["expect"], &body);
            self.save(step, &body);
        }
    }

    async fn send(&self, step: &Value) -> Reply {
        let (method, path) = step["send"].as_str().unwrap().split_once(' ').unwrap();
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let body = self.filled(&step["body"]);
        let path = self.filled(&Value::from(path));
        let stranger = self.face.rig.stranger();
        let client = if step.get("anonymous").is_some() { &stranger } else { &self.face.client };
        self.face.send_as(client, method, path.as_str().unwrap(), &body).await
    }

    /// Streams until every output was seen. A stream can skip an output that is soon followed by another one, so this retries.
    async fn streamed(&self, step: &Value, wanted: &Value) {
        let last = RefCell::new(Value::Null);
        let look = async || {
            let reply = self.send(step).await;
            assert_eq!(reply.status, 200, "{}: {}", self.what, reply.json());
            let (run, events) = events(&String::from_utf8_lossy(&reply.body));
            assert_eq!(run.is_some(), self.as_documented, "{}", self.what);
            if let Some(run) = run {
                assert_eq!(self.misfit(&step["run"], &run), None, "{}: {run}", self.what);
            }
            *last.borrow_mut() = Value::Array(events);
            self.misfit(wanted, &last.borrow()).is_none().then_some(())
        };
        let found = until("the events of the document", LIMIT, look).await;
        let last = last.into_inner();
        assert!(found.is_ok(), "{}: {last}", self.what);
        self.assert_fits(step, wanted, &last);
    }

    fn assert_fits(&self, step: &Value, wanted: &Value, found: &Value) {
        assert_eq!(self.misfit(wanted, found), None, "{}: {found}", self.what);
        if let Some(documented) = step.get("documented") {
            assert_eq!(self.misfit(documented, found), None, "{}: {found}", self.what);
        }
    }

    fn save(&mut self, step: &Value, found: &Value) {
        for (name, place) in step["save"].as_object().into_iter().flatten() {
            let value = found.pointer(place.as_str().unwrap()).and_then(Value::as_str);
            let value = value.unwrap_or_else(|| panic!("{}: no {place} in {found}", self.what));
            self.known.insert(name.clone(), value.to_owned());
        }
    }

    fn misfit(&self, wanted: &Value, found: &Value) -> Option<String> {
        misfit(&self.filled(wanted), found, "")
    }

    fn filled(&self, value: &Value) -> Value {
        let mut text = value.to_string();
        for (name, known) in &self.known {
            text = text.replace(&format!("{{{name}}}"), known);
        }
        serde_json::from_str(&text).unwrap()
    }
}

/// Returns the run with which a stream begins, if it does, and the data of its events. The ids must increase.
fn events(stream: &str) -> (Option<Value>, Vec<Value>) {
    let (mut run, mut events, mut ids) = (None, Vec::new(), Vec::new());
    for block in stream.split_terminator("\n\n") {
        let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name));
        let data: Value = serde_json::from_str(field("data: ").unwrap()).unwrap();
        if field("event: ") == Some("run") {
            assert!(events.is_empty() && run.is_none(), "{stream}");
            run = Some(data);
            continue;
        }
        assert_eq!(field("event: "), Some("agent_event"), "{block}");
        let id = field("id: ").unwrap().split('.').next().unwrap();
        ids.push(id.parse::<u64>().unwrap());
        events.push(data);
    }
    assert!(ids.is_sorted(), "{ids:?}");
    (run, events)
}

/// Returns the place where a value differs from the expected one; `None` if it matches.
fn misfit(wanted: &Value, found: &Value, at: &str) -> Option<String> {
    let wrong = || Some(format!("{at}: {found} is not {wanted}"));
    match (wanted, found) {
        (Value::String(text), _) if text.starts_with('@') => {
            let part = DESCRIPTOR.pointer(&text[1..]);
            if part == Some(found) { None } else { wrong() }
        }
        (Value::String(text), found) => match (text.as_str(), found) {
            ("*", Value::String(found)) if !found.is_empty() => None,
            ("#", Value::Number(_)) | ("?", Value::Bool(_)) => None,
            _ if wanted == found => None,
            _ => wrong(),
        },
        (Value::Object(wanted), Value::Object(found)) => wanted.iter().find_map(|(key, wanted)| {
            misfit(wanted, found.get(key).unwrap_or(&Value::Null), &format!("{at}/{key}"))
        }),
        (Value::Array(items), Value::Array(found)) => {
            let each = items.first().is_some_and(|first| first == "...");
            let count = if each { !found.is_empty() } else { items.len() == found.len() };
            let wanted = |place: usize| if each { items.get(1) } else { items.get(place) };
            let misfits = found
                .iter()
                .enumerate()
                .find_map(|(place, found)| misfit(wanted(place)?, found, &format!("{at}/{place}")));
            if count { misfits } else { wrong() }
        }
        _ if wanted == found => None,
        _ => wrong(),
    }
}
