//! Reads the plans in an agent's originals.

use trilogue_domain::Body;
use trilogue_domain::event::{PlanContent, PlanEntry, StateEvent};
use trilogue_wire::agent_client::splice::{decode, get, get_text, items, members};

/// Reads the update `plan`.
pub(super) fn plan(update: &str) -> Option<Body> {
    Some(Body::State(StateEvent::Plan(entries(get(update, &["entries"])?))))
}

/// Reads the update `plan_update`.
pub(super) fn plan_update(update: &str) -> Option<Body> {
    let given = get(update, &["plan"])?;
    let plan = get_text(given, &["planId"])?.into_owned();
    let content = match &*get_text(given, &["type"])? {
        "items" => PlanContent::Entries(entries(get(given, &["entries"])?)),
        "markdown" => PlanContent::Markdown {
            text: get_text(given, &["content"])?.into_owned(),
            path: get_text(given, &["path"]).map(|path| path.into_owned()),
        },
        _ => return None,
    };
    Some(Body::State(StateEvent::PlanUpdated { plan, content }))
}

/// Reads the update `plan_removed`.
pub(super) fn plan_removed(update: &str) -> Option<Body> {
    let plan = get_text(update, &["planId"])?.into_owned();
    Some(Body::State(StateEvent::PlanRemoved { plan }))
}

/// Reads the valid entries of a list.
fn entries(list: &str) -> Vec<PlanEntry> {
    let read = |entry| {
        let (mut content, mut status) = (None, None);
        for member in members(entry) {
            match &*member.key {
                "content" => content = decode(member.value),
                "status" => status = decode(member.value),
                _ => {}
            }
        }
        Some(PlanEntry { content: content?.into_owned(), status: status?.into_owned() })
    };
    items(list).filter_map(read).collect()
}
