//! Finds the interrupt that an answer is for, the same for every protocol.

use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, Interrupt, InterruptId, InterruptKind};
use trilogue_mapping::native::escape_for_message;
use trilogue_runtime::Runtime;
use trilogue_store::Read;
use trilogue_store::rows::{InterruptFilter, Page, RunRow};

use crate::http::request::Request;

/// The words of a protocol's error messages.
#[derive(Clone, Copy, Debug)]
pub(in crate::faces) struct Hints {
    /// What the run lacks if no interrupt is pending.
    pub(in crate::faces) question: &'static str,
    /// How an answer can name its interrupt.
    pub(in crate::faces) naming: &'static str,
}

/// Returns the interrupt that an answer is for, from the pending ones of [`pending`]: the named one, otherwise the one last shown to the caller, otherwise the only one that the run ever had.
///
/// With `must_name`, an answer to a permission must name it.
/// Errors: `run_ended`, `interrupt_resolved` and `interrupt_mismatch`; the latter two name the pending interrupt instead.
pub(in crate::faces) fn target(
    runtime: &Runtime,
    request: &Request,
    run: &RunRow,
    mut pending: Vec<Interrupt>,
    named: Option<&str>,
    must_name: bool,
    hints: Hints,
) -> Result<Interrupt> {
    let Some(oldest) = pending.first().map(|interrupt| interrupt.id.clone()) else {
        return Err(waits_for_nothing(run, hints));
    };
    let unnamed = |pending: &InterruptId, why: &str| {
        Error::new(Code::InterruptMismatch, why.to_owned()).pending(pending.clone()).hint(format!(
            "the run waits for the interrupt '{pending}' now: name it {}",
            hints.naming
        ))
    };
    let last_shown = || runtime.last_shown(&request.principal().id, &run.id);
    let place = match named.map_or_else(last_shown, |id| InterruptId::parse(id).ok()) {
        Some(id) => pending.iter().position(|interrupt| interrupt.id == id).ok_or_else(|| {
            Error::new(Code::InterruptResolved, format!("the interrupt '{id}' is not pending"))
                .pending(oldest.clone())
                .hint(format!("the run waits for the interrupt '{oldest}' now"))
        })?,
        None => match named {
            Some(id) => {
                return Err(unnamed(
                    &oldest,
                    &format!("invalid interrupt id '{}'", escape_for_message(id)),
                ));
            }
            None if run.ever_resolved => {
                return Err(unnamed(&oldest, "the answer does not say which interrupt it is for"));
            }
            None => 0,
        },
    };
    let interrupt = pending.swap_remove(place);
    if must_name && named.is_none() && interrupt.kind == InterruptKind::Permission {
        return Err(unnamed(
            &interrupt.id,
            "an answer to a permission must name its interrupt here",
        ));
    }
    Ok(interrupt)
}

/// Returns the interrupts that a run waits for, oldest first. Of an ended run, those whose question a sub-agent still asks: an answer to one reaches the sub-agent.
pub(in crate::faces) async fn pending(
    runtime: &Runtime,
    read: &dyn Read,
    request: &Request,
    run: &RunRow,
) -> Result<Vec<Interrupt>> {
    if run.status.is_terminal() {
        let passed = runtime.passed_questions(&request.scope(), &run.id).await?;
        return Ok(passed.into_iter().map(|question| question.asked.interrupt).collect());
    }
    let filter =
        InterruptFilter { run: Some(run.id.clone()), pending: true, ..InterruptFilter::default() };
    let listing = read.interrupts(&request.scope(), &filter, &Page::default()).await?;
    Ok(listing.rows.into_iter().rev().map(|row| row.interrupt).collect())
}

fn waits_for_nothing(run: &RunRow, hints: Hints) -> Error {
    let code = if run.status.is_terminal() { Code::RunEnded } else { Code::InterruptResolved };
    Error::new(code, format!("the run '{}' has no {}", run.id, hints.question))
        .hint("look at the run: it may have gone on or ended")
}
