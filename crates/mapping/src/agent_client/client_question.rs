//! Interrupts as requests to clients, in the best form that each client has, and their answers.

use serde_json::{Value, json};
use trilogue_domain::interrupt::{Effect, NO_OPTION};
use trilogue_domain::{
    Answer, Content, Interrupt, InterruptKind, Json, Message, Part, Survives, safe,
};
use trilogue_wire::agent_client::{
    ClientCapabilities, CreateElicitationRequest, CreateElicitationResponse, ElicitationForm,
    ElicitationPropertySchema, ElicitationSchema, ElicitationUrl, MultiSelectItems,
    PermissionOption, PermissionOptionKind, RequestPermissionOutcome, RequestPermissionRequest,
    RequestPermissionResponse, Rules, ToolCallContent, ToolCallStatus, ToolCallUpdate, ToolContent,
    ToolKind, read_checked, splice,
};
use trilogue_wire::native;

use super::answer::{consent, is_consent};
use super::block::{Extension, fenced};
use super::permission_completion::as_sent;
use super::prompt::blocks_of;
use super::subagent_view::UNTITLED;
use crate::choice::{Choice, list, one_choice};
use crate::communication::{answer_of_parts, truth_property};
use crate::shape::text_property;

/// The field of a form that asks for one value.
const ANSWER: &str = "answer";
/// A longer title is cut, and is then also in the content.
const MAX_TITLE_CHARS: usize = 200;
const MAX_SHOWN_SCHEMA_BYTES: usize = 4 * 1024;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientQuestion {
    /// With a `session/request_permission` of these params; [`answer_of_permission`] reads the answer.
    Permission(Vec<u8>),
    /// With an `elicitation/create` of these params; [`answer_of_elicitation`] reads the answer.
    Elicitation(Vec<u8>),
    /// By ending the turn with this text; the next prompt is the answer, for [`answer_of_prompt`].
    Text(String),
}

/// Returns the request to this client in this session. An interrupt that came as a request of this protocol goes back unchanged.
pub fn client_question(
    interrupt: &Interrupt,
    session: &str,
    client: &ClientCapabilities,
) -> ClientQuestion {
    let forms = client.elicitation.as_ref();
    let has_form = forms.is_some_and(|forms| forms.form.is_some());
    let has_url = forms.is_some_and(|forms| forms.url.is_some());
    let raw = || original_request(interrupt, session);
    let asked = match interrupt.kind {
        InterruptKind::Permission => raw()
            .filter(|raw| read_checked::<RequestPermissionRequest>(raw, Rules::Lenient).is_ok())
            .map(|raw| ClientQuestion::Permission(raw.into_bytes()))
            .or_else(|| permission(interrupt, session)),
        InterruptKind::Url if has_url => {
            original_elicitation(interrupt, session).or_else(|| visit(interrupt, session))
        }
        InterruptKind::Url | InterruptKind::Message => None,
        InterruptKind::Form | InterruptKind::Custom(_) => {
            let form =
                || original_elicitation(interrupt, session).or_else(|| form(interrupt, session));
            has_form.then(form).flatten().or_else(|| choice(interrupt, session))
        }
    };
    asked.unwrap_or_else(|| ClientQuestion::Text(in_text(interrupt)))
}

/// Returns the question of a sub-agent for a client that shows no sub-agents: its text begins with the name of the one who asks.
pub fn question_of_subagent(question: ClientQuestion, title: Option<&str>) -> ClientQuestion {
    let name = title.unwrap_or(UNTITLED);
    let named = |params: Vec<u8>, path: &[&str]| {
        let Ok(text) = std::str::from_utf8(&params) else { return params };
        let words = match splice::get_text(text, path) {
            Some(words) if !words.is_empty() => format!("{name}: {words}"),
            _ => name.to_owned(),
        };
        splice::set_text(text, path, &words).map_or(params, String::into_bytes)
    };
    match question {
        ClientQuestion::Permission(params) => {
            ClientQuestion::Permission(named(params, &["toolCall", "title"]))
        }
        ClientQuestion::Elicitation(params) => {
            ClientQuestion::Elicitation(named(params, &["message"]))
        }
        ClientQuestion::Text(text) => ClientQuestion::Text(text),
    }
}

/// Returns the original params of an interrupt, with the client's session. Its `requestId` belongs to the agent's side, and is left out.
fn original_request(interrupt: &Interrupt, session: &str) -> Option<String> {
    let payload = interrupt.payload.as_str();
    let is_request = ["toolCall", "mode"].iter().any(|key| splice::get(payload, &[key]).is_some());
    if !is_request {
        return None;
    }
    let payload = as_sent(payload);
    splice::put_session(&splice::remove(&payload, &["requestId"]), session)
}

fn original_elicitation(interrupt: &Interrupt, session: &str) -> Option<ClientQuestion> {
    let raw = original_request(interrupt, session)?;
    let read = read_checked::<CreateElicitationRequest>(&raw, Rules::Lenient).ok()?;
    let is_known = !matches!(read, CreateElicitationRequest::Other(_));
    is_known.then(|| ClientQuestion::Elicitation(raw.into_bytes()))
}

pub(super) fn is_elicitation(interrupt: &Interrupt) -> bool {
    original_elicitation(interrupt, "").is_some()
}

/// Returns the request for a permission of an agent that does not speak this protocol.
fn permission(interrupt: &Interrupt, session: &str) -> Option<ClientQuestion> {
    let options: Vec<_> = interrupt
        .options
        .iter()
        .map(|option| {
            let kind = match (option.effect, option.always) {
                (Effect::Allow, false) => PermissionOptionKind::AllowOnce,
                (Effect::Allow, true) => PermissionOptionKind::AllowAlways,
                (Effect::Reject, false) => PermissionOptionKind::RejectOnce,
                (Effect::Reject, true) => PermissionOptionKind::RejectAlways,
            };
            PermissionOption::new(option.id.as_str(), option.name.as_str(), kind)
        })
        .collect();
    ask_permission(interrupt, session, options)
}

/// Returns the request for a question that accepts one of a few values.
fn choice(interrupt: &Interrupt, session: &str) -> Option<ClientQuestion> {
    let (_, choices) = choice_of(interrupt)?;
    let options = choices.into_iter().map(|choice| {
        let kind = match choice.value {
            Value::Bool(false) => PermissionOptionKind::RejectOnce,
            _ => PermissionOptionKind::AllowOnce,
        };
        PermissionOption::new(choice.id, choice.name, kind)
    });
    ask_permission(interrupt, session, options.collect())
}

fn ask_permission(
    interrupt: &Interrupt,
    session: &str,
    options: Vec<PermissionOption>,
) -> Option<ClientQuestion> {
    if options.is_empty() {
        return None;
    }
    let payload = interrupt.payload.to_value();
    let text = |keys: &[&str]| keys.iter().find_map(|key| payload.get(key)?.as_str());
    let words = prompt_text(interrupt);
    let name = text(&["tool", "tool_name", "name"]);
    let first = words.lines().next().or_else(|| text(&["title"])).or(name);
    let title = title(first.unwrap_or("The agent asks for permission."));
    let is_all_in_title = words.lines().count() <= 1 && words.trim_end() == title;
    let mut call = ToolCallUpdate::new(interrupt.id.as_str());
    call.title = Some(title);
    call.name = name.map(str::to_owned);
    call.kind = text(&["kind"]).and_then(ToolKind::parse);
    call.status = Some(ToolCallStatus::Pending);
    if !payload.is_null() {
        call.raw_input = Some(crate::native::json(&interrupt.payload));
    }
    let shown = interrupt.prompt.iter().filter(|part| !is_all_in_title || part.as_text().is_none());
    let shown = shown.map(|part| match part.as_text() {
        Some(text) => Part { content: Content::Text(visible(text).into()), ..part.clone() },
        None => part.clone(),
    });
    // Many editors do not show the input.
    let shown: Vec<_> = shown.chain(data(interrupt).map(Part::text)).collect();
    let content: Vec<_> = blocks_of(&shown, Extension::Off)
        .into_iter()
        .map(|block| ToolCallContent::Content(Box::new(ToolContent::new(block))))
        .collect();
    call.content = (!content.is_empty()).then_some(content);
    let request = RequestPermissionRequest::new(session, call, options);
    serde_json::to_vec(&request).ok().map(ClientQuestion::Permission)
}

fn form(interrupt: &Interrupt, session: &str) -> Option<ClientQuestion> {
    let schema = interrupt.schema.as_ref()?.as_str();
    let schema = if is_one_value(schema) {
        format!(
            "{{\"type\":\"object\",\"properties\":{{\"{ANSWER}\":{schema}}},\"required\":[\"{ANSWER}\"]}}"
        )
    } else {
        schema.to_owned()
    };
    let schema: ElicitationSchema = read_checked(schema.trim(), Rules::Strict).ok()?;
    let fields = schema.properties.as_ref()?;
    let is_flat = schema.kind.is_some() && fields.0.iter().all(|(_, field)| is_field(field));
    if !is_flat || fields.is_empty() {
        return None;
    }
    let mut form = ElicitationForm::new(question_text_with_data(interrupt), schema);
    form.session_id = Some(session.to_owned());
    let request = CreateElicitationRequest::Form(Box::new(form));
    serde_json::to_vec(&request).ok().map(ClientQuestion::Elicitation)
}

fn is_field(field: &ElicitationPropertySchema) -> bool {
    match field {
        ElicitationPropertySchema::Array(several) => {
            !matches!(several.items, MultiSelectItems::Other(_))
        }
        ElicitationPropertySchema::Other(_) => false,
        _ => true,
    }
}

fn visit(interrupt: &Interrupt, session: &str) -> Option<ClientQuestion> {
    let url = interrupt.prompt.iter().find_map(|part| match &part.content {
        Content::Url(url) => Some(url.to_string()),
        _ => None,
    });
    let url = url.or_else(|| {
        splice::get_text(interrupt.payload.as_str(), &["url"]).map(std::borrow::Cow::into_owned)
    })?;
    let mut visit = ElicitationUrl::new(question_text(interrupt), interrupt.id.as_str(), url);
    visit.session_id = Some(session.to_owned());
    let request = CreateElicitationRequest::Url(Box::new(visit));
    serde_json::to_vec(&request).ok().map(ClientQuestion::Elicitation)
}

/// Whether a schema is that of a single value, not of an object.
fn is_one_value(schema: &str) -> bool {
    let kind = splice::get_text(schema, &["type"]);
    matches!(kind.as_deref(), Some("string" | "number" | "integer" | "boolean"))
}

fn choice_of(interrupt: &Interrupt) -> Option<(Option<String>, Vec<Choice>)> {
    one_choice(&interrupt.schema.as_ref()?.to_value())
}

fn prompt_text(interrupt: &Interrupt) -> String {
    let words: Vec<&str> = interrupt.prompt.iter().filter_map(Part::as_text).collect();
    words.join("\n")
}

/// Returns a title in one line. A cut title says how much is left out.
fn title(text: &str) -> String {
    let title = safe::visible(text);
    match title.char_indices().nth(MAX_TITLE_CHARS) {
        Some((end, _)) => {
            let more = title.chars().count() - MAX_TITLE_CHARS;
            format!("{}… ({more} more characters)", title.get(..end).unwrap_or_default())
        }
        None => title,
    }
}

/// Returns a text for a decision: characters that are hidden or reorder others are shown as codes.
fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for piece in text.split_inclusive(['\n', '\t']) {
        let end = piece.chars().next_back().filter(|end| matches!(end, '\n' | '\t'));
        out.push_str(&safe::visible(piece.trim_end_matches(['\n', '\t'])));
        out.extend(end);
    }
    out
}

/// Returns the data of a decision in addition to its text, as JSON.
fn data(interrupt: &Interrupt) -> Option<String> {
    let decides = match interrupt.kind {
        InterruptKind::Permission | InterruptKind::Custom(_) => true,
        InterruptKind::Form => !is_elicitation(interrupt),
        InterruptKind::Url | InterruptKind::Message => false,
    };
    let payload = interrupt.payload.to_value();
    (decides && !payload.is_null()).then(|| fenced(&safe::json(&payload.to_string())))
}

fn question_text_with_data(interrupt: &Interrupt) -> String {
    let data = data(interrupt).map(|data| format!("\n\n{data}"));
    question_text(interrupt) + &data.unwrap_or_default()
}

fn question_text(interrupt: &Interrupt) -> String {
    let words = prompt_text(interrupt);
    if !words.is_empty() {
        return match interrupt.kind {
            InterruptKind::Message => words,
            _ => visible(&words),
        };
    }
    match &interrupt.kind {
        InterruptKind::Permission => "The agent asks for permission.".to_owned(),
        InterruptKind::Url => "The agent asks you to visit an address.".to_owned(),
        InterruptKind::Form | InterruptKind::Message => "The agent asks for data.".to_owned(),
        InterruptKind::Custom(kind) => format!("The agent asks: {kind}."),
    }
}

/// Returns a question as text, with its valid answers.
fn in_text(interrupt: &Interrupt) -> String {
    let mut text = question_text_with_data(interrupt);
    for part in &interrupt.prompt {
        if let Content::Url(url) = &part.content {
            text.push('\n');
            text.push_str(url);
        }
    }
    if let Some(fits) = valid_answers_text(interrupt) {
        text.push_str("\n\n");
        text.push_str(&fits);
    }
    text
}

fn valid_answers_text(interrupt: &Interrupt) -> Option<String> {
    if is_consent(interrupt) {
        let done = match interrupt.kind {
            InterruptKind::Url => "when that is done",
            _ => "to accept",
        };
        return Some(format!("Answer `yes` {done}. Any other answer declines."));
    }
    if interrupt.options.is_empty() && interrupt.takes_no_option() {
        return Some(format!("It offers no options. Answer with `{NO_OPTION}`."));
    }
    if !interrupt.options.is_empty() {
        let options: Vec<_> =
            interrupt.options.iter().map(|it| format!("{} ({})", it.id, it.name)).collect();
        return Some(format!("Answer with one of: {}", options.join(", ")));
    }
    if let Some((_, choices)) = choice_of(interrupt) {
        if choices.iter().any(|choice| choice.value.is_boolean()) {
            let ids: Vec<_> = choices.iter().map(|choice| choice.id.as_str()).collect();
            return Some(format!("Answer with one of: {}", ids.join(", ")));
        }
        return Some(format!("Answer with one of these, or with its number:\n{}", list(&choices)));
    }
    let schema = interrupt.schema.as_ref()?;
    let value = schema.to_value();
    if text_property(&value).is_some() || truth_property(&value).is_some() {
        return None;
    }
    if schema.as_bytes().len() > MAX_SHOWN_SCHEMA_BYTES {
        return Some("Answer with JSON.".to_owned());
    }
    Some(format!("Answer with JSON that fits this schema:\n\n{}", fenced(schema.as_str())))
}

/// Converts a client's answer to a permission request. If it chooses no offered option, a hosted agent gets the answer `null`; for others it rejects this call if an option does. `None` without a valid answer, which allows nothing.
pub fn answer_of_permission(
    interrupt: &Interrupt,
    response: &RequestPermissionResponse,
) -> Option<Answer> {
    let chosen = match &response.outcome {
        RequestPermissionOutcome::Selected(selected) => Some(selected.option_id.as_str()),
        _ => None,
    };
    if interrupt.kind == InterruptKind::Permission {
        let offered = interrupt.options.iter().find(|option| Some(option.id.as_str()) == chosen);
        if offered.is_none() && is_request(interrupt) {
            return Some(Answer::Json(Json::null()));
        }
        let option = offered.or_else(|| interrupt.reject_option())?;
        return Some(Answer::Option(option.id.clone()));
    }
    let (property, choices) = choice_of(interrupt)?;
    let value = choices.into_iter().find(|choice| Some(choice.id.as_str()) == chosen)?.value;
    let answer = match property {
        Some(property) => json!({ property: value }),
        None => value,
    };
    Some(Answer::Json(Json::from_value(&answer)))
}

/// Whether a client's answer to a permission request chooses an offered option.
#[must_use]
pub fn is_offered_choice(interrupt: &Interrupt, response: &RequestPermissionResponse) -> bool {
    let RequestPermissionOutcome::Selected(selected) = &response.outcome else { return false };
    let chosen = selected.option_id.as_str();
    match interrupt.kind {
        InterruptKind::Permission => interrupt.options.iter().any(|option| option.id == chosen),
        _ => choice_of(interrupt)
            .is_some_and(|(_, choices)| choices.iter().any(|choice| choice.id == chosen)),
    }
}

/// Converts a client's answer to an elicitation. A hosted agent gets `false` for declined and `null` for unanswered; other agents have neither, so the result is `None`.
pub fn answer_of_elicitation(
    interrupt: &Interrupt,
    response: &CreateElicitationResponse,
) -> Option<Answer> {
    let accept = match response {
        CreateElicitationResponse::Accept(accept) => accept,
        _ if !is_elicitation(interrupt) => return None,
        CreateElicitationResponse::Decline(_) => return Some(bool_answer(false)),
        _ => return Some(Answer::Json(Json::null())),
    };
    if interrupt.kind == InterruptKind::Url {
        return Some(bool_answer(true));
    }
    let content = match &accept.content {
        Some(content) => serde_json::to_string(content).ok()?,
        None => "{}".to_owned(),
    };
    let is_wrapped = interrupt.schema.as_ref().is_some_and(|schema| is_one_value(schema.as_str()));
    let answer = if is_wrapped { splice::get(&content, &[ANSWER])? } else { &content };
    Json::parse(answer.to_owned()).ok().map(Answer::Json)
}

fn bool_answer(value: bool) -> Answer {
    Answer::Json(Json::from_value(&Value::Bool(value)))
}

/// Converts a prompt to an answer. `None` if it does not fit the question. If the question only asks for consent, a word for yes consents, and nothing else does.
pub fn answer_of_prompt(interrupt: &Interrupt, message: &Message) -> Option<Answer> {
    if is_consent(interrupt) {
        return Some(consent(interrupt, message));
    }
    answer_of_parts(interrupt, message.parts.clone()).ok()
}

/// Whether an interrupt is a hosted agent's permission request, which waits in its process.
pub(super) fn is_request(interrupt: &Interrupt) -> bool {
    interrupt.survives == Survives::Process && tool_call_of(&interrupt.payload).is_some()
}

/// Returns the tool call of a permission request of this protocol, if an interrupt's payload is one.
pub fn tool_call_of(payload: &Json) -> Option<native::Json> {
    let call = splice::get(payload.as_str(), &["toolCall"])?;
    splice::get(payload.as_str(), &["options"])?;
    native::Json::parse(call).ok()
}
