//! Prompts whose turns have not begun: they are shown when those begin, so that a conversation reads one turn after the other.

use std::collections::HashMap;

use trilogue_domain::event::{Event, RunEvent, ThreadEvent};
use trilogue_domain::{Body, RunId, RunKey};

/// The prompts of runs that have not begun, and the runs that have.
#[derive(Debug, Default)]
pub(super) struct Queued {
    waiting: HashMap<RunKey, Vec<Prompted>>,
    /// Those of runs that ended before they began, while another was at work.
    late: Vec<Prompted>,
    at_work: Vec<RunKey>,
    /// The ids of both.
    ids: HashMap<RunKey, RunId>,
}

/// Something that was said in a prompt.
#[derive(Clone, Debug)]
pub(super) struct Prompted {
    pub(super) event: Event,
    pub(super) run: Option<RunId>,
    /// Whether the client is told: it did not say it itself, or has lost what it said.
    pub(super) is_told: bool,
}

/// When an event is shown.
#[derive(Debug)]
pub(super) enum When {
    /// When its run begins.
    Later,
    /// Now, and then these.
    Now(Vec<Prompted>),
}

// === impl Queued ===

impl Queued {
    /// Takes the next event. `is_told` says whether the client is told now what a user says.
    pub(super) fn push(&mut self, event: &Event, run: Option<&RunId>, is_told: bool) -> When {
        if let Body::Thread(ThreadEvent::RunRemoved { run, .. }) = &event.body {
            return When::Now(self.removed(run));
        }
        let Some(key) = event.run else { return When::Now(Vec::new()) };
        let prompted = || Prompted { event: event.clone(), run: run.cloned(), is_told };
        match &event.body {
            Body::Run(RunEvent::Created { input, run: id, .. }) => {
                self.ids.insert(key, id.clone());
                let value = input.iter().map(|_| prompted()).collect();
                self.waiting.insert(key, value);
                // There is nothing of it to be shown but what it was given.
                When::Later
            }
            Body::Message(_) => {
                let Some(waiting) = self.waiting.get_mut(&key) else {
                    return When::Now(Vec::new());
                };
                // The messages that a value was made of are shown in its place.
                waiting.retain(|earlier| matches!(earlier.event.body, Body::Message(_)));
                waiting.push(prompted());
                When::Later
            }
            Body::Run(RunEvent::Started) => {
                let mut begun = std::mem::take(&mut self.late);
                begun.extend(self.waiting.remove(&key).unwrap_or_default());
                self.at_work.push(key);
                self.ids.extend(run.map(|id| (key, id.clone())));
                When::Now(begun)
            }
            Body::Run(RunEvent::Ended(_)) => {
                self.late.extend(self.waiting.remove(&key).unwrap_or_default());
                When::Now(self.over(key))
            }
            _ => When::Now(Vec::new()),
        }
    }

    /// A run is over. Gives what is shown behind it.
    fn over(&mut self, key: RunKey) -> Vec<Prompted> {
        self.ids.remove(&key);
        let before = self.at_work.len();
        self.at_work.retain(|run| *run != key);
        // It would stand in the middle of what another turn says; what else is open behind a turn waits for an answer.
        let had_begun = self.at_work.len() < before;
        match had_begun || self.at_work.is_empty() {
            true => std::mem::take(&mut self.late),
            false => Vec::new(),
        }
    }

    /// A run was removed with all that was said in it, and its end with it. Gives what is shown behind it.
    fn removed(&mut self, run: &RunId) -> Vec<Prompted> {
        self.late.retain(|prompted| prompted.run.as_ref() != Some(run));
        let found = self.ids.iter().find(|(_, id)| *id == run).map(|(key, _)| *key);
        let Some(key) = found else { return Vec::new() };
        self.waiting.remove(&key);
        self.over(key)
    }

    /// Whether a run has begun and not ended.
    pub(super) fn is_at_work(&self) -> bool {
        !self.at_work.is_empty()
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

    fn push(queued: &mut Queued, run: i64, body: RunEvent) -> Vec<String> {
        push_body(queued, Some(run), Body::Run(body))
    }

    /// The runs whose prompts are shown with this event.
    fn push_body(queued: &mut Queued, run: Option<i64>, body: Body) -> Vec<String> {
        let at = Timestamp::from_micros(0);
        let key = run.map(RunKey);
        let event = Event { number: 1, run: key, run_number: 1, at, body, original: None };
        match queued.push(&event, run.map(id).as_ref(), true) {
            When::Later => Vec::new(),
            When::Now(prompts) => {
                prompts.into_iter().map(|it| it.run.unwrap().as_str().to_owned()).collect()
            }
        }
    }

    fn created(run: i64) -> RunEvent {
        let agent = trilogue_domain::AgentName::parse("a").unwrap();
        let input = Some(Json::from_value(&serde_json::json!("x")));
        RunEvent::Created { run: id(run), agent, input }
    }

    fn ended() -> RunEvent {
        RunEvent::Ended(Outcome::Completed)
    }

    fn removed(queued: &mut Queued, run: i64) -> Vec<String> {
        let reason = "rolled_back".to_owned();
        push_body(queued, None, Body::Thread(ThreadEvent::RunRemoved { run: id(run), reason }))
    }

    #[test]
    fn what_never_began_is_shown_behind_the_turn_whatever_else_is_open() {
        let mut queued = Queued::default();
        for run in [1, 2] {
            push(&mut queued, run, created(run));
            push(&mut queued, run, RunEvent::Started);
        }
        push(&mut queued, 3, created(3));
        assert!(push(&mut queued, 3, ended()).is_empty());
        assert_eq!(push(&mut queued, 2, ended()), ["run-3"]);
        assert!(push(&mut queued, 1, ended()).is_empty());
        assert!(!queued.is_at_work());
    }

    #[test]
    fn of_a_run_that_is_removed_nothing_is_shown() {
        let mut queued = Queued::default();
        push(&mut queued, 1, created(1));
        push(&mut queued, 1, RunEvent::Started);
        for run in 2..=4 {
            push(&mut queued, run, created(run));
        }
        // One has ended before, another one not.
        for run in [2, 4] {
            assert!(push(&mut queued, run, ended()).is_empty());
        }
        assert!(removed(&mut queued, 2).is_empty());
        assert!(removed(&mut queued, 3).is_empty());
        assert_eq!(removed(&mut queued, 1), ["run-4"]);
        assert!(!queued.is_at_work());
        assert!(queued.ids.is_empty() && queued.waiting.is_empty());
    }
}
