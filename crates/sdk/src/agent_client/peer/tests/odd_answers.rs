//! Responses in unusual forms.

use super::*;

#[tokio::test]
async fn an_id_that_comes_back_as_text_is_the_same() {
    let (peer, mut other, _told) = pair(Options::client());
    let call = peer.begin("x", &json!({})).await.unwrap();
    let id = other.read().await["id"].as_u64().unwrap();
    other.write(format!("{{\"jsonrpc\":\"2.0\",\"id\":\"{id}\",\"result\":1}}\n").as_bytes()).await;
    assert_eq!(timeout(LONG, call).await.unwrap().unwrap().as_str(), "1");
}

#[tokio::test]
async fn what_comes_in_a_batch_is_taken_one_by_one_by_a_client_and_refused_by_an_agent() {
    let (peer, mut other, mut told) = pair(Options::client());
    let (one, two) = (peer.begin("x", &json!({})).await, peer.begin("y", &json!({})).await);
    let ids = [other.read().await["id"].clone(), other.read().await["id"].clone()];
    let batch = json!([
        { "jsonrpc": "2.0", "id": ids[1], "result": 2 },
        { "jsonrpc": "2.0", "method": "said", "params": {} },
        7,
        [{ "jsonrpc": "2.0", "method": "nested" }],
        { "jsonrpc": "2.0", "id": "a", "method": "add", "params": { "of": [1, 2] } },
        { "jsonrpc": "2.0", "id": ids[0], "error": { "code": 3, "message": "no" } },
    ]);
    other.write(format!("{batch}\n").as_bytes()).await;
    assert_eq!(timeout(LONG, two.unwrap()).await.unwrap().unwrap().as_str(), "2");
    let refused = timeout(LONG, one.unwrap()).await.unwrap().unwrap_err();
    assert!(matches!(refused, CallFailure::Refused(error) if error.code == Code(3)));
    assert_eq!(told.recv().await.unwrap(), "said {}");
    assert_eq!(other.read().await["result"]["sum"], 3);
    while let Ok(line) = told.try_recv() {
        assert!(line.starts_with("ignored "), "{line}");
    }

    let (_peer, mut other, _told) = pair(Options::agent());
    other.write(format!("{batch}\n").as_bytes()).await;
    let refusal = other.read().await;
    assert_eq!((&refusal["id"], &refusal["error"]["code"]), (&Value::Null, &json!(-32600)));
}

#[tokio::test]
async fn a_batch_has_so_many_messages_and_what_is_behind_them_is_refused_as_one() {
    let (peer, mut other, mut told) = pair(Options::client());
    let said = r#"{"jsonrpc":"2.0","method":"said"}"#;
    let batch = vec![said; 3_000].join(",");
    let last = r#"{"jsonrpc":"2.0","method":"last"}"#;
    other.write(format!("[{batch}]\n{last}\n").as_bytes()).await;
    let mut count = 0;
    while told.recv().await.unwrap() == "said {}" {
        count += 1;
    }
    assert_eq!(count, 1_024);
    // The batch, and its rest.
    assert_eq!(peer.counters().invalid, 2);
}
