//! Which interrupt an answer is for, whatever protocol brings it.

use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, Interrupt, InterruptId, InterruptKind};
use trilogue_mapping::native::shown;
use trilogue_runtime::Runtime;
use trilogue_store::Read;
use trilogue_store::rows::{InterruptFilter, Page, RunRow};

use crate::http::request::Request;

/// How a protocol says what was missed, and what it asks for.
#[derive(Clone, Copy, Debug)]
pub(in crate::faces) struct Hints {
    /// What a run without a pending interrupt has none of.
    pub(in crate::faces) question: &'static str,
    /// Where an answer names its interrupt.
    pub(in crate::faces) naming: &'static str,
}

/// The pending interrupt that an answer is for, among those that [`pending`] gave: the one that it names, else the one that the caller was last shown, else the only one that the run ever had.
///
/// With `must_name`, an answer to a permission must name it.
/// Errors: `run_ended`, `interrupt_resolved` and `interrupt_mismatch`; the latter two name what is pending instead.
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
            Some(id) => return Err(unnamed(&oldest, &format!("'{}' is no interrupt", shown(id)))),
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

/// What a run waits for, oldest first.
pub(in crate::faces) async fn pending(
    read: &dyn Read,
    request: &Request,
    run: &RunRow,
) -> Result<Vec<Interrupt>> {
    if run.status.is_terminal() {
        return Ok(Vec::new());
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
