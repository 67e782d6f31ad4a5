//! Conversations with `mailcomposer`.

use std::sync::Arc;

use serde_json::{Value, json};
use trilogue_backends::builtin::MailComposer;
use trilogue_backends::builtin::mailcomposer::{MAX_MESSAGE_BYTES, MAX_STATE_BYTES};
use trilogue_domain::Body;
use trilogue_domain::event::RunEvent;
use trilogue_mapping::connect;
use trilogue_sdk::recorder::Recorder;
use trilogue_sdk::{Agent, Answer, Input, Interrupt, InterruptKind, Json, Outcome, Survives, Turn};
use trilogue_testkit::specs;

use super::turn;

struct Chat {
    agent: MailComposer,
    config: Option<Json>,
    state: Option<Json>,
}

impl Chat {
    fn new() -> Self {
        Self { agent: MailComposer::default(), config: None, state: None }
    }

    fn friendly() -> Self {
        let config = Some(Json::from_value(&json!({ "style": "friendly" })));
        Self { config, ..Self::new() }
    }

    async fn take(&mut self, given: Turn) -> (Outcome, Option<String>) {
        let mut recorder = Recorder::default();
        if let Some(state) = &self.state {
            recorder = recorder.with_state(state.clone());
        }
        let recorder = Arc::new(recorder);
        let outcome = turn(&self.agent, &recorder, self.config.clone(), given).await.unwrap();
        self.state = recorder.state();
        let reply = recorder.events().into_iter().find_map(|body| match body {
            Body::Run(RunEvent::Result(value)) => Some(value.to_value()),
            _ => None,
        });
        (outcome, reply.map(|value| value["message"].as_str().unwrap().to_owned()))
    }

    async fn say(&mut self, message: &str) -> String {
        let (outcome, reply) = self.take(start_turn(message)).await;
        assert_eq!(outcome, Outcome::Completed, "{message}");
        reply.unwrap()
    }

    async fn compose(&mut self, message: &str) -> (Interrupt, Json) {
        match self.take(start_turn(message)).await {
            (Outcome::Suspended { interrupt, saved }, None) => (*interrupt, saved),
            other => panic!("{message}: {other:?}"),
        }
    }

    async fn answer(&mut self, (interrupt, saved): (Interrupt, Json), answer: Value) -> String {
        let answer = Answer::Json(Json::from_value(&answer));
        let given = Turn::Resume { interrupt: Box::new(interrupt), answer, saved };
        let (outcome, reply) = self.take(given).await;
        assert_eq!(outcome, Outcome::Completed);
        reply.unwrap()
    }

    fn messages(&self) -> Vec<String> {
        let state = self.state.as_ref().unwrap().to_value();
        serde_json::from_value(state["messages"].clone()).unwrap()
    }
}

fn start_turn(message: &str) -> Turn {
    Turn::Start { input: Input::Value(Json::from_value(&json!({ "message": message }))) }
}

const ORDER: &str = "Write to alice@example.com that the meeting moves to Tuesday.";

#[tokio::test]
async fn an_approved_mail_is_sent_as_it_was_shown() {
    let mut chat = Chat::new();
    let pending = chat.compose(ORDER).await;
    let (interrupt, _) = &pending;
    assert_eq!(interrupt.kind, InterruptKind::Custom("mail_send_approval".to_owned()));
    assert_eq!(interrupt.survives, Survives::Restart);
    let declared = chat.agent.card().build().unwrap().interrupts.remove(0).answer_schema;
    assert_eq!(interrupt.schema.as_ref(), Some(&declared));
    let payload = interrupt.payload.to_value();
    assert_eq!(payload["recipients"], json!(["alice@example.com"]));
    assert_eq!(payload["subject"], "The meeting moves to Tuesday");
    assert!(payload["body"].as_str().unwrap().contains("The meeting moves to Tuesday."));
    assert!(chat.agent.outbox().is_empty());

    let reply = chat.answer(pending, json!({ "approved": true })).await;
    assert!(reply.contains("The meeting moves to Tuesday"), "{reply}");
    assert!(reply.contains("alice@example.com"), "{reply}");
    assert!(reply.contains("outbox") && !reply.contains("sent"), "no mail leaves: {reply}");
    let sent: Vec<_> =
        chat.agent.outbox().iter().map(|mail| serde_json::to_value(mail).unwrap()).collect();
    assert_eq!(sent, [payload]);
    let messages = chat.messages();
    assert_eq!(messages.len(), 4);
    assert_eq!((messages[0].as_str(), &messages[3]), (ORDER, &reply));
}

#[tokio::test]
async fn a_declined_mail_is_not_sent_and_the_reason_is_quoted() {
    let mut chat = Chat::new();
    let pending = chat.compose(ORDER).await;
    let answer = json!({ "approved": false, "reason": "Tuesday is a holiday" });
    let reply = chat.answer(pending, answer).await;
    assert!(reply.contains("“Tuesday is a holiday”"), "{reply}");
    let pending = chat.compose(ORDER).await;
    chat.answer(pending, json!({ "approved": false })).await;
    assert!(chat.agent.outbox().is_empty());
    assert_eq!(chat.messages().len(), 8);
}

#[tokio::test]
async fn the_user_is_known_by_name_in_the_words_of_the_protocols_document() {
    for mut chat in [Chat::new(), Chat::friendly()] {
        let conversation = [
            ("Hello, my name is John?", "Hello John, how can I help?"),
            ("Can you remind my name?", "Yes, your name is John"),
        ];
        for (said, reply) in conversation {
            assert_eq!(chat.say(said).await, reply);
        }
        let both: Vec<_> =
            conversation.into_iter().flat_map(|(said, reply)| [said, reply]).collect();
        assert_eq!(chat.messages(), both);
    }
}

#[tokio::test]
async fn what_is_missing_is_asked_for_and_taken_from_the_next_turn() {
    let mut chat = Chat::new();
    let reply = chat.say("Write a mail saying that lunch is at noon").await;
    assert!(reply.contains("address"), "{reply}");
    let (interrupt, _) = chat.compose("bob@example.com").await;
    let payload = interrupt.payload.to_value();
    assert_eq!(payload["recipients"], json!(["bob@example.com"]));
    assert!(payload["body"].as_str().unwrap().contains("Lunch is at noon."), "{payload}");

    let mut chat = Chat::new();
    chat.say("Write to carol@example.com").await;
    let (interrupt, _) = chat.compose("The train is late.").await;
    let payload = interrupt.payload.to_value();
    assert_eq!(payload["recipients"], json!(["carol@example.com"]));
    assert!(payload["body"].as_str().unwrap().contains("The train is late."), "{payload}");
}

#[tokio::test]
async fn the_style_changes_the_wording_and_nothing_else() {
    let (mut formal, mut friendly) = (Chat::new(), Chat::friendly());
    assert_ne!(formal.say("Hello").await, friendly.say("Hello").await);
    let (formal, _) = formal.compose(ORDER).await;
    let (friendly, _) = friendly.compose(ORDER).await;
    let (formal, friendly) = (formal.payload.to_value(), friendly.payload.to_value());
    assert_ne!(formal["body"], friendly["body"]);
    assert_eq!(formal["recipients"], friendly["recipients"]);
    assert_eq!(formal["subject"], friendly["subject"]);
}

#[tokio::test]
async fn messages_and_state_are_bounded() {
    let recorder = Arc::new(Recorder::default());
    let long = "x".repeat(MAX_MESSAGE_BYTES + 1);
    let error =
        turn(&MailComposer::default(), &recorder, None, start_turn(&long)).await.unwrap_err();
    assert_eq!(error.code(), "invalid_input");

    let mut chat = Chat::new();
    let text = "x".repeat(MAX_MESSAGE_BYTES);
    for _ in 0..12 {
        chat.say(&text).await;
    }
    let messages = chat.messages();
    assert!(messages.iter().map(String::len).sum::<usize>() <= MAX_STATE_BYTES);
    assert!(messages.len() >= 2 && messages.len().is_multiple_of(2));
    assert_eq!(messages[0], text);
}

#[test]
fn the_descriptor_is_the_published_one() {
    let Some(path) = specs::document("agent_connect/mailcomposer.json") else { return };
    let text = std::fs::read(path).unwrap();
    let published: Value = serde_json::from_slice(&text).unwrap();
    let card = MailComposer::default().card().build().unwrap();
    assert_eq!(connect::descriptor(&card).to_value(), published);
}
