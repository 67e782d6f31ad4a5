//! Shows the request that created a run, as code for programs of each protocol.

use serde::Serialize;
use serde_json::{Map, Value, json};
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, Input, Part};
use trilogue_inspector::code;
use trilogue_mapping::{agent_client, communication, connect, native as mapping};
use trilogue_store::rows::RunRow;
use trilogue_wire::agent_communication::Message;
use trilogue_wire::native::{RequestCode, RunRequests};

use super::{NativeCall, NativeRoute, run};
use crate::face::{MountPoint, protocol_name};
use crate::faces::common::run_input;
use crate::http::reply::Reply;
use crate::route::{json_response, of};

/// The largest input that is shown as code, in bytes of JSON.
const MAX_INPUT_BYTES: usize = 256 * 1024;

const BASE: NativeRoute = NativeRoute::base(|call| Box::pin(requests(call)))
    .path("/api/v1/runs/{run_id}/requests")
    .describe(
        "get_run_requests",
        "The request that made a run, as code that makes another like it: with curl, with the official Python clients, and as JSON-RPC",
    )
    .answers(&[json_response(200, "The requests.", of::<RunRequests>)])
    .errors(&[Code::RunNotFound, Code::BodyTooLarge]);

pub(crate) const ROUTES: &[NativeRoute] = &[BASE];

async fn requests(call: NativeCall) -> Result<Reply> {
    let run = run(&call).await?;
    let input = run_input::read(&call.state.read, &run).await?;
    let input = input.unwrap_or(Input::Messages(Vec::new()));
    let places = call.state.protocol_views.places();
    let mut items = vec![curl(&call, places.own, &run, &input)?];
    items.extend(places.communication.map(|place| acp_sdk(&call, place, &run, &input)));
    items.extend(places.connect.map(|place| agntcy_acp(&call, place, &run, &input)));
    items.push(json_rpc(&run, &input));
    Ok(Reply::ok(&RunRequests { items }))
}

fn item(protocol: &str, name: &str, about: String, code: String) -> RequestCode {
    RequestCode { protocol: protocol.to_owned(), name: name.to_owned(), about, code }
}

fn curl(call: &NativeCall, place: &MountPoint, run: &RunRow, input: &Input) -> Result<RequestCode> {
    let input = match input {
        Input::Value(value) => value.to_value(),
        Input::Messages(messages) => match only_text(messages) {
            Some(text) => json!(text),
            None => messages.iter().map(|it| sent_message(it, run)).collect(),
        },
    };
    let bytes = input.to_string().len();
    if bytes > MAX_INPUT_BYTES {
        let message = format!("the run's input has {bytes} bytes: too many to be written as code");
        return Err(Error::new(Code::BodyTooLarge, message)
            .hint(format!("at most {MAX_INPUT_BYTES} bytes are; export the thread instead")));
    }
    let mut body = Map::from_iter([
        ("agent".to_owned(), json!(run.agent.as_str())),
        ("input".to_owned(), input),
        ("create_thread".to_owned(), json!(true)),
    ]);
    if let Some(config) = &run.config {
        body.insert("config".to_owned(), config.to_value());
    }
    let url = format!("{}/api/v1/runs", place.base_for(call));
    let about = "Makes the run again on a new thread, and waits for it.".to_owned();
    Ok(item("native", "curl", about, code::curl(&url, &body.into())))
}

/// Returns the text of an input that consists of one user message with text only.
fn only_text(messages: &[trilogue_domain::Message]) -> Option<&str> {
    let [message] = messages else { return None };
    let [part] = message.parts.as_slice() else { return None };
    part.as_text().filter(|text| message.role.is_user() && *part == Part::text(*text))
}

/// Returns a message in its request form, without the members that the server adds.
fn sent_message(message: &trilogue_domain::Message, run: &RunRow) -> Value {
    let shown = mapping::message::message(message, None, &run.thread_id);
    json!({ "role": shown.role, "parts": value(&shown.parts) })
}

fn acp_sdk(call: &NativeCall, place: &MountPoint, run: &RunRow, input: &Input) -> RequestCode {
    let messages = communication::remote_input(&[], input).into_iter();
    // Ids and times belong to the original run.
    let bare = messages.map(|message| Message {
        extension: None,
        created_at: None.into(),
        completed_at: None.into(),
        ..message
    });
    let about = match run.config {
        None => "Makes the run again in no session.".to_owned(),
        Some(_) => {
            "Makes the run again in no session, without its settings: the client cannot send them."
                .to_owned()
        }
    };
    let agent = communication::face_name(&run.agent);
    let code = code::acp_sdk(&place.base_for(call), &agent, &value(&bare.collect::<Vec<_>>()));
    item(protocol_name::COMMUNICATION, "acp-sdk", about, code)
}

fn agntcy_acp(call: &NativeCall, place: &MountPoint, run: &RunRow, input: &Input) -> RequestCode {
    let card = call.state.runtime.agent(&run.agent);
    let mut body = Map::from_iter([
        (
            "agent_id".to_owned(),
            json!(card.map_or_else(|_| run.agent.to_string(), connect::agent_id)),
        ),
        ("input".to_owned(), connect::remote_input(&[], input, false).to_value()),
    ]);
    if let Some(config) = &run.config {
        body.insert("config".to_owned(), json!({ "configurable": config.to_value() }));
    }
    let about = "Makes the run again without a thread, and waits for it.".to_owned();
    let code = code::agntcy_acp(&place.base_for(call), &body.into());
    item(protocol_name::CONNECT, "agntcy-acp", about, code)
}

fn json_rpc(run: &RunRow, input: &Input) -> RequestCode {
    let prompt = agent_client::prompt_of_input(input, &[], agent_client::Citations::Meta);
    let code = code::json_rpc(run.thread_id.as_str(), &value(&prompt));
    let about = format!(
        "Prompts again in the same thread. Lines for `trilogue connect {}`: send each when the one before is answered.",
        run.agent
    );
    item(protocol_name::CLIENT, "JSON-RPC", about, code)
}

/// The wire types always serialise to JSON.
fn value(written: &impl Serialize) -> Value {
    serde_json::to_value(written).unwrap_or_default()
}
