//! What is not passed on: a prompt that no agent would take, and a request that is none.

use std::sync::Arc;

use async_trait::async_trait;
use trilogue_domain::{Code, Json, Outcome, RunStatus};
use trilogue_runtime::{CallError, Client, ClientProfile};
use trilogue_wire::jsonrpc::DEFAULT_MAX_LINE_BYTES;

use super::rig::{HEARD, Rig, editor, until};

#[tokio::test]
async fn a_prompt_that_is_too_long_for_a_line_is_refused_and_the_thread_goes_on() {
    let rig = Rig::new(&[]).await;
    let run = rig.run(&rig.thread, &"x".repeat(DEFAULT_MAX_LINE_BYTES)).await;
    let Some(Outcome::Failed(failure)) = run.outcome else { panic!("{:?}", run.status) };
    assert_eq!(failure.code, Code::BodyTooLarge.as_str());
    let limit = format!("at most {}", DEFAULT_MAX_LINE_BYTES - 1024);
    assert!(failure.message.contains(&limit), "{}", failure.message);
    assert!(failure.data.unwrap().as_str().contains("address"), "it gives no hint");
    let heard = std::fs::read_to_string(rig.path(HEARD)).unwrap();
    assert!(!heard.contains("session/prompt"), "the agent was prompted");
    let run = rig.run(&rig.thread, "say:here").await;
    assert_eq!((run.status, &*rig.said(&run).await), (RunStatus::Completed, "here"));
    rig.end().await;
}

/// A client that does whatever it is asked.
#[derive(Debug)]
struct Willing(ClientProfile);

#[async_trait]
impl Client for Willing {
    fn profile(&self) -> &ClientProfile {
        &self.0
    }

    async fn call(&self, _: &str, _: Json) -> Result<Json, CallError> {
        Ok(Json::empty_object())
    }

    async fn notify(&self, _: &str, _: Json) {}
}

#[tokio::test]
async fn what_is_only_ever_told_is_no_request() {
    let rig = Rig::new(&["--heard", "{store}-heard"]).await;
    let row = rig.store.thread(&rig.by.scope(), &rig.thread).await.unwrap().unwrap();
    let attached = rig.runtime.attach(&row, Arc::new(Willing(editor("{}"))));
    attached.take_control();
    let asked = ["session/update", "elicitation/complete", "_more/later"];
    let lines: Vec<_> = (asked.iter())
        .map(|method| {
            format!(
                r#"put:{{"jsonrpc":"2.0","id":"{method}","method":"{method}","params":{{"sessionId":"SESSION"}}}}"#
            )
        })
        .collect();
    let begun = rig.begin(&rig.thread, &format!("{}\nslow", lines.join("\n"))).await;
    let answers = || std::fs::read_to_string(rig.path("sessions-heard")).unwrap_or_default();
    let answer = |method: &str| {
        let id = format!(r#""id":"{method}""#);
        answers().lines().find(|line| line.contains(&id)).map(str::to_owned)
    };
    until("each is answered", || asked.iter().all(|method| answer(method).is_some())).await;
    for method in ["session/update", "elicitation/complete"] {
        let answer = answer(method).unwrap();
        assert!(answer.contains("-32601"), "{answer}");
    }
    // What is in no protocol is passed on.
    assert!(answer("_more/later").unwrap().contains(r#""result":{}"#));
    let run = rig.store.run(&rig.by.scope(), &begun.run.id).await.unwrap().unwrap();
    rig.cancel(&run).await;
    drop(attached);
    rig.end().await;
}
