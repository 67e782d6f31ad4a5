//! Sessions in processes that several threads share: how many there are, and which one makes room for another.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use trilogue_domain::error::{Code, Error};

use super::open::end;
use super::pool::{Pool, Wanted};
use super::process::{Process, Use};
use super::session::Session;
use super::threads::{State, Thread, Threads};
use super::trouble::Trouble;

/// Counts the uses of all sessions, to tell which was used last.
static USES: AtomicU64 = AtomicU64::new(0);

/// The places for sessions in one process.
#[derive(Debug, Default)]
pub(super) struct Seats {
    taken: AtomicUsize,
}

/// A session's place in its process, until it is dropped.
#[derive(Debug)]
pub(super) struct Seat(Arc<Seats>);

/// When something was used, among all uses.
pub(super) fn tick() -> u64 {
    USES.fetch_add(1, Ordering::Relaxed)
}

// === impl Seats ===

impl Seats {
    /// A place where there are fewer sessions than `most`.
    pub(super) fn take(self: &Arc<Self>, most: usize) -> Option<Arc<Seat>> {
        let more = |taken: usize| (taken < most).then_some(taken + 1);
        let took = self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        took.is_ok().then(|| Arc::new(Seat(Arc::clone(self))))
    }
}

// === impl Seat ===

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::AcqRel);
    }
}

// === impl Pool ===

impl Pool {
    /// A process that is shared, and a place for a session in it. `own` is that of the session which is replaced.
    ///
    /// Where all are taken, the session that was used longest ago makes room, where its agent can open it again; else another process is
    /// started; else a session makes room that its agent will not remember. Those that somebody works with stay.
    pub(super) async fn seat(
        &self,
        wanted: &Wanted,
        own: Option<Arc<Seat>>,
    ) -> Result<(Use, Arc<Seat>), Trouble> {
        // Who finds one does not wait for another process that is being started.
        if let Some(found) = self.find_seat(wanted, own.as_ref()) {
            return Ok(found);
        }
        let _one = self.starting().lock().await;
        loop {
            if let Some(found) = self.find_seat(wanted, own.as_ref()) {
                return Ok(found);
            }
            let mut full = self.fitting(wanted);
            full.retain(|process| process.opens_again());
            if self.threads().make_room(&full).await {
                continue;
            }
            let full = self.fitting(wanted);
            if !self.has_place(&wanted.launch) && self.threads().make_room(&full).await {
                continue;
            }
            match self.start(wanted.clone(), None).await {
                Ok(used) => {
                    // Others may have found it before.
                    if let Some(seat) = used.process().seats().take(wanted.launch.max_sessions) {
                        return Ok((used, seat));
                    }
                }
                Err(Trouble::Ours(error))
                    if error.code() == Code::Overloaded && !full.is_empty() =>
                {
                    return Err(self.no_seat(full.len(), wanted).into());
                }
                Err(trouble) => return Err(trouble),
            }
        }
    }

    fn find_seat(&self, wanted: &Wanted, own: Option<&Arc<Seat>>) -> Option<(Use, Arc<Seat>)> {
        let fitting = self.fitting(wanted);
        let mine = own.and_then(|own| {
            let process = fitting.iter().find(|process| Arc::ptr_eq(process.seats(), &own.0))?;
            Some((process.hold()?, Arc::clone(own)))
        });
        mine.or_else(|| {
            fitting.iter().find_map(|process| {
                Some((process.hold()?, process.seats().take(wanted.launch.max_sessions)?))
            })
        })
    }

    fn no_seat(&self, processes: usize, wanted: &Wanted) -> Error {
        let (agent, most) = (self.agent(), wanted.launch.max_sessions);
        let message = format!(
            "the agent '{agent}' has {processes} shared processes with {most} sessions at work in each, which is the most"
        );
        let hint = "wait until one is done, or raise `max_sessions` or `max_processes`";
        Error::new(Code::Overloaded, message).hint(hint)
    }
}

// === impl Threads ===

impl Threads {
    /// Closes the session in these processes that was used longest ago. `false` where somebody works with each.
    async fn make_room(&self, processes: &[Arc<Process>]) -> bool {
        let mut idle = Vec::new();
        for process in processes {
            for key in process.served() {
                let Some(thread) = self.find(key) else { continue };
                // A state that is held is worked with.
                let used = thread.state.try_lock().ok().and_then(|state| {
                    let session = idle_in(&state, process)?;
                    Some(session.last_used())
                });
                idle.extend(used.map(|used| (used, key, thread, process)));
            }
        }
        idle.sort_by_key(|(used, ..)| *used);
        for (_, key, thread, process) in idle {
            if give_up(&thread, process).await {
                process.serves_no_more(key);
                return true;
            }
        }
        false
    }
}

/// The session of a thread in this process, where nobody works with it.
fn idle_in<'a>(state: &'a State, process: &Arc<Process>) -> Option<&'a Arc<Session>> {
    let session = state.session.as_ref()?;
    let is_idle = Arc::ptr_eq(session.process(), process) && !session.is_at_work_but_for(0);
    is_idle.then_some(session)
}

/// Closes the session of a thread, which is opened again when it is needed.
async fn give_up(thread: &Thread, process: &Arc<Process>) -> bool {
    let Ok(mut state) = thread.state.try_lock() else { return false };
    if idle_in(&state, process).is_none() {
        return false;
    }
    let Some(session) = state.session.take() else { return false };
    tracing::debug!(session = session.remote(), "a session makes room for another");
    let _used = process.hold();
    end(&session, false).await;
    session.close();
    session.close_workspace().await;
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_places_are_taken_than_there_are() {
        let seats = Arc::<Seats>::default();
        let first = seats.take(2).unwrap();
        let second = seats.take(2).unwrap();
        assert!(seats.take(2).is_none());
        let again = Arc::clone(&second);
        drop(second);
        assert!(seats.take(2).is_none());
        drop(again);
        let third = seats.take(2).unwrap();
        assert!(seats.take(2).is_none());
        drop((first, third));
        assert_eq!(seats.taken.load(Ordering::Acquire), 0);
    }
}
