//! Turns a user's text into a mail by three rules: addresses are recipients, "about" names the topic, and a colon, "saying" or "that" begins the words.

use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Mail {
    pub subject: String,
    /// With greeting and closing.
    pub body: String,
    pub recipients: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Style {
    /// To a stranger.
    #[default]
    Formal,
    /// To a friend.
    Friendly,
}

/// The parts of a mail that a text contains.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct MailRequest {
    pub(super) recipients: Vec<String>,
    topic: Option<String>,
    words: Option<String>,
}

const MAX_RECIPIENTS: usize = 50;
const MAX_SUBJECT_CHARACTERS: usize = 60;
/// The markers before the words of the mail. The earliest in the text counts, and the longest of those at the same position.
const WORDS: [&str; 4] = [": ", " saying that ", " saying ", " that "];
const ABOUT: &str = " about ";

// === impl MailRequest ===

impl MailRequest {
    /// Reads the user's text and, if the agent asked for a missing part, the user's reply.
    pub(super) fn read(text: &str, reply: Option<&str>) -> Self {
        let mut recipients: Vec<String> = Vec::new();
        for address in text.split_whitespace().chain(reply.unwrap_or_default().split_whitespace()) {
            let address = trim(address);
            let is_new = !recipients.iter().any(|known| known.eq_ignore_ascii_case(address));
            if is_address(address) && is_new && recipients.len() < MAX_RECIPIENTS {
                recipients.push(address.to_owned());
            }
        }
        let (request, words) = split_at_words(text);
        let topic = request.split_once(ABOUT).map(|(_, topic)| trim(topic).to_owned());
        let reply = reply.filter(|reply| !has_address(reply)).map(str::trim);
        Self {
            recipients,
            topic: topic.filter(|topic| !topic.is_empty()),
            words: words.or(reply).filter(|words| !trim(words).is_empty()).map(sentence),
        }
    }

    /// Returns the mail, or `None` without a recipient, or with neither words nor a topic.
    pub(super) fn compose(&self, style: Style) -> Option<Mail> {
        let [first, others @ ..] = self.recipients.as_slice() else { return None };
        let about = self.topic.as_ref().map(|topic| format!("I am writing about {topic}."));
        let words = self.words.clone().or(about)?;
        let (greeting, closing) = match style {
            Style::Formal => ("Dear", "Kind regards"),
            Style::Friendly => ("Hi", "Cheers"),
        };
        let name = if others.is_empty() { name_in(first) } else { "all".to_owned() };
        Some(Mail {
            subject: capitalise(&shorten(self.topic.as_deref().unwrap_or(&words))),
            body: format!("{greeting} {name},\n\n{words}\n\n{closing}"),
            recipients: self.recipients.clone(),
        })
    }
}

/// Whether a text asks for a mail.
pub(super) fn wants_mail(text: &str) -> bool {
    let first = text.split_whitespace().next().unwrap_or_default().to_ascii_lowercase();
    has_address(text) || matches!(first.as_str(), "write" | "send")
}

/// The text before the marker of the words, and the words.
fn split_at_words(text: &str) -> (&str, Option<&str>) {
    let marker = WORDS
        .iter()
        .filter_map(|marker| Some((text.find(marker)?, marker.len())))
        .min_by_key(|(at, length)| (*at, std::cmp::Reverse(*length)));
    let parts = marker.and_then(|(at, length)| Some((text.get(..at)?, text.get(at + length..)?)));
    parts.map_or((text, None), |(before, words)| (before, Some(words.trim())))
}

fn has_address(text: &str) -> bool {
    text.split_whitespace().any(|word| is_address(trim(word)))
}

fn is_address(word: &str) -> bool {
    let parts =
        word.split_once('@').and_then(|(local, domain)| Some((local, domain.split_once('.')?)));
    parts.is_some_and(|(local, (host, rest))| ![local, host, rest].contains(&""))
}

/// The name in an address: `ada.lovelace@…` is "Ada Lovelace".
fn name_in(address: &str) -> String {
    let local = address.split('@').next().unwrap_or_default();
    local.split('.').map(capitalise).collect::<Vec<_>>().join(" ")
}

/// Without white space and punctuation around it.
fn trim(text: &str) -> &str {
    text.trim_matches(|c: char| !c.is_alphanumeric())
}

/// With a capital letter and a full stop.
fn sentence(words: &str) -> String {
    let stop = if words.ends_with(['.', '!', '?', '…']) { "" } else { "." };
    format!("{}{stop}", capitalise(words))
}

fn capitalise(text: &str) -> String {
    let mut characters = text.chars();
    characters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

/// A subject from words: without the full stop, cut at a word if it is long.
fn shorten(words: &str) -> String {
    let words = trim(words);
    if words.chars().count() <= MAX_SUBJECT_CHARACTERS {
        return words.to_owned();
    }
    let cut: String = words.chars().take(MAX_SUBJECT_CHARACTERS).collect();
    format!("{}…", cut.rsplit_once(' ').map_or(cut.as_str(), |(words, _)| words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_becomes_a_mail() {
        for (text, reply, style, recipients, subject, body) in [
            (
                "Please write a mail to alice.smith@example.com saying that the meeting moves to Tuesday.",
                None,
                Style::Formal,
                "alice.smith@example.com",
                "The meeting moves to Tuesday",
                "Dear Alice Smith,\n\nThe meeting moves to Tuesday.\n\nKind regards",
            ),
            (
                "Tell bob@example.org and <carol@example.org>, Bob@example.org that we won!",
                None,
                Style::Friendly,
                "bob@example.org, carol@example.org",
                "We won",
                "Hi all,\n\nWe won!\n\nCheers",
            ),
            (
                "Write to ada@example.com about the report: it is ready.",
                None,
                Style::Formal,
                "ada@example.com",
                "The report",
                "Dear Ada,\n\nIt is ready.\n\nKind regards",
            ),
            (
                "Write to dan@example.com about the budget",
                None,
                Style::Formal,
                "dan@example.com",
                "The budget",
                "Dear Dan,\n\nI am writing about the budget.\n\nKind regards",
            ),
            (
                "Write to dan@example.com",
                Some("The train is late"),
                Style::Formal,
                "dan@example.com",
                "The train is late",
                "Dear Dan,\n\nThe train is late.\n\nKind regards",
            ),
            (
                "Write that lunch is at noon",
                Some("dan@example.com"),
                Style::Friendly,
                "dan@example.com",
                "Lunch is at noon",
                "Hi Dan,\n\nLunch is at noon.\n\nCheers",
            ),
        ] {
            let mail = MailRequest::read(text, reply).compose(style);
            let mail = mail.unwrap_or_else(|| panic!("no mail: {text}"));
            assert_eq!(mail.recipients.join(", "), recipients, "{text}");
            assert_eq!(mail.subject, subject, "{text}");
            assert_eq!(mail.body, body, "{text}");
        }
    }

    #[test]
    fn a_mail_needs_a_recipient_and_words() {
        for text in ["", "Write to Bob: hi", "Write to bob@example.com", "a@b: c", "@ @. x@.com: y"]
        {
            assert_eq!(MailRequest::read(text, None).compose(Style::Formal), None, "{text}");
        }
    }

    #[test]
    fn a_long_subject_is_cut_at_a_word() {
        let text = format!("Tell bob@example.com that {}", "ähnlich ".repeat(40));
        let mail = MailRequest::read(&text, None).compose(Style::Formal).unwrap();
        assert!(mail.subject.chars().count() <= MAX_SUBJECT_CHARACTERS + 1);
        assert!(mail.subject.ends_with("ähnlich…"), "{}", mail.subject);
    }
}
