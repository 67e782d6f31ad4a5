//! Cancelling a call and notifying the other side.

use super::*;

fn telling() -> Options {
    Options { cancels_dropped: true, ..Options::client() }
}

fn of(id: u64) -> Value {
    json!({ "jsonrpc": "2.0", "method": CANCEL_REQUEST, "params": { "requestId": id } })
}

#[tokio::test]
async fn a_call_that_is_dropped_unanswered_is_given_up_at_the_other_side_once() {
    let (peer, mut other, _) = pair(telling());
    // Both sides count their ids separately: id 0 of the other side is another call.
    let answered = peer.begin("a", &()).await.unwrap();
    let dropped = peer.begin("b", &()).await.unwrap();
    let asked = peer.begin("c", &()).await.unwrap();
    for _ in 0..3 {
        other.read().await;
    }
    other.write(b"{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{}}\n").await;
    assert!(timeout(LONG, answered).await.unwrap().is_ok());
    drop(dropped);
    assert_eq!(other.read().await, of(1));
    asked.cancel().unwrap();
    asked.cancel().unwrap();
    drop(asked);
    assert_eq!(other.read().await, of(2));
    peer.notify("end", &()).await.unwrap();
    assert_eq!(other.read().await["method"], "end");
}

#[tokio::test]
async fn who_stops_waiting_for_a_call_gives_it_up() {
    let (peer, mut other, _) = pair(telling());
    let call = tokio::spawn({
        let peer = peer.clone();
        async move { peer.call("slow", &()).await }
    });
    assert_eq!(other.read().await["method"], "slow");
    call.abort();
    assert_eq!(other.read().await, of(0));
    // A late response has no receiver.
    other.write(b"{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{}}\n").await;
    other.write(b"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"add\"}\n").await;
    assert_eq!(other.read().await["id"], 5);
    assert_eq!(peer.counters().unexpected, 1);
}

#[tokio::test]
async fn what_was_never_asked_is_not_given_up_and_nothing_waits_for_one_who_takes_nothing() {
    let (peer, mut other, _) = pair(Options { max_outgoing_bytes: 10_000, ..telling() });
    let begun = peer.begin("first", &()).await.unwrap();
    // The other side does not read, so the outbox becomes full.
    let text = json!(["x".repeat(1_000)]);
    let mut filled = 0;
    while timeout(Duration::from_millis(100), peer.notify("n", &text)).await.is_ok() {
        filled += 1;
    }
    let mut late = Box::pin(peer.begin("late", &()));
    assert!(timeout(Duration::from_millis(50), &mut late).await.is_err());
    drop(late);
    peer.notify_now("short", &()).unwrap();
    begun.cancel().unwrap();
    assert_eq!(other.read().await["method"], "first");
    for _ in 0..filled {
        assert_eq!(other.read().await["method"], "n");
    }
    assert_eq!(other.read().await["method"], "short");
    assert_eq!(other.read().await, of(0));
    // Messages that cannot wait have a limit too.
    let long = json!(["x".repeat(100_000)]);
    let refused = (0..100).find_map(|_| peer.notify_now("n", &long).err());
    assert_eq!(refused, Some(CallFailure::TooMany));
}
