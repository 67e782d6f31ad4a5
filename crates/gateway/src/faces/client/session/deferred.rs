//! Prompts whose runs have not started: clients receive them when the run starts, so that a conversation shows one turn after the other.

use std::collections::HashMap;

use trilogue_domain::event::{Event, RunEvent, ThreadEvent};
use trilogue_domain::{Body, RunId, RunKey};

/// The prompts of runs that have not started.
#[derive(Debug, Default)]
pub(super) struct DeferredPrompts {
    waiting: HashMap<RunKey, Vec<DeferredEvent>>,
    /// The prompts of runs that ended before they started, while another run was active.
    late: Vec<DeferredEvent>,
    /// Runs that have started and not ended.
    active: Vec<RunKey>,
    /// The ids of the waiting and the active runs.
    ids: HashMap<RunKey, RunId>,
}

/// An event of a prompt.
#[derive(Clone, Debug)]
pub(super) struct DeferredEvent {
    pub(super) event: Event,
    pub(super) run: Option<RunId>,
    /// Whether the client receives it: another client sent it, or this client replays the history.
    pub(super) is_sent: bool,
}

/// When an event is rendered.
#[derive(Debug)]
pub(super) enum Deferral {
    /// When its run starts.
    Deferred,
    /// Now, followed by these events.
    Now(Vec<DeferredEvent>),
}

// === impl DeferredPrompts ===

impl DeferredPrompts {
    /// Takes the next event. `is_sent`: whether the client receives a user's message now.
    pub(super) fn push(&mut self, event: &Event, run: Option<&RunId>, is_sent: bool) -> Deferral {
        if let Body::Thread(ThreadEvent::RunRemoved { run, .. }) = &event.body {
            return Deferral::Now(self.remove_run(run));
        }
        let Some(key) = event.run else { return Deferral::Now(Vec::new()) };
        let deferred = || DeferredEvent { event: event.clone(), run: run.cloned(), is_sent };
        match &event.body {
            Body::Run(RunEvent::Created { input, run: id, .. }) => {
                self.ids.insert(key, id.clone());
                let value = input.iter().map(|_| deferred()).collect();
                self.waiting.insert(key, value);
                // Only its input is rendered.
                Deferral::Deferred
            }
            Body::Message(_) => {
                let Some(waiting) = self.waiting.get_mut(&key) else {
                    return Deferral::Now(Vec::new());
                };
                // Messages replace the value that was built from them.
                waiting.retain(|earlier| matches!(earlier.event.body, Body::Message(_)));
                waiting.push(deferred());
                Deferral::Deferred
            }
            Body::Run(RunEvent::Started) => {
                let mut begun = std::mem::take(&mut self.late);
                begun.extend(self.waiting.remove(&key).unwrap_or_default());
                self.active.push(key);
                self.ids.extend(run.map(|id| (key, id.clone())));
                Deferral::Now(begun)
            }
            Body::Run(RunEvent::Ended(_)) => {
                self.late.extend(self.waiting.remove(&key).unwrap_or_default());
                Deferral::Now(self.end_run(key))
            }
            _ => Deferral::Now(Vec::new()),
        }
    }

    /// Whether the client will receive the prompt of a run that has not started.
    pub(super) fn shows_prompt(&self, run: RunKey) -> bool {
        self.waiting.get(&run).is_some_and(|prompt| prompt.iter().any(|it| it.is_sent))
    }

    /// Ends a run. Returns the events to render after its end.
    fn end_run(&mut self, key: RunKey) -> Vec<DeferredEvent> {
        self.ids.remove(&key);
        let before = self.active.len();
        self.active.retain(|run| *run != key);
        // Late prompts must not interrupt another turn. A run that waits for an answer may be active at the same time.
        let had_started = self.active.len() < before;
        match had_started || self.active.is_empty() {
            true => std::mem::take(&mut self.late),
            false => Vec::new(),
        }
    }

    /// Removes a run with all its messages and its end. Returns the events to render after it.
    fn remove_run(&mut self, run: &RunId) -> Vec<DeferredEvent> {
        self.late.retain(|deferred| deferred.run.as_ref() != Some(run));
        let found = self.ids.iter().find(|(_, id)| *id == run).map(|(key, _)| *key);
        let Some(key) = found else { return Vec::new() };
        self.waiting.remove(&key);
        self.end_run(key)
    }

    /// Whether a run has started and not ended.
    pub(super) fn has_active_run(&self) -> bool {
        !self.active.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use trilogue_domain::event::Event;
    use trilogue_domain::{Json, Outcome, Timestamp};

    use super::*;

    fn id(run: i64) -> RunId {
        RunId::parse(&format!("run-{run}")).unwrap()
    }

    fn push(prompts: &mut DeferredPrompts, run: i64, body: RunEvent) -> Vec<String> {
        push_body(prompts, Some(run), Body::Run(body))
    }

    /// Returns the runs whose prompts are rendered with this event.
    fn push_body(prompts: &mut DeferredPrompts, run: Option<i64>, body: Body) -> Vec<String> {
        let at = Timestamp::from_micros(0);
        let key = run.map(RunKey);
        let event = Event { number: 1, run: key, run_number: 1, at, body, original: None };
        match prompts.push(&event, run.map(id).as_ref(), true) {
            Deferral::Deferred => Vec::new(),
            Deferral::Now(now) => {
                now.into_iter().map(|it| it.run.unwrap().as_str().to_owned()).collect()
            }
        }
    }

    fn created(run: i64) -> RunEvent {
        let agent = trilogue_domain::AgentName::parse("a").unwrap();
        let input = Some(Json::from_value(&serde_json::json!("x")));
        RunEvent::Created { run: id(run), agent, input, audit: None }
    }

    fn end_event() -> RunEvent {
        RunEvent::Ended(Outcome::Completed)
    }

    fn push_removal(prompts: &mut DeferredPrompts, run: i64) -> Vec<String> {
        let reason = "rolled_back".to_owned();
        push_body(prompts, None, Body::Thread(ThreadEvent::RunRemoved { run: id(run), reason }))
    }

    #[test]
    fn a_run_that_never_started_follows_the_active_turn() {
        let mut prompts = DeferredPrompts::default();
        for run in [1, 2] {
            push(&mut prompts, run, created(run));
            push(&mut prompts, run, RunEvent::Started);
        }
        push(&mut prompts, 3, created(3));
        assert!(push(&mut prompts, 3, end_event()).is_empty());
        assert_eq!(push(&mut prompts, 2, end_event()), ["run-3"]);
        assert!(push(&mut prompts, 1, end_event()).is_empty());
        assert!(!prompts.has_active_run());
    }

    #[test]
    fn nothing_of_a_removed_run_is_rendered() {
        let mut prompts = DeferredPrompts::default();
        push(&mut prompts, 1, created(1));
        push(&mut prompts, 1, RunEvent::Started);
        for run in 2..=4 {
            push(&mut prompts, run, created(run));
        }
        // One run has ended before, the other has not.
        for run in [2, 4] {
            assert!(push(&mut prompts, run, end_event()).is_empty());
        }
        assert!(push_removal(&mut prompts, 2).is_empty());
        assert!(push_removal(&mut prompts, 3).is_empty());
        assert_eq!(push_removal(&mut prompts, 1), ["run-4"]);
        assert!(!prompts.has_active_run());
        assert!(prompts.ids.is_empty() && prompts.waiting.is_empty());
    }
}
