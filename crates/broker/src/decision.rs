//! Decides about hosts. Questions about one host are one question, and its answer is for all connections that wait.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, RwLock};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
use trilogue_domain::lock;

use crate::access::{AgentAccess, NetworkAccess, Unlisted};
use crate::host_rules::HostPort;
use crate::observer::{BrokerObserver, ConnectionOutcome, ConnectionRecord, NetworkAnswer};

/// The most questions of a process that are open at once.
const MAX_QUESTIONS: usize = 32;
/// How long a permission holds, from the answer: programs open several connections for one task, and may have given up the first one.
const PERMISSION_TIME: Duration = Duration::from_secs(60);
/// The most permissions that hold at once. The oldest makes room.
const MAX_PERMISSIONS: usize = 256;
/// The most records of a process in a second. The next record counts those beyond.
const MAX_RECORDS_PER_SECOND: u32 = 200;

/// The most bytes of requests of a process that are held whole at once. Further ones wait.
const MAX_HELD_BYTES: usize = 256 * 1024 * 1024;
/// The bytes of a permit of them.
const PERMIT_BYTES: u64 = 1024;

/// What a process may reach now, with the questions about it.
#[derive(Debug)]
pub(crate) struct Decisions {
    access: RwLock<Arc<AgentAccess>>,
    observer: Arc<dyn BrokerObserver>,
    questions: Arc<Mutex<Questions>>,
    records: Mutex<RecordRate>,
    /// The room for requests that are held whole.
    held_bytes: Arc<Semaphore>,
    /// Cancelled when the process is gone.
    ended: CancellationToken,
}

type PendingAnswer = watch::Receiver<Option<NetworkAnswer>>;

#[derive(Debug, Default)]
struct Questions {
    open: HashMap<HostPort, PendingAnswer>,
    /// What was allowed, with the time of the answer.
    permissions: HashMap<HostPort, (NetworkAnswer, Instant)>,
}

/// The records of the current second.
#[derive(Debug)]
struct RecordRate {
    since: Instant,
    written: u32,
    omitted: u64,
}

/// Whether a connection may begin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Decision {
    pub(crate) outcome: ConnectionOutcome,
    pub(crate) by: Option<String>,
}

// === impl Decision ===

impl Decision {
    pub(crate) fn of(outcome: ConnectionOutcome) -> Self {
        Self { outcome, by: None }
    }

    fn by(outcome: ConnectionOutcome, by: String) -> Self {
        Self { outcome, by: Some(by) }
    }

    fn of_answer(answer: NetworkAnswer) -> Self {
        match answer.is_allowed {
            true => Self::by(ConnectionOutcome::Answered, answer.by),
            false => Self::by(ConnectionOutcome::Refused, answer.by),
        }
    }
}

// === impl Decisions ===

impl Decisions {
    pub(crate) fn new(
        access: AgentAccess,
        observer: Arc<dyn BrokerObserver>,
        ended: CancellationToken,
    ) -> Self {
        let (access, questions) = (RwLock::new(Arc::new(access)), Arc::default());
        let records = RecordRate { since: Instant::now(), written: 0, omitted: 0 };
        let held_bytes = Arc::new(Semaphore::new(MAX_HELD_BYTES / PERMIT_BYTES as usize));
        Self { access, observer, questions, records: Mutex::new(records), held_bytes, ended }
    }

    pub(crate) fn access(&self) -> Arc<AgentAccess> {
        Arc::clone(&self.access.read().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    pub(crate) fn set_access(&self, access: AgentAccess) {
        let mut current = self.access.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        *current = Arc::new(access);
    }

    pub(crate) fn observer(&self) -> &Arc<dyn BrokerObserver> {
        &self.observer
    }

    /// Passes a record to the observer, unless the process makes too many.
    pub(crate) fn record(&self, mut record: ConnectionRecord) {
        let Some(omitted) = lock(&self.records).admit() else { return };
        record.omitted = omitted;
        self.observer.record(record);
    }

    /// Waits for the room of a request that is held whole.
    pub(crate) async fn reserve_body(&self, length: u64) -> Option<OwnedSemaphorePermit> {
        let permits = u32::try_from(length.div_ceil(PERMIT_BYTES)).ok()?;
        Arc::clone(&self.held_bytes).acquire_many_owned(permits).await.ok()
    }

    /// Decides about a host. Waits for an answer if the host is a question.
    pub(crate) async fn decide(&self, target: &HostPort) -> Decision {
        let access = self.access();
        if let Some(decision) = refuse_beyond_ceiling(&access, target) {
            return decision;
        }
        let NetworkAccess::Listed { allow, unlisted } = &access.network else {
            return Decision::of(ConnectionOutcome::Open);
        };
        if let Some(pattern) = allow.find(target) {
            return Decision::by(ConnectionOutcome::Listed, pattern.to_string());
        }
        let decision = match unlisted {
            Unlisted::Refuse => return Decision::of(ConnectionOutcome::Refused),
            Unlisted::Ask => self.ask(target).await,
        };
        // The ceiling may have changed while the question was open.
        refuse_beyond_ceiling(&self.access(), target).unwrap_or(decision)
    }

    async fn ask(&self, target: &HostPort) -> Decision {
        let mut pending = match self.find_or_ask(target) {
            Ok(pending) => pending,
            Err(decision) => return decision,
        };
        let answer = pending.wait_for(Option::is_some).await.ok().and_then(|it| it.clone());
        answer.map_or(Decision::of(ConnectionOutcome::Refused), Decision::of_answer)
    }

    /// Returns the open question about a host, or asks it.
    ///
    /// # Errors
    /// The decision, if no question is needed or possible.
    fn find_or_ask(&self, target: &HostPort) -> Result<PendingAnswer, Decision> {
        let mut questions = lock(&self.questions);
        if let Some(answer) = questions.find_permission(target) {
            return Err(Decision::of_answer(answer));
        }
        if let Some(open) = questions.open.get(target) {
            return Ok(open.clone());
        }
        if questions.open.len() >= MAX_QUESTIONS {
            return Err(Decision::of(ConnectionOutcome::Limit));
        }
        let (answer, pending) = watch::channel(None);
        questions.open.insert(target.clone(), pending.clone());
        let (asking, ended) = (self.observer.ask(target), self.ended.clone());
        let (target, questions) = (target.clone(), Arc::clone(&self.questions));
        // Beyond the connection: a person may need longer than the program waits, and the answer is for its next attempt.
        tokio::spawn(async move {
            let answered = tokio::select! {
                biased;
                () = ended.cancelled() => None,
                answered = asking => Some(answered),
            };
            lock(&questions).settle(target, answered, &answer);
        });
        Ok(pending)
    }
}

/// Refuses what is beyond the ceiling.
pub(crate) fn refuse_beyond_ceiling(access: &AgentAccess, target: &HostPort) -> Option<Decision> {
    let ceiling = access.ceiling.as_ref()?;
    ceiling.find(target).is_none().then(|| Decision::of(ConnectionOutcome::Ceiling))
}

// === impl Questions ===

impl Questions {
    /// Ends a question. Keeps a permission. A refusal is not kept: the person may decide otherwise the next time.
    fn settle(
        &mut self,
        target: HostPort,
        answer: Option<NetworkAnswer>,
        pending: &watch::Sender<Option<NetworkAnswer>>,
    ) {
        self.open.remove(&target);
        pending.send_replace(answer.clone());
        let Some(answer) = answer.filter(|answer| answer.is_allowed) else { return };
        if self.permissions.len() >= MAX_PERMISSIONS {
            let oldest = self.permissions.iter().min_by_key(|(_, (_, since))| *since);
            let oldest = oldest.map(|(target, _)| target.clone());
            oldest.map(|target| self.permissions.remove(&target));
        }
        self.permissions.insert(target, (answer, Instant::now()));
    }

    fn find_permission(&mut self, target: &HostPort) -> Option<NetworkAnswer> {
        self.permissions.retain(|_, (_, since)| since.elapsed() < PERMISSION_TIME);
        self.permissions.get(target).map(|(answer, _)| answer.clone())
    }
}

// === impl RecordRate ===

impl RecordRate {
    /// Returns how many records were left out before this one. `None` if this one is left out too.
    fn admit(&mut self) -> Option<u64> {
        if self.since.elapsed() >= Duration::from_secs(1) {
            (self.since, self.written) = (Instant::now(), 0);
        }
        if self.written >= MAX_RECORDS_PER_SECOND {
            self.omitted += 1;
            return None;
        }
        self.written += 1;
        Some(std::mem::take(&mut self.omitted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(host: &str) -> HostPort {
        HostPort::new(host, 443).unwrap()
    }

    fn allowed() -> Option<NetworkAnswer> {
        Some(NetworkAnswer { is_allowed: true, by: "ada".to_owned() })
    }

    #[tokio::test(start_paused = true)]
    async fn a_permission_holds_for_a_minute_from_the_answer() {
        let mut questions = Questions::default();
        let (answer, pending) = watch::channel(None);
        questions.settle(target("a.example"), allowed(), &answer);
        assert_eq!(*pending.borrow(), allowed());
        tokio::time::advance(PERMISSION_TIME - Duration::from_millis(1)).await;
        assert_eq!(questions.find_permission(&target("a.example")), allowed());
        // Its use does not make it longer.
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(questions.find_permission(&target("a.example")), None);

        let refused = Some(NetworkAnswer { is_allowed: false, by: "ada".to_owned() });
        questions.settle(target("refused.example"), refused, &answer);
        assert_eq!(questions.find_permission(&target("refused.example")), None);
        for number in 0..=MAX_PERMISSIONS {
            questions.settle(target(&format!("host{number}.example")), allowed(), &answer);
        }
        assert_eq!(questions.permissions.len(), MAX_PERMISSIONS);
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_record_counts_those_that_were_left_out() {
        let mut rate = RecordRate { since: Instant::now(), written: 0, omitted: 0 };
        for _ in 0..MAX_RECORDS_PER_SECOND {
            assert_eq!(rate.admit(), Some(0));
        }
        assert_eq!((rate.admit(), rate.admit()), (None, None));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!((rate.admit(), rate.admit()), (Some(2), Some(0)));
    }
}
