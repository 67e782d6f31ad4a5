//! Reads requests: ids, body and content type.

use http::{HeaderName, header};
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, RunId};
use trilogue_mapping::native::escape_for_message;
use trilogue_store::rows::{RunRow, ThreadRow};
use trilogue_wire::agent_communication::{Read, Rules, read};
use uuid::Uuid;

use super::CommunicationCall;
use crate::faces::common::look_up;

/// Names the run that a request created or resumed.
pub(super) const RUN_ID: HeaderName = HeaderName::from_static("run-id");

// === impl CommunicationCall ===

impl CommunicationCall {
    pub(super) fn is_strict(&self) -> bool {
        self.state.options.strict
    }

    pub(super) fn rules(&self) -> Rules {
        if self.is_strict() { Rules::Strict } else { Rules::Compatible }
    }

    /// Reads the body by the mount's rules.
    /// Errors: `invalid_request`, naming part and field.
    pub(super) fn message_body<T: Read>(&self) -> Result<T> {
        self.check_content_type()?;
        read(&self.body, self.rules())
            .map_err(|violation| Error::new(Code::InvalidRequest, violation.to_string()))
    }

    /// Accepts JSON under its own type, a type built on it, or without a type, because the official client sends none.
    fn check_content_type(&self) -> Result<()> {
        let Some(value) = self.headers.get(header::CONTENT_TYPE) else { return Ok(()) };
        let text = value.to_str().unwrap_or("?");
        let essence = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let is_json = essence == "application/json"
            || (essence.starts_with("application/") && essence.ends_with("+json"));
        if is_json {
            return Ok(());
        }
        Err(Error::new(
            Code::InvalidRequest,
            format!("the body has the content type '{}'", escape_for_message(text)),
        )
        .hint("send application/json"))
    }

    /// Returns a UUID of the path, in any spelling.
    /// Errors: `invalid_id`, naming the parameter.
    pub(super) fn uuid(&self, name: &'static str) -> Result<Uuid> {
        read_uuid(self.param(name), &format!("the path parameter '{name}'"))
    }

    /// Returns the run that the path names: by the id that a client of another face chose, otherwise by a UUID in any spelling.
    /// Errors: `invalid_id` and `run_not_found`.
    pub(super) async fn named_run(&self) -> Result<RunRow> {
        if let Ok(id) = RunId::parse(self.param("run_id"))
            && let Some(row) = self.state.read.run(&self.scope(), &id).await?
        {
            return Ok(row);
        }
        let id = RunId::from_uuid(self.uuid("run_id")?);
        look_up::run(self.state.read.as_ref(), self, id.as_str()).await
    }

    /// Returns the session that the path names.
    /// Errors: `invalid_id` and `thread_not_found`.
    pub(super) async fn named_session(&self) -> Result<ThreadRow> {
        self.session(self.param("session_id"), "the path parameter 'session_id'").await
    }
}

/// Reads a UUID. Errors: `invalid_id`, naming the parameter.
pub(super) fn read_uuid(text: &str, what: &str) -> Result<Uuid> {
    Uuid::parse_str(text).map_err(|_| no_uuid(text, what))
}

pub(super) fn no_uuid(text: &str, what: &str) -> Error {
    Error::new(
        Code::InvalidId,
        format!("{what}: expected a UUID, got '{}'", escape_for_message(text)),
    )
}
