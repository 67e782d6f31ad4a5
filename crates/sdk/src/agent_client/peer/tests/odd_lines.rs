//! Lines that are more or less than one message.

use super::*;

const A: &str = r#"{"jsonrpc":"2.0","method":"a","params":{"x":1}}"#;
const B: &str = r#"{"jsonrpc":"2.0","method":"b","params":{"x":2}}"#;

async fn received(heard: &mut mpsc::UnboundedReceiver<String>, count: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for _ in 0..count {
        lines.push(timeout(LONG, heard.recv()).await.unwrap().unwrap());
    }
    lines
}

#[tokio::test]
async fn both_sides_find_the_messages_of_a_line() {
    for options in [Options::client(), Options::agent()] {
        let (_peer, mut other, mut heard) = pair(options);
        other.write(format!("\x1b[2K\x1b]0;t\x07{A} {B}\x1b[0m\n{A}\n").as_bytes()).await;
        let expected = [
            "ignored noise: \x1b[2K\x1b]0;t\x07",
            r#"a {"x":1}"#,
            r#"b {"x":2}"#,
            "ignored noise: \x1b[0m",
            r#"a {"x":1}"#,
        ];
        assert_eq!(received(&mut heard, 5).await, expected);
    }
}

#[tokio::test]
async fn both_sides_keep_a_message_with_broken_text() {
    for options in [Options::client(), Options::agent()] {
        let (_peer, mut other, mut heard) = pair(options);
        let mut line = br#"{"jsonrpc":"2.0","method":"a","params":{"x":"cut "#.to_vec();
        line.extend_from_slice(b"\xe4\xbd\",\"y\":1}}\n");
        other.write(&line).await;
        let lines = received(&mut heard, 2).await;
        assert!(lines[0].starts_with("ignored replaced_bytes: "), "{lines:?}");
        assert_eq!(lines[1], "a {\"x\":\"cut \u{fffd}\",\"y\":1}");
    }
}

#[tokio::test]
async fn a_log_line_with_the_id_of_a_call_does_not_end_it() {
    let (peer, mut other, mut heard) = pair(Options::client());
    let call = peer.begin("x", &json!({})).await.unwrap();
    let id = other.read().await["id"].clone();
    other.write(format!("{{\"id\":{id},\"level\":\"info\"}}\n").as_bytes()).await;
    let lines = received(&mut heard, 1).await;
    assert!(lines[0].starts_with("ignored bad_version: "), "{lines:?}");
    let broken = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"x\":\"");
    other.write(&[broken.as_bytes(), b"\xff\"}}\n"].concat()).await;
    assert_eq!(timeout(LONG, call).await.unwrap().unwrap().as_str(), "{\"x\":\"\u{fffd}\"}");
}

#[tokio::test]
async fn a_line_without_a_message_is_answered_by_an_agent_and_ignored_by_a_client() {
    let (_peer, mut other, mut heard) = pair(Options::client());
    other.write(format!("npm warn {{\"x\":1}}\n{A}\n").as_bytes()).await;
    let ignored = "ignored noise: npm warn {\"x\":1}";
    assert_eq!(received(&mut heard, 2).await, [ignored, r#"a {"x":1}"#]);
    let (_peer, mut other, mut heard) = pair(Options::agent());
    other.write(b"npm warn\n").await;
    assert_eq!(received(&mut heard, 1).await, ["ignored not_json: npm warn"]);
    assert_eq!(other.read().await["error"]["code"], -32700);
}
