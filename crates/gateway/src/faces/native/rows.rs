//! Converts rows of the store for `/api/v1`.

use trilogue_domain::{CheckpointId, RunId};
use trilogue_mapping::native::{
    interrupt as mapped, json, run as mapped_run, token as mapped_token,
};
use trilogue_store::rows::{CheckpointRow, InterruptRow, RunRow, ThreadRow, TokenRow};
use trilogue_wire::native::{Checkpoint, Interrupt, Run, Thread, Token};

use crate::faces::common::thread_title::given_title;

/// Converts a thread, without its head and values.
pub(super) fn thread(row: &ThreadRow) -> Thread {
    Thread {
        id: row.id.as_str().to_owned(),
        metadata: json(&row.metadata),
        created_at: row.created_at.to_string(),
        updated_at: row.updated_at.to_string(),
        ephemeral: row.ephemeral,
        title: given_title(row),
        node: None,
        damage: None,
        head: None,
        values: None,
        clients: Vec::new(),
    }
}

/// Converts a checkpoint; `parent` and `run` are the ids that its integers refer to.
pub(super) fn checkpoint(
    row: &CheckpointRow,
    parent: Option<&CheckpointId>,
    run: Option<&RunId>,
) -> Checkpoint {
    Checkpoint {
        id: row.id.as_str().to_owned(),
        parent_id: parent.map(|id| id.as_str().to_owned()),
        run_id: run.map(|id| id.as_str().to_owned()),
        position: row.position,
        values: row.value.as_ref().map(json),
        created_at: row.created_at.to_string(),
    }
}

/// Converts a run, without its output, result and interrupts.
pub(super) fn run(row: &RunRow) -> Run {
    Run {
        id: row.id.as_str().to_owned(),
        thread_id: row.thread_id.as_str().to_owned(),
        agent: row.agent.as_str().to_owned(),
        status: mapped_run::status(row.status),
        created_at: row.created_at.to_string(),
        created_by: Some(row.principal.as_str().to_owned()),
        started_at: row.started_at.map(|at| at.to_string()),
        ended_at: row.ended_at.map(|at| at.to_string()),
        not_before: row.not_before.map(|at| at.to_string()),
        outcome: row.outcome.as_ref().map(mapped_run::outcome),
        metadata: json(&row.metadata),
        config: row.config.as_ref().map(json),
        parent: row.parent.as_ref().map(mapped_run::parent),
        started_by: row.started_by.map(mapped_run::started_by),
        output: None,
        result: None,
        interrupts: None,
    }
}

pub(super) fn interrupt(row: &InterruptRow) -> Interrupt {
    let thread = &row.thread_id;
    Interrupt {
        run_id: Some(row.run_id.as_str().to_owned()),
        thread_id: Some(thread.as_str().to_owned()),
        agent: Some(row.agent.as_str().to_owned()),
        raised_at: Some(row.raised_at.to_string()),
        resolution: row.resolution.as_ref().map(|it| mapped::resolution(it, thread)),
        resolved_at: row.resolved_at.map(|at| at.to_string()),
        ..mapped::question(&row.interrupt, thread)
    }
}

/// Converts a token, without its secret.
pub(super) fn token(row: &TokenRow) -> Token {
    Token {
        id: row.id.as_str().to_owned(),
        label: row.label.clone(),
        principal: row.principal.as_str().to_owned(),
        rights: row.rights.iter().map(mapped_token::right).collect(),
        own: row.own,
        created_at: row.created_at.to_string(),
        expires_at: row.expires_at.map(|at| at.to_string()),
        session_of: row.session_of.as_ref().map(|id| id.as_str().to_owned()),
    }
}
