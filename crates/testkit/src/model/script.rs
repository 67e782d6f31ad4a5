//! What a test makes the model answer.

use std::time::Duration;

use serde_json::Value;

/// One answer of the model: text, then calls of tools.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Step {
    pub(super) text: Option<String>,
    pub(super) calls: Vec<Call>,
    /// The gate before the end of the answer: the text is sent before it, and the calls after it.
    pub(super) gate: Option<String>,
    /// The time before each event of a stream.
    pub(super) pace: Duration,
    /// The number of the request that it answers, for its ids.
    pub(super) number: usize,
}

/// A call of a tool.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Call {
    pub(super) id: String,
    pub(super) tool: String,
    pub(super) arguments: Value,
    /// Whether the agent takes the call without offering the tool.
    pub(super) is_deferred: bool,
}

/// The answers to a user's message that contains these words, in order.
#[derive(Clone, Debug)]
pub(super) struct Script {
    pub(super) words: String,
    pub(super) steps: Vec<Step>,
}

/// A request of any dialect.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Conversation {
    pub(super) items: Vec<Item>,
    /// The names of the tools that the model may call.
    pub(super) tools: Vec<String>,
}

/// An item of a conversation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Item {
    /// A user's message.
    User(String),
    /// Something that the model sent. Adjacent ones are one answer.
    Model,
    /// Anything else, such as the result of a tool.
    Other,
}

// === impl Step ===

impl Step {
    /// Answers with this text.
    pub fn text(text: &str) -> Self {
        Self { text: Some(text.to_owned()), ..Self::default() }
    }

    /// Calls this tool. A name `GROUP/TOOL` is of a tool in a group.
    pub fn call(tool: &str, arguments: Value) -> Self {
        Self::default().and_call(tool, arguments)
    }

    /// Calls a further tool in the same answer.
    #[must_use]
    pub fn and_call(mut self, tool: &str, arguments: Value) -> Self {
        let (id, tool) = (String::new(), tool.to_owned());
        self.calls.push(Call { id, tool, arguments, is_deferred: false });
        self
    }

    /// Calls the tools although the agent does not offer them: it has them, and names them only when the model looks for them.
    #[must_use]
    pub fn deferred(mut self) -> Self {
        self.calls.iter_mut().for_each(|call| call.is_deferred = true);
        self
    }

    /// Says this before the calls.
    #[must_use]
    pub fn with_text(mut self, text: &str) -> Self {
        self.text = Some(text.to_owned());
        self
    }

    /// Waits before the end of the answer until the test opens this gate. See [`super::Model::open`].
    #[must_use]
    pub fn behind(mut self, gate: &str) -> Self {
        self.gate = Some(gate.to_owned());
        self
    }

    /// Streams slowly: each event comes after this time.
    #[must_use]
    pub fn paced(mut self, pace: Duration) -> Self {
        self.pace = pace;
        self
    }
}

// === impl Conversation ===

impl Conversation {
    /// The step that answers this conversation: that of the first script whose words the last message of the user contains. `None` if no script fits, or
    /// if the step calls a tool that is not offered.
    pub(super) fn step(&self, scripts: &[Script]) -> Option<Step> {
        let is_user = |item: &Item| matches!(item, Item::User(_));
        let at = self.items.iter().rposition(is_user)?;
        let (asked, after) = self.items.get(at..)?.split_first()?;
        let Item::User(text) = asked else { return None };
        let mut answers = 0;
        let mut last = asked;
        for item in after {
            answers += usize::from(*item == Item::Model && *last != Item::Model);
            last = item;
        }
        let script = scripts.iter().find(|script| text.contains(&script.words))?;
        let step = script.steps.get(answers)?;
        let is_offered = |call: &Call| call.is_deferred || self.tools.contains(&call.tool);
        // Requests without tools are not turns: agents also ask for titles and summaries.
        (!self.tools.is_empty() && step.calls.iter().all(is_offered)).then(|| step.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use serde_json::json;

    use super::*;

    #[test]
    fn the_answers_since_the_last_message_choose_the_step() {
        let steps = vec![Step::call("shell", json!({})), Step::text("done")];
        let scripts = [Script { words: "make it".to_owned(), steps: steps.clone() }];
        let user = |text: &str| Item::User(text.to_owned());
        let step = |items: &[Item], tools: &[&str]| {
            let tools = tools.iter().map(|tool| (*tool).to_owned()).collect();
            Conversation { items: items.to_vec(), tools }.step(&scripts)
        };
        let asked = user("please make it now");
        assert_eq!(step(from_ref(&asked), &["shell"]), Some(steps[0].clone()));
        let called =
            [user("hello"), Item::Model, asked.clone(), Item::Model, Item::Model, Item::Other];
        assert_eq!(step(&called, &["shell"]), Some(steps[1].clone()));
        assert_eq!(step(&[asked.clone(), user("thanks")], &["shell"]), None);
        for tools in [&["other"][..], &[]] {
            assert_eq!(step(from_ref(&asked), tools), None);
        }
    }
}
