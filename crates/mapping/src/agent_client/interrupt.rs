//! Permissions and elicitations of hosted agents, and their answers.

use trilogue_domain::interrupt::{Effect, PermissionOption};
use trilogue_domain::{
    Answer, Interrupt, InterruptId, InterruptKind, Json, Part, Resolution, limits,
};
use trilogue_wire::agent_client::splice::{self, get, items};
use trilogue_wire::agent_client::{
    CreateElicitationRequest, CreateElicitationResponse, ElicitationAccept, ElicitationCancel,
    ElicitationDecline, ElicitationValue, Map, PermissionOptionKind, RequestPermissionOutcome,
    RequestPermissionRequest, RequestPermissionResponse, Rules, read_checked,
};

use super::answer::{NOTHING, YES};
use super::extra::extra_of_answer;
use super::original::part_of_tool;

/// Returns a hosted agent's permission request. `raw` are its params without the session id: clients of this protocol get them unchanged.
pub fn interrupt_of_permission(
    params: &RequestPermissionRequest,
    raw: &str,
    id: InterruptId,
) -> Interrupt {
    let call = &params.tool_call;
    let title = call.title.as_deref().or(call.name.as_deref());
    let mut prompt = vec![Part::text(title.unwrap_or("The agent asks for permission."))];
    let content = get(raw, &["toolCall", "content"]).unwrap_or_default();
    let blocks = items(content)
        .filter(|item| splice::get_text(item, &["type"]).is_some_and(|kind| kind == "content"));
    prompt.extend(blocks.filter_map(part_of_tool));
    let options = params.options.iter().map(|option| PermissionOption {
        id: option.option_id.clone(),
        name: option.name.clone(),
        effect: if option.kind.allows() { Effect::Allow } else { Effect::Reject },
        always: matches!(
            option.kind,
            PermissionOptionKind::AllowAlways | PermissionOptionKind::RejectAlways
        ),
    });
    Interrupt {
        prompt,
        options: options.collect(),
        ..of_process(id, InterruptKind::Permission, raw)
    }
}

/// Returns a hosted agent's elicitation. `raw` are its params without the session id.
///
/// The answer to a form is JSON that fits its schema; `false` declines it, and `null` leaves it unanswered. The answer to an address is `true` if it was visited, or one of these two.
pub fn interrupt_of_elicitation(
    params: &CreateElicitationRequest,
    raw: &str,
    id: InterruptId,
) -> Interrupt {
    let message = Part::text(params.message().unwrap_or("The agent asks something."));
    match params {
        CreateElicitationRequest::Form(_) => {
            let schema = get(raw, &["requestedSchema"]);
            Interrupt {
                prompt: vec![message],
                schema: schema.and_then(|schema| Json::parse_mended(schema.to_owned()).ok()),
                ..of_process(id, InterruptKind::Form, raw)
            }
        }
        CreateElicitationRequest::Url(url) => Interrupt {
            prompt: vec![message, Part::url("text/html", url.url.as_str())],
            ..of_process(id, InterruptKind::Url, raw)
        },
        CreateElicitationRequest::Other(other) => Interrupt {
            prompt: vec![message],
            ..of_process(id, InterruptKind::Custom(other.kind.clone()), raw)
        },
    }
}

/// Returns an interrupt of an agent that waits in its process. A request that is nested too deep to keep is asked in our form.
fn of_process(id: InterruptId, kind: InterruptKind, raw: &str) -> Interrupt {
    Interrupt {
        id,
        payload: Json::parse_mended(raw.to_owned()).unwrap_or_else(|_| Json::null()),
        patience: Some(limits::DEFAULT_INTERRUPT_DEADLINE),
        ..Interrupt::new(kind)
    }
}

/// Returns a hosted agent's permission outcome. An answer that chooses no option is a cancellation, and so is one whose id names options that allow and options that reject. A time-out's option is valid for this call only. The outcome includes the answer's additional members.
pub fn permission_outcome(
    interrupt: &Interrupt,
    resolution: &Resolution,
) -> RequestPermissionResponse {
    let offered = |id: &String| interrupt.distinct_options().find(|option| option.id == *id);
    let chosen = match resolution {
        Resolution::Answered { answer: Answer::Option(option), .. } => offered(option),
        Resolution::TimedOut { option: Some(option) } => {
            offered(option).filter(|option| option.effect == Effect::Reject && !option.always)
        }
        _ => None,
    };
    let mut response = match chosen {
        Some(option) => RequestPermissionResponse::selected(option.id.as_str()),
        None => RequestPermissionResponse::cancelled(),
    };
    let (root, outcome) = extra_of_answer(resolution);
    response.extra = root;
    match &mut response.outcome {
        RequestPermissionOutcome::Cancelled(cancelled) => cancelled.extra = outcome,
        RequestPermissionOutcome::Selected(selected) => selected.extra = outcome,
        RequestPermissionOutcome::Other(_) => {}
    }
    response
}

/// Returns a hosted agent's elicitation outcome, with the answer's additional members.
pub fn elicitation_outcome(
    interrupt: &Interrupt,
    resolution: &Resolution,
) -> CreateElicitationResponse {
    let mut response = elicitation(interrupt, resolution);
    let (root, _) = extra_of_answer(resolution);
    match &mut response {
        CreateElicitationResponse::Accept(accept) => accept.extra = root,
        CreateElicitationResponse::Decline(decline) => decline.extra = root,
        CreateElicitationResponse::Cancel(cancel) => cancel.extra = root,
        CreateElicitationResponse::Other(_) => {}
    }
    response
}

fn elicitation(interrupt: &Interrupt, resolution: &Resolution) -> CreateElicitationResponse {
    let cancel = || CreateElicitationResponse::Cancel(ElicitationCancel::new());
    let decline = || CreateElicitationResponse::Decline(ElicitationDecline::new());
    let Resolution::Answered { answer, .. } = resolution else { return cancel() };
    if interrupt.kind == InterruptKind::Url {
        return match answer {
            Answer::Json(json) if json.as_str() == YES => {
                CreateElicitationResponse::Accept(ElicitationAccept::new())
            }
            Answer::Json(json) if json.as_str() == NOTHING => cancel(),
            _ => decline(),
        };
    }
    let Answer::Json(json) = answer else { return cancel() };
    match read_checked::<Map<ElicitationValue>>(json.as_str().trim(), Rules::Lenient) {
        Ok(content) => CreateElicitationResponse::Accept(ElicitationAccept {
            content: Some(content),
            ..ElicitationAccept::new()
        }),
        Err(_) if json.as_str() == NOTHING => cancel(),
        Err(_) => decline(),
    }
}
