//! The rig of the Agent Connect Protocol: a server with its agents, and requests like those of the protocol's clients.
//! Every response is validated against the official document.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use trilogue_gateway::{ConnectOptions, ErrorBody, Mount};
use trilogue_testkit::{Client, Reply, until};

use crate::connect_agents;
use crate::connect_document::hold;
use crate::rig::{LIMIT, Rig, Setup, text};

pub(crate) const BASE: &str = "/connect";
pub(crate) const NOBODY: &str = "00000000-0000-4000-8000-000000000000";

pub(crate) struct Face {
    pub(crate) rig: Rig,
    pub(crate) client: Client,
    /// Its permits let runs that hold continue.
    pub(crate) gate: Arc<Semaphore>,
    strings: bool,
}

pub(crate) fn run_body(word: &str, text: &str) -> Value {
    json!({"input": {"do": word, "text": text}})
}

impl Face {
    pub(crate) async fn start() -> Self {
        Self::of(Setup::default()).await
    }

    pub(crate) async fn with(connect: ConnectOptions) -> Self {
        let mounts = vec![Mount::new(connect, BASE).unwrap()];
        let face = Self::of(Setup::from(mounts)).await;
        Self { strings: connect.error_body == ErrorBody::String, ..face }
    }

    pub(crate) async fn of(setup: Setup) -> Self {
        let gate = Arc::new(Semaphore::new(0));
        let agents = connect_agents::all(&gate);
        let rig = Rig::of(Setup { agents, ..setup }).await;
        let client = rig.alice();
        Self { rig, client, gate, strings: false }
    }

    pub(crate) async fn send_as(
        &self,
        client: &Client,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Reply {
        self.send_raw(client, method, path, &[], Self::bytes(body)).await
    }

    fn bytes(body: &Value) -> Bytes {
        if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) }
    }

    pub(crate) async fn send_raw(
        &self,
        client: &Client,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Reply {
        let address = format!("{BASE}{path}");
        let reply = client.send(method.clone(), &address, headers, body).await.unwrap();
        hold(&method, path, &reply, self.strings);
        reply
    }

    pub(crate) async fn send(&self, method: Method, path: &str, body: &Value) -> Reply {
        self.send_raw(&self.client, method, path, &[], Self::bytes(body)).await
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send(Method::GET, path, &Value::Null).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Reply {
        self.send(Method::POST, path, body).await
    }

    pub(crate) async fn patch(&self, path: &str, body: &Value) -> Reply {
        self.send(Method::PATCH, path, body).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Reply {
        self.send(Method::DELETE, path, &Value::Null).await
    }

    pub(crate) async fn ok(&self, method: Method, path: &str, body: &Value) -> Value {
        let reply = self.send(method.clone(), path, body).await;
        assert_eq!(reply.status, 200, "{method} {path}: {}", reply.json());
        reply.json()
    }

    pub(crate) async fn get_ok(&self, path: &str) -> Value {
        self.ok(Method::GET, path, &Value::Null).await
    }

    pub(crate) async fn post_ok(&self, path: &str, body: &Value) -> Value {
        self.ok(Method::POST, path, body).await
    }

    pub(crate) async fn begin(&self, path: &str, body: &Value) -> String {
        let run = self.post_ok(path, body).await;
        assert_eq!(run["status"], "pending", "{run}");
        text(&run, "/run_id").to_owned()
    }

    pub(crate) async fn thread(&self) -> String {
        text(&self.post_ok("/threads", &json!({})).await, "/thread_id").to_owned()
    }

    pub(crate) async fn reach(&self, path: &str, status: &str) -> Value {
        let look = async || {
            let shown = self.get(path).await.json();
            (shown["status"] == status).then_some(shown)
        };
        until(&format!("{path} to be {status}"), LIMIT, look).await.unwrap()
    }

    pub(crate) async fn wait_until_gone(&self, path: &str) {
        let look = async || (self.get(path).await.status == 404).then_some(());
        until(&format!("{path} to be gone"), LIMIT, look).await.unwrap();
    }
}

pub(crate) fn refusal(reply: &Reply) -> (u16, String) {
    (reply.status, reply.code())
}

pub(crate) fn expected_refusal(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}
