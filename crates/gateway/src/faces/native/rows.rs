//! Rows of the store, handed to the conversions of our own face.

use trilogue_domain::{CheckpointId, RunId};
use trilogue_mapping::native::interrupt::{self, InterruptFacts};
use trilogue_mapping::native::run::{self, RunFacts};
use trilogue_mapping::native::thread::{self, CheckpointFacts, ThreadFacts};
use trilogue_mapping::native::token::{self, TokenFacts};
use trilogue_store::rows::{CheckpointRow, InterruptRow, RunRow, ThreadRow, TokenRow};
use trilogue_wire::native::{Checkpoint, Interrupt, Run, Thread, Token};

/// A thread without its head and values.
pub(crate) fn thread(row: &ThreadRow) -> Thread {
    thread::thread(&ThreadFacts {
        id: &row.id,
        metadata: &row.metadata,
        created_at: row.created_at,
        updated_at: row.updated_at,
        ephemeral: row.ephemeral,
    })
}

/// A checkpoint; `parent` and `run` are what its integers stand for.
pub(crate) fn checkpoint(
    row: &CheckpointRow,
    parent: Option<&CheckpointId>,
    run: Option<&RunId>,
) -> Checkpoint {
    thread::checkpoint(&CheckpointFacts {
        id: &row.id,
        parent,
        run,
        position: row.position,
        value: row.value.as_ref(),
        created_at: row.created_at,
    })
}

/// A run without its output, result and interrupts.
pub(crate) fn run(row: &RunRow) -> Run {
    run::run(&RunFacts {
        id: &row.id,
        thread: &row.thread_id,
        agent: &row.agent,
        status: row.status,
        created_at: row.created_at,
        started_at: row.started_at,
        ended_at: row.ended_at,
        not_before: row.not_before,
        outcome: row.outcome.as_ref(),
        metadata: &row.metadata,
        config: row.config.as_ref(),
    })
}

/// An interrupt with its run, and how it ended.
pub(crate) fn interrupt(row: &InterruptRow) -> Interrupt {
    interrupt::interrupt(&InterruptFacts {
        interrupt: &row.interrupt,
        thread: &row.thread_id,
        run: &row.run_id,
        agent: &row.agent,
        raised_at: row.raised_at,
        resolution: row.resolution.as_ref(),
        resolved_at: row.resolved_at,
    })
}

/// A token without its secret.
pub(crate) fn token(row: &TokenRow) -> Token {
    token::token(&TokenFacts {
        id: &row.id,
        label: &row.label,
        principal: &row.principal,
        rights: row.rights,
        own: row.own,
        created_at: row.created_at,
        expires_at: row.expires_at,
    })
}
