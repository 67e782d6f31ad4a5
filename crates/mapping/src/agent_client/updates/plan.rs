//! Plans as updates: by their ids, and all together for clients that know only one plan.

use trilogue_domain::Body;
use trilogue_domain::event::{PlanContent, PlanEntry, StateEvent};
use trilogue_wire::agent_client::splice::{get, items};

use super::{Update, Updates};
use crate::agent_client::block::quoted;
use crate::agent_client::{Gate, body_of_update};
use crate::plan::{MergedPlans, entries_of_markdown};

/// The most bytes of a plan's entries that are merged with other plans; the entries after them are left out.
const MAX_PLAN_BYTES: usize = 128 * 1024;

/// The entries of all plans as JSON.
pub(super) type PlanList = MergedPlans<String>;

// === impl Updates ===

impl Updates {
    /// Adds the update of a plan that no agent of this protocol sent.
    pub(super) fn plan_event(&mut self, event: &StateEvent, out: &mut Vec<Update>) {
        let (mut update, gate) = match event {
            StateEvent::Plan(entries) => {
                let entries = entries_json(entries);
                (format!("{{\"sessionUpdate\":\"plan\",\"entries\":{entries}}}"), Gate::Plan)
            }
            StateEvent::PlanUpdated { plan, content } => {
                (plan_update(plan, content), Gate::PlanById)
            }
            StateEvent::PlanRemoved { plan } => {
                let plan = quoted(plan);
                let removed = format!("{{\"sessionUpdate\":\"plan_removed\",\"planId\":{plan}}}");
                (removed, Gate::PlanById)
            }
            _ => return,
        };
        self.record_plan(event, &update);
        update.pop();
        self.update(&update, gate, out);
    }

    /// Records the plan of a relayed update with these `params`.
    pub fn record_relayed_plan(&mut self, params: &[u8]) {
        let Ok(params) = std::str::from_utf8(params) else { return };
        if let (Body::State(event), Some(update)) =
            (body_of_update(params), get(params, &["update"]))
        {
            self.record_plan(&event, update);
        }
    }

    /// Whether a client that knows only one plan gets the merged one instead of the agent's.
    pub fn merges_plans(&self) -> bool {
        self.plans.has_ids()
    }

    /// Returns the params of the update `plan` with the entries of all plans.
    pub fn merged_plan(&self) -> Vec<u8> {
        let mut update = String::from("{\"sessionUpdate\":\"plan\",\"entries\":[");
        for (place, entry) in self.plans.entries().enumerate() {
            update.push_str(if place > 0 { "," } else { "" });
            update.push_str(entry);
        }
        update.push(']');
        let mut out = Vec::new();
        self.update(&update, Gate::Always, &mut out);
        out.pop().map(|update| update.params).unwrap_or_default()
    }

    fn record_plan(&mut self, event: &StateEvent, update: &str) {
        match event {
            StateEvent::Plan(_) => {
                let entries = get(update, &["entries"]).unwrap_or_default();
                self.plans.set(None, listed(items(entries).map(str::to_owned)));
            }
            StateEvent::PlanUpdated { plan, content: PlanContent::Entries(_) } => {
                let entries = get(update, &["plan", "entries"]).unwrap_or_default();
                self.plans.set(Some(plan), listed(items(entries).map(str::to_owned)));
            }
            StateEvent::PlanUpdated { plan, content: PlanContent::Markdown { text, .. } } => {
                let entries = entries_of_markdown(text);
                self.plans.set(Some(plan), listed(entries.iter().map(entry_json)));
            }
            StateEvent::PlanRemoved { plan } => self.plans.remove(plan),
            _ => {}
        }
    }
}

/// Returns the first entries that are merged with other plans.
fn listed(entries: impl Iterator<Item = String>) -> Vec<String> {
    let mut bytes = 0;
    let fits = |entry: &String| {
        bytes += entry.len();
        bytes <= MAX_PLAN_BYTES
    };
    entries.take_while(fits).collect()
}

fn plan_update(plan: &str, content: &PlanContent) -> String {
    let id = quoted(plan);
    let content = match content {
        PlanContent::Entries(entries) => {
            format!("\"type\":\"items\",\"planId\":{id},\"entries\":{}", entries_json(entries))
        }
        PlanContent::Markdown { text, path } => {
            let path = path.as_deref().map(|path| format!(",\"path\":{}", quoted(path)));
            let (text, path) = (quoted(text), path.unwrap_or_default());
            format!("\"type\":\"markdown\",\"planId\":{id},\"content\":{text}{path}")
        }
    };
    format!("{{\"sessionUpdate\":\"plan_update\",\"plan\":{{{content}}}}}")
}

fn entries_json(entries: &[PlanEntry]) -> String {
    let entries: Vec<_> = entries.iter().map(entry_json).collect();
    format!("[{}]", entries.join(","))
}

fn entry_json(entry: &PlanEntry) -> String {
    let status = match entry.status.as_str() {
        status @ ("in_progress" | "completed") => status,
        _ => "pending",
    };
    let content = quoted(&entry.content);
    format!("{{\"content\":{content},\"priority\":\"medium\",\"status\":\"{status}\"}}")
}
