use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, Json, Message, Reference, RunKey, ThreadKey, limits};

use super::reader::weight;
use super::{HistorySource, inline, of_run};
use crate::external_ports::ExternalPorts;

/// How many addresses are read at once.
const FETCHED_AT_ONCE: usize = 8;

/// References that were read, with their messages.
pub(super) type FoundReferences = HashMap<Reference, Message>;

/// The wanted entries of one run of this tenant.
#[derive(Debug)]
struct RunEntries {
    thread: ThreadKey,
    entries: HashSet<Reference>,
}

/// Reads the referenced messages, each once.
/// Errors: `not_found` if one was removed; `egress_refused`, `peer_unavailable` and `body_too_large` for addresses.
pub(super) async fn read(
    source: HistorySource<'_>,
    entries: impl Iterator<Item = Reference>,
) -> Result<FoundReferences> {
    let mut seen = HashSet::new();
    let (mut runs, mut addresses) = (HashMap::new(), Vec::new());
    for entry in entries.filter(|entry| seen.insert(entry.clone())) {
        match &entry {
            Reference::Address(address) => addresses.push(Arc::clone(address)),
            _ => want(source, &entry, &mut runs).await?,
        }
    }
    let mut found = HashMap::new();
    for (run, wanted) in runs {
        read_run(source, run, wanted, &mut found).await?;
    }
    if !addresses.is_empty() {
        fetch(source.external, addresses, &mut found).await?;
    }
    Ok(found)
}

/// Returns the state at an address. Fails as [`read`].
pub(super) async fn read_state(external: &ExternalPorts, address: &str) -> Result<Json> {
    let state = external.fetch().await?.state(address).await?;
    if state.as_bytes().len() > limits::MAX_FETCHED_BYTES {
        return Err(too_large());
    }
    Ok(state)
}

/// Records in which run's log an entry is.
async fn want(
    source: HistorySource<'_>,
    entry: &Reference,
    runs: &mut HashMap<RunKey, RunEntries>,
) -> Result<()> {
    let HistorySource { store, scope, .. } = source;
    let (run, thread) = match entry {
        Reference::Message { thread, id } => {
            let thread = thread.as_ref().ok_or_else(|| missing(entry))?;
            let row = store.message(scope, thread, id).await?.ok_or_else(|| missing(entry))?;
            (row.run, row.thread)
        }
        Reference::Result(id) => {
            let row = store.run(scope, id).await?.ok_or_else(|| missing(entry))?;
            (row.key, row.thread)
        }
        Reference::Address(_) => return Ok(()),
    };
    let wanted = runs.entry(run).or_insert_with(|| RunEntries { thread, entries: HashSet::new() });
    wanted.entries.insert(entry.clone());
    Ok(())
}

async fn read_run(
    source: HistorySource<'_>,
    run: RunKey,
    mut wanted: RunEntries,
    found: &mut HashMap<Reference, Message>,
) -> Result<()> {
    let HistorySource { store, scope, .. } = source;
    if let Some(thread) = store.thread_of(scope, wanted.thread).await? {
        for (entry, message) in of_run(store, thread.key, Some(&thread.id), run).await? {
            if wanted.entries.remove(&entry) {
                let mut message = [message];
                inline(store, thread.key, &mut message).await?;
                let [message] = message;
                found.insert(entry, message);
            }
        }
    }
    wanted.entries.iter().next().map_or(Ok(()), |entry| Err(missing(entry)))
}

async fn fetch(
    external: &ExternalPorts,
    addresses: Vec<Arc<str>>,
    found: &mut HashMap<Reference, Message>,
) -> Result<()> {
    let fetch = external.fetch().await?;
    let messages = stream::iter(addresses).map(|address| async move {
        let message = fetch.message(&address).await?;
        Ok::<_, Error>((address, message))
    });
    let mut messages = std::pin::pin!(messages.buffered(FETCHED_AT_ONCE));
    let mut bytes = 0_usize;
    while let Some((address, message)) = messages.try_next().await? {
        bytes = bytes.saturating_add(weight(&message));
        if bytes > limits::MAX_FETCHED_BYTES {
            return Err(too_large());
        }
        found.insert(Reference::Address(address), message);
    }
    Ok(())
}

fn missing(entry: &Reference) -> Error {
    let what = match entry {
        Reference::Message { id, .. } => format!("the message '{id}'"),
        Reference::Result(id) => format!("the result of the run '{id}'"),
        Reference::Address(address) => format!("'{address}'"),
    };
    Error::new(Code::NotFound, format!("the history names {what}, which was not found"))
        .hint("bring the history again without it")
}

fn too_large() -> Error {
    Error::new(
        Code::BodyTooLarge,
        format!("the history's addresses hold more than {} bytes", limits::MAX_FETCHED_BYTES),
    )
}
