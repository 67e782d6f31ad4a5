//! Content that an agent's server only refers to, on itself: it is fetched and kept here, so that clients of this server reach it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;
use trilogue_domain::Body;
use trilogue_domain::content::{Content, Part, is_text_type};
use trilogue_domain::event::MessageEvent;
use trilogue_sdk::client::{ClientError, Method, Request, Transport as _, collect_body};
use url::Url;

use super::Remote;

/// The largest content that is fetched, in bytes.
pub const MAX_RESOURCE_BYTES: usize = 16 * 1024 * 1024;
/// How long the fetch of one content may take.
pub const RESOURCE_TIME: Duration = Duration::from_secs(60);

impl Remote {
    /// Puts the content in the place of a reference to it, for every part whose reference leads to the agent's server: clients may have no way to that server, and no credential for it.
    /// A reference to another host stays, and one whose content cannot be had.
    pub(crate) async fn fetch_contents(&self, bodies: &mut [Body]) {
        for body in bodies {
            let Body::Message(MessageEvent::Part { part, .. }) = body else { continue };
            let Content::Url(reference) = &part.content else { continue };
            let Some(path) = self.path_of(reference) else { continue };
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

    /// The path and query of a reference on the agent's server; `None` for another host, port or scheme.
    fn path_of(&self, reference: &str) -> Option<String> {
        let server = Url::parse(&self.server.url()).ok()?;
        let target = server.join(reference).ok()?;
        if target.origin() != server.origin() || !server.origin().is_tuple() {
            return None;
        }
        let path = target.path();
        Some(target.query().map_or_else(|| path.to_owned(), |query| format!("{path}?{query}")))
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
    fn only_what_is_on_the_agents_server_is_fetched() {
        let server = AgentServer::at("http://far.example:8000/base", Probe::Ping).unwrap();
        let remote = Remote { server, agent: "a".to_owned(), credential: None };
        for (reference, path) in [
            ("/files/a%20b?c=d", Some("/files/a%20b?c=d")),
            ("http://far.example:8000/x#y", Some("/x")),
            ("http://FAR.example:8000/x", Some("/x")),
            ("http://far.example:8001/x", None),
            ("https://far.example:8000/x", None),
            ("http://far.example.evil.example:8000/x", None),
            ("http://far.example:8000@evil.example/x", None),
            ("//evil.example/x", None),
            ("\\\\evil.example\\x", None),
            ("file:///etc/passwd", None),
            ("data:text/plain,x", None),
        ] {
            assert_eq!(remote.path_of(reference).as_deref(), path, "{reference}");
        }
    }
}
