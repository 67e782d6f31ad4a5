//! Sends this protocol's callbacks: rendered from the log and signed.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use serde::Deserialize;
use trilogue_domain::error::Result;
use trilogue_domain::event::{Body, RunEvent};
use trilogue_domain::port::{Clock, Deliver, Delivered, Delivery};
use trilogue_domain::{
    AgentCard, Code, DeliveryId, Error, Event, InterruptId, Json, RunId, RunKey, RunStatus, Scope,
    ThreadKey, Timestamp, lock,
};
use trilogue_mapping::connect::{
    self as mapping, CallbackContent, RunFields, Updates, Values, ValuesOptions, callback_body,
};
use trilogue_runtime::Runtime;
use trilogue_store::Read;
use trilogue_store::rows::RunRow;

use super::view::card_of;
use crate::callback::{self, Callback, Sender, Undelivered};
use crate::core::callback_secrets::CallbackOwner;
use crate::core::options::Options;
use crate::core::ports::Ports;
use crate::stream::inline::inlined;
use crate::stream::log_reader::LogReader;

/// The most folds to keep between two callbacks of a run; together they hold at most as much as one response.
const MAX_KEPT_FOLDS: usize = 1_024;

/// Delivers the events of runs to the callback addresses of their clients.
pub struct CallbackDelivery {
    runtime: Runtime,
    read: Arc<dyn Read>,
    clock: Arc<dyn Clock>,
    sender: Sender,
    mounts: CallbackMounts,
    max_output_bytes: usize,
    /// Folds of runs whose growing output is sent: the next callback continues from there.
    folds: Mutex<Folds>,
}

/// The bases of links to large content: of the mount that created the run.
struct CallbackMounts {
    /// The base of links, by the prefix of each mount of this protocol.
    bases: HashMap<String, Arc<str>>,
    /// The base for runs whose mount is unknown or not served any more.
    first: Arc<str>,
}

/// Kept folds; the oldest is dropped first.
#[derive(Default)]
struct Folds {
    /// The folds, each with the sequence number of when it was kept.
    kept: HashMap<RunKey, (u64, RunFold)>,
    by_age: BTreeMap<u64, RunKey>,
    /// Their total size, in bytes of the log.
    size: usize,
    next: u64,
}

#[derive(Deserialize)]
struct CallbackRef {
    run: i64,
    run_id: String,
    number: u64,
    of: DeliveryKind,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum DeliveryKind {
    Status,
    Values,
    Update,
}

struct RunFold {
    values: Values,
    /// The size of the folded part of the log, in bytes.
    size: usize,
    number: u64,
    at: Timestamp,
    status: RunStatus,
}

/// A rendered callback, and the question in it.
struct Rendered {
    callback: Callback,
    asks: Option<InterruptId>,
}

// === impl CallbackDelivery ===

impl CallbackDelivery {
    /// Creates the delivery for a server with these options and addresses, through this sender. `prefixes` are those of the mounts of this protocol.
    pub fn new(
        options: &Options,
        addresses: &[SocketAddr],
        prefixes: &[&str],
        ports: &Ports,
        sender: Sender,
    ) -> Self {
        Self {
            runtime: ports.runtime.clone(),
            read: Arc::clone(&ports.read),
            clock: Arc::clone(&ports.clock),
            sender,
            mounts: CallbackMounts::new(&options.address(addresses), prefixes),
            max_output_bytes: options.max_output_bytes,
            folds: Mutex::default(),
        }
    }

    async fn attempt(&self, delivery: &Delivery) -> Result<(), Undelivered> {
        let reference: CallbackRef = serde_json::from_slice(delivery.reference.as_bytes())
            .map_err(|error| {
                Undelivered::permanent(format!("invalid callback reference: {error}"))
            })?;
        let row = self.run(delivery, &reference).await?;
        self.runtime.check_creator_sees(&row).await?;
        let rendered = self.render(delivery, &row, &reference).await?;
        self.sender.send(&rendered.callback, self.clock.now()).await?;
        if let Some(interrupt) = rendered.asks {
            self.note_shown(&row, &interrupt).await;
        }
        Ok(())
    }

    async fn run(&self, delivery: &Delivery, reference: &CallbackRef) -> Result<RunRow> {
        let gone = || Error::new(Code::RunNotFound, "the run is gone");
        let id = RunId::parse(&reference.run_id).map_err(|_| gone())?;
        let scope = Scope::of_tenant(&delivery.tenant);
        let row = self.read.run(&scope, &id).await?;
        row.filter(|row| row.key == RunKey(reference.run)).ok_or_else(gone)
    }

    async fn render(
        &self,
        delivery: &Delivery,
        row: &RunRow,
        reference: &CallbackRef,
    ) -> Result<Rendered> {
        let callback = row.callback.as_ref();
        let url = callback.map(|callback| callback.url.as_ref().to_owned());
        let url = url.ok_or_else(|| Error::new(Code::NotFound, "the run has no callback"))?;
        let card = card_of(&self.runtime, &row.agent);
        // Use the queue's id: it changes with each newer state of the output, so that receivers that drop repetitions do not drop a new state.
        let id = &delivery.id;
        let nothing = || Error::new(Code::NotFound, "nothing is left to deliver");
        let mut asks = None;
        let body = match reference.of {
            DeliveryKind::Update => {
                let (event, at) =
                    self.update(&card, row, reference.number).await?.ok_or_else(nothing)?;
                let run = self.render_run(&card, row, RunStatus::Running, at);
                callback_body(&run, CallbackContent::Update(&event), id)
            }
            of => {
                let fold = self.fold(card.clone(), row, reference.number).await?;
                let run = self.render_run(&card, row, fold.status, fold.at);
                let body = if of == DeliveryKind::Values {
                    let output = fold.values.partial().ok_or_else(nothing)?;
                    callback_body(&run, CallbackContent::Values(&output), id)
                } else {
                    asks = fold.values.interrupt().map(|interrupt| interrupt.id.clone());
                    let output = fold.values.output().ok_or_else(nothing)?;
                    callback_body(&run, CallbackContent::Status(&output), id)
                };
                self.keep(row.key, fold);
                body
            }
        };
        let owner = CallbackOwner { tenant: row.tenant.clone(), principal: row.principal.clone() };
        let body = Bytes::from(body);
        let callback = Callback { id: DeliveryId::parse(id)?, url, owner, body };
        Ok(Rendered { callback, asks })
    }

    /// Renders the run in its state at an event.
    fn render_run(
        &self,
        card: &AgentCard,
        row: &RunRow,
        status: RunStatus,
        at: Timestamp,
    ) -> Vec<u8> {
        #[derive(Deserialize, Default)]
        struct KeptRequest {
            #[serde(default)]
            configuration_id: Option<String>,
        }
        let agent_id = mapping::agent_id(card);
        let made_up = || Json::from_value(&serde_json::json!({ "agent_id": agent_id }));
        let creation = row.request.clone().unwrap_or_else(made_up);
        let kept: KeptRequest = serde_json::from_slice(creation.as_bytes()).unwrap_or_default();
        mapping::run(&RunFields {
            id: row.id.as_str(),
            thread_id: row.thread_id.as_str(),
            agent_id: &agent_id,
            configuration_id: kept.configuration_id.as_deref(),
            status,
            is_scheduled: false,
            created_at: row.created_at,
            updated_at: at,
            creation: creation.as_bytes(),
        })
    }

    async fn fold(&self, card: AgentCard, row: &RunRow, number: u64) -> Result<RunFold> {
        let kept = self.folds().take(row.key).filter(|fold| fold.number <= number);
        let mut fold = kept.unwrap_or_else(|| RunFold {
            values: Values::new(
                ValuesOptions {
                    card: Arc::new(card),
                    base: self.mounts.base_of(row),
                    max_inline_bytes: self.max_output_bytes as u64,
                },
                &row.id,
                &row.thread_id,
            ),
            size: 0,
            number: 0,
            at: row.created_at,
            status: RunStatus::Queued,
        });
        let mut log = LogReader::new(self.read.as_ref(), row.thread, Some(row.key))
            .after(fold.number)
            .until(number);
        let size = fold.size;
        while let Some(page) = log.next().await? {
            for event in page.events()? {
                fold.take(&self.read, row.thread, event).await?;
            }
            fold.size = size + log.bytes();
            if fold.size > self.max_output_bytes {
                let most = self.max_output_bytes;
                let why = format!("what the run holds is larger than {most} bytes");
                return Err(Error::new(Code::BodyTooLarge, why));
            }
        }
        Ok(fold)
    }

    fn keep(&self, run: RunKey, fold: RunFold) {
        if fold.status != RunStatus::Running {
            return;
        }
        self.folds().keep(run, fold, self.max_output_bytes);
    }

    fn folds(&self) -> std::sync::MutexGuard<'_, Folds> {
        lock(&self.folds)
    }

    /// Renders one update with its time; reads only the update's own frame.
    async fn update(
        &self,
        card: &AgentCard,
        row: &RunRow,
        number: u64,
    ) -> Result<Option<(Bytes, Timestamp)>> {
        let mut log = LogReader::new(self.read.as_ref(), row.thread, Some(row.key))
            .after(number.saturating_sub(1))
            .until(number)
            .pages_of(1);
        if let Some(page) = log.next().await?
            && let Some(event) = page.events()?.first().copied()
        {
            let mut updates = Updates::new(card, &row.id, &row.thread_id);
            // The agent has started; without a start there would be no update.
            let started = Event { body: Body::Run(RunEvent::Started), ..event.clone() };
            updates.push(&started);
            let event = inlined(&self.read, row.thread, event, |_| true).await?;
            return Ok(updates.push(&event).map(|update| (update, event.at)));
        }
        Ok(None)
    }

    /// Records that the receiver has read a question: while it is pending, an answer without a name is for it. If the store cannot be read, an answer has to name it.
    async fn note_shown(&self, row: &RunRow, interrupt: &InterruptId) {
        let scope = Scope::of_tenant(&row.tenant);
        if let Ok(Some(found)) = self.read.interrupt(&scope, interrupt).await
            && found.resolution.is_none()
        {
            self.runtime.record_shown_question(&row.principal, &row.id, interrupt);
        }
    }
}

impl Deliver for CallbackDelivery {
    fn deliver<'a>(
        &'a self,
        delivery: &'a Delivery,
    ) -> Pin<Box<dyn Future<Output = Delivered> + Send + 'a>> {
        callback::outcome(self.attempt(delivery))
    }
}

impl fmt::Debug for CallbackDelivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallbackDelivery").field("sender", &self.sender).finish_non_exhaustive()
    }
}

// === impl CallbackMounts ===

impl CallbackMounts {
    fn new(address: &str, prefixes: &[&str]) -> Self {
        let base = |prefix: &&str| Arc::from(format!("{address}{prefix}"));
        Self {
            bases: prefixes.iter().map(|prefix| ((*prefix).to_owned(), base(prefix))).collect(),
            first: prefixes.first().map_or_else(|| Arc::from(address), base),
        }
    }

    fn base_of(&self, row: &RunRow) -> Arc<str> {
        let base = row.mount.as_deref().and_then(|prefix| self.bases.get(prefix));
        Arc::clone(base.unwrap_or(&self.first))
    }
}

// === impl Folds ===

impl Folds {
    fn take(&mut self, run: RunKey) -> Option<RunFold> {
        let (age, fold) = self.kept.remove(&run)?;
        self.by_age.remove(&age);
        self.size -= fold.size;
        Some(fold)
    }

    /// Keeps a fold. Drops the oldest folds while all together exceed this many bytes.
    fn keep(&mut self, run: RunKey, fold: RunFold, max_bytes: usize) {
        drop(self.take(run));
        self.size += fold.size;
        self.next += 1;
        self.by_age.insert(self.next, run);
        self.kept.insert(run, (self.next, fold));
        while self.kept.len() > MAX_KEPT_FOLDS || self.size > max_bytes {
            let Some((_, oldest)) = self.by_age.first_key_value() else { return };
            let oldest = *oldest;
            drop(self.take(oldest));
        }
    }
}

// === impl RunFold ===

impl RunFold {
    async fn take(&mut self, read: &Arc<dyn Read>, thread: ThreadKey, event: &Event) -> Result<()> {
        let values = &self.values;
        let event = inlined(read, thread, event, |blob| values.can_inline(blob)).await?;
        self.values.push(&event);
        (self.number, self.at) = (event.run_number, event.at);
        self.status = match &event.body {
            Body::Run(RunEvent::Ended(outcome)) => outcome.status(),
            _ if self.values.interrupt().is_some() => RunStatus::Interrupted,
            Body::Run(RunEvent::Created { .. }) => RunStatus::Queued,
            _ => RunStatus::Running,
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use trilogue_domain::AgentName;

    use super::super::view::unknown;
    use super::*;

    fn fold(size: usize) -> RunFold {
        let run = RunId::generate();
        let show = ValuesOptions {
            card: Arc::new(unknown(AgentName::parse("gone").unwrap())),
            base: Arc::from(""),
            max_inline_bytes: 0,
        };
        let values = Values::new(show, &run, &trilogue_domain::ThreadId::generate());
        let at = Timestamp::from_micros(0);
        RunFold { values, size, number: 1, at, status: RunStatus::Running }
    }

    fn kept_runs(folds: &Folds) -> Vec<i64> {
        let mut kept: Vec<_> = folds.kept.keys().map(|run| run.0).collect();
        kept.sort_unstable();
        kept
    }

    #[test]
    fn only_the_oldest_fold_gives_way() {
        let mut folds = Folds::default();
        for run in 1..=3 {
            folds.keep(RunKey(run), fold(10), 30);
        }
        assert_eq!(kept_runs(&folds), [1, 2, 3]);
        let first = folds.take(RunKey(1)).unwrap();
        folds.keep(RunKey(1), first, 30);
        folds.keep(RunKey(4), fold(5), 30);
        assert_eq!((kept_runs(&folds), folds.size), (vec![1, 3, 4], 25));
        folds.keep(RunKey(5), fold(31), 30);
        assert_eq!((kept_runs(&folds), folds.size, folds.by_age.len()), (vec![], 0, 0));
        let many = i64::try_from(MAX_KEPT_FOLDS).unwrap();
        for run in 0..=many {
            folds.keep(RunKey(run), fold(1), usize::MAX);
        }
        assert_eq!(kept_runs(&folds).first(), Some(&1));
        assert_eq!(folds.kept.len(), MAX_KEPT_FOLDS);
    }
}
