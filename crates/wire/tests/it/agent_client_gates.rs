//! The messages that each side may receive, according to its capabilities.

use serde_json::json;
use trilogue_wire::agent_client::*;

use super::agent_client_samples::{blocks, every_update};

fn typed<T: Read>(json: &serde_json::Value) -> T {
    read(json.to_string().as_bytes(), Rules::Strict).unwrap()
}

#[test]
fn a_method_opens_with_its_capability_and_no_other() {
    let agents = [
        ("logout", json!({ "auth": { "logout": {} } })),
        ("session/load", json!({ "loadSession": true })),
        ("session/resume", json!({ "sessionCapabilities": { "resume": {} } })),
        ("session/list", json!({ "sessionCapabilities": { "list": {} } })),
        ("session/delete", json!({ "sessionCapabilities": { "delete": {} } })),
        ("session/close", json!({ "sessionCapabilities": { "close": {} } })),
        ("session/fork", json!({ "sessionCapabilities": { "fork": {} } })),
        ("session/status", json!({ "sessionCapabilities": { "status": {} } })),
        ("session/set_title", json!({ "sessionCapabilities": { "title": {} } })),
        ("session/options", json!({ "sessionCapabilities": { "options": {} } })),
    ];
    let clients = [
        ("fs/read_text_file", json!({ "fs": { "readTextFile": true } })),
        ("fs/write_text_file", json!({ "fs": { "writeTextFile": true } })),
        ("terminal/create", json!({ "terminal": true })),
        ("terminal/release", json!({ "terminal": true })),
        ("elicitation/create", json!({ "elicitation": { "form": {} } })),
        ("elicitation/complete", json!({ "elicitation": { "url": {} } })),
    ];
    let open = |agent: &serde_json::Value, client: &serde_json::Value| -> Vec<&str> {
        let (agent, client) = (typed(agent), typed(client));
        let gated = METHODS.iter().filter(|method| method.gate.capability().is_some());
        gated
            .filter(|method| method.gate.is_open(&agent, &client))
            .map(|method| method.name)
            .collect()
    };
    assert_eq!(open(&json!({}), &json!({ "elicitation": {} })), Vec::<&str>::new());
    for (name, agent) in agents {
        assert_eq!(open(&agent, &json!({})), [name]);
    }
    let archive = json!({ "sessionCapabilities": { "archive": {} } });
    assert_eq!(open(&archive, &json!({})), ["session/archive", "session/unarchive"]);
    for (name, client) in clients {
        let open = open(&json!({}), &client);
        assert!(open.contains(&name), "{name}: {open:?}");
    }
    assert!(method("session/prompt").is_some_and(|method| method.gate == Gate::Open));
    assert_eq!(method("_x"), None);
}

#[test]
fn a_block_is_refused_by_the_capability_that_it_needs() {
    let all: PromptCapabilities =
        typed(&json!({ "image": true, "audio": true, "embeddedContext": true }));
    check_prompt(&blocks(), Some(&all)).unwrap();
    check_prompt(&[], None).unwrap();
    let refused = |block: &ContentBlock, agent| {
        check_prompt(&[ContentBlock::text("a"), block.clone()], agent)
    };
    let none = PromptCapabilities::new();
    let expected = [
        None,
        Some("image"),
        Some("audio"),
        None,
        Some("embeddedContext"),
        Some("embeddedContext"),
    ];
    for (block, needed) in blocks().iter().zip(expected) {
        for agent in [None, Some(&none)] {
            let message = needed.map(|needed| {
                format!(
                    "/prompt/1 is of the type {}, which needs promptCapabilities.{needed}",
                    block.kind()
                )
            });
            assert_eq!(refused(block, agent).err().map(|violation| violation.to_string()), message);
        }
    }
    let unknown: ContentBlock = typed(&json!({ "type": "hologram", "a": 1 }));
    let violation = refused(&unknown, Some(&all)).unwrap_err();
    assert_eq!((violation.path.as_str(), violation.error().code.0), ("/prompt/1/type", -32602));
}

#[test]
fn a_tool_server_is_refused_by_the_capability_that_it_needs() {
    let http = json!({ "type": "http", "name": "a", "url": "b", "headers": [] });
    let sse = json!({ "type": "sse", "name": "a", "url": "b", "headers": [] });
    let program = json!({ "name": "a", "command": "b", "args": [], "env": [] });
    let unknown = json!({ "type": "acp", "name": "a", "serverId": "b" });
    let check = |server: &serde_json::Value, agent: &serde_json::Value| {
        let agent = typed(agent);
        check_mcp_servers(&[typed(server)], Some(&agent)).map_err(|violation| violation.to_string())
    };
    let needs = |what: &str| Err(format!("/mcpServers/0 needs mcpCapabilities.{what}"));
    let none = json!({});
    assert_eq!(
        (check(&http, &none), check(&http, &json!({ "http": true }))),
        (needs("http"), Ok(()))
    );
    assert_eq!(
        (check(&sse, &json!({ "http": true })), check(&sse, &json!({ "sse": true }))),
        (needs("sse"), Ok(()))
    );
    assert_eq!(check(&program, &none), Ok(()));
    assert!(check(&unknown, &json!({ "http": true, "sse": true })).is_err());
}

#[test]
fn a_client_is_told_only_what_it_can_show() {
    let told = |client: serde_json::Value| -> Vec<String> {
        let client = typed(&client);
        let all = every_update();
        let hidden = all.iter().filter(|update| !update.is_for(&client));
        let mut hidden: Vec<_> = hidden.map(|update| update.kind().to_owned()).collect();
        hidden.dedup();
        hidden
    };
    let gated = [
        (json!({ "plan": {} }), &["plan_update", "plan_removed"][..]),
        (json!({ "session": { "notices": {} } }), &["notice"]),
        (
            json!({ "session": { "compaction": {} } }),
            &["compaction_update", "compaction_summary_chunk"],
        ),
        (
            json!({ "subagents": {} }),
            &["subagent_update", "session_message", "session_message_chunk"],
        ),
        (json!({ "session": { "promptSuggestions": {} } }), &["prompt_suggestions_update"]),
        (json!({ "session": { "cursors": {} } }), &["cursor_update"]),
    ];
    let all = told(json!({}));
    assert!(all.iter().eq(gated.iter().flat_map(|(_, kinds)| *kinds)), "{all:?}");
    for (client, kinds) in gated {
        let left = all.iter().filter(|kind| !kinds.contains(&kind.as_str()));
        assert_eq!(told(client), left.cloned().collect::<Vec<_>>());
    }
    let switch: SessionConfigOption =
        typed(&json!({ "type": "boolean", "id": "a", "name": "A", "currentValue": true }));
    assert!(!switch.is_for(&typed(&json!({}))));
    assert!(switch.is_for(&typed(&json!({ "session": { "configOptions": { "boolean": {} } } }))));
}

#[test]
fn an_answer_that_chooses_nothing_that_was_offered_allows_nothing() {
    let ask: RequestPermissionRequest = typed(&json!({
        "sessionId": "s",
        "toolCall": { "toolCallId": "c" },
        "options": [
            { "optionId": "always", "name": "A", "kind": "allow_always" },
            { "optionId": "no", "name": "N", "kind": "reject_once" },
        ],
    }));
    let kind = |answer: &RequestPermissionResponse| ask.chosen(answer).map(|option| option.kind);
    assert_eq!(
        kind(&RequestPermissionResponse::selected("no")),
        Some(PermissionOptionKind::RejectOnce)
    );
    assert_eq!(kind(&RequestPermissionResponse::selected("yes")), None);
    assert_eq!(kind(&RequestPermissionResponse::cancelled()), None);
    assert_eq!(
        kind(&typed(&json!({ "outcome": { "outcome": "allowed", "optionId": "always" } }))),
        None
    );
    assert!(ask.option(PermissionOptionKind::AllowOnce).is_none());
    assert_eq!(ask.option(PermissionOptionKind::RejectOnce).unwrap().option_id, "no");
    let allowing = PermissionOptionKind::ALL.iter().filter(|kind| kind.allows()).count();
    assert_eq!(allowing, 2);
}

#[test]
fn a_path_is_absolute_on_any_system() {
    for path in ["/", "/a", "C:\\a", "c:/a", "\\\\host\\share"] {
        assert!(is_absolute(path), "{path}");
    }
    for path in ["", "a", "./a", "~", "~/a", "C:", "C:a", "1:/a", "\\a", "file:///a"] {
        assert!(!is_absolute(path), "{path}");
    }
}
