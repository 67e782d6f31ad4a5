//! The operations, and how a client makes each.

use anyhow::Result;
use serde_json::json;
use trilogue_testkit::Server;

use super::callgrind::{self, CountedServer};
use super::record::Costs;
use crate::client::ServerSession;
use crate::communication::RUNS as COMMUNICATION_RUNS;
use crate::connect::BASE as CONNECT;
use crate::echo::RUNS as NATIVE_RUNS;
use crate::flow::{self, Flow};
use crate::load;
use crate::report::DISK;

/// How often an operation is made before the counts begin, so that pools and caches are full.
pub(super) const WARM_UP: u64 = 300;
/// How often it is counted.
const COUNTED: u64 = 200;
/// Updates of one turn. The same number of turns is too few for them.
const UPDATES: u64 = 2_000;

/// What a client does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Action {
    /// A synchronous run of `echo` through `/api/v1`.
    Native,
    /// The same through the Agent Communication Protocol.
    Communication,
    /// A run of `echo` that is created and awaited through the Agent Connect Protocol.
    Connect,
    /// A turn of one update with a hosted agent of the Agent Client Protocol.
    Turn,
    /// One of many updates of a turn.
    Update,
}

/// An operation with a store.
#[derive(Clone, Copy, Debug)]
pub(super) struct CountedOperation {
    action: Action,
    is_durable: bool,
}

const fn operation(action: Action, is_durable: bool) -> CountedOperation {
    CountedOperation { action, is_durable }
}

pub(super) const OPERATIONS: [CountedOperation; 10] = [
    operation(Action::Native, false),
    operation(Action::Native, true),
    operation(Action::Communication, false),
    operation(Action::Communication, true),
    operation(Action::Connect, false),
    operation(Action::Connect, true),
    operation(Action::Turn, false),
    operation(Action::Turn, true),
    operation(Action::Update, false),
    operation(Action::Update, true),
];

// === impl CountedOperation ===

impl CountedOperation {
    pub(super) fn name(self) -> String {
        let action = match self.action {
            Action::Native => "native run",
            Action::Communication => "communication run",
            Action::Connect => "connect create and wait",
            Action::Turn => "client turn",
            Action::Update => "client update",
        };
        format!("{action}, {}", if self.is_durable { "SQLite" } else { "memory" })
    }

    pub(super) async fn count(self) -> Result<Costs> {
        let store = if self.is_durable { DISK } else { "memory:" };
        match self.action {
            Action::Turn | Action::Update => self.count_session(store).await,
            _ => self.count_requests(store).await,
        }
    }

    /// Counts requests on one connection, one after the other: so each batch of the store has one run.
    async fn count_requests(self, store: &str) -> Result<Costs> {
        let counted = CountedServer::new(store)?;
        let server = Server::start(counted.folder(), counted.options()).await?;
        let costs = callgrind::count(&counted, &server, COUNTED, async |times| {
            self.request(&server, times).await
        });
        let costs = costs.await?;
        server.stop().await?;
        Ok(costs)
    }

    async fn request(self, server: &Server, times: u64) -> Result<()> {
        let address = server.home().address();
        let (path, body) = match self.action {
            Action::Connect => {
                let body = json!({
                    "agent_id": "echo", "input": {"message": "hello, who is there?"},
                    "on_completion": "delete", "on_disconnect": "cancel", "multitask_strategy": "reject",
                });
                let token = server.token();
                let flow = Flow::create_and_wait(address, CONNECT, token, &body.to_string());
                return flow::times(&flow, 1, times).await.map(drop);
            }
            Action::Communication => {
                let part = json!({"content_type": "text/plain", "content": "hello, who is there?"});
                let input = json!([{"role": "user", "parts": [part]}]);
                let body = json!({"agent_name": "echo", "mode": "sync", "input": input});
                (COMMUNICATION_RUNS, body)
            }
            _ => {
                let body =
                    json!({"agent": "echo", "input": "hello, who is there?", "mode": "wait"});
                (NATIVE_RUNS, body)
            }
        };
        let request = load::post(address, path, server.token(), &body.to_string());
        load::hammer(address, request, 1, times).await.map(drop)
    }

    /// Counts turns of an editor, or the updates of one.
    async fn count_session(self, store: &str) -> Result<Costs> {
        let counted = CountedServer::new(store)?;
        let mut session = ServerSession::start_with(counted.folder(), counted.options()).await?;
        // The editor blocks its thread, which is not one of the server's.
        let (editor, server) = (&mut session.editor, &session.server);
        let editor = std::cell::RefCell::new(editor);
        let is_turn = self.action == Action::Turn;
        let times = if is_turn { COUNTED } else { UPDATES };
        let costs = callgrind::count(&counted, server, times, async |times| {
            let mut editor = editor.borrow_mut();
            if is_turn {
                for _ in 0..times {
                    editor.prompt("flood 1", false)?;
                }
            } else {
                editor.prompt(&format!("flood {times}"), false)?;
            }
            Ok(())
        });
        let costs = costs.await?;
        session.stop().await?;
        Ok(costs)
    }
}
