//! Decides about hosts. Questions about one host are one question, and its answer is for all connections that wait.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use trilogue_domain::lock;

use crate::access::{AgentAccess, NetworkAccess, Unlisted};
use crate::host_rules::HostPort;
use crate::observer::{BrokerObserver, ConnectionOutcome, NetworkAnswer};

/// The most questions of a process that are open at once.
const MAX_QUESTIONS: usize = 32;
/// How long an answer holds: programs open several connections for one task, and may have given up the first one.
const ANSWER_TIME: Duration = Duration::from_secs(60);
/// The most answers that are remembered. The oldest makes room.
const MAX_ANSWERS: usize = 256;

/// What a process may reach now, with the questions about it.
#[derive(Debug)]
pub(crate) struct Decisions {
    access: RwLock<Arc<AgentAccess>>,
    observer: Arc<dyn BrokerObserver>,
    questions: Mutex<Questions>,
    /// Cancelled when the process is gone.
    ended: CancellationToken,
    tasks: TaskTracker,
}

#[derive(Debug, Default)]
struct Questions {
    open: HashMap<HostPort, watch::Receiver<Option<NetworkAnswer>>>,
    answered: HashMap<HostPort, (NetworkAnswer, Instant)>,
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
}

// === impl Decisions ===

impl Decisions {
    pub(crate) fn new(
        access: AgentAccess,
        observer: Arc<dyn BrokerObserver>,
        ended: CancellationToken,
    ) -> Self {
        let (access, tasks) = (RwLock::new(Arc::new(access)), TaskTracker::new());
        Self { access, observer, questions: Mutex::default(), ended, tasks }
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

    /// Decides about a host. Waits for the answer if there is a question.
    pub(crate) async fn decide(&self, target: &HostPort) -> Decision {
        let access = self.access();
        if let Some(decision) = refuse_beyond_ceiling(&access, target) {
            return decision;
        }
        let unlisted = match &access.network {
            NetworkAccess::Open => return Decision::of(ConnectionOutcome::Open),
            NetworkAccess::Listed { allow, unlisted } => match allow.find(target) {
                Some(pattern) => {
                    return Decision::by(ConnectionOutcome::Listed, pattern.to_string());
                }
                None => *unlisted,
            },
        };
        match unlisted {
            Unlisted::Refuse => Decision::of(ConnectionOutcome::Refused),
            Unlisted::Ask => self.ask(target).await,
        }
    }

    async fn ask(&self, target: &HostPort) -> Decision {
        let Some(mut answer) = self.question(target) else {
            return Decision::of(ConnectionOutcome::Limit);
        };
        let answered = answer.wait_for(Option::is_some).await.ok().and_then(|it| it.clone());
        match answered {
            Some(NetworkAnswer { is_allowed: true, by }) => {
                Decision::by(ConnectionOutcome::Answered, by)
            }
            Some(NetworkAnswer { is_allowed: false, by }) => {
                Decision::by(ConnectionOutcome::Refused, by)
            }
            None => Decision::of(ConnectionOutcome::Refused),
        }
    }

    /// Returns the answer of the open question about a host, or asks. `None` if too many are open.
    fn question(&self, target: &HostPort) -> Option<watch::Receiver<Option<NetworkAnswer>>> {
        let mut questions = lock(&self.questions);
        if let Some(answer) = questions.remembered_answer(target) {
            return Some(watch::channel(Some(answer)).1);
        }
        if let Some(open) = questions.open.get(target) {
            return Some(open.clone());
        }
        if questions.open.len() >= MAX_QUESTIONS {
            return None;
        }
        let (answer, waiting) = watch::channel(None);
        questions.open.insert(target.clone(), waiting.clone());
        let (asking, ended) = (self.observer.ask(target), self.ended.clone());
        // Beyond the connection: a person may need longer than the program waits, and the answer is for its next attempt.
        self.tasks.spawn(async move {
            let answered = tokio::select! {
                biased;
                () = ended.cancelled() => None,
                answered = asking => Some(answered),
            };
            answer.send_replace(answered);
        });
        Some(waiting)
    }
}

/// Refuses what is beyond the ceiling.
pub(crate) fn refuse_beyond_ceiling(access: &AgentAccess, target: &HostPort) -> Option<Decision> {
    let ceiling = access.ceiling.as_ref()?;
    ceiling.find(target).is_none().then(|| Decision::of(ConnectionOutcome::Ceiling))
}

// === impl Questions ===

impl Questions {
    /// Returns the answer about a host that still holds. Only permission is remembered: a person who has refused may think again.
    fn remembered_answer(&mut self, target: &HostPort) -> Option<NetworkAnswer> {
        let is_answered = |answer: &watch::Receiver<Option<NetworkAnswer>>| {
            answer.borrow().is_some() || answer.has_changed().is_err()
        };
        let ended: Vec<_> = self
            .open
            .iter()
            .filter(|(_, answer)| is_answered(answer))
            .map(|(it, _)| it.clone())
            .collect();
        let now = Instant::now();
        for target in ended {
            let answer = self.open.remove(&target).and_then(|answer| answer.borrow().clone());
            if let Some(answer) = answer.filter(|answer| answer.is_allowed) {
                self.answered.insert(target, (answer, now));
            }
        }
        self.answered.retain(|_, (_, at)| now.duration_since(*at) < ANSWER_TIME);
        if self.answered.len() > MAX_ANSWERS {
            let oldest = self.answered.iter().min_by_key(|(_, (_, at))| *at);
            let oldest = oldest.map(|(target, _)| target.clone());
            oldest.map(|target| self.answered.remove(&target));
        }
        self.answered.get(target).map(|(answer, _)| answer.clone())
    }
}
