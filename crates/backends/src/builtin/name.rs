//! Finds the user's name in an introduction.

const MAX_NAME_CHARACTERS: usize = 60;
const MAX_NAME_WORDS: usize = 4;

/// Phrases before a speaker's own name.
const INTRODUCTIONS: &[&str] = &["my name is ", "my name's ", "i am called ", "please call me "];

/// Phrases that make a sentence about a name a question.
const QUESTIONS: &[&str] =
    &["what", "what's", "remind", "remember", "recall", "know", "tell", "forget", "forgotten"];

/// First words of a yes-or-no question.
const WANTS_YES: &[&str] = &["can", "could", "do", "did", "will", "would", "have"];

/// The name in an introduction. `None` if the text has none.
pub(super) fn introduced(text: &str) -> Option<String> {
    // Only ASCII letters change, so positions stay the same.
    let lower = text.to_ascii_lowercase();
    let start = INTRODUCTIONS.iter().find_map(|words| Some(lower.find(words)? + words.len()))?;
    let mut name: Vec<&str> = Vec::new();
    for word in text.get(start..)?.split_whitespace().take(MAX_NAME_WORDS) {
        let bare = word.trim_matches(|c: char| !c.is_alphanumeric());
        let continues = name.is_empty() || bare.starts_with(char::is_uppercase);
        if !continues || !bare.chars().all(|c| c.is_alphabetic() || "-'’.".contains(c)) {
            break;
        }
        name.push(bare);
        if word.ends_with(|c: char| !c.is_alphanumeric()) {
            break;
        }
    }
    let name: String = name.join(" ").chars().take(MAX_NAME_CHARACTERS).collect();
    let mut characters = name.chars();
    let first = characters.next().filter(|_| !name.eq_ignore_ascii_case("not"))?;
    Some(first.to_uppercase().chain(characters).collect())
}

/// The answer to a question about the user's name, from the earlier messages: user and agent in turn, beginning with the user. `None` for any other text.
pub(super) fn recalled(text: &str, before: &[String]) -> Option<String> {
    let words: Vec<String> = text
        .split(|c: char| !c.is_alphanumeric() && c != '\'')
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    let asks = words.iter().any(|word| QUESTIONS.contains(&word.as_str()));
    let mine =
        words.windows(2).any(|pair| matches!(pair, [my, name] if my == "my" && name == "name"));
    if !asks || !mine || text.contains('@') || introduced(text).is_some() {
        return None;
    }
    let known = before.iter().step_by(2).rev().find_map(|said| introduced(said));
    let wants_yes = words.first().is_some_and(|word| WANTS_YES.contains(&word.as_str()));
    Some(match (known, wants_yes) {
        (Some(name), true) => format!("Yes, your name is {name}"),
        (Some(name), false) => format!("Your name is {name}"),
        (None, _) => "You have not told me your name".to_owned(),
    })
}

pub(super) fn greeting(name: &str) -> String {
    format!("Hello {name}, how can I help?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_ends_where_the_sentence_goes_on() {
        for (text, name) in [
            ("Hello, my name is John?", Some("John")),
            ("my name is john and I need a mail", Some("John")),
            ("Hi! My name's Mary-Ann O'Neill, nice to meet you", Some("Mary-Ann O'Neill")),
            ("My name is José Ángel García. Can you help?", Some("José Ángel García")),
            ("Please call me Zoë!", Some("Zoë")),
            ("My name is not important", None),
            ("My name is 007", None),
            ("My name is", None),
            ("my name is ", None),
            ("Hello", None),
        ] {
            assert_eq!(introduced(text).as_deref(), name, "{text}");
        }
        let long = format!("my name is {}", "x".repeat(1_000));
        assert_eq!(introduced(&long).map(|name| name.len()), Some(MAX_NAME_CHARACTERS));
    }

    #[test]
    fn the_newest_name_of_the_user_is_the_answer() {
        let before = ["My name is John", "My name is Composer", "My name is Jane", "Hello"];
        let before = before.map(str::to_owned);
        for (question, answer) in [
            ("Can you remind my name?", "Yes, your name is Jane"),
            ("What is my name", "Your name is Jane"),
            ("Do you remember my name?", "Yes, your name is Jane"),
        ] {
            assert_eq!(recalled(question, &before).as_deref(), Some(answer), "{question}");
            let unknown = recalled(question, &[]);
            assert_eq!(unknown.as_deref(), Some("You have not told me your name"));
        }
        for other in ["Tell bob@example.com my name", "My name is John, what now?", "Hello", ""] {
            assert_eq!(recalled(other, &before), None, "{other}");
        }
    }
}
