//! What each face's isolation tests share: a foreign id is answered exactly as one that never was.

use bytes::Bytes;
use http::Method;
use serde_json::Value;
use trilogue_testkit::Client;
use trilogue_testkit::client::Reply;

pub(crate) type Named = (String, Value);

/// A request for something of somebody else, and the same for something that nobody has.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) operation: String,
    pub(crate) method: String,
    pub(crate) foreign: Named,
    pub(crate) never: Named,
}

impl Case {
    /// The cases of an operation, from its requests with both kinds of ids.
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

/// That every request is refused with 404 in the same words, also where a stream is asked for; and how many there were.
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

/// The paths that a template stands for, with each of these values in the place of each parameter.
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

/// What a refusal says, without the request's id and without what only this of the two requests names.
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
