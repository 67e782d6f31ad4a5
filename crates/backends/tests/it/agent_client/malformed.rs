//! Agents that violate their protocol: each violation has a defined response, and the session survives.

use std::time::Duration;

use serde_json::{Value, json};
use trilogue_domain::event::{StateEvent, ToolEvent};
use trilogue_domain::{Body, RunStatus, ThreadId};
use trilogue_mapping::agent_client::LINE;

use super::rig::{Rig, until_async};
use crate::harness::{DEADLINE, failure};

/// How a prompt with such a response ends.
enum ExpectedEnd {
    Well,
    /// It fails, with this text in the reason.
    Badly(&'static str),
}

/// Checks that the session still exists, in the same process.
async fn lives_on(rig: &Rig, thread: &ThreadId, pid: &str, what: &str) {
    let run = rig.run(thread, "pid").await;
    assert_eq!((run.status, &*rig.reply_text(&run).await), (RunStatus::Completed, pid), "{what}");
}

async fn begin(flags: &[&str]) -> (Rig, ThreadId, String) {
    let rig = Rig::with(flags, |launch| launch.max_line_bytes = 100_000).await;
    let thread = rig.thread().await;
    let run = rig.run(&thread, "pid").await;
    let pid = rig.reply_text(&run).await;
    (rig, thread, pid)
}

#[tokio::test]
async fn every_answer_of_a_prompt_ends_it() {
    let (rig, thread, pid) = begin(&[]).await;
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":ID,"result":{{"stopReason":"end_turn","x":{}{}}}}}"#,
        "[".repeat(5_000),
        "]".repeat(5_000)
    );
    let long = format!(
        r#"{{"jsonrpc":"2.0","id":ID,"result":{{"stopReason":"end_turn","x":"{}"}}}}"#,
        "x".repeat(200_000)
    );
    let well = r#""result":{"stopReason":"end_turn"}"#;
    let cases: Vec<(&str, String, ExpectedEnd)> = vec![
        ("as it should be", format!(r#"{{"jsonrpc":"2.0","id":ID,{well}}}"#), ExpectedEnd::Well),
        ("id as text", format!(r#"{{"jsonrpc":"2.0","id":"ID",{well}}}"#), ExpectedEnd::Well),
        ("id with a fraction", format!(r#"{{"jsonrpc":"2.0","id":ID.0,{well}}}"#), ExpectedEnd::Well),
        ("batch", format!(r#"[{{"jsonrpc":"2.0","id":ID,{well}}}]"#), ExpectedEnd::Well),
        (
            "neither result nor error",
            r#"{"jsonrpc":"2.0","id":ID,"resalt":1}"#.to_owned(),
            ExpectedEnd::Badly("neither a result nor an error"),
        ),
        (
            "call and answer at once",
            format!(r#"{{"jsonrpc":"2.0","id":ID,"method":"x",{well}}}"#),
            ExpectedEnd::Badly("a call and a response"),
        ),
        (
            "batch with an update, a request and noise",
            format!(
                r#"[1,{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"SESSION","update":{{"sessionUpdate":"plan","entries":[]}}}}}},{{"jsonrpc":"2.0","id":9,"method":"_x"}},[],{{"jsonrpc":"2.0","id":ID,{well}}}]"#
            ),
            ExpectedEnd::Well,
        ),
        ("error null", format!(r#"{{"jsonrpc":"2.0","id":ID,{well},"error":null}}"#), ExpectedEnd::Well),
        (
            "result and error",
            format!(
                r#"{{"jsonrpc":"2.0","id":ID,{well},"error":{{"code":-32603,"message":"both"}}}}"#
            ),
            ExpectedEnd::Badly("result and an error"),
        ),
        ("no version", format!(r#"{{"id":ID,{well}}}"#), ExpectedEnd::Well),
        (
            "code as text",
            r#"{"jsonrpc":"2.0","id":ID,"error":{"code":"-32603","message":"as text"}}"#.to_owned(),
            ExpectedEnd::Badly("as text"),
        ),
        (
            "no message",
            r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32603}}"#.to_owned(),
            ExpectedEnd::Badly(""),
        ),
        (
            "error as text",
            r#"{"jsonrpc":"2.0","id":ID,"error":"broken"}"#.to_owned(),
            ExpectedEnd::Badly(""),
        ),
        (
            "unknown stop",
            r#"{"jsonrpc":"2.0","id":ID,"result":{"stopReason":"from_the_future"}}"#.to_owned(),
            ExpectedEnd::Well,
        ),
        (
            "null",
            r#"{"jsonrpc":"2.0","id":ID,"result":null}"#.to_owned(),
            ExpectedEnd::Badly("is invalid"),
        ),
        (
            "no stop",
            r#"{"jsonrpc":"2.0","id":ID,"result":{}}"#.to_owned(),
            ExpectedEnd::Badly("is invalid"),
        ),
        (
            "more at the root",
            r#"{"jsonrpc":"2.0","id":ID,"x":1,"result":{"stopReason":"end_turn","userMessageId":7,"usage":null,"_meta":3}}"#.to_owned(),
            ExpectedEnd::Well,
        ),
        (
            "the same name twice",
            format!(r#"{{"jsonrpc":"1.0","jsonrpc":"2.0","id":"no","id":ID,{well}}}"#),
            ExpectedEnd::Well,
        ),
        (
            "half of a character",
            r#"{"jsonrpc":"2.0","id":ID,"result":{"stopReason":"end_turn","x":"\ud800"}}"#.to_owned(),
            ExpectedEnd::Well,
        ),
        (
            "broken text",
            r#"{"jsonrpc":"2.0","id":ID,"result":{"stopReason":"end_turn","_meta":{"x":"cut «e4bd»"}}}"#.to_owned(),
            ExpectedEnd::Well,
        ),
        (
            "behind an escape sequence",
            format!("\x1b[0m{{\"jsonrpc\":\"2.0\",\"id\":ID,{well}}}"),
            ExpectedEnd::Well,
        ),
        (
            "behind another message",
            format!(r#"{{"jsonrpc":"2.0","method":"_x"}}{{"jsonrpc":"2.0","id":ID,{well}}}"#),
            ExpectedEnd::Well,
        ),
        (
            "behind a log line with its id",
            format!(r#"{{"id":ID,"level":"info"}}¶{{"jsonrpc":"2.0","id":ID,{well}}}"#),
            ExpectedEnd::Well,
        ),
        ("too deep", deep, ExpectedEnd::Badly("deep")),
        ("too long", long, ExpectedEnd::Badly("longer")),
        ("another line end", format!("{{\"jsonrpc\":\"2.0\",\"id\":ID,{well}}}\r"), ExpectedEnd::Well),
    ];
    for (what, line, ends) in cases {
        let begun = rig.begin(&thread, &format!("respond:{line}")).await;
        let ended = tokio::time::timeout(DEADLINE, begun.settled.wait()).await;
        let run = ended.unwrap_or_else(|_| panic!("{what}: it is not over")).unwrap();
        match ends {
            ExpectedEnd::Well => {
                assert_eq!(run.status, RunStatus::Completed, "{what}: {:?}", run.outcome);
            }
            ExpectedEnd::Badly(why) => {
                assert_eq!(run.status, RunStatus::Failed, "{what}");
                let message = failure(&run).message;
                assert!(message.contains(why), "{what}: {message}");
            }
        }
        // The agent still waits to be cancelled. Its answer then belongs to no prompt, and the next prompt waits for it.
        stop_waiting(&rig, &thread).await;
        lives_on(&rig, &thread, &pid, what).await;
    }
    rig.end().await;
}

/// Makes the agent end the turn that it has already answered.
async fn stop_waiting(rig: &Rig, thread: &ThreadId) {
    let context = rig.context(thread).await;
    let params = super::rig::json(r#"{"sessionId":""}"#);
    rig.sessions()
        .notify(Some(&context), &super::rig::caller("{}"), "session/cancel", params)
        .await;
}

#[tokio::test]
async fn an_answer_over_several_lines_is_none_and_the_prompt_can_be_cancelled() {
    let (rig, thread, pid) = begin(&["--heard", "{store}-heard"]).await;
    let line =
        r#"respond:{¶  "jsonrpc": "2.0",¶  "id": ID,¶  "result": { "stopReason": "end_turn" }¶}"#;
    let begun = rig.begin(&thread, &format!("say:before\n{line}")).await;
    let run = rig.store.run(&rig.by.scope(), &begun.run.id).await.unwrap().unwrap();
    until_async("it says something", async || rig.reply_text(&run).await == "before").await;
    let run = rig.cancel(&run).await;
    assert_eq!(run.status, RunStatus::Cancelled);
    lives_on(&rig, &thread, &pid, "over several lines").await;
    rig.end().await;
}

/// Unknown or malformed updates.
const UPDATES: [&str; 18] = [
    r#"{"sessionUpdate":"from_the_future","x":1}"#,
    r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"from_the_future"}}"#,
    r#"{"sessionUpdate":"agent_message_chunk","content":"bare"}"#,
    r#"{"sessionUpdate":"agent_message_chunk"}"#,
    r#"{"sessionUpdate":"tool_call","toolCallId":"c"}"#,
    r#"{"sessionUpdate":"tool_call","title":"no id"}"#,
    r#"{"sessionUpdate":"tool_call","toolCallId":"k","title":"t","kind":"from_the_future","status":"unheard_of"}"#,
    r#"{"sessionUpdate":"tool_call_update","toolCallId":"never seen","status":"completed","content":[{"type":"text","text":"bare"},7,null]}"#,
    r#"{"sessionUpdate":"current_mode_update","modeId":"code"}"#,
    r#"{"sessionUpdate":"plan","entries":[{"content":"no status"},7]}"#,
    r#"{"sessionUpdate":"plan_update","plan":{"type":"items","planId":"p"}}"#,
    r#"{"sessionUpdate":"notice","severity":"unheard_of","title":""}"#,
    r#"{"sessionUpdate":"config_option_update","configOptions":"none"}"#,
    r#"{"sessionUpdate":"usage_update","used":1.0,"size":"large"}"#,
    r#"{"sessionUpdate":7}"#,
    r#"{}"#,
    r#"null"#,
    r#"[]"#,
];

/// Lines that are not valid notifications. `SESSION` is the session's id.
const LINES: [&str; 19] = [
    r#"{"jsonrpc":"2.0","id":"u11","method":"_x","result":{}}"#,
    r#"{"jsonrpc":"2.0","id":{"not":"an id"},"method":"_x"}"#,
    r#"{"jsonrpc":"2.0","method":"session/update"}"#,
    r#"{"jsonrpc":"2.0","method":"session/update","params":7}"#,
    r#"{"jsonrpc":"2.0","method":"session/update","params":null}"#,
    r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":7,"update":{}}}"#,
    r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"somebody else's","update":{}}}"#,
    r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"SESSION"}}"#,
    r#"{"method":"session/update","params":{"sessionId":"SESSION","update":{}}}"#,
    r#"{"jsonrpc":"2.0","method":7}"#,
    r#"{"jsonrpc":"2.0","method":"fs/read_text_file","params":{"sessionId":"SESSION","path":"/etc/passwd"}}"#,
    r#"{"jsonrpc":"2.0","method":"$/from_the_future","params":{}}"#,
    r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"never asked"}}"#,
    r#"{"jsonrpc":"2.0","id":123456,"result":{}}"#,
    r#"{"jsonrpc":"2.0","id":"not ours","error":{"code":1,"message":"x"}}"#,
    r#"{"jsonrpc":"2.0"}"#,
    r#"7"#,
    r#"[]"#,
    r#"[7,"x",{}]"#,
];

#[tokio::test]
async fn whatever_is_said_wrongly_ends_nothing() {
    let (rig, thread, pid) = begin(&[]).await;
    for update in UPDATES {
        let run = rig.run(&thread, &format!("raw:{update}\nsay:behind")).await;
        assert_eq!(run.status, RunStatus::Completed, "{update}");
        let said = rig.messages(&run).await.last().map(trilogue_domain::Message::text);
        assert_eq!(said.as_deref(), Some("behind"), "{update}");
        // The update is kept unchanged, because clients may know it.
        let wanted: Value = serde_json::from_str(update).unwrap();
        let originals = rig.originals(&run).await;
        let kept = originals.iter().any(|original| {
            let value: Value = serde_json::from_str(original).unwrap();
            let mut kept = value.get("update").cloned().unwrap_or_default();
            if let (Some(kept), None) = (kept.as_object_mut(), wanted.get("messageId")) {
                kept.remove("messageId");
            }
            kept == wanted
        });
        assert!(kept, "{update}: {originals:?}");
        lives_on(&rig, &thread, &pid, update).await;
    }
    for line in LINES {
        let run = rig.run(&thread, &format!("put:{line}\nsay:behind")).await;
        assert_eq!(run.status, RunStatus::Completed, "{line}");
        assert_eq!(rig.reply_text(&run).await, "behind", "{line}");
        lives_on(&rig, &thread, &pid, line).await;
    }
    rig.end().await;
}

/// The line of a chunk with this text, which is JSON without its quotes.
fn chunk(text: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"SESSION","update":{{"sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":"{text}"}}}}}}}}"#
    )
}

#[tokio::test]
async fn the_messages_of_odd_lines_arrive_and_the_rest_is_noted() {
    let (rig, thread, pid) = begin(&[]).await;
    let cases: Vec<(Vec<String>, &str, &[&str])> = vec![
        (vec![format!("\x1b[2K\x1b]0;title\x07{}", chunk("a"))], "a", &["noise"]),
        (vec![format!("loading... {}", chunk("a"))], "a", &["noise"]),
        (vec![format!("{}{}", chunk("a"), chunk("b"))], "ab", &[]),
        (vec![format!("{} {}\x1b[0m", chunk("a"), chunk("b"))], "ab", &["noise"]),
        (vec!["npm warn".to_owned(), chunk("a")], "a", &["noise"]),
        (vec![r#"{"id":ID,"level":"info"}"#.to_owned(), chunk("a")], "a", &["bad_version"]),
        (vec![r#"{"jsonrpc":"2.0","method":7}"#.to_owned(), chunk("a")], "a", &["bad_method"]),
        (vec!["{«ff»".to_owned(), chunk("a")], "a", &["not_utf8"]),
        (vec![chunk("cut «e4bd»!")], "cut \u{fffd}!", &[]),
        (vec![chunk("ok «f09f»"), chunk("«9880»!")], "ok 😀!", &[]),
        (vec![chunk("ok "), chunk(r"\ud83d"), chunk(r"\ude00")], "ok 😀", &[]),
        (vec![chunk(r"a\ud83d"), chunk("b")], "a\u{fffd}b", &[]),
        (vec![chunk(""), chunk("a"), chunk("")], "a", &[]),
    ];
    for (lines, said, reasons) in cases {
        let script: Vec<_> = lines.iter().map(|line| format!("put:{line}")).collect();
        let run = rig.run(&thread, &script.join("\n")).await;
        assert_eq!((run.status, &*rig.reply_text(&run).await), (RunStatus::Completed, said));
        let noted = rig.custom(&run, "ignored_line").await;
        let noted: Vec<_> = noted.iter().map(|data| data.to_value()["reason"].clone()).collect();
        assert_eq!(noted, reasons, "{lines:?}");
        lives_on(&rig, &thread, &pid, &lines.join(" ")).await;
    }
    rig.end().await;
}

#[tokio::test]
async fn a_line_with_broken_text_is_kept_as_it_arrived() {
    let (rig, thread, _) = begin(&[]).await;
    let run = rig.run(&thread, &format!("put:{}", chunk("cut «e4bd»"))).await;
    let kept = rig.events(&run).await.into_iter().find_map(|event| {
        let original = event.original.filter(|original| &*original.dialect == LINE)?;
        Some((original.bytes, event.body))
    });
    let (line, body) = kept.unwrap();
    assert!(line.windows(6).any(|bytes| bytes == b"cut \xe4\xbd"), "{line:?}");
    let Body::State(StateEvent::Custom { kind, data }) = body else { panic!("{body:?}") };
    assert_eq!((&*kind, data.to_value()), ("replaced_bytes", json!({ "bytes": line.len() })));
    rig.end().await;
}

#[tokio::test]
async fn half_of_a_character_in_one_member_changes_no_other() {
    let (rig, thread, _) = begin(&[]).await;
    let usage = r#"{"sessionUpdate":"usage_update","used":10,"size":100,"_meta":{"x":"\ud83d"}}"#;
    let tool = r#"{"sessionUpdate":"tool_call","toolCallId":"k","title":"cut \ud83d","rawInput":{"x":"\ud83d","y":1}}"#;
    let run = rig.run(&thread, &format!("raw:{usage}\nraw:{tool}")).await;
    let usage = rig.custom(&run, "usage_update").await;
    assert_eq!((&usage[0].to_value()["used"], usage.len()), (&json!(10), 1));
    let started = rig.events(&run).await.into_iter().find_map(|event| match event.body {
        Body::Tool(ToolEvent::Started { title, input, .. }) => Some((title, input)),
        _ => None,
    });
    let (title, input) = started.unwrap();
    assert_eq!(title, "cut \u{fffd}");
    assert_eq!(input.unwrap().to_value(), json!({ "x": "\u{fffd}", "y": 1 }));
    rig.end().await;
}

#[tokio::test]
async fn an_empty_chunk_begins_no_message() {
    let (rig, thread, _) = begin(&[]).await;
    let run = rig.run(&thread, &format!("put:{}", chunk(""))).await;
    assert_eq!(run.status, RunStatus::Completed);
    assert_eq!(rig.started_message_ids(&run).await, Vec::<String>::new());
    rig.end().await;
}

#[tokio::test]
async fn whatever_is_asked_wrongly_is_answered_as_it_should_be() {
    let permission = |options: Value| json!({ "sessionId": "SESSION", "toolCall": { "toolCallId": "c" }, "options": options });
    let asks = |id: &str, method: &str, params: Value| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
    };
    let session = json!({ "sessionId": "SESSION" });
    let unknown_kind = json!([{ "optionId": "o", "name": "O", "kind": "from_the_future" }]);
    let refused: Vec<(&str, String, i64)> = vec![
        (r#""u1""#, asks(r#""u1""#, "_from/the_future", session.clone()), -32601),
        ("1.5", asks("1.5", "_x", session.clone()), -32601),
        ("9007199254740993", asks("9007199254740993", "_x", session.clone()), -32601),
        (r#""u2""#, asks(r#""u2""#, "session/update", session.clone()), -32601),
        (r#""u3""#, asks(r#""u3""#, "$/from_the_future", session.clone()), -32601),
        (r#""u4""#, asks(r#""u4""#, "_x", json!(7)), -32602),
        (
            r#""u5""#,
            asks(r#""u5""#, "session/request_permission", permission(unknown_kind)),
            -32602,
        ),
        (
            r#""u6""#,
            asks(r#""u6""#, "session/request_permission", permission(json!("none"))),
            -32602,
        ),
        (r#""u7""#, asks(r#""u7""#, "session/request_permission", session.clone()), -32602),
        (r#""u8""#, asks(r#""u8""#, "elicitation/create", session.clone()), -32602),
        (r#""u9""#, asks(r#""u9""#, "fs/read_text_file", session.clone()), -32601),
        (r#""u10""#, asks(r#""u10""#, "terminal/create", session), -32601),
    ];
    let (rig, thread, pid) = begin(&["--heard", "{store}-heard"]).await;
    for (id, line, code) in refused {
        let run = rig.run(&thread, &format!("put:{line}\nsay:behind")).await;
        assert_eq!(
            (run.status, &*rig.reply_text(&run).await),
            (RunStatus::Completed, "behind"),
            "{line}"
        );
        lives_on(&rig, &thread, &pid, &line).await;
        let answer = answer(&rig, id).await;
        assert_eq!(answer["error"]["code"], code, "{line}: {answer}");
        assert!(answer["error"]["message"].is_string(), "{line}: {answer}");
    }
    // A request for an unknown session is not forwarded.
    let strangers = json!({ "sessionId": "x", "toolCall": { "toolCallId": "c" }, "options": [] });
    let line = asks(r#""s1""#, "session/request_permission", strangers);
    rig.run(&thread, &format!("put:{line}")).await;
    lives_on(&rig, &thread, &pid, &line).await;
    let answer = answer(&rig, r#""s1""#).await;
    assert_eq!(answer["result"]["outcome"]["outcome"], "cancelled", "{answer}");
    rig.end().await;
}

/// The response that the agent received under this id, as the agent echoes it.
pub(super) async fn answer(rig: &Rig, id: &str) -> Value {
    let end = tokio::time::Instant::now() + DEADLINE;
    loop {
        let heard = std::fs::read_to_string(rig.path("sessions-heard")).unwrap();
        let named = format!(r#""id":{id},"#);
        let named = heard.lines().filter(|line| line.contains(&named));
        let mut answers = named.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        if let Some(answer) = answers.find(|answer| answer.get("method").is_none()) {
            return answer;
        }
        assert!(tokio::time::Instant::now() < end, "{id} is not answered");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
