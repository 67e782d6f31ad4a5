//! Questions about earlier messages, in natural words.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Recall {
    /// Whose words: the user's or the agent's.
    whose: Whose,
    which: Which,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Whose {
    User,
    Agent,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Which {
    First,
    Last,
    All,
}

const MAX_QUOTED: usize = 10;
const MAX_QUOTE_CHARACTERS: usize = 400;

// === impl Recall ===

impl Recall {
    /// Parses a question; `None` for any other text.
    pub(super) fn read(text: &str) -> Option<Self> {
        let words: Vec<String> = text
            .split(|c: char| !c.is_alphanumeric() && c != '\'')
            .filter(|word| !word.is_empty())
            .map(str::to_lowercase)
            .collect();
        let has =
            |candidates: &[&str]| words.iter().any(|word| candidates.contains(&word.as_str()));
        let phrase = words.join(" ");
        let asks = has(&["what", "remember", "remind", "repeat", "recall", "which"]);
        let spoken =
            has(&["say", "said", "tell", "told", "ask", "asked", "write", "wrote", "written"])
                || has(&["message", "messages", "words", "answer", "answered", "reply", "replied"]);
        if !asks || !spoken {
            return None;
        }
        let by_agent = ["did you", "have you", "you said", "you told", "you answer", "you wrote"]
            .iter()
            .any(|part| phrase.contains(part))
            || has(&["your"]);
        let by_user = ["did i", "have i", "i said", "i told", "i asked", "i wrote", "i say"]
            .iter()
            .any(|part| phrase.contains(part))
            || has(&["my"]);
        let whose = match (by_user, by_agent) {
            (true, _) => Whose::User,
            (false, true) => Whose::Agent,
            (false, false) => return None,
        };
        let which = if has(&["first", "beginning"]) {
            Which::First
        } else if has(&["everything", "all", "far", "messages"]) {
            Which::All
        } else {
            Which::Last
        };
        Some(Self { whose, which })
    }

    /// The answer from the earlier messages: user and agent in turn, beginning with the user.
    pub(super) fn answer(self, before: &[String]) -> String {
        let (skip, name) = match self.whose {
            Whose::User => (0, "You"),
            Whose::Agent => (1, "I"),
        };
        let said: Vec<&String> = before.iter().skip(skip).step_by(2).collect();
        let quotes: Vec<String> = match self.which {
            Which::First => said.first().into_iter().map(|text| quoted(text)).collect(),
            Which::Last => said.last().into_iter().map(|text| quoted(text)).collect(),
            Which::All => {
                let from = said.len().saturating_sub(MAX_QUOTED);
                said.iter().skip(from).map(|text| quoted(text)).collect()
            }
        };
        if quotes.is_empty() {
            return format!("{name} said nothing before this.");
        }
        let when = match self.which {
            Which::First => "first",
            Which::Last => "just before this",
            Which::All => "so far",
        };
        format!("{name} said {when}: {}", quotes.join(", then "))
    }
}

fn quoted(text: &str) -> String {
    let mut quote: String = text.chars().take(MAX_QUOTE_CHARACTERS).collect();
    if quote.len() < text.len() {
        quote.push('…');
    }
    format!("“{quote}”")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_about_the_past_are_answered_from_it() {
        let before = ["Hello", "Good day.", "Write to Bob", "Whom?"].map(str::to_owned);
        for (question, answer) in [
            ("What did I say before?", "You said just before this: “Write to Bob”"),
            ("what was my first message", "You said first: “Hello”"),
            ("Do you remember what I told you?", "You said just before this: “Write to Bob”"),
            ("Repeat everything I said so far", "You said so far: “Hello”, then “Write to Bob”"),
            ("And what did you answer?", "I said just before this: “Whom?”"),
        ] {
            let recall = Recall::read(question).unwrap_or_else(|| panic!("{question}"));
            assert_eq!(recall.answer(&before), answer, "{question}");
        }
        let recall = Recall::read("What did I say before?").unwrap();
        assert_eq!(recall.answer(&[]), "You said nothing before this.");
    }

    #[test]
    fn other_talk_is_no_question_about_the_past() {
        for text in ["Hello", "Write to Bob that I said no", "What is the weather like?", ""] {
            assert_eq!(Recall::read(text), None, "{text}");
        }
    }
}
