use serde::Deserialize;

use super::super::{AwaitRequest, AwaitResume, Message};
use super::given::Given;
use super::leaf::{Object, Text};
use super::{At, Read, Violation, quoted};

/// What is awaited, or what was, as it was sent.
#[derive(Debug, Deserialize)]
pub struct Draft {
    #[serde(default, rename = "type")]
    kind: Given<Text>,
    #[serde(default)]
    message: Given<<Message as Read>::Draft>,
}

// === impl Draft ===

impl Draft {
    fn finish(self, at: &At<'_>) -> Result<Message, Violation> {
        let kind = at.key("type");
        match self.kind.unless_absent(&kind)? {
            Some(Text(text)) if text != "message" => {
                return Err(kind.violation(format!("must be \"message\", not {}", quoted(&text))));
            }
            Some(_) | None => {}
        }
        let message = at.key("message");
        Message::finish(self.message.required(&message)?, &message)
    }
}

// === impl AwaitRequest ===

impl Read for AwaitRequest {
    type Draft = Object<Draft>;
    fn finish(Object(draft): Object<Draft>, at: &At<'_>) -> Result<Self, Violation> {
        draft.finish(at).map(|message| Self { message })
    }
}

// === impl AwaitResume ===

impl Read for AwaitResume {
    type Draft = Object<Draft>;
    fn finish(Object(draft): Object<Draft>, at: &At<'_>) -> Result<Self, Violation> {
        draft.finish(at).map(|message| Self { message })
    }
}
