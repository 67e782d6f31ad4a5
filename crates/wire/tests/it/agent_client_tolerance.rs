//! The tolerance for invalid messages, and their parsed values.

use serde_json::value::RawValue;
use serde_json::{Value, json};
use trilogue_wire::agent_client::*;
use trilogue_wire::jsonrpc::Payload;

/// Parses a text and writes the value again.
fn read_and_write<T: Read + Payload>(value: &Value) -> Result<Value, String> {
    let read = read::<T>(value.to_string().as_bytes(), Rules::Lenient);
    read.map(|read| serde_json::to_value(read).unwrap()).map_err(|violation| violation.to_string())
}

fn assert_becomes<T: Read + Payload>(from: &Value, to: Value) {
    assert_eq!(read_and_write::<T>(from), Ok(to), "{from}");
}

fn assert_refused<T: Read + Payload>(from: &Value, why: &str) {
    assert_eq!(read_and_write::<T>(from), Err(why.to_owned()), "{from}");
}

fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).unwrap()
}

#[test]
fn what_may_be_absent_and_does_not_fit_counts_as_absent() {
    for odd in [json!("x"), json!(7), json!(null), json!([1])] {
        assert_becomes::<ContentBlock>(
            &json!({ "type": "text", "text": "a", "_meta": odd }),
            json!({ "type": "text", "text": "a" }),
        );
        assert_becomes::<InitializeRequest>(
            &json!({ "protocolVersion": 1, "clientCapabilities": odd, "clientInfo": odd }),
            json!({ "protocolVersion": 1 }),
        );
        assert_becomes::<InitializeResponse>(
            &json!({ "protocolVersion": 1, "agentCapabilities": odd, "authMethods": odd, "agentInfo": odd }),
            json!({ "protocolVersion": 1 }),
        );
        assert_becomes::<NewSessionResponse>(
            &json!({ "sessionId": "s", "modes": odd, "configOptions": if odd.is_array() { json!("x") } else { odd.clone() } }),
            json!({ "sessionId": "s" }),
        );
        let id = if odd.is_string() { json!(null) } else { odd.clone() };
        assert_becomes::<SessionUpdate>(
            &json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": "a" }, "messageId": id }),
            json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": "a" } }),
        );
        assert_becomes::<SessionUpdate>(
            &json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "title": "t", "kind": odd, "status": odd, "locations": odd, "content": odd }),
            json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "title": "t" }),
        );
        assert_becomes::<PromptResponse>(
            &json!({ "stopReason": "end_turn", "userMessageId": if odd.is_string() { json!({}) } else { odd } }),
            json!({ "stopReason": "end_turn" }),
        );
    }
    assert_becomes::<AgentCapabilities>(
        &json!({ "loadSession": "true", "sessionCapabilities": { "list": true, "close": {}, "resume": null } }),
        json!({ "sessionCapabilities": { "close": {} } }),
    );
}

#[test]
fn optional_members_of_content_that_do_not_fit_are_kept_as_they_came_and_strict_refuses_them() {
    let link = |member: &str, value: Value| {
        let mut block = json!({ "type": "resource_link", "uri": "file:///a", "name": "a" });
        block[member] = value;
        block
    };
    for (block, path) in [
        (link("size", json!("12")), "/size"),
        (link("size", json!(1.5)), "/size"),
        (link("mimeType", json!(7)), "/mimeType"),
        (link("title", json!(["a"])), "/title"),
        (link("annotations", json!("x")), "/annotations"),
        (
            link("annotations", json!({ "audience": ["user", "robot", 7] })),
            "/annotations/audience/1",
        ),
        (link("annotations", json!({ "audience": "user" })), "/annotations/audience"),
        (link("annotations", json!({ "priority": "high", "more": 1 })), "/annotations/priority"),
        (link("annotations", json!({ "lastModified": 7 })), "/annotations/lastModified"),
        (json!({ "type": "image", "data": "AAAA", "mimeType": "image/png", "uri": 7 }), "/uri"),
    ] {
        assert_becomes::<ContentBlock>(&block, block.clone());
        let strict = read::<ContentBlock>(block.to_string().as_bytes(), Rules::Strict).unwrap_err();
        assert_eq!(strict.path, path, "{block}: {strict}");
    }
    let absent = json!({ "type": "resource_link", "uri": "file:///a", "name": "a" });
    assert_becomes::<ContentBlock>(&link("annotations", json!(null)), absent);
    // An unknown audience hides nothing.
    let robot = json!({ "audience": ["robot"] }).to_string();
    let annotations: Annotations = read(robot.as_bytes(), Rules::Lenient).unwrap();
    assert!(annotations.is_for(Role::User) && annotations.is_for(Role::Assistant));
}

#[test]
fn items_that_do_not_fit_are_left_out_where_the_schema_says_so() {
    assert_becomes::<SessionUpdate>(
        &json!({ "sessionUpdate": "plan", "entries": [
            { "content": "a", "priority": "high", "status": "pending" },
            { "content": "b", "priority": "urgent", "status": "pending" },
            { "content": "c", "priority": "low" }, 7, null,
        ] }),
        json!({ "sessionUpdate": "plan", "entries": [{ "content": "a", "priority": "high", "status": "pending" }] }),
    );
    assert_becomes::<SessionUpdate>(
        &json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c", "locations": [7, { "path": "/a", "line": -1 }],
            "content": [{ "type": "text", "text": "bare" }, { "type": "diff", "path": "/a" }, "x", { "type": "terminal", "terminalId": "t" }] }),
        // An unknown kind is kept; an invalid value of a known kind is not.
        json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c", "locations": [{ "path": "/a" }],
            "content": [{ "type": "text", "text": "bare" }, { "type": "terminal", "terminalId": "t" }] }),
    );
    assert_becomes::<SessionUpdate>(
        &json!({ "sessionUpdate": "session_message", "messageId": "m", "senderSessionId": null, "recipientSessionId": 7,
            "content": [7, { "type": "text", "text": "a" }] }),
        json!({ "sessionUpdate": "session_message", "messageId": "m", "senderSessionId": null,
            "content": [{ "type": "text", "text": "a" }] }),
    );
    assert_becomes::<SessionModeState>(
        &json!({ "currentModeId": "a", "availableModes": [{ "id": "a", "name": "A" }, { "id": "b" }] }),
        json!({ "currentModeId": "a", "availableModes": [{ "id": "a", "name": "A" }] }),
    );
    assert_becomes::<InitializeResponse>(
        &json!({ "protocolVersion": 1, "authMethods": [{ "id": "a", "name": "A" }, { "id": "b" }, { "type": "terminal", "id": "t", "name": "T", "args": [1] }] }),
        json!({ "protocolVersion": 1, "authMethods": [{ "id": "a", "name": "A" }] }),
    );
    for none in [json!(null), json!({}), json!([7])] {
        assert_becomes::<ListSessionsResponse>(
            &json!({ "sessions": none }),
            json!({ "sessions": [] }),
        );
    }
    assert_refused::<ListSessionsResponse>(&json!({}), "/sessions is missing");
}

#[test]
fn everything_else_is_strict_and_says_where() {
    let prompt = |prompt: Value| json!({ "sessionId": "s", "prompt": prompt });
    assert_refused::<PromptRequest>(&json!({ "prompt": [] }), "/sessionId is missing");
    assert_refused::<PromptRequest>(&prompt(json!(null)), "/prompt must be an array, not null");
    assert_refused::<PromptRequest>(
        &prompt(json!([{ "type": "text" }])),
        "/prompt/0/text is missing",
    );
    assert_refused::<PromptRequest>(&prompt(json!([{ "text": "a" }])), "/prompt/0/type is missing");
    assert_refused::<PromptRequest>(
        &prompt(json!([{ "type": 7 }])),
        "/prompt/0/type must be a string, not a number",
    );
    assert_refused::<PromptRequest>(
        &prompt(json!(["a"])),
        "/prompt/0 must be an object, not a string",
    );
    assert_refused::<PromptRequest>(
        &prompt(json!([{ "type": "resource", "resource": { "uri": "a", "text": null } }])),
        "/prompt/0/resource must have a string text or blob",
    );
    assert_becomes::<PromptRequest>(&prompt(json!([])), prompt(json!([])));
    assert_refused::<PromptRequest>(
        &json!({ "sessionId": "s", "prompt": [], "messageId": 7 }),
        "/messageId must be a string, not a number",
    );
    let permission = json!({ "sessionId": "s", "toolCall": { "toolCallId": "c" }, "options": [{ "optionId": "a", "name": "A", "kind": "maybe" }] });
    assert_refused::<RequestPermissionRequest>(
        &permission,
        "/options/0/kind must be one of allow_once allow_always reject_once reject_always",
    );
    assert_refused::<SessionUpdate>(
        &json!({ "sessionUpdate": "current_mode_update", "modeId": "a" }),
        "/currentModeId is missing",
    );
    assert_refused::<SessionUpdate>(
        &json!({ "sessionUpdate": "tool_call", "toolCallId": "c" }),
        "/title is missing",
    );
    assert_refused::<SessionUpdate>(
        &json!({ "sessionUpdate": "notice", "severity": "info", "title": "" }),
        "/title must not be empty",
    );
    for version in [json!("1"), json!(-1), json!(65536), json!(1.5), json!(null)] {
        assert!(
            read_and_write::<InitializeRequest>(&json!({ "protocolVersion": version })).is_err(),
            "{version}"
        );
    }
    assert_refused::<NewSessionRequest>(
        &json!({ "cwd": "/a", "mcpServers": [{ "name": "a", "command": "b", "args": [7], "env": [] }] }),
        "/mcpServers/0/args/0 must be a string, not a number",
    );
    assert_refused::<CreateElicitationRequest>(
        &json!({ "mode": "url", "message": "m", "elicitationId": "e", "url": "u" }),
        "the value must have a sessionId or a requestId",
    );
    assert_refused::<SetSessionConfigOptionRequest>(
        &json!({ "sessionId": "s", "configId": "c", "value": true }),
        "/type must be \"boolean\" where the value is one",
    );
    let long = "x".repeat(1000);
    let schema = json!({ "properties": { long: { "type": "string", "maxLength": "9" } } });
    assert!(read_and_write::<ElicitationSchema>(&schema).unwrap_err().len() < 200);
}

#[test]
fn null_and_absence_are_the_same_except_where_null_clears() {
    for servers in [
        json!({ "cwd": "/a" }),
        json!({ "cwd": "/a", "mcpServers": null, "additionalDirectories": null }),
    ] {
        assert_becomes::<NewSessionRequest>(&servers, json!({ "cwd": "/a", "mcpServers": [] }));
    }
    let strict = read::<NewSessionRequest>(br#"{"cwd":"/a"}"#, Rules::Strict);
    assert_eq!(strict.unwrap_err().to_string(), "/mcpServers is missing");
    assert!(read::<NewSessionRequest>(br#"{"cwd":"/a","mcpServers":null}"#, Rules::Strict).is_ok());
    assert_becomes::<CreateTerminalRequest>(
        &json!({ "sessionId": "s", "command": "ls", "args": null, "env": null, "cwd": null, "outputByteLimit": null }),
        json!({ "sessionId": "s", "command": "ls" }),
    );
    assert_becomes::<McpServer>(
        &json!({ "type": "http", "name": "a", "url": "b", "headers": null }),
        json!({ "type": "http", "name": "a", "url": "b", "headers": [] }),
    );
    let info = |title: Value| json!({ "sessionUpdate": "session_info_update", "title": title });
    assert_becomes::<SessionUpdate>(&info(json!(null)), info(json!(null)));
    assert_becomes::<SessionUpdate>(&info(json!("T")), info(json!("T")));
    assert_becomes::<SessionUpdate>(
        &info(json!(7)),
        json!({ "sessionUpdate": "session_info_update" }),
    );
    assert_becomes::<ToolCallUpdate>(
        &json!({ "toolCallId": "c", "content": null, "title": null }),
        json!({ "toolCallId": "c" }),
    );
    assert_becomes::<ToolCallUpdate>(
        &json!({ "toolCallId": "c", "content": [] }),
        json!({ "toolCallId": "c", "content": [] }),
    );
}

#[test]
fn nothing_is_an_empty_object_where_that_is_enough() {
    assert_eq!(read_params::<LogoutRequest>(None, Rules::Strict), Ok(LogoutRequest::new()));
    assert_eq!(
        read_params::<ListSessionsRequest>(None, Rules::Strict),
        Ok(ListSessionsRequest::new())
    );
    assert_eq!(
        read_params::<PromptRequest>(None, Rules::Lenient).unwrap_err().to_string(),
        "/sessionId is missing"
    );
    assert_eq!(
        read_params::<PromptRequest>(Some(&raw("[1]")), Rules::Lenient).unwrap_err().to_string(),
        "the value must be an object, not an array"
    );
    for json in ["null", "{}"] {
        assert_eq!(read_result(&raw(json), Rules::Strict), Ok(LoadSessionResponse::new()));
        assert_eq!(read_result(&raw(json), Rules::Strict), Ok(WriteTextFileResponse::new()));
        assert!(read_result::<PromptResponse>(&raw(json), Rules::Lenient).is_err());
        assert!(read_result::<NewSessionResponse>(&raw(json), Rules::Lenient).is_err());
    }
}

#[test]
fn numbers_are_whole_however_they_are_written() {
    let limit = |number: &str| {
        let text = format!(r#"{{"sessionId":"s","path":"/a","limit":{number}}}"#);
        read::<ReadTextFileRequest>(text.as_bytes(), Rules::Strict).map(|read| read.limit)
    };
    for (text, number) in
        [("1", 1), ("1.0", 1), ("1e2", 100), ("0", 0), ("-0", 0), ("4294967295", u32::MAX)]
    {
        assert_eq!(limit(text), Ok(Some(number)), "{text}");
    }
    for text in ["-1", "1.5", "4294967296", "\"1\"", "true", "1e99", "{}"] {
        assert!(limit(text).is_err(), "{text}");
    }
    let used = |number: &str| {
        let text = format!(r#"{{"used":{number},"size":0}}"#);
        read::<UsageUpdate>(text.as_bytes(), Rules::Strict).map(|usage| usage.used).ok()
    };
    assert_eq!(
        (used("18446744073709551615"), used("18446744073709551616")),
        (Some(u64::MAX), None)
    );
    let amount = |number: &str| {
        let text = format!(r#"{{"amount":{number},"currency":"USD"}}"#);
        serde_json::to_string(&read::<Cost>(text.as_bytes(), Rules::Strict).unwrap()).unwrap()
    };
    assert_eq!(
        (amount("1"), amount("1.0")),
        (r#"{"amount":1,"currency":"USD"}"#.into(), r#"{"amount":1.0,"currency":"USD"}"#.into())
    );
    for exact in ["8.88888888888889e+58", "0.1", "1.7976931348623157e+308", "5e-324"] {
        assert_eq!(amount(exact), format!(r#"{{"amount":{exact},"currency":"USD"}}"#));
    }
}

#[test]
fn variants_that_nobody_knows_are_kept_as_they_came() {
    let odd = r#"{ "b":1.50,"X" : "hologram", "a":{"b":[ ]} }"#;
    fn same<T: Read + Payload>(tag: &str, odd: &str) {
        let json = odd.replace('X', tag);
        let value = read::<T>(json.as_bytes(), Rules::Strict).unwrap();
        assert_eq!(serde_json::to_string(&value).unwrap(), json);
    }
    same::<ContentBlock>("type", odd);
    same::<ToolCallContent>("type", odd);
    same::<McpServer>("type", odd);
    same::<AuthMethod>("type", odd);
    same::<SessionConfigOption>("type", odd);
    same::<ElicitationPropertySchema>("type", odd);
    same::<MultiSelectItems>("type", odd);
    same::<SessionUpdate>("sessionUpdate", odd);
    same::<RequestPermissionOutcome>("outcome", odd);
    same::<CreateElicitationRequest>("mode", odd);
    same::<CreateElicitationResponse>("action", odd);
    assert_eq!(StopReason::parse("error").as_str(), "error");
    assert_becomes::<PromptResponse>(
        &json!({ "stopReason": "error" }),
        json!({ "stopReason": "error" }),
    );
    assert!(!StopReason::parse("error").is_known() && StopReason::EndTurn.is_known());
    let program = json!({ "type": "stdio", "name": "a", "command": "b", "args": [], "env": [] });
    assert!(matches!(read(program.to_string().as_bytes(), Rules::Strict), Ok(McpServer::Stdio(_))));
    let own = json!({ "type": "agent", "id": "a", "name": "A" });
    assert!(matches!(read(own.to_string().as_bytes(), Rules::Strict), Ok(AuthMethod::Agent(_))));
}

#[test]
fn content_is_read_as_the_document_says() {
    let text_wins = json!({ "resource": { "uri": "a", "blob": "aGk=", "text": "t" } });
    let read_it: EmbeddedResource = read(text_wins.to_string().as_bytes(), Rules::Strict).unwrap();
    assert!(
        matches!(&read_it.resource, ResourceContents::Text(text) if text.extra.get("blob").is_some())
    );
    assert_becomes::<EmbeddedResource>(
        &json!({ "resource": { "uri": "a", "blob": "b", "text": 7 } }),
        json!({ "resource": { "uri": "a", "blob": "b", "text": 7 } }),
    );
    for block in [
        json!({ "type": "image", "data": "not base64!", "mimeType": "image/png" }),
        json!({ "type": "audio", "data": "a", "mimeType": "audio/wav" }),
        json!({ "type": "resource", "resource": { "uri": "a", "blob": "%" } }),
    ] {
        assert_becomes::<ContentBlock>(&block, block.clone());
        let strict = read::<ContentBlock>(block.to_string().as_bytes(), Rules::Strict).unwrap_err();
        assert!(strict.message == "must be base64", "{strict}");
    }
    let half: ContentBlock = read(br#"{"type":"text","text":"a\ud800\n"}"#, Rules::Strict).unwrap();
    assert_eq!(half, ContentBlock::text("a\u{fffd}\n"));
    // The last of several members with one name counts, known or not.
    let twice: ContentBlock =
        read(br#"{"type":"x","text":"a","y":1,"text":"b","y":2,"type":"text"}"#, Rules::Strict)
            .unwrap();
    assert_eq!(serde_json::to_string(&twice).unwrap(), r#"{"type":"text","text":"b","y":2}"#);
    let annotated: ContentBlock = read(
        br#"{"type":"text","text":"a","annotations":{"audience":["assistant"]}}"#,
        Rules::Strict,
    )
    .unwrap();
    let annotations = annotated.annotations().unwrap();
    assert!(annotations.is_for(Role::Assistant) && !annotations.is_for(Role::User));
    assert!(Annotations::new().is_for(Role::User));
}

#[test]
fn what_is_attached_is_kept_and_found() {
    let meta: Meta =
        read(br#"{"traceparent":"00-\u0061","session_id":"EVIL","n":1.50,"n":2}"#, Rules::Strict)
            .unwrap();
    assert_eq!(meta.traceparent().as_deref(), Some("00-a"));
    assert_eq!((meta.text("n"), meta.get("n").map(Json::as_str)), (None, Some("2")));
    assert_eq!(
        serde_json::to_string(&meta).unwrap(),
        r#"{"traceparent":"00-\u0061","session_id":"EVIL","n":2}"#
    );
}

#[test]
fn calls_are_read_by_their_method_and_refused_with_the_documented_errors() {
    let ask = |method: &str, params: Option<&str>| {
        let params = params.map(raw);
        AgentRequest::read(method, params.as_deref(), Rules::Lenient)
            .map(|request| request.method().to_owned())
            .map_err(|refusal| refusal.error())
    };
    assert_eq!(
        ask("session/prompt", Some(r#"{"sessionId":"s","prompt":[]}"#)),
        Ok("session/prompt".to_owned())
    );
    assert_eq!(ask("_own/x", None), Ok("_own/x".to_owned()));
    assert_eq!(ask("session/later", Some("[1]")), Ok("session/later".to_owned()));
    let error = ask("session/prompt", None).unwrap_err();
    assert_eq!(
        (error.code.0, error.message.as_str()),
        (-32602, "Invalid params: /sessionId is missing")
    );
    assert_eq!(error.data.unwrap().as_str(), r#"{"path":"/sessionId","reason":"is missing"}"#);
    // Notifications with an id, and requests for the other side.
    for method in ["session/cancel", "$/cancel_request", "fs/read_text_file", "session/update"] {
        let error = ask(method, Some("{}")).unwrap_err();
        assert_eq!(error.code.0, -32601);
        assert_eq!(error.data.unwrap().as_str(), format!(r#"{{"method":"{method}"}}"#));
    }
    let told = |method: &str| AgentNotification::read(method, None, Rules::Lenient);
    assert!(matches!(told("session/prompt"), Err(Refusal::NoSuchMethod(_))));
    assert!(matches!(told("session/cancel"), Err(Refusal::Params(_))));
    assert!(matches!(told("$/other"), Ok(AgentNotification::Extension(_))));
    let params = raw(r#"{"requestId":1.50}"#);
    let cancel =
        ClientNotification::read("$/cancel_request", Some(&params), Rules::Strict).unwrap();
    assert_eq!(serde_json::to_string(&cancel).unwrap(), params.get());
}
