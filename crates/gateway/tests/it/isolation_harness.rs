//! Shared by the isolation tests of all protocols: another principal's id gets the same response as an unknown id.

use bytes::Bytes;
use http::Method;
use serde_json::Value;
use trilogue_testkit::Client;
use trilogue_testkit::client::Reply;

pub(crate) type Named = (String, Value);

/// A request with another principal's id, and the same request with an unknown id.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) operation: String,
    pub(crate) method: String,
    pub(crate) foreign: Named,
    pub(crate) never: Named,
}

impl Case {
    /// Pairs an operation's requests with both kinds of ids.
    pub(crate) fn of(
        operation: &str,
        method: &str,
        foreign: Vec<Named>,
        never: Vec<Named>,
    ) -> impl Iterator<Item = Self> {
        assert_eq!(foreign.len(), never.len(), "{operation}");
        let case = move |(foreign, never)| Self {
            operation: operation.to_owned(),
            method: method.to_ascii_uppercase(),
            foreign,
            never,
        };
        foreign.into_iter().zip(never).map(case).collect::<Vec<_>>().into_iter()
    }
}

/// Asserts that every request gets 404 with the same text as its pair, also if it accepts a stream. Returns the number of cases.
pub(crate) async fn hold(stranger: &Client, cases: impl IntoIterator<Item = Case>) -> usize {
    let mut checked = 0;
    for case in cases {
        let Case { operation, method, foreign, never } = &case;
        let got = send(stranger, method, foreign).await;
        let expected = send(stranger, method, never).await;
        for (got, expected) in got.iter().zip(&expected) {
            assert_eq!(got.status, 404, "{operation} {foreign:?}: {}", got.json());
            let shapes = (shape(got, foreign, never), shape(expected, never, foreign));
            assert_eq!(shapes.0, shapes.1, "{operation} {foreign:?}");
        }
        checked += 1;
    }
    checked
}

/// The paths of a template, with each of these values for each parameter.
pub(crate) fn filled(template: &str, values: &[(&str, Vec<&String>)]) -> Vec<String> {
    let mut paths = vec![template.to_owned()];
    for (name, values) in values {
        let fill = |path: &String| -> Vec<String> {
            match path.contains(name) {
                true => values.iter().map(|value| path.replace(name, value)).collect(),
                false => vec![path.clone()],
            }
        };
        paths = paths.iter().flat_map(fill).collect();
    }
    paths
}

async fn send(client: &Client, method: &str, (path, body): &Named) -> [Reply; 2] {
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    let plain = client.send(method.clone(), path, &[], body.clone()).await.unwrap();
    let headers = [("accept", "text/event-stream"), ("last-event-id", "1")];
    [plain, client.send(method, path, &headers, body).await.unwrap()]
}

/// The body of a refusal, without the request's id and without the names that only one of the two requests has.
fn shape(reply: &Reply, named: &Named, other: &Named) -> Value {
    let words = |(path, body): &Named| -> Vec<String> {
        let text = format!("{path}/{body}");
        text.split(['/', '=', '?', '&', '"']).map(str::to_owned).collect()
    };
    let request_id = reply.headers["x-request-id"].to_str().unwrap().to_owned();
    let mut shape = reply.json().to_string().replace(&format!("\"{request_id}\""), "null");
    for (own, other) in words(named).iter().zip(words(other)).filter(|(own, other)| *own != other) {
        assert!(!other.is_empty());
        shape = shape.replace(own, "…");
    }
    serde_json::from_str(&shape).unwrap()
}
