//! Fetches content that an agent's server stores and only links to, and keeps it here so that clients of this server can read it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;
use trilogue_domain::Body;
use trilogue_domain::content::{Content, Part, is_text_type};
use trilogue_domain::event::MessageEvent;
use trilogue_mapping::linked_conversation;
use trilogue_runtime::RunContext;
use trilogue_sdk::client::{ClientError, Method, Request, Transport as _, collect_body};
use url::Url;

use super::Remote;

/// The maximum size of content that is fetched, in bytes.
pub const MAX_RESOURCE_BYTES: usize = 16 * 1024 * 1024;
/// How long one fetch may take.
pub const RESOURCE_TIME: Duration = Duration::from_secs(60);

impl Remote {
    /// Replaces links to content that the agent's server stores for this conversation by the content. Clients may be unable to reach that server, or have no credential for it.
    /// All other links stay. A client can make an agent send any link; if this server fetched it with its credential, the client could read other conversations.
    pub(crate) async fn fetch_contents(&self, bodies: &mut [Body], context: &RunContext) {
        for body in bodies {
            let Body::Message(MessageEvent::Part { part, .. }) = body else { continue };
            let Content::Url(reference) = &part.content else { continue };
            let binding = match context.binding().await {
                Ok(Some(binding)) => binding,
                Ok(None) => continue,
                Err(error) => {
                    tracing::info!(server = %self.server, agent = self.agent, %reference, %error, "the conversation at the agent's server could not be read; the address of its content is kept");
                    continue;
                }
            };
            let Some(path) = self.content_path(reference, &binding.remote) else { continue };
            let fetched = timeout(RESOURCE_TIME, self.fetch(path)).await.unwrap_or_else(|_| {
                let seconds = RESOURCE_TIME.as_secs();
                Err(ClientError::Unexpected(format!("it did not come within {seconds} s")))
            });
            match fetched {
                Ok(bytes) => part.content = content(part, bytes),
                Err(error) => {
                    tracing::info!(server = %self.server, agent = self.agent, %reference, %error, "content at the agent's server could not be fetched; its address is kept");
                }
            }
        }
    }

    /// Returns the path of a link to content of this conversation at the agent's server, or `None` for any other link.
    fn content_path(&self, reference: &str, conversation: &str) -> Option<String> {
        let server = Url::parse(&self.server.url()).ok()?;
        let target = server.join(reference).ok()?;
        if target.origin() != server.origin() || !server.origin().is_tuple() {
            return None;
        }
        let below = target.path().strip_prefix(server.path().trim_end_matches('/'))?;
        let is_own = linked_conversation(below)? == conversation && target.query().is_none();
        is_own.then(|| target.path().to_owned())
    }

    async fn fetch(&self, path: String) -> Result<Bytes, ClientError> {
        let headers = vec![("accept", "*/*".to_owned())];
        let request = Request { method: Method::Get, path, headers, body: Bytes::new() };
        let response = self.transport().send(request).await?;
        match response.status {
            200 => collect_body(response.body, MAX_RESOURCE_BYTES).await,
            status => Err(ClientError::Unexpected(format!("the server answers {status}"))),
        }
    }
}

fn content(part: &Part, bytes: Bytes) -> Content {
    match std::str::from_utf8(&bytes) {
        Ok(text) if is_text_type(&part.content_type) => Content::Text(Arc::from(text)),
        _ => Content::Bytes(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::server::{AgentServer, Probe};

    #[test]
    fn only_content_of_the_conversation_on_the_agents_server_is_fetched() {
        let server = AgentServer::at("http://far.example:8000/base", Probe::Ping).unwrap();
        let remote = Remote { server, agent: "a".to_owned(), credential: None };
        let hash = "0f".repeat(32);
        let own = format!("sessions/s/blobs/{hash}");
        let path = format!("/base/{own}");
        for reference in [
            format!("http://far.example:8000/base/{own}"),
            format!("http://FAR.example:8000/base/x/../{own}#y"),
            format!("/base/{own}"),
        ] {
            assert_eq!(remote.content_path(&reference, "s").as_ref(), Some(&path), "{reference}");
            assert_eq!(remote.content_path(&reference, "other"), None, "{reference}");
        }
        for reference in [
            format!("http://far.example:8001/base/{own}"),
            format!("https://far.example:8000/base/{own}"),
            format!("http://far.example.evil.example:8000/base/{own}"),
            format!("http://far.example:8000@evil.example/base/{own}"),
            format!("//evil.example/base/{own}"),
            format!("\\\\evil.example\\base\\{own}"),
            format!("http://far.example:8000/{own}"),
            format!("http://far.example:8000/base{own}"),
            format!("http://far.example:8000/base/{own}?a=b"),
            "http://far.example:8000/base/runs".to_owned(),
            "http://far.example:8000/base/sessions/s".to_owned(),
            "file:///etc/passwd".to_owned(),
            "data:text/plain,x".to_owned(),
        ] {
            assert_eq!(remote.content_path(&reference, "s"), None, "{reference}");
        }
    }
}
