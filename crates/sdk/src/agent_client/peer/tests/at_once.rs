use std::sync::Arc;

use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use super::{LONG, Options, Peer};
use crate::agent_client::peer::RefuseAll;

#[tokio::test]
async fn a_call_is_written_before_anybody_else_works_and_the_rest_when_there_is_room() {
    let (ours, mut theirs) = tokio::io::duplex(16);
    let (read, write) = tokio::io::split(ours);
    let peer = Peer::start(read, write, Arc::new(RefuseAll), Options::client());
    let one = peer.begin("one", &json!({ "text": "longer than the pipe" })).await.unwrap();
    let mut first = [0; 16];
    let at_once = tokio::select! {
        biased;
        read = theirs.read(&mut first) => read.unwrap(),
        () = std::future::ready(()) => 0,
    };
    assert_eq!(at_once, 16);
    peer.notify("two", &json!({})).await.unwrap();
    let three = peer.begin("three", &json!({})).await.unwrap();
    peer.close();
    let mut rest = Vec::new();
    timeout(LONG, theirs.read_to_end(&mut rest)).await.unwrap().unwrap();
    let said = [first.as_slice(), &rest].concat();
    let methods: Vec<_> = said
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice::<serde_json::Value>(line).unwrap()["method"].clone())
        .collect();
    assert_eq!(methods, ["one", "two", "three"]);
    drop((one, three));
}
