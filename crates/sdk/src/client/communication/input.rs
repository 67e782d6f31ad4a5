use trilogue_wire::agent_communication::{Message, MessagePart};

/// The input of an agent. Made from a text, a part, a message, or several of them.
///
/// Several texts and parts together become one user message.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InputMessages(pub Vec<Message>);

// === impl InputMessages ===

impl From<&str> for InputMessages {
    fn from(text: &str) -> Self {
        Self::from(MessagePart::text(text))
    }
}

impl From<String> for InputMessages {
    fn from(text: String) -> Self {
        Self::from(MessagePart::text(text))
    }
}

impl From<Vec<&str>> for InputMessages {
    fn from(texts: Vec<&str>) -> Self {
        Self::from(texts.into_iter().map(MessagePart::text).collect::<Vec<_>>())
    }
}

impl From<MessagePart> for InputMessages {
    fn from(part: MessagePart) -> Self {
        Self::from(vec![part])
    }
}

impl From<Vec<MessagePart>> for InputMessages {
    fn from(parts: Vec<MessagePart>) -> Self {
        Self::from(Message::user(parts))
    }
}

impl<const N: usize> From<[MessagePart; N]> for InputMessages {
    fn from(parts: [MessagePart; N]) -> Self {
        Self::from(Vec::from(parts))
    }
}

impl From<Message> for InputMessages {
    fn from(message: Message) -> Self {
        Self(vec![message])
    }
}

impl From<Vec<Message>> for InputMessages {
    fn from(messages: Vec<Message>) -> Self {
        Self(messages)
    }
}

impl<const N: usize> From<[Message; N]> for InputMessages {
    fn from(messages: [Message; N]) -> Self {
        Self(messages.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_parts_are_one_message_and_messages_stay_apart() {
        let (a, b) = (MessagePart::text("a"), MessagePart::text("b"));
        let both = Message::user(vec![a.clone(), b.clone()]);
        assert_eq!(InputMessages::from("a"), InputMessages(vec![Message::text("a")]));
        assert_eq!(InputMessages::from("a".to_owned()), InputMessages::from(a.clone()));
        assert_eq!(InputMessages::from(vec!["a", "b"]), InputMessages(vec![both.clone()]));
        assert_eq!(InputMessages::from([a, b]), InputMessages(vec![both.clone()]));
        assert_eq!(InputMessages::from(both.clone()), InputMessages(vec![both.clone()]));
        assert_eq!(InputMessages::from([both.clone(), both]).0.len(), 2);
        assert_eq!(InputMessages::from(Vec::<Message>::new()), InputMessages::default());
    }
}
