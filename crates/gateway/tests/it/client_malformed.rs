//! Lines that are not messages, and invalid messages: each gets its response, and the connection stays open.

use serde_json::{Value, json};
use trilogue_gateway::ClientOptions;

use crate::client_editor::Editor;
use crate::rig::Rig;

/// A line, with the id and code of the expected error.
type Case<'a> = (&'a [u8], Option<(Value, i64)>);

async fn works(editor: &mut Editor, session: &str, after: &str) {
    let result = editor.prompt(session, "hello").await;
    assert_eq!(result["stopReason"], "end_turn", "after {after}");
}

fn error(id: Value, code: i64) -> Option<(Value, i64)> {
    Some((id, code))
}

#[tokio::test]
async fn every_malformed_line_gets_its_answer() {
    let rig = Rig::start().await;
    let (mut editor, session) = rig.editor_socket().open_session("puppet").await;
    let null = Value::Null;
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":"d","method":"session/list","params":{}1{}}}"#,
        "[".repeat(200),
        "]".repeat(200)
    );
    let cases: Vec<Case<'_>> = vec![
        (b"", None),
        (b"   \t", None),
        (b"npm warn something", error(null.clone(), -32700)),
        (b"{", error(null.clone(), -32700)),
        // Bytes that are not UTF-8 are replaced, and the request keeps its id.
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\xff\"}", error(json!(1), -32601)),
        (
            b"\x1b[0m{\"jsonrpc\":\"2.0\",\"id\":\"o\",\"method\":\"no/such\"}",
            error(json!("o"), -32601),
        ),
        (
            br#"{"jsonrpc":"2.0","method":"_x"}{"jsonrpc":"2.0","id":"b","method":"no/such"}"#,
            error(json!("b"), -32601),
        ),
        (b"\xff\xfe", error(null.clone(), -32700)),
        (b"5", error(null.clone(), -32600)),
        (b"\"text\"", error(null.clone(), -32600)),
        (b"[]", error(null.clone(), -32600)),
        (br#"[{"jsonrpc":"2.0","id":1,"method":"session/list"}]"#, error(null.clone(), -32600)),
        (b"{}", error(null.clone(), -32600)),
        (br#"{"id":1,"method":"session/list"}"#, error(null.clone(), -32600)),
        (br#"{"jsonrpc":"1.0","id":1,"method":"session/list"}"#, error(null.clone(), -32600)),
        (br#"{"jsonrpc":"2.0","id":true,"method":"session/list"}"#, error(null.clone(), -32600)),
        (br#"{"jsonrpc":"2.0","id":{},"method":"session/list"}"#, error(null.clone(), -32600)),
        (
            br#"{"jsonrpc":"2.0","id":"p","method":"session/list","params":5}"#,
            error(json!("p"), -32602),
        ),
        (
            br#"{"jsonrpc":"2.0","id":"q","method":"session/list","params":[1]}"#,
            error(json!("q"), -32602),
        ),
        (
            br#"{"jsonrpc":"2.0","id":"n","method":"session/new","params":null}"#,
            error(json!("n"), -32602),
        ),
        (br#"{"jsonrpc":"2.0","id":"m","method":"session/new"}"#, error(json!("m"), -32602)),
        (br#"{"jsonrpc":"2.0","id":"u","method":"no/such"}"#, error(json!("u"), -32601)),
        (br#"{"jsonrpc":"2.0","id":"e","method":"_no/such"}"#, error(json!("e"), -32601)),
        (br#"{"jsonrpc":"2.0","id":"f","method":"$/no"}"#, error(json!("f"), -32601)),
        (
            br#"{"jsonrpc":"2.0","id":"c","method":"session/cancel","params":{"sessionId":"x"}}"#,
            error(json!("c"), -32601),
        ),
        (
            br#"{"jsonrpc":"2.0","id":"v","method":"session/update","params":{}}"#,
            error(json!("v"), -32601),
        ),
        (
            br#"{"jsonrpc":"2.0","id":"w","method":"fs/read_text_file","params":{}}"#,
            error(json!("w"), -32601),
        ),
        (br#"{"jsonrpc":"2.0","method":"session/list"}"#, None),
        (br#"{"jsonrpc":"2.0","method":"session/prompt","params":{"sessionId":5}}"#, None),
        (br#"{"jsonrpc":"2.0","method":"no/such"}"#, None),
        (br#"{"jsonrpc":"2.0","method":"$/no","params":{}}"#, None),
        (br#"{"jsonrpc":"2.0","id":99,"result":{}}"#, None),
        (br#"{"jsonrpc":"2.0","id":"99","error":{"code":1,"message":"x"}}"#, None),
        (br#"{"jsonrpc":"2.0","id":1,"method":"x","result":{}}"#, error(null.clone(), -32600)),
        (deep.as_bytes(), error(json!("d"), -32700)),
        (
            br#"{"jsonrpc":"2.0","id":"s","method":"session/set_mode","params":{"sessionId":5}}"#,
            error(json!("s"), -32602),
        ),
        (
            br#"{"jsonrpc":"2.0","id":"t","method":"session/prompt","params":{"prompt":[]}}"#,
            error(json!("t"), -32602),
        ),
        (
            br#"{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"1"}}"#,
            error(json!("i"), -32602),
        ),
    ];
    for (line, expected) in cases {
        let shown = String::from_utf8_lossy(line).into_owned();
        editor.raw(&[line, b"\n"].concat()).await;
        if let Some((id, code)) = expected {
            let answer = editor.until(|it| it.get("error").is_some()).await;
            assert_eq!((&answer["id"], &answer["error"]["code"]), (&id, &json!(code)), "{shown}");
            assert!(!answer.to_string().contains("npm warn"), "nothing of the line comes back");
        }
        works(&mut editor, &session, &shown).await;
    }
}

#[tokio::test]
async fn ids_come_back_as_they_were_written() {
    let rig = Rig::start().await;
    let mut editor = rig.editor_socket().plain("puppet").await;
    for id in [
        "null",
        "1.5",
        "1.0",
        "-7",
        "9007199254740993",
        "18446744073709551615",
        "\"1\"",
        "\"a\\u0062\"",
    ] {
        let line =
            format!(r#"{{"extra":1,"jsonrpc":"2.0","id":{id},"id":{id},"method":"session/list"}}"#);
        editor.raw(format!("{line}\r\n").as_bytes()).await;
        let answer = editor.line().await.unwrap();
        assert!(
            answer.starts_with(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result""#)),
            "{answer}"
        );
    }
}

#[tokio::test]
async fn a_line_that_is_too_long_is_a_refusal_of_that_line() {
    let client = ClientOptions { max_line_bytes: 4096, ..ClientOptions::default() };
    let rig = Rig::with(client).await;
    let (mut editor, session) = rig.editor_socket().open_session("puppet").await;
    let prompt = editor.start_prompt(&session, &"x".repeat(10_000)).await;
    let answer = editor.answer(&prompt).await;
    assert_eq!(answer["error"]["code"], -32600, "{answer}");
    works(&mut editor, &session, "a long line").await;
}

#[tokio::test]
async fn what_a_prompt_or_session_carries_is_held_to_the_schema_with_its_tolerance() {
    let rig = Rig::start().await;
    let (mut editor, session) = rig.editor_socket().open_session("puppet").await;
    for bad in [
        json!([{"type": "hologram", "data": 1}]),
        json!([{"type": "text"}]),
        json!(["text"]),
        json!("text"),
        json!(null),
    ] {
        let params = json!({"sessionId": session, "prompt": bad});
        assert_eq!(editor.code("session/prompt", params).await, -32602, "{bad}");
    }
    for good in [
        json!([]),
        json!([{"type": "text", "text": "x", "annotations": "x", "unknown": 1}]),
        json!([{"type": "resource_link", "uri": "file:///a", "name": "a", "size": 1.0}]),
    ] {
        let params = json!({"sessionId": session, "prompt": good});
        editor.ok("session/prompt", params).await;
    }
    // A required list may be missing, except in strict mode.
    editor.ok("session/new", json!({"cwd": "/w"})).await;
    let servers = json!([{"name": "x"}]);
    let params = json!({"cwd": "/w", "mcpServers": servers});
    assert_eq!(editor.code("session/new", params).await, -32602);
    let client = ClientOptions { strict: true, ..ClientOptions::default() };
    let rig = Rig::with(client).await;
    let mut editor = rig.editor_socket().plain("puppet").await;
    assert_eq!(editor.code("session/new", json!({"cwd": "/w"})).await, -32602);
    works_strictly(&mut editor).await;
}

async fn works_strictly(editor: &mut Editor) {
    let session = editor.session().await;
    works(editor, &session, "strictness").await;
}
