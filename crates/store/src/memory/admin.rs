use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use trilogue_domain::error::{Code, Error, Result};

use super::MemoryStore;
use super::state::State;
use crate::port::{Admin, Stats};

// === impl MemoryStore ===

#[async_trait]
impl Admin for MemoryStore {
    fn durability(&self) -> &'static str {
        "memory"
    }

    fn health(&self) -> Result<()> {
        self.open().map(|_| ())
    }

    async fn stats(&self) -> Result<Stats> {
        let state = self.open()?;
        Ok(Stats {
            threads: state.threads.len() as u64,
            runs: state.runs.len() as u64,
            bytes: state.total_bytes() as u64,
            cache_bytes: self.inner.tails.bytes() as u64,
            quarantined: state.quarantine.len(),
            lost_commits: 0,
            lost_at: None,
            commits: state.commits,
            frames: state.frames,
            schema_version: 0,
        })
    }

    async fn backup(&self, _to: &Path) -> Result<()> {
        Err(Error::new(Code::InvalidRequest, "the memory store has no file to back up")
            .hint("use a store on disk: [store] url = \"sqlite:PATH\""))
    }

    async fn close(&self) -> Result<()> {
        let mut state = self.open()?;
        *state = State { is_closed: true, ..State::new(Arc::clone(&self.inner.tails)) };
        Ok(())
    }
}
