//! Callbacks: what a run's client is told of is put into the queue in the append that it stands in.

use serde_json::json;
use trilogue_domain::{Json, RunKey};
use trilogue_store::Change;
use trilogue_store::rows::{QueueItem, QueueKind, RunRow};

use super::Told;
use super::output::Output;

/// What a callback tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Of {
    /// The run has ended or waits.
    Status,
    /// The output so far; a newer one replaces it while it waits.
    Values,
    /// An update of the agent's own.
    Update,
}

// === impl Output ===

impl Output<'_> {
    /// Tells that the run has ended or waits, as its newest event says.
    pub(super) fn call_back_status(&mut self, run: RunKey) {
        let item = self.state.runs.get(&run).and_then(|state| status(&state.row));
        self.offer(item);
    }

    /// As [`Self::call_back_status`], for a run that is not open any more.
    pub(super) fn call_back_end(&mut self, row: &RunRow) {
        self.offer(status(row));
    }

    /// Tells of what an agent has emitted. `before` is the run number of the event before the first.
    pub(super) fn call_back(&mut self, run: RunKey, before: u64, told: &Told) {
        if *told == Told::default() {
            return;
        }
        let Some(state) = self.state.runs.get(&run) else { return };
        let Some(callback) = &state.row.callback else { return };
        let row = &state.row;
        let mut items = Vec::new();
        if callback.updates {
            items.extend(told.updates.iter().map(|place| item(row, before + place, Of::Update)));
        }
        if callback.values && told.output > 0 {
            items.push(item(row, before + told.output, Of::Values));
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
    wants.then(|| item(row, row.last_run_number, Of::Status))
}

/// A callback about a run up to this run number. It is due at once.
fn item(row: &RunRow, number: u64, of: Of) -> QueueItem {
    let key = match of {
        Of::Status | Of::Update => format!("{}.{number}", row.id),
        Of::Values => format!("{}.values", row.id),
    };
    let reference = json!({
        "thread": row.thread.0,
        "run": row.key.0,
        "run_id": row.id.as_str(),
        "number": number,
        "of": of.as_str(),
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

// === impl Of ===

impl Of {
    fn as_str(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Values => "values",
            Self::Update => "update",
        }
    }
}
