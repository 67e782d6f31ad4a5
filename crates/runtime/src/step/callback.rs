//! Queues callbacks, each in the append of its event.

use serde_json::json;
use trilogue_domain::{Json, RunKey};
use trilogue_store::Change;
use trilogue_store::rows::{QueueItem, QueueKind, RunRow};

use super::CallbackEvents;
use super::output::StepOutput;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DeliveryKind {
    /// The run has ended or waits.
    Status,
    /// The output so far; a newer one replaces it while it waits.
    Values,
    Update,
}

// === impl StepOutput ===

impl StepOutput<'_> {
    /// Queues a callback that the run has ended or waits, according to its newest event.
    pub(super) fn call_back_status(&mut self, run: RunKey) {
        let item = self.state.runs.get(&run).and_then(|state| status(&state.row));
        self.offer(item);
    }

    /// Like [`Self::call_back_status`], for a run that is not open any more.
    pub(super) fn call_back_end(&mut self, row: &RunRow) {
        self.offer(status(row));
    }

    /// Queues callbacks about an agent's events. `before` is the run number of the event before the first.
    pub(super) fn call_back(&mut self, run: RunKey, before: u64, events: &CallbackEvents) {
        if *events == CallbackEvents::default() {
            return;
        }
        let Some(state) = self.state.runs.get(&run) else { return };
        let Some(callback) = &state.row.callback else { return };
        let row = &state.row;
        let mut items = Vec::new();
        if callback.updates {
            items.extend(
                events.updates.iter().map(|place| item(row, before + place, DeliveryKind::Update)),
            );
        }
        if callback.values && events.output > 0 {
            items.push(item(row, before + events.output, DeliveryKind::Values));
        }
        self.offer(items);
    }

    fn offer(&mut self, items: impl IntoIterator<Item = QueueItem>) {
        for mut item in items {
            item.due = self.now;
            self.change(Change::Offer(item));
        }
    }
}

fn status(row: &RunRow) -> Option<QueueItem> {
    let wants = row.callback.as_ref().is_some_and(|callback| callback.status);
    wants.then(|| item(row, row.last_run_number, DeliveryKind::Status))
}

/// Returns a callback about a run up to this run number. It is due at once.
fn item(row: &RunRow, number: u64, kind: DeliveryKind) -> QueueItem {
    let key = match kind {
        DeliveryKind::Status | DeliveryKind::Update => format!("{}.{number}", row.id),
        DeliveryKind::Values => format!("{}.values", row.id),
    };
    let reference = json!({
        "thread": row.thread.0,
        "run": row.key.0,
        "run_id": row.id.as_str(),
        "number": number,
        "of": kind.as_str(),
        "target": row.callback.as_ref().map(|callback| origin(&callback.url)),
    });
    QueueItem {
        kind: QueueKind::Callback,
        key,
        due: row.created_at,
        tenant: row.tenant.clone(),
        principal: row.principal.clone(),
        thread: Some(row.thread),
        reference: Json::from_value(&reference),
    }
}

/// Returns scheme and host of an address, which share the slots for deliveries. Credentials before the host do not make it another target.
fn origin(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}").to_ascii_lowercase()
}

// === impl DeliveryKind ===

impl DeliveryKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Values => "values",
            Self::Update => "update",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::origin;

    #[test]
    fn a_target_is_a_scheme_and_a_host() {
        for url in ["https://h.example:1/a", "HTTPS://H.example:1?q", "https://u:p@h.example:1#@x"]
        {
            assert_eq!(origin(url), "https://h.example:1", "{url}");
        }
        assert_ne!(origin("http://h.example:1"), origin("https://h.example:1"));
    }
}
