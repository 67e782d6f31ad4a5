//! What does not fit an agent is refused before a run exists.

use serde_json::{Value, json};
use trilogue_backends::NativeAgent;
use trilogue_backends::builtin::{self, MailComposer, NAMES};
use trilogue_domain::Code;
use trilogue_runtime::{Backend, Input};
use trilogue_sdk::prelude::*;
use trilogue_sdk::{Interrupt, IntoJson};

fn mail() -> NativeAgent {
    NativeAgent::new(MailComposer::default()).unwrap()
}

#[test]
fn input_and_configuration_are_checked_by_schema() {
    let admit = |input: Value, config: Value| {
        mail().admit(Input::Value(input.into_json()), Some(&config.into_json()))
    };
    assert!(admit(json!({ "message": "hi" }), json!({ "style": "formal" })).is_ok());
    for (input, config, path) in [
        (json!({ "message": 5 }), json!({}), "'/message'"),
        (json!("hi"), json!({}), "at the top"),
        (json!({}), json!({ "style": "rude" }), "'/style'"),
    ] {
        let error = admit(input, config).unwrap_err();
        assert_eq!(error.code(), Code::InvalidInput);
        assert!(error.message().contains(path), "{error}");
    }
}

#[test]
fn answers_are_checked_by_the_interrupts_schema_or_the_declared_one() {
    let declared = Interrupt::from(Question::custom("mail_send_approval"));
    let own = Question::custom("mail_send_approval").schema(json!({ "type": "integer" }));
    let own = Interrupt::from(own);
    let check = |interrupt: &Interrupt, answer: Value| {
        mail()
            .check_answer(interrupt, &Answer::Json(answer.into_json()))
            .map_err(|error| error.code())
    };
    assert_eq!(check(&declared, json!({ "approved": true })), Ok(()));
    assert_eq!(check(&declared, json!({ "approved": "yes" })), Err(Code::AnswerInvalid));
    assert_eq!(check(&declared, json!({ "reason": "because" })), Err(Code::AnswerInvalid));
    assert_eq!(check(&own, json!(5)), Ok(()));
    assert_eq!(check(&own, json!({ "approved": true })), Err(Code::AnswerInvalid));
}

#[test]
fn an_agent_with_a_bad_name_or_schema_is_not_served() {
    struct Bad(&'static str, Value);
    #[async_trait]
    impl Agent for Bad {
        fn card(&self) -> Card {
            Card::chat(self.0, "").config(&self.1)
        }
        async fn run(&self, _: Turn, _: Context) -> Result<Outcome, AgentError> {
            Ok(Outcome::Completed)
        }
    }
    assert!(NativeAgent::new(Bad("fine", json!({}))).is_ok());
    let code = |agent| NativeAgent::new(agent).map_err(|error| error.code()).unwrap_err();
    assert_eq!(code(Bad("not a name", json!({}))), Code::InvalidId);
    assert_eq!(code(Bad("fine", json!({ "type": "nonsense" }))), Code::InvalidRequest);
    let remote = json!({ "$ref": "http://127.0.0.1/schema" });
    assert_eq!(code(Bad("fine", remote)), Code::InvalidRequest);
}

#[test]
fn built_in_agents_are_found_by_name() {
    let options = builtin::Options::default();
    let all = builtin::all(options).unwrap();
    let names: Vec<_> = all.iter().map(|agent| agent.card().name.as_str().to_owned()).collect();
    assert_eq!(names, NAMES);
    assert!(all.iter().all(Backend::is_native));
    assert!(builtin::named("nobody", options).is_none());
}
