//! Rows: version byte, kind byte, fields in order, CRC-32C.

use bytes::Bytes;
use trilogue_domain::error::{Code, Error, Result};
use trilogue_domain::{Callback, ParentRun, Provenance, RequestSource, RunAudit, StartedBy};

use super::FORMAT_VERSION;
use super::codec::{Damage, DecodeResult, FieldReader, check_checksum, put_checksum};
use super::field::{Field, fields, variants};
use crate::rows::{
    BindingRow, CheckpointRow, ConfigurationRow, IdempotencyKey, IdempotencyRow, InterruptRow,
    MessageRow, QueueItem, QueueKind, RunRow, ThreadRow, TokenRow,
};

pub(crate) trait Record: Sized {
    const NAME: &'static str;

    fn encode(&self) -> Vec<u8>;

    /// Reads a stored blob. Fails with `thread_quarantined` if it is damaged, of another kind of row, or from a newer version.
    fn decode(bytes: &[u8]) -> Result<Self>;
}

macro_rules! record {
    (
        $kind:literal, $text:literal,
        $name:ident { $($field:ident),+ $(,)? $(; $($last:ident),+)? }
    ) => {
        fields!($name { $($field),+ $(; $($last),+)? });

        impl Record for $name {
            const NAME: &'static str = $text;

            fn encode(&self) -> Vec<u8> {
                seal($kind, self)
            }

            fn decode(bytes: &[u8]) -> Result<Self> {
                open($kind, bytes).map_err(|damage| damaged(Self::NAME, damage))
            }
        }
    };
}

record!(
    1,
    "thread",
    ThreadRow {
        key,
        id,
        tenant,
        owner,
        metadata,
        created_at,
        updated_at,
        head,
        owner_node,
        epoch,
        ephemeral,
    }
);
record!(
    2,
    "run",
    RunRow {
        key,
        id,
        thread,
        thread_id,
        tenant,
        principal,
        agent,
        status,
        created_at,
        started_at,
        ended_at,
        outcome,
        base,
        metadata,
        config,
        saved,
        has_turn,
        pending_answer,
        ever_resolved,
        not_before,
        last_run_number,
        rules,
        callback,
        request,
        stateless,
        cancel_reason;
        parent,
        provenance,
        mount,
        audit,
        started_by
    }
);
record!(3, "message", MessageRow { id, tenant, thread, run, role, position, alias });
record!(
    4,
    "checkpoint",
    CheckpointRow { key, id, thread, parent, run, position, value, created_at, client_history }
);
record!(
    5,
    "interrupt",
    InterruptRow {
        interrupt,
        tenant,
        principal,
        thread,
        thread_id,
        run,
        run_id,
        agent,
        raised_at,
        resolution,
        resolved_at,
    }
);
record!(6, "binding", BindingRow { thread, agent, remote, capabilities, last_seen });
record!(7, "idempotency", IdempotencyRow { key, request, run, message, thread, created_at });
record!(
    8,
    "token",
    TokenRow { id, label, hash, tenant, principal, rights, own, created_at, expires_at; session_of }
);
record!(9, "queue", QueueItem { kind, key, due, tenant, principal, thread, reference });
record!(
    10,
    "configuration",
    ConfigurationRow {
        id,
        tenant,
        owner,
        agent,
        name,
        config,
        metadata,
        created_at,
        updated_at,
        expires_at,
    }
);

fields!(ParentRun { run, thread });
fields!(RunAudit { principal, thread, token, source, can_answer });
variants!(StartedBy: 0 = Agent);
variants!(RequestSource: 0 = Network, 1 = LocalSocket, 2 = Agent);
fields!(Provenance { trace, hops });
fields!(Callback { url, status, values, updates });
fields!(IdempotencyKey { tenant, principal, agent, text });
variants!(QueueKind: 0 = ScheduledRun, 1 = Deadline, 2 = Callback, 3 = Retention, 4 = Notify);

const USUAL_ROW_BYTES: usize = 256;

fn seal(kind: u8, fields: &impl Field) -> Vec<u8> {
    let mut out = Vec::with_capacity(USUAL_ROW_BYTES);
    out.extend_from_slice(&[FORMAT_VERSION, kind]);
    fields.put(&mut out);
    put_checksum(&mut out);
    out
}

fn open<T: Field>(kind: u8, bytes: &[u8]) -> DecodeResult<T> {
    let end = check_checksum(bytes)?;
    let bytes = Bytes::copy_from_slice(bytes);
    let mut input = FieldReader::new(&bytes, 0, end);
    input.version()?;
    if input.byte()? != kind {
        return Err(Damage("it is another kind of row"));
    }
    let row = T::take(&mut input)?;
    input.finish()?;
    Ok(row)
}

fn damaged(name: &str, damage: Damage) -> Error {
    Error::new(Code::ThreadQuarantined, format!("a stored {name} row cannot be read: {}", damage.0))
        .hint(
            "restore the store from a backup, or erase its thread; other threads are not affected",
        )
}

#[cfg(test)]
mod tests;
