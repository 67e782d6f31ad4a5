//! Only one open request may have an id.

use super::*;

#[tokio::test]
async fn a_request_whose_id_is_in_work_is_refused_however_often_it_comes() {
    let (peer, mut other, _) = pair(Options { max_requests: 2, ..Options::client() });
    other.write(b"{\"jsonrpc\":\"2.0\",\"id\":\"w\",\"method\":\"wait\"}\n").await;
    for _ in 0..10 {
        other.write(b"{\"jsonrpc\":\"2.0\",\"id\":\"w\",\"method\":\"add\"}\n").await;
        let refused = other.read().await;
        assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!("w"), &json!(-32600)));
    }
    assert_eq!(peer.counters().refused, 10);
    // No refused request replaced the first one or another.
    other.write(b"{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"add\"}\n").await;
    assert_eq!(other.read().await["result"]["sum"], 0);
    let give_up =
        b"{\"jsonrpc\":\"2.0\",\"method\":\"$/cancel_request\",\"params\":{\"requestId\":\"w\"}}\n";
    other.write(give_up).await;
    assert_eq!(other.read().await["error"]["code"], -32800);
}

#[tokio::test]
async fn an_id_may_come_again_when_it_was_answered() {
    let (peer, mut other, _) = pair(Options::client());
    for _ in 0..3 {
        other
            .write(b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"add\",\"params\":{\"of\":[1,2]}}\n")
            .await;
        assert_eq!(other.read().await["result"]["sum"], 3);
    }
    assert_eq!(peer.counters().refused, 0);
}
