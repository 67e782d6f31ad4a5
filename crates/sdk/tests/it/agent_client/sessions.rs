//! Connections and sessions: how they begin, and which calls are refused before anything is sent.

use serde_json::json;
use trilogue_sdk::agent_client::wire::{McpServer, McpServerHttp};
use trilogue_sdk::agent_client::{Error, Options, RejectAll, SessionOptions};

use super::{connect, connect_to, pipes};

#[tokio::test]
async fn another_version_ends_the_connection() {
    for version in [0, 2] {
        let hello = json!({ "protocolVersion": version });
        let (refused, mut agent) = connect_to(hello, RejectAll, Options::default()).await;
        assert!(matches!(refused, Err(Error::Version(other)) if other == version));
        assert_eq!(agent.lines.next_line().await.unwrap(), None);
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_says_nothing_is_given_up() {
    let (here, _agent) = pipes();
    let (read, write) = tokio::io::split(here);
    let refused =
        trilogue_sdk::agent_client::Client::connect(read, write, RejectAll, Options::default());
    assert!(matches!(refused.await, Err(Error::Closed)));
}

#[tokio::test]
async fn what_the_agent_does_not_offer_is_refused_with_the_capability() {
    let (client, mut agent) = connect(json!({}), RejectAll, Options::default()).await;
    let client = client.unwrap();
    let lacking = |error: Error| match error {
        Error::Lacks { capability, .. } => capability,
        other => unreachable!("{other}"),
    };
    let here = || SessionOptions::new("/work");
    let said = [
        lacking(client.load_session("s", here()).await.unwrap_err()),
        lacking(client.resume_session("s", here()).await.unwrap_err()),
        lacking(client.list_sessions(None, None).await.unwrap_err()),
        lacking(client.delete_session("s").await.unwrap_err()),
        lacking(client.logout().await.unwrap_err()),
        lacking(client.new_session(here().additional_directory("/more")).await.unwrap_err()),
    ];
    assert_eq!(
        said,
        [
            "agentCapabilities.loadSession",
            "agentCapabilities.sessionCapabilities.resume",
            "agentCapabilities.sessionCapabilities.list",
            "agentCapabilities.sessionCapabilities.delete",
            "agentCapabilities.auth.logout",
            "agentCapabilities.sessionCapabilities.additionalDirectories",
        ]
    );
    let http = McpServer::Http(McpServerHttp::new("n", "http://x", Vec::new()));
    for wrong in [here().mcp_server(http), SessionOptions::new("relative")] {
        assert!(matches!(client.new_session(wrong).await, Err(Error::Invalid(_))));
    }
    assert!(matches!(client.authenticate("any").await, Err(Error::Invalid(_))));
    // No request was sent.
    client.close().await;
    assert_eq!(agent.lines.next_line().await.unwrap(), None);
}

#[tokio::test]
async fn an_agent_that_wants_to_be_authenticated_with_is_and_then_opens_sessions() {
    let hello = json!({
        "protocolVersion": 1,
        "authMethods": [{ "id": "key", "name": "Key" }, { "type": "terminal", "id": "tty", "name": "Log in" }],
    });
    let (client, mut agent) = connect_to(hello, RejectAll, Options::default()).await;
    let client = client.unwrap();
    assert!(matches!(client.authenticate("tty").await, Err(Error::Invalid(_))));
    let agent = async {
        let (id, _) = agent.read_request("session/new").await;
        agent.refuse(&id, &json!({ "code": -32000, "message": "Authentication required" })).await;
        let (id, params) = agent.read_request("authenticate").await;
        assert_eq!(params, json!({ "methodId": "key" }));
        agent.answer(&id, &json!(null)).await;
        let (id, _) = agent.read_request("session/new").await;
        let modes = json!({ "currentModeId": "ask", "availableModes": [{ "id": "ask", "name": "Ask" }, { "id": "code", "name": "Code" }] });
        agent.answer(&id, &json!({ "sessionId": "s", "modes": modes })).await;
        let (id, params) = agent.read_request("session/set_mode").await;
        assert_eq!(params, json!({ "sessionId": "s", "modeId": "code" }));
        agent.answer(&id, &json!({})).await;
    };
    let user = async {
        let refused = client.new_session(SessionOptions::new("/work")).await;
        assert!(matches!(refused, Err(Error::AuthRequired(_))));
        client.authenticate("key").await.unwrap();
        let session = client.new_session(SessionOptions::new("/work")).await.unwrap();
        assert!(matches!(session.set_mode("none").await, Err(Error::Invalid(_))));
        assert!(matches!(session.set_config_option("none", "x").await, Err(Error::Invalid(_))));
        session.set_mode("code").await.unwrap();
    };
    tokio::join!(agent, user);
}

#[tokio::test]
async fn what_is_said_before_a_session_is_opened_belongs_to_it() {
    let (client, mut agent) = connect(json!({}), RejectAll, Options::default()).await;
    let client = client.unwrap();
    let agent = async {
        let (id, _) = agent.read_request("session/new").await;
        agent.chunk("agent_message_chunk", "m", "early").await;
        agent.answer(&id, &json!({ "sessionId": "s" })).await;
        agent.chunk("agent_message_chunk", "m", "late").await;
        agent
    };
    let (session, _agent) = tokio::join!(client.new_session(SessionOptions::new("/work")), agent);
    let session = session.unwrap();
    for text in ["early", "late"] {
        assert_eq!(session.next_update().await.unwrap().text(), text);
    }
}

#[tokio::test]
async fn a_lost_session_is_told_from_other_refusals() {
    let can = json!({ "loadSession": true, "sessionCapabilities": { "resume": {}, "delete": {} } });
    let (client, mut agent) = connect(can, RejectAll, Options::default()).await;
    let client = client.unwrap();
    let lost =
        json!({ "code": -32602, "message": "Invalid params", "data": "Session not found: s" });
    let agent = async {
        for method in ["session/load", "session/resume", "session/delete"] {
            let (id, _) = agent.read_request(method).await;
            agent.refuse(&id, &lost).await;
        }
        let (id, _) = agent.read_request("session/load").await;
        agent.refuse(&id, &json!({ "code": -32603, "message": "no" })).await;
    };
    let user = async {
        let here = || SessionOptions::new("/work");
        let loaded = client.load_session("s", here()).await.unwrap().finish().await;
        assert!(matches!(loaded, Err(Error::SessionLost { session, .. }) if session == "s"));
        let resumed = client.resume_session("s", here()).await;
        assert!(matches!(resumed, Err(Error::SessionLost { .. })));
        client.delete_session("s").await.unwrap();
        let loaded = client.load_session("s", here()).await.unwrap().finish().await;
        assert!(matches!(loaded, Err(Error::Refused(_))));
    };
    tokio::join!(agent, user);
}
