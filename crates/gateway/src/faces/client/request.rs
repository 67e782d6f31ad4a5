//! What a client asks and tells, by method.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use trilogue_domain::{Error, Json, ThreadId};
use trilogue_mapping::agent_client as mapping;
use trilogue_wire::agent_client::{
    self as wire, CancelRequestNotification, Id as WireId, Read, Rules, method, splice,
};
use trilogue_wire::jsonrpc::{Code, ErrorObject, Id};
use trilogue_wire::native::local::{ATTACH_METHOD, Extras};

use super::connection::{answering, session_in};
use super::heard::Heard;
use super::lane::Lane;
use super::link::{Answer, Begun, InFlight, Link, Met};
use super::{calls, cancel, close, extension, initialize, list, open, option, prompt};

/// A request.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) id: Id<'static>,
    pub(super) method: String,
    pub(super) extras: Extras,
    /// How long its line was, in bytes.
    pub(super) bytes: usize,
    /// What its client was asked when it came, where it had to wait.
    pub(super) heard: Option<Heard>,
}

/// Takes a request. Those of one session are worked on one after the other. Gives it back where so many others are worked on that it has to wait.
pub(super) async fn take(
    link: &Arc<Link>,
    asked: Asked,
    params: String,
) -> Option<(Asked, String)> {
    if asked.method == "initialize" {
        // What comes behind it waits until it is answered.
        let answer = calls::on_behalf_of(asked.id.clone(), initialize::initialize(link, &params));
        let answer = answer.await;
        link.answer_at_once(&asked.id, answer).await;
        return None;
    }
    let Some(met) = link.met() else {
        let message = format!("Invalid request: {} came before initialize", asked.method);
        let error = ErrorObject::new(Code::INVALID_REQUEST, message);
        link.answer_at_once(&asked.id, Err(error)).await;
        return None;
    };
    let token = CancellationToken::new();
    match link.begin(&asked.id, asked.bytes, InFlight::Other(token.clone())) {
        Begun::Yes => work(link, met, asked, params, token),
        Begun::TooMany => return Some((asked, params)),
        Begun::Twice => {
            link.state.repeated_ids.increment(1);
            let message = "Invalid request: another request of this id is not answered yet";
            let error = ErrorObject::new(Code::INVALID_REQUEST, message);
            link.answer_at_once(&asked.id, Err(error)).await;
        }
    }
    None
}

/// Has a request worked on.
fn work(link: &Arc<Link>, met: Arc<Met>, asked: Asked, params: String, token: CancellationToken) {
    let session = session_in(&params);
    match (asked.method.as_str(), session) {
        ("session/prompt", Some(session)) => {
            prompt::enqueue(link, met, asked, params, &session, token);
        }
        (name, Some(session)) if method(name).is_none() && !is_attach(link, name) => {
            extension::enqueue(link, met, asked, params, &session, token);
        }
        (name, Some(session)) if is_of_session(link, name) => {
            let link_of_work = Arc::clone(link);
            link.in_order(&session, |lane| {
                let (link, lane) = (link_of_work, Arc::clone(lane));
                async move {
                    let id = asked.id.clone();
                    let work = in_session(&link, &met, &lane, asked, params);
                    answering(&link, id, token, work).await;
                }
            });
        }
        _ => {
            let link = Arc::clone(link);
            link.tasks.clone().spawn(async move {
                let id = asked.id.clone();
                let closed = link.closed.clone();
                let work = answering(&link, id, token, elsewhere(&link, &met, asked, params));
                tokio::select! {
                    () = work => {}
                    () = closed.cancelled() => {}
                }
            });
        }
    }
}

/// Whether requests of this method are for one session.
fn is_of_session(link: &Link, name: &str) -> bool {
    match name {
        "session/load"
        | "session/resume"
        | "session/close"
        | "session/delete"
        | "session/set_mode"
        | "session/set_config_option" => true,
        name => is_attach(link, name),
    }
}

/// Whether a program asks this whose connection broke. What else the protocol has no word for goes to the session that it names.
fn is_attach(link: &Link, name: &str) -> bool {
    link.numbered && name == ATTACH_METHOD
}

async fn in_session(
    link: &Arc<Link>,
    met: &Met,
    lane: &Arc<Lane>,
    asked: Asked,
    params: String,
) -> Option<Answer> {
    match asked.method.as_str() {
        "session/load" => open::load(link, met, lane, asked, params).await,
        "session/resume" => open::resume(link, met, lane, asked, params).await,
        "session/close" => Some(close::close(link, lane, &params).await),
        "session/delete" => Some(close::delete(link, lane, &params).await),
        "session/set_mode" => Some(option::set_mode(link, met, lane, &params).await),
        "session/set_config_option" => {
            Some(option::set_config_option(link, met, lane, &params).await)
        }
        _ => open::attach(link, met, lane, asked, &params).await,
    }
}

async fn elsewhere(link: &Arc<Link>, met: &Met, asked: Asked, params: String) -> Option<Answer> {
    match asked.method.as_str() {
        "session/new" => open::new(link, met, asked, params).await,
        "session/list" => Some(list::list(link, &params).await),
        "authenticate" | "logout" => {
            Some(extension::authentication(link, met, &asked.method, &params).await)
        }
        // These name a session, and here none that can be one: what is wrong with them is said.
        "session/prompt" => Some(nameless::<wire::PromptRequest>(link, &params)),
        "session/load" => Some(nameless::<wire::LoadSessionRequest>(link, &params)),
        "session/resume" => Some(nameless::<wire::ResumeSessionRequest>(link, &params)),
        "session/close" => Some(nameless::<wire::CloseSessionRequest>(link, &params)),
        "session/delete" => match read::<wire::DeleteSessionRequest>(link, &params) {
            // What cannot be there is gone.
            Ok(_) => Some(Ok(b"{}".to_vec())),
            Err(error) => Some(Err(error)),
        },
        "session/set_mode" => Some(nameless::<wire::SetSessionModeRequest>(link, &params)),
        "session/set_config_option" => {
            Some(nameless::<wire::SetSessionConfigOptionRequest>(link, &params))
        }
        name => Some(extension::call(link, met, None, name, &params, None).await),
    }
}

/// A request whose session id cannot be one.
fn nameless<T: Read>(link: &Link, params: &str) -> Answer {
    read::<T>(link, params)?;
    let session = splice::get_text(params, &["sessionId"]).unwrap_or_default();
    Err(mapping::session_error(&crate::core::not_found::no_thread(&session), &session))
}

/// Takes a notification.
pub(super) fn told(link: &Arc<Link>, name: &str, params: &str) {
    match name {
        "session/cancel" => {
            if let Some(session) = session_in(params) {
                cancel::session(link, &session);
            }
        }
        "$/cancel_request" => {
            let read = wire::read::<CancelRequestNotification>(params.as_bytes(), Rules::Lenient);
            if let Ok(CancelRequestNotification { request_id, .. }) = read {
                cancel_request(link, &request_id);
            }
        }
        name if name.starts_with("$/") || method(name).is_some() => {}
        name => extension::tell(link, name, params),
    }
}

fn cancel_request(link: &Arc<Link>, id: &WireId<'_>) {
    match link.in_flight(id) {
        Some(InFlight::Prompt { lane, cancelled }) => cancel::prompt(link, &lane, &cancelled, id),
        Some(InFlight::Other(token)) => token.cancel(),
        None => {}
    }
}

/// Reads what a request carries.
pub(super) fn read<T: Read>(link: &Link, params: &str) -> Result<T, ErrorObject> {
    wire::read(params.as_bytes(), link.rules()).map_err(|violation| violation.error())
}

/// What is carried, for the runtime.
pub(super) fn to_json(params: &str) -> Result<Json, ErrorObject> {
    Json::parse(params.to_owned()).map_err(|error| mapping::error_object(&error))
}

/// That a session is not there.
pub(super) fn session_error(error: &Error, session: &ThreadId) -> ErrorObject {
    mapping::session_error(error, session.as_str())
}

/// That a value does not fit.
pub(super) fn invalid_params(path: &str, message: impl Into<String>) -> ErrorObject {
    wire::Violation::new(path, message).error()
}
