//! What a server refuses, as the run's caller is told.

use trilogue_domain::{Code, Failure};
use trilogue_mapping::connect::remote_failure;
use trilogue_sdk::client::ClientError;
use trilogue_sdk::connect::Fault;
use trilogue_wire::agent_connect::RunError;

use crate::remote::Remote;

/// Why a run there, on this thread, was not begun, or not answered. One that may have been leaves the outcome unknown.
pub(super) fn failure_of_refusal(
    remote: &Remote,
    error: &ClientError,
    run: Option<&str>,
    thread: Option<&str>,
) -> Failure {
    match error {
        ClientError::Fault(fault) if says_why(fault) => {
            let by_status = error.is_transient();
            let failure = remote_failure(&run_error(fault, thread.is_some()));
            // A server that does not say whether another try can succeed means what its code means.
            let by_code = Code::from_text(&failure.code).map(Code::is_transient);
            let transient = fault.transient.or(by_code).unwrap_or(by_status);
            let message =
                format!("the agent '{}' at its server: {}", remote.agent, failure.message);
            Failure { message, transient, ..failure }
        }
        error => remote.not_begun(error, run),
    }
}

/// Whether a server refuses in its own words, or has no such operation. Another fault of the server that it does not name may have come after it began.
fn says_why(fault: &Fault) -> bool {
    let is_named = fault.code.is_some() || fault.status < 500;
    fault.status == 501 || (is_named && !fault.is_foreign())
}

/// The code of a fault that its server does not name.
fn code_by_status(status: u16, has_thread: bool) -> Option<&'static str> {
    match status {
        // So a server refuses a run while another is at work on its thread.
        409 if has_thread => Some("thread_busy"),
        409 => Some(Code::AgentFailed.as_str()),
        // It has not waited for the request, or does not take it yet: nothing was begun.
        408 | 425 => Some("agent_unavailable"),
        _ => None,
    }
}

fn run_error(fault: &Fault, has_thread: bool) -> RunError {
    let is_unnamed = fault.code.is_none() && fault.errcode.is_none();
    let by_status = || code_by_status(fault.status, has_thread).filter(|_| is_unnamed);
    RunError {
        run_id: String::new(),
        // Numbers of errors begin with the status.
        errcode: fault.errcode.unwrap_or(i64::from(fault.status) * 10),
        description: fault.description.clone(),
        code: fault.code.clone().or_else(|| by_status().map(str::to_owned)),
        transient: false,
        data: fault.data.clone(),
    }
}
