//! `researcher`: shows every kind of output, about any topic, without a real search.

mod chart;

use std::time::Duration;

use serde_json::{Value, json};
use trilogue_sdk::prelude::*;
use trilogue_sdk::{MessageWriter, PlanEntry, Trajectory};

pub const NAME: &str = "researcher";
/// The longest topic, in characters; the rest is cut off.
const MAX_TOPIC_CHARACTERS: usize = 200;

/// Streams an answer with citations, steps, an image, an artifact and a link.
#[derive(Clone, Copy, Debug)]
pub struct Researcher {
    pace: Duration,
}

/// One finding: a statement and the source that it comes from.
struct Finding {
    statement: String,
    title: String,
    url: String,
    /// What kind of source it is. Metadata never repeats the statement.
    about: &'static str,
    pages: usize,
}

const STEPS: [&str; 3] = ["Search for sources", "Read the sources", "Write the answer"];

/// Phrases before the topic in a question.
const LEADS: &[&str] = &[
    "please ",
    "can you ",
    "could you ",
    "tell me about ",
    "tell me something about ",
    "find out about ",
    "do some research on ",
    "do research on ",
    "research ",
    "explain ",
    "describe ",
    "write about ",
    "what are ",
    "what is ",
    "who is ",
    "who was ",
    "the topic of ",
];

// === impl Researcher ===

impl Researcher {
    #[must_use]
    pub fn new(pace: Duration) -> Self {
        Self { pace }
    }

    async fn research(&self, topic: &str, context: &Context) -> Result<(), AgentError> {
        context.plan(plan(0)).await?;
        context.thought(&format!("I need at least two independent sources on {topic}.")).await?;
        let mut message = context.message().await?;
        let findings = findings(topic);

        let found: Vec<Value> = findings
            .iter()
            .map(|finding| json!({ "title": finding.title, "url": finding.url }))
            .collect();
        let output = json!({ "results": found });
        step(&mut message, "search", json!({ "query": topic }), output).await?;
        context.plan(plan(1)).await?;
        for finding in &findings {
            let output = json!({ "pages": finding.pages });
            step(&mut message, "read", json!({ "url": finding.url }), output).await?;
        }
        context.plan(plan(2)).await?;
        self.write(topic, &findings, &mut message, context).await?;
        message.finish().await?;
        context.plan(plan(STEPS.len())).await
    }

    async fn write(
        &self,
        topic: &str,
        findings: &[Finding],
        message: &mut MessageWriter,
        context: &Context,
    ) -> Result<(), AgentError> {
        let count = findings.len();
        let opening = format!("I looked at {count} sources on {topic}. ");
        self.stream(&opening, message, context).await?;
        for finding in findings {
            let start = message.characters();
            self.stream(&finding.statement, message, context).await?;
            let source = Source::url(&finding.url).title(&finding.title).description(finding.about);
            message.citation(start..message.characters(), source).await?;
            self.stream(" ", message, context).await?;
        }
        let closing =
            "The chart shows how often each source mentions it, and the report has the details.";
        self.stream(closing, message, context).await?;
        message.part(Part::bytes("image/png", chart::png(topic))).await?;
        message.artifact("report.md", Part::new("text/markdown", report(topic, findings))).await?;
        message.part(Part::url("text/html", format!("{BASE}/{}", slug(topic)))).await
    }

    /// Emits text word by word, at the researcher's pace.
    async fn stream(
        &self,
        text: &str,
        message: &mut MessageWriter,
        context: &Context,
    ) -> Result<(), AgentError> {
        for word in text.split_inclusive(' ') {
            if context.is_cancelled() {
                return Err(AgentError::run_stopped());
            }
            message.text(word).await?;
            if !self.pace.is_zero() {
                tokio::select! {
                    () = tokio::time::sleep(self.pace) => {}
                    () = context.cancelled() => {}
                }
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Agent for Researcher {
    fn card(&self) -> Card {
        Card::chat(
            NAME,
            "Answers with a streamed, cited text, its steps, an image, a report and a link. It looks nothing up: sources and findings are samples.",
        )
        .version("1.0.0")
        .reads(["text/plain"])
        .writes(["text/plain", "image/png", "text/markdown", "text/html"])
        .streams(true, true)
    }

    async fn run(&self, turn: Turn, context: Context) -> Result<Outcome, AgentError> {
        match topic_of(&turn.text()) {
            Some(topic) => self.research(&topic, &context).await?,
            None => context.text("What should I look into?").await?,
        }
        Ok(Outcome::Completed)
    }
}

/// The base address of the sample sources: a domain that is reserved for samples.
const BASE: &str = "https://research.example.org";

/// The topic of a question. `None` if the question names none.
fn topic_of(question: &str) -> Option<String> {
    let words: Vec<&str> = question.split_whitespace().collect();
    let mut topic: String = words.join(" ").chars().filter(|c| !c.is_control()).collect();
    while let Some(length) = lead(&topic) {
        topic.drain(..length);
    }
    let topic = topic.trim_matches(|c: char| c.is_whitespace() || "?!.,;:\"'".contains(c));
    let topic: String = topic.chars().take(MAX_TOPIC_CHARACTERS).collect();
    (!topic.is_empty()).then_some(topic)
}

/// The length of a lead that the text begins with, in bytes.
fn lead(text: &str) -> Option<usize> {
    LEADS.iter().map(|lead| lead.len()).zip(LEADS).find_map(|(length, lead)| {
        text.get(..length).filter(|start| start.eq_ignore_ascii_case(lead)).map(|_| length)
    })
}

/// The findings. They depend only on the topic.
fn findings(topic: &str) -> Vec<Finding> {
    let slug = slug(topic);
    let finding = |statement, title, (page, about, pages): (&str, _, _)| Finding {
        statement,
        title,
        url: format!("{BASE}/{slug}/{page}"),
        about,
        pages,
    };
    let words = topic.split_whitespace().count();
    vec![
        finding(
            format!("The handbook introduces {topic} in {} chapters.", 3 + words % 5),
            format!("A handbook of {topic}"),
            ("handbook", "A sample of a reference work", 240),
        ),
        finding(
            format!("A survey of {} practitioners calls {topic} well understood.", 100 + 7 * words),
            format!("{topic}: a survey"),
            ("survey", "A sample of an empirical study", 18),
        ),
        finding(
            format!("Its critics hold that {topic} still lacks a common measure."),
            format!("Open questions of {topic}"),
            ("questions", "A sample of a position paper", 9),
        ),
    ]
}

/// One tool step, as a trajectory part of the message.
async fn step(
    message: &mut MessageWriter,
    tool: &str,
    input: Value,
    output: Value,
) -> Result<(), AgentError> {
    let trajectory = Trajectory {
        message: None,
        tool_name: Some(tool.to_owned()),
        tool_input: Some(Json::from_value(&input)),
        tool_output: Some(Json::from_value(&output)),
    };
    message.part(Part::annotation(trilogue_sdk::PartMetadata::Trajectory(trajectory))).await
}

/// The plan while the step with this index is in progress.
fn plan(at: usize) -> Vec<PlanEntry> {
    let status = |index: usize| match index.cmp(&at) {
        std::cmp::Ordering::Less => "completed",
        std::cmp::Ordering::Equal => "in_progress",
        std::cmp::Ordering::Greater => "pending",
    };
    let entry = |(index, step): (usize, &&str)| PlanEntry {
        content: (*step).to_owned(),
        status: status(index).to_owned(),
    };
    STEPS.iter().enumerate().map(entry).collect()
}

fn report(topic: &str, findings: &[Finding]) -> trilogue_sdk::Content {
    let lines: String = findings
        .iter()
        .map(|finding| format!("- {} ([{}]({}))\n", finding.statement, finding.title, finding.url))
        .collect();
    trilogue_sdk::Content::Text(format!("# {topic}\n\n{lines}").into())
}

/// The topic as a path segment: letters and digits, joined by `-`.
fn slug(topic: &str) -> String {
    let words = topic.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let slug = words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-");
    if slug.is_empty() { "topic".to_owned() } else { slug }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topic_is_what_the_question_is_about() {
        for (question, topic) in [
            ("Tell me about durable logs.", Some("durable logs")),
            ("please research  the sea\n", Some("the sea")),
            ("What is Rust?", Some("Rust")),
            ("ünïcode", Some("ünïcode")),
            (" ?! ", None),
            ("", None),
        ] {
            assert_eq!(topic_of(question).as_deref(), topic, "{question}");
        }
        assert_eq!(topic_of(&"x".repeat(5_000)).map(|topic| topic.len()), Some(200));
    }
}
