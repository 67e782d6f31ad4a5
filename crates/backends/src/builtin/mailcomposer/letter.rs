//! Turns a user's text into a mail: recipients, subject and body, by fixed rules.

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
pub(super) struct Wish {
    pub(super) recipients: Vec<String>,
    subject: Option<String>,
    /// The sentences of the mail; or only its topic.
    content: Option<MailContent>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum MailContent {
    Says(String),
    IsAbout(String),
}

const MAX_RECIPIENTS: usize = 50;
const MAX_SUBJECT_CHARACTERS: usize = 60;

/// Phrases before the words of the mail. Longer ones first, where one begins with another.
const SAYS: &[&str] = &[
    " saying that ",
    " saying: ",
    " saying ",
    " to say that ",
    " to say ",
    " to say: ",
    " and say: ",
    " and say that ",
    " and say ",
    " that says that ",
    " that says ",
    " telling them that ",
    " telling him that ",
    " telling her that ",
    " to tell them that ",
    " to tell him that ",
    " to tell her that ",
    " and tell them that ",
    " and tell him that ",
    " and tell her that ",
    " know that ",
    " know ",
    " that ",
    ": ",
];

/// Phrases before the topic of the mail.
const ABOUT: &[&str] = &[" about ", " regarding ", " concerning "];

// === impl Wish ===

impl Wish {
    pub(super) fn read(text: &str) -> Self {
        let recipients = addresses(text);
        let mut subject = None;
        let mut said = Vec::new();
        let mut about = None;
        for sentence in sentences(text) {
            if let Some(line) = after_label(sentence, "subject:") {
                subject = Some(tidy(line));
            } else if let Some(line) = after_label(sentence, "body:") {
                said.push(line.to_owned());
            } else if let Some(words) = after_any(sentence, SAYS).filter(|_| is_order(sentence)) {
                said.push(without_addresses(words));
                let topic = after_any(sentence, ABOUT).map(|topic| until_any(topic, SAYS));
                about = about.or(topic.map(without_addresses).map(|topic| tidy(&topic)));
            } else if let Some(request) = requested(sentence) {
                said.push(request);
            } else if is_order(sentence) {
                let topic = after_any(sentence, ABOUT).map(without_addresses);
                about = about.or(topic.map(|topic| tidy(&topic)));
            } else {
                said.push(without_addresses(sentence));
            }
        }
        let said: Vec<String> =
            said.iter().map(|words| as_sentence(words)).filter(|words| !words.is_empty()).collect();
        let about = about.filter(|topic| !topic.is_empty());
        let content = match (said.is_empty(), &about) {
            (false, _) => Some(MailContent::Says(said.join(" "))),
            (true, Some(topic)) => Some(MailContent::IsAbout(topic.clone())),
            (true, None) => None,
        };
        let subject = subject.filter(|subject| !subject.is_empty()).or(about);
        Self { recipients, subject, content }
    }

    /// The mail; `None` without a recipient or content.
    pub(super) fn compose(&self, style: Style) -> Option<Mail> {
        let content = self.content.as_ref().filter(|_| !self.recipients.is_empty())?;
        let (words, subject) = match (content, style) {
            (MailContent::Says(words), _) => (words.clone(), first_words(words)),
            (MailContent::IsAbout(topic), Style::Formal) => {
                (format!("I am writing to you about {topic}."), topic.clone())
            }
            (MailContent::IsAbout(topic), Style::Friendly) => {
                (format!("I just wanted to talk to you about {topic}."), topic.clone())
            }
        };
        let subject = capitalised(self.subject.as_deref().unwrap_or(&subject));
        let (greeting, closing) = match style {
            Style::Formal => ("Dear", "Kind regards"),
            Style::Friendly => ("Hi", "Cheers"),
        };
        let name = self.name(style);
        let body = format!("{greeting} {name},\n\n{words}\n\n{closing}");
        Some(Mail { subject, body, recipients: self.recipients.clone() })
    }

    /// The greeting's name for the recipients, from the part of the address before `@`.
    fn name(&self, style: Style) -> String {
        let [only] = self.recipients.as_slice() else { return "all".to_owned() };
        let local = only.split('@').next().unwrap_or_default();
        let mut names = local
            .split(['.', '_', '-', '+'])
            .map(|name| name.trim_matches(|c: char| c.is_ascii_digit()))
            .filter(|name| !name.is_empty())
            .map(capitalised);
        match style {
            Style::Formal => names.collect::<Vec<_>>().join(" "),
            Style::Friendly => names.next().unwrap_or_default(),
        }
    }
}

fn addresses(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for word in text.split(is_separator) {
        let word = word.trim_matches(|c: char| !c.is_alphanumeric());
        let known = found.iter().any(|known| known.eq_ignore_ascii_case(word));
        if is_address(word) && !known && found.len() < MAX_RECIPIENTS {
            found.push(word.to_owned());
        }
    }
    found
}

fn is_separator(c: char) -> bool {
    c.is_whitespace() || matches!(c, ',' | ';' | '<' | '>' | '(' | ')' | '"' | '\'' | ':')
}

fn is_address(word: &str) -> bool {
    let Some((local, domain)) = word.split_once('@') else { return false };
    let of = |part: &str, extra: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || extra.contains(c))
    };
    of(local, "._%+-") && domain.contains('.') && domain.split('.').all(|label| of(label, "-"))
}

/// Sentences and lines. A dot inside an address or a number ends none.
fn sentences(text: &str) -> Vec<&str> {
    text.lines()
        .flat_map(|line| {
            let mut rest = line;
            std::iter::from_fn(move || {
                let end = rest.char_indices().find_map(|(at, c)| {
                    let after = rest.get(at + c.len_utf8()..)?;
                    let ends = matches!(c, '.' | '!' | '?')
                        && after.chars().next().is_none_or(char::is_whitespace);
                    ends.then_some(at + c.len_utf8())
                });
                let (sentence, after) = rest.split_at_checked(end.unwrap_or(rest.len()))?;
                rest = after;
                (!sentence.is_empty()).then_some(sentence.trim())
            })
        })
        .filter(|sentence| !sentence.is_empty())
        .collect()
}

/// Whether a sentence instructs the composer, rather than being part of the mail.
fn is_order(sentence: &str) -> bool {
    let lower = sentence.to_ascii_lowercase();
    let first = lower.trim_start_matches(['"', '\'']);
    const POLITE: &[&str] = &["please ", "could you ", "can you ", "would you ", "i want you to "];
    let first = POLITE.iter().find_map(|polite| first.strip_prefix(polite)).unwrap_or(first);
    let first = first.strip_prefix("please ").unwrap_or(first);
    const ORDERS: &[&str] = &[
        "write ",
        "send ",
        "mail ",
        "email ",
        "e-mail ",
        "compose ",
        "draft ",
        "tell ",
        "inform ",
        "let ",
        "ask ",
        "remind ",
        "to: ",
        "to ",
        "i want to write ",
        "i want to send ",
        "i would like to write ",
        "i would like to send ",
        "an email ",
        "a mail ",
    ];
    ORDERS.iter().any(|order| first.starts_with(order)) || is_only_addresses(sentence)
}

/// A reminder or an order in the text, as a request.
fn requested(sentence: &str) -> Option<String> {
    let lower = sentence.to_ascii_lowercase();
    let asks = ["ask ", "remind "]
        .iter()
        .any(|verb| lower.starts_with(verb) || lower.contains(&format!(" {verb}")));
    let (_, wish) = sentence.split_once(" to ").filter(|_| asks && is_order(sentence))?;
    let wish = wish.trim_end_matches(['?', '.']);
    addresses(wish).is_empty().then(|| format!("please {wish}"))
}

fn is_only_addresses(sentence: &str) -> bool {
    !addresses(sentence).is_empty() && tidy(&without_addresses(sentence)).is_empty()
}

pub(super) fn wants_mail(text: &str) -> bool {
    sentences(text).into_iter().any(is_order) || !addresses(text).is_empty()
}

fn after_label<'a>(sentence: &'a str, label: &str) -> Option<&'a str> {
    let start = sentence.get(..label.len())?;
    start.eq_ignore_ascii_case(label).then(|| sentence.get(label.len()..))?.map(str::trim)
}

/// The text after the earliest of these markers.
fn after_any<'a>(sentence: &'a str, markers: &[&str]) -> Option<&'a str> {
    let (at, length) = first_of(sentence, markers)?;
    sentence.get(at + length..)
}

/// The text before the earliest of these markers.
fn until_any<'a>(text: &'a str, markers: &[&str]) -> &'a str {
    first_of(text, markers).and_then(|(at, _)| text.get(..at)).unwrap_or(text)
}

/// Position and length of the earliest marker; of several there the one listed first.
fn first_of(text: &str, markers: &[&str]) -> Option<(usize, usize)> {
    // Only ASCII letters change, so positions stay what they are.
    let lower = text.to_ascii_lowercase();
    let places = markers.iter().filter_map(|marker| Some((lower.find(marker)?, marker.len())));
    places.min_by_key(|(at, length)| (*at, std::cmp::Reverse(*length)))
}

/// The text without mail addresses and the words that lead to them.
fn without_addresses(text: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for word in text.split_whitespace() {
        if addresses(word).is_empty() {
            kept.push(word);
            continue;
        }
        while kept.last().is_some_and(|last| matches!(*last, "to" | "and" | "for" | "cc" | "at")) {
            kept.pop();
        }
    }
    kept.join(" ")
}

/// Without quotes, white space and punctuation around it.
fn tidy(text: &str) -> String {
    text.trim_matches(|c: char| c.is_whitespace() || "\"'“”‘’.,;:!?".contains(c)).to_owned()
}

/// With a capital letter and a full stop; empty where there is no word.
fn as_sentence(words: &str) -> String {
    let words = words.trim_matches(|c: char| c.is_whitespace() || "\"'“”,;:".contains(c));
    if !words.chars().any(char::is_alphanumeric) {
        return String::new();
    }
    let stop = if words.ends_with(['.', '!', '?', '…']) { "" } else { "." };
    format!("{}{stop}", capitalised(words))
}

fn capitalised(text: &str) -> String {
    let mut characters = text.chars();
    match characters.next() {
        Some(first) => first.to_uppercase().chain(characters).collect(),
        None => String::new(),
    }
}

/// The first sentence, cut at a word when it is long.
fn first_words(text: &str) -> String {
    let sentence = sentences(text).first().map(|first| tidy(first)).unwrap_or_default();
    if sentence.chars().count() <= MAX_SUBJECT_CHARACTERS {
        return sentence;
    }
    let mut cut: String = sentence.chars().take(MAX_SUBJECT_CHARACTERS).collect();
    if let Some((words, _)) = cut.rsplit_once(' ') {
        cut = words.to_owned();
    }
    format!("{}…", tidy(&cut))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recipients, subject and body of the mail that a text asks for.
    fn check(text: &str, style: Style, recipients: &[&str], subject: &str, body: &str) {
        let mail = Wish::read(text).compose(style).unwrap_or_else(|| panic!("no mail: {text}"));
        assert_eq!(mail.recipients, recipients, "{text}");
        assert_eq!(mail.subject, subject, "{text}");
        assert_eq!(mail.body, body, "{text}");
    }

    #[test]
    fn real_sentences_become_mails() {
        check(
            "Please write a mail to alice.smith@example.com saying that the meeting moves to Tuesday.",
            Style::Formal,
            &["alice.smith@example.com"],
            "The meeting moves to Tuesday",
            "Dear Alice Smith,\n\nThe meeting moves to Tuesday.\n\nKind regards",
        );
        check(
            "Tell bob@example.org and carol@example.org that we won",
            Style::Friendly,
            &["bob@example.org", "carol@example.org"],
            "We won",
            "Hi all,\n\nWe won.\n\nCheers",
        );
        check(
            "Email bob@example.com. The demo is on Friday at 10.30. Bring the slides!",
            Style::Friendly,
            &["bob@example.com"],
            "The demo is on Friday at 10.30",
            "Hi Bob,\n\nThe demo is on Friday at 10.30. Bring the slides!\n\nCheers",
        );
        check(
            "Send an email to team@example.com about the summer party saying: bring a cake",
            Style::Formal,
            &["team@example.com"],
            "The summer party",
            "Dear Team,\n\nBring a cake.\n\nKind regards",
        );
        check(
            "Write to dan@example.com about the budget",
            Style::Formal,
            &["dan@example.com"],
            "The budget",
            "Dear Dan,\n\nI am writing to you about the budget.\n\nKind regards",
        );
        check(
            "To: eve@example.com\nSubject: Lunch\nBody: shall we eat at noon?",
            Style::Friendly,
            &["eve@example.com"],
            "Lunch",
            "Hi Eve,\n\nShall we eat at noon?\n\nCheers",
        );
        check(
            "Could you remind dan@example.com to bring the keys?",
            Style::Formal,
            &["dan@example.com"],
            "Please bring the keys",
            "Dear Dan,\n\nPlease bring the keys.\n\nKind regards",
        );
        check(
            "Let dan@example.com know the show is off",
            Style::Formal,
            &["dan@example.com"],
            "The show is off",
            "Dear Dan,\n\nThe show is off.\n\nKind regards",
        );
        check(
            "Write that lunch is at noon to <Alice@Example.com>, alice@example.com",
            Style::Friendly,
            &["Alice@Example.com"],
            "Lunch is at noon",
            "Hi Alice,\n\nLunch is at noon.\n\nCheers",
        );
    }

    #[test]
    fn nothing_is_sent_to_nobody_and_nothing_empty_to_anybody() {
        for text in ["", "Write a mail to Bob", "Write to bob@example.com", "a@b", "@ @. x@.com"] {
            assert_eq!(Wish::read(text).compose(Style::Formal), None, "{text}");
        }
    }

    #[test]
    fn a_long_first_sentence_is_cut_at_a_word() {
        let text = format!("Tell bob@example.com that {}", "ähnlich ".repeat(40));
        let mail = Wish::read(&text).compose(Style::Formal).unwrap();
        assert!(mail.subject.chars().count() <= MAX_SUBJECT_CHARACTERS + 1);
        assert!(mail.subject.ends_with("ähnlich…"), "{}", mail.subject);
    }
}
