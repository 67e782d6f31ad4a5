//! Messages that are not forwarded: prompts that no agent would accept, and invalid requests.

use std::sync::Arc;

use async_trait::async_trait;
use trilogue_domain::{Code, Json, Outcome, Principal, RunStatus};
use trilogue_runtime::{CallError, Client, ClientProfile, RunRequest, ThreadChoice};
use trilogue_wire::jsonrpc::DEFAULT_MAX_LINE_BYTES;

use super::rig::{HEARD, Rig, alice, editor, json, settle, until};
use crate::harness::{new_run, user_input};

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
    assert_eq!((run.status, &*rig.reply_text(&run).await), (RunStatus::Completed, "here"));
    rig.end().await;
}

#[tokio::test]
async fn a_failure_says_what_the_agent_says_beside_its_message() {
    let rig = Rig::new(&[]).await;
    let error = r#"{"code":-32603,"message":"Internal error","data":{"details":"no key is set"}}"#;
    rig.run(&rig.thread, "stderr:before all that").await;
    let run = rig.run(&rig.thread, &format!("stderr:looked in ~/.keys\nfail:{error}")).await;
    let Some(Outcome::Failed(failure)) = run.outcome else { panic!("{:?}", run.status) };
    assert_eq!(
        failure.message,
        "Internal error: no key is set; its standard error ends with: looked in ~/.keys"
    );
    rig.end().await;
}

#[tokio::test]
async fn the_configuration_of_a_run_sets_the_session_or_is_refused_with_what_there_is() {
    let rig = Rig::new(&["--modes", "--config", "--load", "--store", "{store}"]).await;
    let configured = async |config: &str, text: &str| {
        let choice = ThreadChoice::Existing(rig.thread.clone());
        let config = Some(json(config));
        let run = RunRequest { config, ..new_run("scripted", choice, user_input(text)) };
        settle(rig.runtime.submit(&rig.by, run).await.unwrap()).await
    };
    let heard = |method: &str| {
        let heard = std::fs::read_to_string(rig.path(HEARD)).unwrap();
        heard.lines().filter(|line| line.contains(method)).count()
    };
    let run = configured(r#"{"mode":"Code","Model":"large","verbose":true}"#, "say:done").await;
    assert_eq!(run.status, RunStatus::Completed, "{:?}", run.outcome);
    assert_eq!((heard("session/set_mode"), heard("session/set_config_option")), (1, 2));
    // A setting that is already in effect is not sent again. Another process gets the same settings.
    let run = configured(r#"{"mode":"code","model":"Large"}"#, "say:done\ncrash").await;
    assert_eq!(run.status, RunStatus::Failed);
    assert_eq!(heard("session/set_mode"), 1);
    assert_eq!(rig.run(&rig.thread, "say:again").await.status, RunStatus::Completed);
    assert_eq!((heard("session/set_mode"), heard("session/set_config_option")), (2, 4));
    for config in [r#"{"mode":"plan"}"#, r#"{"effort":"high"}"#, r#"{"verbose":"yes"}"#, "[1]"] {
        let run = configured(config, "say:done").await;
        let Some(Outcome::Failed(failure)) = run.outcome else { panic!("{config}") };
        assert_eq!(failure.code, Code::ConfigInvalid.as_str(), "{config}");
        let hint = failure.data.unwrap();
        for part in ["mode (ask, code)", "model (small, large)", "verbose (true, false)"] {
            assert!(hint.as_str().contains(part), "{config}: {hint:?}");
        }
    }
    assert_eq!(heard("session/prompt"), 3, "a run that is refused prompts nobody");
    rig.end().await;
}

/// A client that does everything that it is asked.
#[derive(Debug)]
struct Willing(ClientProfile, Principal);

#[async_trait]
impl Client for Willing {
    fn profile(&self) -> &ClientProfile {
        &self.0
    }

    fn principal(&self) -> &Principal {
        &self.1
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
    let attached = rig.runtime.attach(&row, Arc::new(Willing(editor("{}"), alice())));
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
    // A method outside of every protocol is forwarded.
    assert!(answer("_more/later").unwrap().contains(r#""result":{}"#));
    let run = rig.store.run(&rig.by.scope(), &begun.run.id).await.unwrap().unwrap();
    rig.cancel(&run).await;
    drop(attached);
    rig.end().await;
}
