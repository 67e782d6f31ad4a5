//! The typed client of the Agent Client Protocol, against an agent whose every line the test writes.

mod agent_requests;
mod child;
mod ids;
mod sessions;
mod turns;

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf,
};
use trilogue_sdk::agent_client::{
    Client, ClientHandler, Error, Options, RejectAll, Session, SessionOptions,
};
use trilogue_testkit::schema::{Conversation, Side};

const LONG: Duration = Duration::from_secs(20);

pub(super) struct Agent {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    write: WriteHalf<DuplexStream>,
    /// Checks every message of the client against the official schema.
    conversation: Conversation,
}

impl Agent {
    pub(super) async fn read_message(&mut self) -> Value {
        let line = tokio::time::timeout(LONG, self.lines.next_line()).await.unwrap();
        let heard = serde_json::from_str(&line.unwrap().unwrap()).unwrap();
        let held = self.conversation.hold(&heard);
        held.map_err(|error| format!("{error:#}: {heard}")).unwrap();
        heard
    }

    /// Reads the next request, which must have this method. Returns its id and params.
    pub(super) async fn read_request(&mut self, method: &str) -> (Value, Value) {
        let heard = self.read_message().await;
        assert_eq!(heard["method"], method, "{heard}");
        (heard["id"].clone(), heard["params"].clone())
    }

    pub(super) async fn line(&mut self, line: &str) {
        if let Ok(message) = serde_json::from_str(line) {
            self.conversation.note(&message);
        }
        self.write.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    pub(super) async fn answer(&mut self, id: &Value, result: &Value) {
        self.line(&json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string()).await;
    }

    pub(super) async fn refuse(&mut self, id: &Value, error: &Value) {
        self.line(&json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string()).await;
    }

    pub(super) async fn ask(&mut self, id: u64, method: &str, params: &Value) {
        let call = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.line(&call.to_string()).await;
    }

    pub(super) async fn update(&mut self, session: &str, update: &Value) {
        let params = json!({ "sessionId": session, "update": update });
        let said = json!({ "jsonrpc": "2.0", "method": "session/update", "params": params });
        self.line(&said.to_string()).await;
    }

    /// Answers a call of the client. The client has then read everything that the agent wrote before.
    pub(super) async fn pinged(&mut self, session: &Session) {
        let nothing = json!({});
        let (pong, ()) = tokio::join!(session.client().extension("_ping", &nothing), async {
            let (id, _) = self.read_request("_ping").await;
            self.answer(&id, &json!({})).await;
        });
        pong.unwrap();
    }

    /// Sends a chunk of text, with an id unless it is empty.
    pub(super) async fn chunk(&mut self, kind: &str, id: &str, text: &str) {
        let mut chunk =
            json!({ "sessionUpdate": kind, "content": { "type": "text", "text": text } });
        if !id.is_empty() {
            chunk["messageId"] = json!(id);
        }
        self.update("s", &chunk).await;
    }
}

pub(super) fn pipes() -> (DuplexStream, Agent) {
    let (here, there) = tokio::io::duplex(64 * 1024);
    let (read, write) = tokio::io::split(there);
    let conversation = Conversation::holding(Side::Client);
    (here, Agent { lines: BufReader::new(read).lines(), write, conversation })
}

pub(super) async fn connect(
    can: Value,
    answers: impl ClientHandler,
    options: Options,
) -> (Result<Client, Error>, Agent) {
    let hello = json!({ "protocolVersion": 1, "agentCapabilities": can });
    connect_to(hello, answers, options).await
}

/// Connects a client to an agent that answers `initialize` with `hello`.
pub(super) async fn connect_to(
    hello: Value,
    answers: impl ClientHandler,
    options: Options,
) -> (Result<Client, Error>, Agent) {
    let (here, mut agent) = pipes();
    let (read, write) = tokio::io::split(here);
    let agent = async {
        let (id, _) = agent.read_request("initialize").await;
        agent.answer(&id, &hello).await;
        agent
    };
    tokio::join!(Client::connect(read, write, answers, options), agent)
}

/// Opens a session `s` with an agent that has these capabilities.
pub(super) async fn session(can: Value, answers: impl ClientHandler) -> (Session, Agent) {
    session_with(can, answers, Options::default()).await
}

pub(super) async fn session_with(
    can: Value,
    answers: impl ClientHandler,
    options: Options,
) -> (Session, Agent) {
    let (client, mut agent) = connect(can, answers, options).await;
    let client = client.unwrap();
    let opened = client.new_session(SessionOptions::new("/work"));
    let agent = async {
        let (id, params) = agent.read_request("session/new").await;
        assert_eq!(params, json!({ "cwd": "/work", "mcpServers": [] }));
        agent.answer(&id, &json!({ "sessionId": "s" })).await;
        agent
    };
    let (session, agent) = tokio::join!(opened, agent);
    (session.unwrap(), agent)
}

pub(super) async fn quiet_session() -> (Session, Agent) {
    session(json!({}), RejectAll).await
}
