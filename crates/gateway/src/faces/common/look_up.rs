//! What ids name, as far as the caller may see it. An id that cannot be one names nothing.

use trilogue_domain::error::Result;
use trilogue_domain::{InterruptId, RunId, ThreadId};
use trilogue_store::Read;
use trilogue_store::rows::{InterruptRow, RunRow, ThreadRow};

use crate::core::not_found::{no_interrupt, no_run, no_thread};
use crate::http::request::Request;

/// Errors: `thread_not_found`.
pub(in crate::faces) async fn thread(
    read: &dyn Read,
    request: &Request,
    text: &str,
) -> Result<ThreadRow> {
    let id = ThreadId::parse(text).map_err(|_| no_thread(text))?;
    read.thread(&request.scope(), &id).await?.ok_or_else(|| no_thread(text))
}

/// Errors: `run_not_found`.
pub(in crate::faces) async fn run(
    read: &dyn Read,
    request: &Request,
    text: &str,
) -> Result<RunRow> {
    let id = RunId::parse(text).map_err(|_| no_run(text))?;
    read.run(&request.scope(), &id).await?.ok_or_else(|| no_run(text))
}

/// Errors: `interrupt_not_found`.
pub(in crate::faces) async fn interrupt(
    read: &dyn Read,
    request: &Request,
    text: &str,
) -> Result<InterruptRow> {
    let id = InterruptId::parse(text).map_err(|_| no_interrupt(text))?;
    read.interrupt(&request.scope(), &id).await?.ok_or_else(|| no_interrupt(text))
}
