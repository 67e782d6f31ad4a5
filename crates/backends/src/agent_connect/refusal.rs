//! Converts a server's refusals to failures for the run's caller.

use trilogue_domain::{Code, Failure};
use trilogue_mapping::connect::remote_failure;
use trilogue_sdk::client::ClientError;
use trilogue_sdk::client::connect::Fault;
use trilogue_wire::agent_connect::RunError;

use crate::remote::Remote;

/// The failure of a run on this thread that its server did not begin or answer. If it may have begun, the outcome is unknown.
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
            // If the server does not report whether a retry can succeed, the code decides.
            let by_code = Code::from_text(&failure.code).map(Code::is_transient);
            let transient = fault.transient.or(by_code).unwrap_or(by_status);
            let message =
                format!("the agent '{}' at its server: {}", remote.agent, failure.message);
            Failure { message, transient, ..failure }
        }
        error => remote.begin_failure(error, run),
    }
}

/// Whether a server gives a reason, or does not support the operation. Any other fault may have occurred after the run began.
fn says_why(fault: &Fault) -> bool {
    let is_named = fault.code.is_some() || fault.status < 500;
    fault.status == 501 || (is_named && !fault.is_foreign())
}

/// The code of a fault without a code from its server.
fn code_by_status(status: u16, has_thread: bool) -> Option<&'static str> {
    match status {
        // With this status, a server refuses a run while another one is active on its thread.
        409 if has_thread => Some("thread_busy"),
        409 => Some(Code::AgentFailed.as_str()),
        // The server gave up waiting for the request, or does not accept it yet: nothing was begun.
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
