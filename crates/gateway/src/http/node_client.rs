//! This node's own requests to other nodes on behalf of its editors, whose connections carry no HTTP request that could be forwarded.
//!
//! They go to `/api/v1` like a client's, with a token that this node creates for itself in the shared store.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode, header};
use serde::Serialize;
use tokio::sync::Mutex;
use trilogue_domain::error::Result;
use trilogue_domain::port::Clock;
use trilogue_domain::{Code, Error, InterruptId, Principal, RunId, ThreadId, Timestamp, TokenId};
use trilogue_egress::Client;
use trilogue_store::rows::TokenRow;
use trilogue_store::{Admin, Tokens};
use trilogue_wire::native::{Problem, ThreadHandOver, ThreadPatch};

use super::forward::{self, Forwarder, OtherNode};
use crate::access::secret::{hash_secret, new_secret};
use crate::core::ports::Ports;

/// The lifetime of a node's token.
const TOKEN_LIFE: Duration = Duration::from_secs(3_600);
/// How long before its expiry a token is replaced.
const TOKEN_REST: Duration = Duration::from_secs(900);
/// The label of these tokens in the list of tokens.
const LABEL: &str = "editors of the node ";

/// Sends requests to other nodes. Each returns `false` if the other node cannot be reached, so that it has done nothing: its threads are taken over soon.
#[derive(Debug)]
pub(crate) struct NodeClient {
    client: Client,
    tokens: Arc<dyn Tokens>,
    admin: Arc<dyn Admin>,
    clock: Arc<dyn Clock>,
    own: Mutex<Option<NodeToken>>,
}

#[derive(Clone, Debug)]
struct NodeToken {
    id: TokenId,
    of: Principal,
    authorization: HeaderValue,
    expires_at: Timestamp,
}

// === impl NodeClient ===

impl NodeClient {
    pub(crate) fn new(forwarder: &Forwarder, ports: &Ports) -> Self {
        Self {
            client: forwarder.client(),
            tokens: Arc::clone(&ports.tokens),
            admin: Arc::clone(&ports.admin),
            clock: Arc::clone(&ports.clock),
            own: Mutex::default(),
        }
    }

    /// Requests a thread from its owner for this node.
    /// Errors: `thread_busy` while the thread is active; and those of the owner.
    pub(crate) async fn hand_over(
        &self,
        by: &Principal,
        node: &OtherNode,
        thread: &ThreadId,
    ) -> Result<bool> {
        let body = ThreadHandOver { node: self.name().await? };
        let path = format!("/api/v1/threads/{thread}/hand-over");
        self.send(by, node, Method::POST, &path, &body).await
    }

    /// Cancels a run through the owner of its thread.
    pub(crate) async fn cancel(
        &self,
        by: &Principal,
        node: &OtherNode,
        run: &RunId,
    ) -> Result<bool> {
        let path = format!("/api/v1/runs/{run}/cancel");
        let body = serde_json::Map::new();
        self.send(by, node, Method::POST, &path, &body).await
    }

    /// Sends an answer to the owner of the question's thread.
    pub(crate) async fn answer(
        &self,
        by: &Principal,
        node: &OtherNode,
        interrupt: &InterruptId,
        answer: &impl Serialize,
    ) -> Result<bool> {
        let path = format!("/api/v1/interrupts/{interrupt}/answer");
        self.send(by, node, Method::POST, &path, answer).await
    }

    /// Changes a thread through its owner.
    pub(crate) async fn patch(
        &self,
        by: &Principal,
        node: &OtherNode,
        thread: &ThreadId,
        patch: &ThreadPatch,
    ) -> Result<bool> {
        let path = format!("/api/v1/threads/{thread}");
        self.send(by, node, Method::PATCH, &path, patch).await
    }

    /// Erases a thread through its owner.
    pub(crate) async fn erase(
        &self,
        by: &Principal,
        node: &OtherNode,
        thread: &ThreadId,
    ) -> Result<bool> {
        let body = serde_json::Map::new();
        let path = format!("/api/v1/threads/{thread}");
        self.send(by, node, Method::DELETE, &path, &body).await
    }

    /// Sends a request. Returns `false` if the node could not be reached, so that it has done nothing.
    async fn send(
        &self,
        by: &Principal,
        node: &OtherNode,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<bool> {
        let address = node.address.as_str();
        let body = serde_json::to_vec(body).unwrap_or_default();
        let mut request = http::Request::new(Bytes::from(body));
        *request.method_mut() = method;
        *request.uri_mut() = forward::target(address, path)?;
        let headers = request.headers_mut();
        headers.insert(header::AUTHORIZATION, self.authorization(by).await?);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(forward::FORWARDED, forward::YES);
        headers.insert(forward::NODE, node.header());
        let (status, body) = match self.client.send(request).await {
            Ok((status, headers, body)) => {
                node.check_response(status, &headers)?;
                (status, body.collect().await)
            }
            Err(error) if error.is_unreached() => return Ok(false),
            Err(error) => return Err(forward::unanswered(address, &error)),
        };
        match body {
            Ok(_) if status.is_success() => Ok(true),
            Ok(body) => Err(refusal(status, &body, address)),
            Err(error) => Err(forward::unanswered(address, &error)),
        }
    }

    async fn name(&self) -> Result<String> {
        let this = self.admin.nodes().await?.into_iter().find(|node| node.is_this);
        let missing =
            || Error::new(Code::StoreUnavailable, "this server is not a node at the moment");
        this.map(|node| node.name).ok_or_else(missing)
    }

    /// Returns a short-lived token in the name of the principal.
    async fn authorization(&self, by: &Principal) -> Result<HeaderValue> {
        let (now, mut own) = (self.clock.now(), self.own.lock().await);
        let is_good =
            |token: &&NodeToken| token.of == *by && now.until(token.expires_at) > TOKEN_REST;
        if let Some(token) = own.as_ref().filter(is_good) {
            return Ok(token.authorization.clone());
        }
        let secret = new_secret()?;
        let mut authorization = HeaderValue::from_str(&format!("Bearer {secret}"))
            .map_err(|_| Error::new(Code::Internal, "a token fits no header"))?;
        authorization.set_sensitive(true);
        let token = NodeToken {
            id: TokenId::generate(),
            of: by.clone(),
            authorization,
            expires_at: now.after(TOKEN_LIFE),
        };
        self.tokens
            .put_token(TokenRow {
                id: token.id.clone(),
                label: format!("{LABEL}{}", self.name().await?),
                hash: hash_secret(secret.as_bytes()),
                tenant: by.tenant.clone(),
                principal: by.id.clone(),
                rights: by.rights,
                own: by.own,
                created_at: now,
                expires_at: Some(token.expires_at),
                session_of: None,
            })
            .await?;
        let authorization = token.authorization.clone();
        if let Some(before) = own.replace(token) {
            self.tokens.revoke_token(&before.of.tenant, &before.id).await?;
        }
        Ok(authorization)
    }
}

/// Returns the error in another node's response.
fn refusal(status: StatusCode, body: &[u8], address: &str) -> Error {
    let Ok(problem) = serde_json::from_slice::<Problem>(body) else {
        let message = format!("the node at {address} answered with the status {status}");
        return Error::new(Code::PeerUnavailable, message);
    };
    let code = Code::from_text(&problem.code).unwrap_or(Code::PeerUnavailable);
    let error = Error::new(code, problem.detail);
    match problem.hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}
