//! Looks up ids within the caller's scope. An invalid id is not found.

use trilogue_domain::error::Result;
use trilogue_domain::{InterruptId, RunId, ThreadId};
use trilogue_store::Read;
use trilogue_store::rows::{InterruptRow, RunRow, ThreadRow};

use crate::core::not_found::{no_interrupt, no_run, no_thread};
use crate::http::request::Request;

/// Returns the thread of this id. Errors: `thread_not_found`.
pub(in crate::faces) async fn thread(
    read: &dyn Read,
    request: &Request,
    text: &str,
) -> Result<ThreadRow> {
    let id = ThreadId::parse(text).map_err(|_| no_thread(text))?;
    read.named_thread(&request.scope(), &id).await?.ok_or_else(|| no_thread(text))
}

/// Returns the run of this id. Errors: `run_not_found`.
pub(in crate::faces) async fn run(
    read: &dyn Read,
    request: &Request,
    text: &str,
) -> Result<RunRow> {
    let id = RunId::parse(text).map_err(|_| no_run(text))?;
    read.run(&request.scope(), &id).await?.ok_or_else(|| no_run(text))
}

/// Returns the interrupt of this id. Errors: `interrupt_not_found`.
pub(in crate::faces) async fn interrupt(
    read: &dyn Read,
    request: &Request,
    text: &str,
) -> Result<InterruptRow> {
    let id = InterruptId::parse(text).map_err(|_| no_interrupt(text))?;
    read.interrupt(&request.scope(), &id).await?.ok_or_else(|| no_interrupt(text))
}
