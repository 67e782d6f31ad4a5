//! Finds the interrupt that an answer is for.

use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, Interrupt};
use trilogue_mapping::communication as mapping;
use trilogue_store::rows::RunRow;
use trilogue_wire::agent_communication::Message;

use super::CommunicationCall;
use crate::faces::common::answer_target::{self as common, Hints};
use crate::http::reply::INTERRUPT_ID;

const HINTS: Hints = Hints {
    question: "await request",
    naming: "in the header 'Interrupt-Id', or as 'x_trilogue.interrupt_id' in the first part",
};

/// Returns the interrupt that an answer names, in its first part or in a header.
/// Errors: `invalid_request` if it names two.
pub(super) fn named_interrupt(
    call: &CommunicationCall,
    answer: &Message,
) -> Result<Option<String>> {
    let header = call.header(&INTERRUPT_ID).filter(|id| !id.is_empty());
    match (mapping::named_interrupt(answer), header) {
        (Some(part), Some(header)) if part != header => Err(Error::new(
            Code::InvalidRequest,
            "the message and the header 'Interrupt-Id' name different interrupts",
        )),
        (Some(part), _) => Ok(Some(part)),
        (None, header) => Ok(header.map(str::to_owned)),
    }
}

/// Returns the pending interrupt that an answer is for.
pub(super) async fn target(
    call: &CommunicationCall,
    run: &RunRow,
    named: Option<&str>,
) -> Result<Interrupt> {
    let must_name = call.state.options.require_interrupt_id;
    let (runtime, read) = (&call.state.runtime, call.state.read.as_ref());
    let pending = common::pending(runtime, read, call, run).await?;
    common::target(runtime, call, run, pending, named, must_name, HINTS)
}
