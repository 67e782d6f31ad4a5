//! What the agent answers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde_json::{Value, json};
use trilogue_sdk::agent_client::peer::{Backpressure, Handler, Notification, Peer, Request};
use trilogue_wire::jsonrpc::{Code, ErrorObject};

use crate::session::Session;
use crate::{Arguments, Busy, Replay, tools, trials, turn};

/// The agent, as its connection sees it.
#[derive(Clone, Debug)]
pub(crate) struct Scripted(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    arguments: Arguments,
    initialize: OnceLock<Value>,
    is_authenticated: AtomicBool,
    sessions: Mutex<HashMap<String, Arc<Session>>>,
}

// === impl Scripted ===

impl Scripted {
    pub(crate) fn new(arguments: Arguments) -> Self {
        let is_authenticated = AtomicBool::new(arguments.auth.is_empty());
        let (initialize, sessions) = (OnceLock::new(), Mutex::default());
        Self(Arc::new(Inner { arguments, initialize, is_authenticated, sessions }))
    }

    pub(crate) fn arguments(&self) -> &Arguments {
        &self.0.arguments
    }

    /// What the client said first.
    pub(crate) fn client(&self) -> Value {
        self.0.initialize.get().cloned().unwrap_or_default()
    }

    async fn respond(&self, peer: Peer, method: &str, params: Value) -> Result<Value, ErrorObject> {
        match method {
            "initialize" => Ok(self.initialize(params)),
            "authenticate" => self.authenticate(&params),
            "logout" => {
                self.0.is_authenticated.store(false, Ordering::Release);
                Ok(json!({}))
            }
            "session/new" => self.new_session(&peer, params).await,
            "session/load" if self.0.arguments.load => self.load(&peer, params).await,
            "session/resume" if self.0.arguments.resume => self.resume(&params),
            "session/prompt" => self.prompt(peer, params).await,
            "session/set_mode" if self.0.arguments.modes => {
                let session = self.session(&params)?;
                let mode = json!({ "sessionUpdate": "current_mode_update", "currentModeId": params["modeId"] });
                session.update(&peer, mode).await;
                Ok(json!({}))
            }
            "session/set_config_option" if self.0.arguments.config => {
                let session = self.session(&params)?;
                session.set_option(&params);
                Ok(json!({ "configOptions": session.options() }))
            }
            "session/close" => {
                self.lock().remove(params["sessionId"].as_str().unwrap_or_default());
                Ok(json!({}))
            }
            "_scripted/echo" => Ok(params),
            "_scripted/null" => Ok(Value::Null),
            method => Err(ErrorObject::method_not_found(method)),
        }
    }

    fn initialize(&self, params: Value) -> Value {
        let arguments = &self.0.arguments;
        // A second one changes nothing.
        let _ = self.0.initialize.set(params);
        let methods = arguments.auth.iter().map(|id| match id.strip_prefix("terminal:") {
            Some(id) => json!({ "type": "terminal", "id": id, "name": id, "args": ["--login"] }),
            None => json!({ "id": id, "name": id }),
        });
        let session = match arguments.resume {
            true => json!({ "resume": {}, "close": {} }),
            false => json!({ "close": {} }),
        };
        let media = arguments.media;
        json!({
            "protocolVersion": arguments.protocol,
            "agentCapabilities": {
                "loadSession": arguments.load,
                "promptCapabilities": { "image": media, "audio": media, "embeddedContext": media },
                "sessionCapabilities": session,
                "_meta": { "scripted": true },
            },
            "authMethods": methods.collect::<Vec<_>>(),
            "agentInfo": { "name": "scripted_agent", "version": "1.0.0" },
        })
    }

    fn authenticate(&self, params: &Value) -> Result<Value, ErrorObject> {
        let method = params["methodId"].as_str().unwrap_or_default();
        if !self.0.arguments.auth.iter().any(|one| one == method) {
            return Err(ErrorObject::new(Code::INVALID_PARAMS, "there is no such method"));
        }
        self.0.is_authenticated.store(true, Ordering::Release);
        Ok(json!({}))
    }

    fn check_authenticated(&self) -> Result<(), ErrorObject> {
        match self.0.is_authenticated.load(Ordering::Acquire) {
            true => Ok(()),
            false => Err(ErrorObject::of(Code::AUTH_REQUIRED)),
        }
    }

    async fn new_session(&self, peer: &Peer, params: Value) -> Result<Value, ErrorObject> {
        self.check_authenticated()?;
        let session = Session::new(params, self.0.arguments.store.clone());
        self.0.arguments.openings.opening(self, peer, session.id()).await;
        let opened = self.opened(&session, true);
        self.lock().insert(session.id().to_owned(), Arc::clone(&session));
        if self.0.arguments.early_updates {
            self.announce(peer, &session).await;
        } else if self.0.arguments.commands {
            let (agent, peer) = (self.clone(), peer.clone());
            tokio::spawn(async move {
                // Behind the answer, which is written first.
                tokio::task::yield_now().await;
                agent.announce(&peer, &session).await;
            });
        }
        Ok(opened)
    }

    async fn load(&self, peer: &Peer, params: Value) -> Result<Value, ErrorObject> {
        self.check_authenticated()?;
        if let Some(code) = self.0.arguments.load_error {
            return Err(ErrorObject::new(
                trilogue_wire::jsonrpc::Code(code),
                "the session cannot be loaded",
            ));
        }
        let session = self.open(&params)?;
        match self.0.arguments.replay {
            Replay::Before => session.replay(peer).await,
            Replay::Late => {
                let (session, peer) = (Arc::clone(&session), peer.clone());
                tokio::spawn(async move {
                    tokio::time::sleep(std::time::Duration::from_millis(30)).await;
                    session.replay(&peer).await;
                });
            }
            Replay::Split => {
                let split = session.replay_first(peer).await;
                let (session, peer) = (Arc::clone(&session), peer.clone());
                tokio::spawn(async move { session.replay_slowly(&peer, split).await });
            }
            Replay::Never => {}
        }
        Ok(self.opened(&session, false))
    }

    fn resume(&self, params: &Value) -> Result<Value, ErrorObject> {
        self.check_authenticated()?;
        let session = self.open(params)?;
        Ok(self.opened(&session, false))
    }

    /// Finds a session that this or another process had.
    fn open(&self, params: &Value) -> Result<Arc<Session>, ErrorObject> {
        let id = params["sessionId"].as_str().unwrap_or_default();
        if let Some(session) = self.lock().get(id) {
            return Ok(Arc::clone(session));
        }
        let session = Session::stored(params.clone(), self.0.arguments.store.as_deref());
        let session = session.ok_or_else(|| unknown_session(id))?;
        self.lock().insert(id.to_owned(), Arc::clone(&session));
        Ok(session)
    }

    fn opened(&self, session: &Session, is_new: bool) -> Value {
        let mut opened = json!({});
        if is_new {
            opened["sessionId"] = json!(session.id());
        }
        if self.0.arguments.modes {
            let modes = json!([{ "id": "ask", "name": "Ask" }, { "id": "code", "name": "Code" }]);
            opened["modes"] = json!({ "currentModeId": "ask", "availableModes": modes });
        }
        if self.0.arguments.config {
            opened["configOptions"] = session.options();
        }
        opened
    }

    async fn announce(&self, peer: &Peer, session: &Session) {
        let commands = json!([{ "name": "help", "description": "Says what it can do." }]);
        let update =
            json!({ "sessionUpdate": "available_commands_update", "availableCommands": commands });
        session.update(peer, update).await;
    }

    async fn prompt(&self, peer: Peer, params: Value) -> Result<Value, ErrorObject> {
        self.check_authenticated()?;
        let session = self.session(&params)?;
        let cancelled = session.cancelled();
        let turn = match (session.turn().try_lock(), self.0.arguments.busy) {
            (Ok(turn), _) => turn,
            (Err(_), Busy::Reject) => {
                return Err(ErrorObject::new(Code::INVALID_REQUEST, "the session is busy"));
            }
            (Err(_), Busy::Queue) => session.turn().lock().await,
        };
        let ended = turn::play(self, &peer, &session, &params, cancelled).await;
        drop(turn);
        ended
    }

    fn session(&self, params: &Value) -> Result<Arc<Session>, ErrorObject> {
        let id = params["sessionId"].as_str().unwrap_or_default();
        self.lock().get(id).cloned().ok_or_else(|| unknown_session(id))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<Session>>> {
        self.0.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, is_request: bool, method: &str, params: &str) {
        if let Some(file) = &self.0.arguments.record {
            let id = if is_request { r#""id":0,"# } else { "" };
            let line =
                format!(r#"{{"jsonrpc":"2.0",{id}"method":{},"params":{params}}}"#, json!(method));
            tools::append(file, &line);
        }
    }

    /// Writes down what the client answered.
    pub(crate) fn record_answer(&self, method: &str, answer: &Result<Value, ErrorObject>) {
        let Some(file) = &self.0.arguments.record else { return };
        let line = match answer {
            Ok(result) => json!({ "answered": method, "result": result }),
            Err(error) => json!({ "answered": method, "error": error }),
        };
        tools::append(file, &line.to_string());
    }
}

impl Handler for Scripted {
    fn on_request(&self, request: Request) -> Backpressure {
        self.record(true, request.method(), request.params().as_str());
        let (agent, peer) = (self.clone(), request.peer().clone());
        let (method, params) = (request.method().to_owned(), request.params().to_value());
        if method == "session/prompt" {
            trials::prompted(&request.id().to_string());
            // Only `session/cancel` stops a turn; what is late comes behind its answer.
            tokio::spawn(async move {
                let session = agent.session(&params);
                match agent.respond(peer.clone(), &method, params).await {
                    Ok(result) => request.respond(&result).await,
                    Err(error) => request.refuse(error).await,
                }
                if let Ok(session) = session {
                    session.say_what_is_late(&peer).await;
                }
            });
        } else if method == "authenticate" {
            let id = request.id();
            request.answer(async move {
                agent.respond(peer.clone(), &method, params).await?;
                agent.0.arguments.openings.signing_in(&peer, &id).await
            });
        } else {
            request.answer(async move { agent.respond(peer, &method, params).await });
        }
        Backpressure::Ready
    }

    fn on_notification(&self, notification: Notification) -> Backpressure {
        self.record(false, &notification.method, notification.params.as_str());
        let params = notification.params.to_value();
        if notification.method == "session/cancel"
            && let Ok(session) = self.session(&params)
        {
            session.cancel();
        }
        Backpressure::Ready
    }
}

fn unknown_session(id: &str) -> ErrorObject {
    let data = json!({ "sessionId": id });
    ErrorObject::of(Code::RESOURCE_NOT_FOUND)
        .data(trilogue_wire::agent_client::Json::from_value(&data))
}
