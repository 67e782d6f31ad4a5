//! An agent on the official Rust SDK that does what its prompts say.
//!
//! `--auth` asks for authentication first, `--state FOLDER` keeps its sessions in files. `--listen` serves it with the
//! SDK's server, over HTTP and over WebSockets: on a free port of this machine, whose number it prints.

mod sessions;
mod turn;

use std::sync::Arc;

use agent_client_protocol::v1::schema::{
    AuthenticateRequest, CancelNotification, CloseSessionRequest, InitializeRequest,
    ListSessionsRequest, LoadSessionRequest, NewSessionRequest, PromptRequest,
    ResumeSessionRequest, SessionNotification, SetSessionConfigOptionRequest,
    SetSessionModeRequest,
};
use agent_client_protocol::{
    Agent, Client, ConnectTo, Error, Result, Stdio, on_receive_notification, on_receive_request,
};
use agent_client_protocol_http::AcpHttpServer;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::sessions::{MODES, Sessions};
use crate::turn::Turn;

#[tokio::main]
async fn main() -> Result<()> {
    let sessions = Arc::new(Sessions::from_arguments());
    if !std::env::args().any(|word| word == "--listen") {
        return agent(&sessions).connect_to(Stdio::new()).await;
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(Error::into_internal_error)?;
    let address = listener.local_addr().map_err(Error::into_internal_error)?;
    println!("{}", address.port());
    let server = AcpHttpServer::new(move || agent(&sessions));
    axum::serve(listener, server.into_router()).await.map_err(Error::into_internal_error)
}

/// The agent of one connection.
fn agent(sessions: &Arc<Sessions>) -> impl ConnectTo<Client> + use<> {
    let share = || Arc::clone(sessions);
    let (hello, key, new, load, resume) = (share(), share(), share(), share(), share());
    let (list, close, mode, option, prompt, cancel) =
        (share(), share(), share(), share(), share(), share());
    Agent
        .v1()
        .name("official-rust")
        .on_receive_request(
            async move |request: InitializeRequest, responder, _| {
                responder.respond_with_result(initialize(&hello, &request))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: AuthenticateRequest, responder, _| {
                responder
                    .respond_with_result(key.authenticate(&request.method_id.0).and_then(typed))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: NewSessionRequest, responder, _| {
                let made = new.create(&request.cwd.to_string_lossy());
                responder.respond_with_result(made.and_then(typed))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: LoadSessionRequest, responder, client| {
                let id = request.session_id.0;
                let loaded = load.history(&id).and_then(|history| {
                    for update in history {
                        client.send_notification(notification(&id, update)?)?;
                    }
                    load.setup(&id)
                });
                responder.respond_with_result(loaded.and_then(typed))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: ResumeSessionRequest, responder, _| {
                let setup = resume.setup(&request.session_id.0);
                responder.respond_with_result(setup.and_then(typed))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: ListSessionsRequest, responder, _| {
                let cwd = request.cwd.map(|cwd| cwd.to_string_lossy().into_owned());
                responder.respond_with_result(typed(list.list(cwd.as_deref())))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: CloseSessionRequest, responder, _| {
                let closed = close.close(&request.session_id.0);
                responder.respond_with_result(closed.and_then(|()| typed(json!({}))))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: SetSessionModeRequest, responder, client| {
                let (id, mode_id) = (request.session_id.0, request.mode_id.0);
                if !MODES.contains(&&*mode_id) {
                    let data = json!({"modeId": &*mode_id});
                    return responder.respond_with_error(Error::invalid_params().data(data));
                }
                if let Err(error) = mode.change(&id, |session| session.mode = mode_id.to_string()) {
                    return responder.respond_with_error(error);
                }
                let update =
                    json!({"sessionUpdate": "current_mode_update", "currentModeId": &*mode_id});
                client.send_notification(notification(&id, update)?)?;
                responder.respond_with_result(typed(json!({})))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: SetSessionConfigOptionRequest, responder, _| {
                responder.respond_with_result(set_option(&option, &request).and_then(typed))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: PromptRequest, responder, client| {
                // A separate task: the turn sends requests to the client, and must not block the client's responses.
                let turn = Turn::new(Arc::clone(&prompt), client.clone(), &request.session_id.0);
                client.spawn(async move {
                    let stop = turn.run(&request.prompt).await;
                    let result = stop.and_then(|stop| typed(json!({"stopReason": stop})));
                    responder.respond_with_result(result)
                })
            },
            on_receive_request!(),
        )
        .on_receive_notification(
            async move |request: CancelNotification, _| {
                // A cancellation for an unknown session is ignored.
                let _ = cancel.change(&request.session_id.0, |session| session.cancelled = true);
                Ok(())
            },
            on_receive_notification!(),
        )
}

fn initialize<T: DeserializeOwned>(sessions: &Sessions, request: &InitializeRequest) -> Result<T> {
    let capabilities = &request.client_capabilities;
    let forms = capabilities.elicitation.as_ref().is_some_and(|each| each.form.is_some());
    sessions.met(forms);
    let methods = if sessions.is_authenticated() {
        json!([])
    } else {
        json!([{"id": "key", "name": "A key"}])
    };
    typed(json!({
        "protocolVersion": 1,
        "agentInfo": {"name": "official-rust", "version": "1"},
        "agentCapabilities": {
            "loadSession": true,
            "promptCapabilities": {"image": true, "audio": true, "embeddedContext": true},
            "sessionCapabilities": {"list": {}, "close": {}, "resume": {}},
        },
        "authMethods": methods,
    }))
}

fn set_option(sessions: &Sessions, request: &SetSessionConfigOptionRequest) -> Result<Value> {
    let request = serde_json::to_value(request)?;
    let text = |member: &str| request[member].as_str().unwrap_or_default().to_owned();
    if text("configId") != "model" {
        return Err(Error::invalid_params().data(json!({"configId": text("configId")})));
    }
    let id = text("sessionId");
    sessions.change(&id, |session| session.model = text("value"))?;
    let setup = sessions.setup(&id)?;
    Ok(json!({"configOptions": setup["configOptions"]}))
}

/// The SDK's type of a message.
fn typed<T: DeserializeOwned>(value: Value) -> Result<T> {
    serde_json::from_value(value).map_err(Error::into_internal_error)
}

/// An update of a session.
fn notification(id: &str, update: Value) -> Result<SessionNotification> {
    typed(json!({"sessionId": id, "update": update}))
}
