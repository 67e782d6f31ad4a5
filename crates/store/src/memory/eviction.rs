//! Eviction: the oldest ended runs go first, open runs never go.

use trilogue_domain::{RunKey, ThreadKey};

use super::Options;
use super::state::State;

// === impl State ===

impl State {
    /// Forgets ended runs, and threads without runs, until the limits hold.
    /// The newest ended run always stays, so that a client that waits for its end can read it.
    pub(super) fn evict(&mut self, options: &Options) {
        while self.runs.len() > options.max_runs {
            let Some((place, run)) = self.oldest_run() else { break };
            self.evict_run(place, run);
        }
        while self.held() > options.max_bytes {
            match (self.oldest_run(), self.idle.first_key_value()) {
                (Some((place, run)), idle) if idle.is_none_or(|(idle, _)| place < *idle) => {
                    self.evict_run(place, run);
                }
                (_, Some((place, thread))) => {
                    let (place, thread) = (*place, *thread);
                    self.idle.remove(&place);
                    self.remove_thread(thread);
                }
                (_, None) => break,
            }
        }
    }

    fn oldest_run(&self) -> Option<(u64, RunKey)> {
        if self.ended.len() < 2 {
            return None;
        }
        self.ended.first_key_value().map(|(place, run)| (*place, *run))
    }

    fn evict_run(&mut self, place: u64, run: RunKey) {
        // The place is removed first, so that the loops above always end.
        self.ended.remove(&place);
        let Some(thread) = self.runs.get(&run).map(|run| run.row.thread) else { return };
        self.remove_run(thread, run);
        self.forget_ephemeral(thread);
        self.note_idle(thread);
    }

    fn forget_ephemeral(&mut self, key: ThreadKey) {
        let is_done = self
            .threads
            .get(&key)
            .is_some_and(|thread| thread.row.ephemeral && thread.runs.is_empty());
        if is_done {
            self.remove_thread(key);
        }
    }
}
