//! What a server refuses, as the run's caller is told.

use trilogue_domain::Failure;
use trilogue_mapping::connect::remote_failure;
use trilogue_sdk::client::ClientError;
use trilogue_sdk::connect::Fault;
use trilogue_wire::agent_connect::RunError;

use crate::remote::Remote;

/// Why a run there was not begun, or not answered. One that may have been leaves the outcome unknown.
pub(super) fn refused(remote: &Remote, error: &ClientError, run: Option<&str>) -> Failure {
    match error {
        ClientError::Fault(fault) if says_why(fault) => {
            let failure = remote_failure(&run_error(fault, error.is_transient()));
            let message =
                format!("the agent '{}' at its server: {}", remote.agent, failure.message);
            Failure { message, ..failure }
        }
        error => remote.not_begun(error, run),
    }
}

/// Whether a server refuses in its own words. A fault of the server that it does not name may have come after it began.
fn says_why(fault: &Fault) -> bool {
    !fault.is_foreign() && (fault.code.is_some() || fault.status < 500)
}

fn run_error(fault: &Fault, transient: bool) -> RunError {
    // A server that names no code refuses a run so while another is at work on its thread.
    let is_busy = fault.code.is_none() && fault.status == 409;
    RunError {
        run_id: String::new(),
        // Numbers of errors begin with the status.
        errcode: fault.errcode.unwrap_or(i64::from(fault.status) * 10),
        description: fault.description.clone(),
        code: if is_busy { Some("thread_busy".to_owned()) } else { fault.code.clone() },
        transient,
        data: fault.data.clone(),
    }
}
