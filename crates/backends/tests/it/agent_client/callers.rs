//! An agent's question about a call is sent to the client that made the call.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use serde_json::{Value, json};
use trilogue_backends::agent_client::Launch;
use trilogue_domain::{Json, Principal};
use trilogue_runtime::{CallError, Client, ClientProfile};

use super::rig::{Rig, alice, caller, editor, until};

/// A client that opens every URL on request.
#[derive(Debug)]
struct Browser {
    profile: ClientProfile,
    principal: Principal,
    received: Mutex<Vec<(String, Value)>>,
}

impl Browser {
    fn new() -> Arc<Self> {
        Arc::new(Self { profile: editor("{}"), principal: alice(), received: Mutex::default() })
    }

    fn received(&self) -> Vec<(String, Value)> {
        self.received.lock().unwrap().clone()
    }
}

#[async_trait]
impl Client for Browser {
    fn profile(&self) -> &ClientProfile {
        &self.profile
    }

    fn principal(&self) -> &Principal {
        &self.principal
    }

    async fn call(&self, method: &str, params: Json) -> Result<Json, CallError> {
        self.received.lock().unwrap().push((method.to_owned(), params.to_value()));
        Ok(Json::from_value(&json!({ "action": "accept" })))
    }

    async fn notify(&self, method: &str, params: Json) {
        self.received.lock().unwrap().push((method.to_owned(), params.to_value()));
    }
}

#[tokio::test]
async fn whoever_signs_in_is_asked_and_told_when_that_is_done() {
    for with_session in [false, true] {
        let rig = Rig::new(&["--ask-at-auth", "--auth", "key", "--auth", "other"]).await;
        if with_session {
            // Neither the open session nor another client gets the question.
            let (thread, earlier) = (rig.thread().await, caller("{}"));
            let key = Json::parse(r#"{"methodId":"key"}"#).unwrap();
            rig.sessions().call(None, &earlier, "authenticate", key).await.unwrap();
            rig.run(&thread, "say:x").await;
        }
        let (browser, bystander) = (Browser::new(), Browser::new());
        let (by, params) = (Arc::clone(&browser), Json::parse(r#"{"methodId":"key"}"#).unwrap());
        let by: Arc<dyn Client> = by;
        let other: Arc<dyn Client> = bystander.clone();
        rig.sessions().greet(&other).await.unwrap();
        let result = rig.sessions().call(None, &by, "authenticate", params).await.unwrap();
        assert_eq!(result.to_value()["_meta"]["answer"], json!({ "action": "accept" }));
        until("it was told", || browser.received().len() == 2).await;
        let heard = browser.received();
        let (method, question) = &heard[0];
        assert_eq!(method, "elicitation/create");
        assert_eq!(
            (&question["mode"], &question["elicitationId"]),
            (&json!("url"), &json!("sign-in"))
        );
        assert!(
            question["requestId"].is_u64() && question.get("sessionId").is_none(),
            "{question}"
        );
        assert_eq!(
            heard[1],
            ("elicitation/complete".to_owned(), json!({ "elicitationId": "sign-in" }))
        );
        assert_eq!(bystander.received(), []);
        rig.end().await;
    }
}

#[tokio::test]
async fn where_nobody_can_be_asked_the_question_is_given_up() {
    let rig = Rig::new(&["--ask-at-auth", "--auth", "key"]).await;
    let params = Json::parse(r#"{"methodId":"key"}"#).unwrap();
    let result = rig.sessions().call(None, &caller("{}"), "authenticate", params).await.unwrap();
    assert_eq!(result.to_value()["_meta"]["answer"], json!({ "action": "cancel" }));
    // A run signs in without a client, so no client can be asked.
    let by_key = |launch: &mut Launch| launch.auth_method = Some("key".to_owned());
    let rig = Rig::with(&["--ask-at-auth", "--auth", "key"], by_key).await;
    let thread = rig.thread().await;
    let run = rig.run(&thread, "say:hi").await;
    assert_eq!(rig.reply_text(&run).await, "hi");
    rig.end().await;
}

#[tokio::test]
async fn nothing_comes_as_nothing_where_the_protocol_has_no_word_for_it() {
    let rig = Rig::new(&[]).await;
    let caller = caller("{}");
    let nothing = rig.sessions().call(None, &caller, "_scripted/null", Json::empty_object());
    assert_eq!(nothing.await, Ok(Json::null()));
    rig.end().await;
}
