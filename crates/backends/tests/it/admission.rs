//! Input that does not fit an agent is refused before a run exists.

use serde_json::{Value, json};
use trilogue_backends::NativeAgent;
use trilogue_backends::builtin::{self, MailComposer, NAMES};
use trilogue_domain::Code;
use trilogue_mapping::connect;
use trilogue_runtime::{Backend, Input};
use trilogue_sdk::prelude::*;
use trilogue_sdk::{AgentCard, AgentName, Interrupt, to_json};

fn mail() -> NativeAgent {
    NativeAgent::new(MailComposer::default()).unwrap()
}

#[test]
fn input_and_configuration_are_checked_by_schema() {
    let admit = |input: Value, config: Value| {
        mail().admit(Input::Value(to_json(&input).unwrap()), Some(&to_json(&config).unwrap()))
    };
    assert!(admit(json!({ "message": "hi" }), json!({ "style": "formal" })).is_ok());
    let (input, config) = (Code::InvalidInput, Code::ConfigInvalid);
    for (given, configured, code, path) in [
        (json!({ "message": 5 }), json!({}), input, "/message"),
        (json!("hi"), json!({}), input, ""),
        (json!({}), json!({ "style": "rude" }), config, "/style"),
        (json!({}), json!("rude"), config, ""),
    ] {
        let error = admit(given, configured).unwrap_err();
        assert_eq!(error.code(), code);
        let paths: Vec<_> = error.violated().iter().map(|place| place.path.as_str()).collect();
        assert_eq!(paths, [path]);
        let place = if path.is_empty() { "at the top".to_owned() } else { format!("'{path}'") };
        assert!(error.message().contains(&place), "{error}");
    }
}

#[test]
fn configuration_and_state_are_checked_on_their_own() {
    let paths = |error: trilogue_domain::Error| -> Vec<String> {
        error.violated().iter().map(|place| place.path.clone()).collect()
    };
    assert_eq!(mail().check_config(&to_json(&json!({ "style": "friendly" })).unwrap()), Ok(()));
    let error = mail().check_config(&to_json(&json!({ "style": 5 })).unwrap()).unwrap_err();
    assert_eq!(error.code(), Code::ConfigInvalid);
    assert!(paths(error).contains(&"/style".to_owned()));

    assert_eq!(mail().check_state(&to_json(&json!({ "messages": ["a"] })).unwrap()), Ok(()));
    let error =
        mail().check_state(&to_json(&json!({ "messages": ["a", 1, 2] })).unwrap()).unwrap_err();
    assert_eq!(error.code(), Code::StateInvalid);
    assert_eq!(paths(error), ["/messages/1", "/messages/2"]);

    let echo = NativeAgent::new(builtin::Echo).unwrap();
    assert_eq!(echo.check_config(&to_json(&json!([1])).unwrap()), Ok(()));
    assert_eq!(echo.check_state(&to_json(&json!([1])).unwrap()), Ok(()));
}

#[test]
fn an_agent_is_held_to_the_card_under_which_it_is_served() {
    let card = builtin::Echo.card().config(json!({ "type": "object" })).build().unwrap();
    let card = AgentCard { name: AgentName::parse("parrot").unwrap(), ..card };
    let parrot = NativeAgent::new(builtin::Echo).unwrap().with_card(card.clone()).unwrap();
    assert_eq!(parrot.card(), &card);
    let error = parrot.check_config(&to_json(&json!(5)).unwrap()).unwrap_err();
    assert!(error.message().contains("'parrot'"), "{error}");
    let nonsense = Some(to_json(&json!({ "type": "nonsense" })).unwrap());
    let bad = parrot.with_card(AgentCard { update_schema: nonsense, ..card });
    assert_eq!(bad.map(drop).map_err(|error| error.code()), Err(Code::InvalidRequest));
}

#[test]
fn answers_are_checked_by_the_interrupts_schema_or_the_declared_one() {
    let declared = Interrupt::try_from(Question::custom("mail_send_approval")).unwrap();
    let own = Question::custom("mail_send_approval").schema(json!({ "type": "integer" }));
    let own = Interrupt::try_from(own).unwrap();
    let check = |interrupt: &Interrupt, answer: Value| {
        mail()
            .check_answer(interrupt, &Answer::Json(to_json(&answer).unwrap()))
            .map_err(|error| error.code())
    };
    let again = Question::custom("mail_send_approval").schema(
        MailComposer::default().card().build().unwrap().interrupts[0].answer_schema.clone(),
    );
    let again = Interrupt::try_from(again).unwrap();
    assert_eq!(check(&again, json!({ "approved": true })), Ok(()));
    assert_eq!(check(&again, json!({ "approved": 1 })), Err(Code::AnswerInvalid));
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
    assert!(builtin::by_name("nobody", options).is_none());
}

/// Declares everything that a card can declare.
struct Everything;

#[derive(serde::Serialize, serde::Deserialize, JsonSchema, Default)]
struct Node {
    #[serde(default)]
    below: Vec<Node>,
    #[serde(default)]
    label: Option<Label>,
}

#[derive(serde::Serialize, serde::Deserialize, JsonSchema, Default)]
struct Label {
    text: String,
}

impl AgentFault for Label {
    const CODE: &'static str = "label_missing";
    const DESCRIPTION: &'static str = "There is no label.";
}

#[async_trait]
impl Agent for Everything {
    fn card(&self) -> Card {
        Card::typed::<Node, Label>("everything", "Declares everything.")
            .title("org.example.everything")
            .version("1.2.3")
            .url("https://example.org/everything")
            .config(schema_of::<Label>())
            .state(schema_of::<Node>())
            .update(schema_of::<Node>())
            .interrupt("which", schema_of::<Node>(), schema_of::<Label>())
            .fault::<Label>()
            .streams(true, true)
    }

    async fn run(&self, _: Turn, _: Context) -> Result<Outcome, AgentError> {
        Ok(Outcome::Completed)
    }
}

#[test]
fn the_descriptor_of_a_card_says_all_that_the_card_says() {
    let mut agents = builtin::all(builtin::Options::default()).unwrap();
    agents.push(NativeAgent::new(Everything).unwrap());
    for agent in agents {
        let card = agent.card().clone();
        let descriptor = connect::descriptor(&card);
        let read = connect::card(&descriptor, card.clone())
            .unwrap_or_else(|error| panic!("{}: {error}", card.name));
        // A descriptor always has a name, and a schema for updates if these are streamed.
        let title = card.title.clone().or(Some(card.name.as_str().to_owned()));
        let streams = card.abilities.streams_updates == Some(true);
        let any = streams.then(|| to_json(&json!({ "type": "object" })).unwrap());
        let update_schema = card.update_schema.clone().or(any);
        let expected = AgentCard { descriptor: Some(descriptor), title, update_schema, ..card };
        assert_eq!(read, expected);
        assert!(agent.with_card(read).is_ok());
    }
}
