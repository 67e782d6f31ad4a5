//! `researcher` shows everything that an answer can contain.

use std::sync::Arc;
use std::time::Duration;

use trilogue_backends::builtin::Researcher;
use trilogue_domain::event::MessageEvent;
use trilogue_domain::{Body, Content, Message};
use trilogue_sdk::recorder::Recorder;
use trilogue_sdk::{Outcome, Part, PartMetadata};

use super::{start, turn};

async fn research(question: &str) -> (Arc<Recorder>, Message) {
    let recorder = Arc::new(Recorder::default());
    let agent = Researcher::new(Duration::ZERO);
    let outcome = turn(&agent, &recorder, None, start(vec![vec![Part::text(question)]])).await;
    assert_eq!(outcome, Ok(Outcome::Completed));
    let mut messages = recorder.messages();
    assert_eq!(messages.len(), 1);
    (recorder, messages.remove(0))
}

#[tokio::test]
async fn citations_cover_the_statements_they_cite() {
    let (_, message) = research("Tell me about Ærø's ferries").await;
    let text: Vec<char> = message.text().chars().collect();
    let mut cited = Vec::new();
    for part in &message.parts {
        let Some(PartMetadata::Citation(citation)) = &part.metadata else { continue };
        let start = usize::try_from(citation.start_index.unwrap()).unwrap();
        let end = usize::try_from(citation.end_index.unwrap()).unwrap();
        let words: String = text[start..end].iter().collect();
        assert!(citation.description.is_some());
        assert!(citation.url.as_ref().unwrap().starts_with("https://"));
        cited.push(words);
    }
    assert!(cited.len() >= 2, "{cited:?}");
    assert!(cited.iter().all(|words| words.ends_with('.') && words.contains("Ærø's ferries")));
}

#[tokio::test]
async fn the_answer_streams_and_reads_the_same_without_metadata() {
    let (recorder, message) = research("durable logs").await;
    let deltas: Vec<String> = recorder
        .events()
        .into_iter()
        .filter_map(|body| match body {
            Body::Message(MessageEvent::Delta { text, .. }) => Some(text.to_string()),
            _ => None,
        })
        .collect();
    assert!(deltas.len() > 20);
    assert!(deltas.iter().all(|delta| delta.split_whitespace().count() == 1 || delta == " "));
    let bare: String = message
        .parts
        .iter()
        .filter(|part| part.metadata.is_none() && part.name.is_none())
        .filter_map(Part::as_text)
        .collect();
    assert_eq!(bare, message.text());
    assert_eq!(deltas.concat(), bare);
    let (_, again) = research("durable logs").await;
    assert_eq!(again.text(), bare);
}

#[tokio::test]
async fn steps_image_artifact_and_link_are_there() {
    let (_, message) = research("durable logs").await;
    let tools: Vec<_> = message
        .parts
        .iter()
        .filter_map(|part| match &part.metadata {
            Some(PartMetadata::Trajectory(step)) => step.tool_name.clone(),
            _ => None,
        })
        .collect();
    assert_eq!(tools, ["search", "read", "read", "read"]);
    let find = |content_type: &str| {
        let mut parts = message.parts.iter().filter(|part| &*part.content_type == content_type);
        let part = parts.next().unwrap_or_else(|| panic!("no {content_type}"));
        (part.name.as_deref(), part.content.clone())
    };
    let (name, image) = find("image/png");
    assert_eq!(name, None);
    assert!(matches!(image, Content::Bytes(bytes) if bytes.starts_with(b"\x89PNG\r\n\x1a\n")));
    let (name, report) = find("text/markdown");
    assert_eq!(name, Some("report.md"));
    assert!(matches!(report, Content::Text(text) if text.starts_with("# durable logs\n")));
    let (name, link) = find("text/html");
    assert_eq!(name, None);
    assert!(matches!(link, Content::Url(url) if url.starts_with("https://")));
    let by_address = |part: &&Part| matches!(part.content, Content::Url(_));
    assert_eq!(message.parts.iter().filter(by_address).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn it_stops_when_it_is_asked_to_and_asks_when_there_is_no_topic() {
    let recorder = Arc::new(Recorder::default());
    let agent = Researcher::new(Duration::from_secs(1));
    let question = start(vec![vec![Part::text("durable logs")]]);
    let running = turn(&agent, &recorder, None, question);
    let cancelling = async {
        tokio::time::sleep(Duration::from_millis(3_500)).await;
        recorder.cancel();
    };
    let (outcome, ()) = tokio::join!(running, cancelling);
    assert!(outcome.unwrap_err().is_stopped());
    let text = recorder.messages()[0].text();
    assert_eq!(text, "I looked at 3 ");

    let (_, message) = research("?").await;
    assert!(message.text().ends_with('?'));
}
