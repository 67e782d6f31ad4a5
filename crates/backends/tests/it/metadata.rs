//! Metadata never repeats the content.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use trilogue_backends::builtin::{self, Echo, Greeter, MailComposer, Researcher};
use trilogue_domain::event::RunEvent;
use trilogue_domain::{Body, Citation, Content, Trajectory};
use trilogue_sdk::recorder::Recorder;
use trilogue_sdk::{Agent, Input, Json, Message, Outcome, Part, PartMetadata, Turn};

use super::{start, turn};

/// An agent, and its input.
fn sample(name: &str) -> (Box<dyn Agent>, Turn) {
    let citation = Citation { start_index: Some(0), end_index: Some(4), ..Citation::default() };
    let step = Trajectory { message: Some("hm".to_owned()), ..Trajectory::default() };
    match name {
        "echo" => {
            let parts = vec![
                Part::text("Bees dance.").with_metadata(PartMetadata::Citation(citation)),
                Part::annotation(PartMetadata::Trajectory(step)),
                Part::url("text/html", "https://example.org/bees"),
            ];
            (Box::new(Echo), start(vec![parts]))
        }
        "mailcomposer" | "greeter" => {
            let value = Json::from_value(&json!({ "message": "Hello" }));
            let agent: Box<dyn Agent> = match name {
                "greeter" => Box::new(Greeter::new(Duration::ZERO)),
                _ => Box::new(MailComposer::default()),
            };
            (agent, Turn::Start { input: Input::Value(value) })
        }
        "researcher" => {
            let question = start(vec![vec![Part::text("durable logs")]]);
            (Box::new(Researcher::new(Duration::ZERO)), question)
        }
        other => panic!("what is '{other}' asked?"),
    }
}

/// The message without any metadata. A part with only metadata is removed.
fn bare(message: &Message) -> Message {
    let mut message = message.clone();
    for part in &mut message.parts {
        part.metadata = None;
    }
    message.parts.retain(|part| part.content != Content::Empty);
    message
}

/// What a reader sees: the text, and the content of every part in order.
fn read(message: &Message) -> (String, Vec<Content>) {
    let contents = message.parts.iter().map(|part| part.content.clone());
    (message.text(), contents.filter(|content| *content != Content::Empty).collect())
}

/// No sentence of the answer is in its metadata, and no text of the metadata is in the answer.
fn repeats_nothing(message: &Message, name: &str) {
    let words = message.text();
    let sentences = words.split_inclusive(['.', '?', '!']).map(str::trim);
    let sentences: Vec<_> = sentences.filter(|sentence| !sentence.is_empty()).collect();
    for part in &message.parts {
        let (told, texts) = match &part.metadata {
            Some(PartMetadata::Citation(it)) => {
                (format!("{it:?}"), vec![it.title.clone(), it.description.clone()])
            }
            Some(PartMetadata::Trajectory(it)) => (format!("{it:?}"), vec![it.message.clone()]),
            _ => continue,
        };
        let repeated = sentences.iter().find(|sentence| told.contains(**sentence));
        assert_eq!(repeated, None, "{name} says this in metadata too: {told}");
        let quoted = texts.into_iter().flatten().find(|text| words.contains(text.as_str()));
        assert_eq!(quoted, None, "{name} says this in its answer too");
    }
}

#[tokio::test]
async fn an_answer_of_every_agent_reads_the_same_with_all_metadata_removed() {
    for name in builtin::NAMES {
        let (agent, asked) = sample(name);
        let recorder = Arc::new(Recorder::default());
        let outcome = turn(agent.as_ref(), &recorder, None, asked).await;
        assert_eq!(outcome, Ok(Outcome::Completed), "{name}");
        let result = recorder.events().into_iter().any(|body| {
            matches!(body, Body::Run(RunEvent::Result(value)) if value.to_value()["message"].is_string())
        });
        let mut words = String::new();
        for message in recorder.messages() {
            assert_eq!(read(&bare(&message)), read(&message), "{name}");
            words.push_str(&message.text());
            if name != "echo" {
                repeats_nothing(&message, name);
            }
        }
        assert!(result || !words.is_empty(), "{name} says nothing");
    }
}
