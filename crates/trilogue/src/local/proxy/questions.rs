//! The server's requests to the editor, under numbers that outlive a connection.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use trilogue_wire::agent_client::splice;
use trilogue_wire::jsonrpc::Id;

const MAX_OPEN: usize = 1_024;
/// How many of the editor's replies are kept in case the server did not store them.
const MAX_REPLIES: usize = 64;

#[derive(Debug, Default)]
pub(super) struct EditorQuestions {
    open: BTreeMap<u64, OpenQuestion>,
    next: u64,
    replies: VecDeque<KeptReply>,
}

#[derive(Clone, Debug)]
struct OpenQuestion {
    /// The server's own id for it, as JSON; `None` after a reconnect until the server asks again.
    request: Option<String>,
    /// The interrupt that it is about, if any: it outlives the connection.
    interrupt: Option<String>,
    session: Option<String>,
    /// Whether the editor knows that its reply is not needed.
    is_withdrawn: bool,
}

/// A reply about an interrupt, which the server may not have stored.
#[derive(Clone, Debug)]
struct KeptReply {
    interrupt: String,
    line: Bytes,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum QuestionRoute {
    /// To the editor, as this line.
    Editor(String),
    /// Nowhere: the editor has it open already.
    AlreadyOpen,
    /// Back to the server: this is the editor's earlier reply.
    Server(String),
}

// === impl EditorQuestions ===

impl EditorQuestions {
    pub(super) fn ask(
        &mut self,
        line: &str,
        request: &Id<'_>,
        interrupt: Option<String>,
        session: Option<String>,
    ) -> Option<QuestionRoute> {
        let same = |question: &&mut OpenQuestion| {
            let is_waiting = question.request.is_none() && !question.is_withdrawn;
            is_waiting && interrupt.is_some() && question.interrupt == interrupt
        };
        if let Some(question) = self.open.values_mut().find(same) {
            question.request = Some(request.as_str().to_owned());
            return Some(QuestionRoute::AlreadyOpen);
        }
        let kept = self.replies.iter().position(|kept| Some(&kept.interrupt) == interrupt.as_ref());
        if let Some(kept) = kept.and_then(|at| self.replies.remove(at)) {
            let text = std::str::from_utf8(&kept.line).ok()?;
            return splice::set(text, &["id"], request.as_str()).map(QuestionRoute::Server);
        }
        let id = self.next;
        self.next += 1;
        let request = request.as_str().to_owned();
        let asked = splice::set(line, &["id"], &id.to_string())?;
        self.drop_oldest_if_full();
        let question =
            OpenQuestion { request: Some(request), interrupt, session, is_withdrawn: false };
        self.open.insert(id, question);
        Some(QuestionRoute::Editor(asked))
    }

    /// Takes a reply of the editor. Returns the line for the server, if it waits for one.
    pub(super) fn reply(&mut self, id: &Id<'_>, line: &Bytes) -> Option<String> {
        let question = self.open.remove(&id.as_number()?)?;
        if question.is_withdrawn {
            return None;
        }
        if let Some(interrupt) = question.interrupt {
            self.replies.push_back(KeptReply { interrupt, line: line.clone() });
            if self.replies.len() > MAX_REPLIES {
                self.replies.pop_front();
            }
        }
        splice::set(std::str::from_utf8(line).ok()?, &["id"], &question.request?)
    }

    /// The server withdraws a request. Returns the editor's number for it.
    pub(super) fn withdraw(&mut self, request: &str) -> Option<u64> {
        let is = |question: &OpenQuestion| question.request.as_deref() == Some(request);
        let (number, question) = self.open.iter_mut().find(|(_, question)| is(question))?;
        let is_news = !std::mem::replace(&mut question.is_withdrawn, true);
        is_news.then_some(*number)
    }

    /// The connection is lost. Returns the requests that end with it, because no interrupt stands behind them.
    pub(super) fn disconnect(&mut self) -> Vec<u64> {
        for question in self.open.values_mut() {
            question.request = None;
        }
        self.withdraw_all(|question| question.interrupt.is_none())
    }

    /// The server has repeated every request of a session that is still open. Returns those that it did not repeat.
    pub(super) fn drop_unrepeated(&mut self, session: &str) -> Vec<u64> {
        self.withdraw_all(|question| {
            question.request.is_none() && question.session.as_deref().is_none_or(|it| it == session)
        })
    }

    fn withdraw_all(&mut self, which: impl Fn(&OpenQuestion) -> bool) -> Vec<u64> {
        let open = self.open.iter_mut().filter(|(_, it)| !it.is_withdrawn && which(it));
        let taken = open.map(|(number, question)| {
            question.is_withdrawn = true;
            *number
        });
        taken.collect()
    }

    /// Forgets the oldest withdrawn request: not every editor replies to those.
    fn drop_oldest_if_full(&mut self) {
        if self.open.len() < MAX_OPEN {
            return;
        }
        let oldest = self.open.iter().find(|(_, question)| question.is_withdrawn);
        if let Some(number) = oldest.map(|(number, _)| *number).or(self.open.keys().next().copied())
        {
            self.open.remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"jsonrpc":"2.0","id":5,"method":"session/request_permission"}"#;
    const ANSWER: &[u8] = br#"{"jsonrpc":"2.0","id":0,"result":{"a":1}}"#;

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    fn ask(
        questions: &mut EditorQuestions,
        request: u64,
        interrupt: &str,
    ) -> Option<QuestionRoute> {
        questions.ask(LINE, &Id::number(request), some(interrupt), some("s"))
    }

    #[test]
    fn a_question_keeps_its_number_over_connections() {
        let mut questions = EditorQuestions::default();
        assert_eq!(
            ask(&mut questions, 5, "i"),
            Some(QuestionRoute::Editor(LINE.replace('5', "0")))
        );
        assert!(questions.disconnect().is_empty());
        assert_eq!(ask(&mut questions, 77, "i"), Some(QuestionRoute::AlreadyOpen));
        assert!(questions.drop_unrepeated("s").is_empty());
        let line = questions.reply(&Id::number(0), &Bytes::from_static(ANSWER)).unwrap();
        assert_eq!(line, r#"{"jsonrpc":"2.0","id":77,"result":{"a":1}}"#);
        // The server was killed before it stored the reply.
        questions.disconnect();
        let again =
            QuestionRoute::Server(r#"{"jsonrpc":"2.0","id":8,"result":{"a":1}}"#.to_owned());
        assert_eq!(ask(&mut questions, 8, "i"), Some(again));
        // It did not accept the reply: the editor is asked again.
        assert!(matches!(ask(&mut questions, 9, "i"), Some(QuestionRoute::Editor(_))));
    }

    #[test]
    fn requests_that_are_not_repeated_are_withdrawn_once() {
        let mut questions = EditorQuestions::default();
        ask(&mut questions, 5, "i");
        questions.ask(LINE, &Id::number(6), None, some("s"));
        assert_eq!(questions.withdraw("4"), None);
        assert_eq!(questions.disconnect(), [1]);
        assert!(questions.drop_unrepeated("t").is_empty());
        assert_eq!(questions.drop_unrepeated("s"), [0]);
        assert!(questions.drop_unrepeated("s").is_empty());
        assert_eq!(questions.reply(&Id::number(0), &Bytes::from_static(ANSWER)), None);
        assert_eq!(questions.reply(&Id::number(9), &Bytes::from_static(ANSWER)), None);
        ask(&mut questions, 7, "j");
        assert_eq!(questions.withdraw("7"), Some(2));
        assert_eq!(questions.withdraw("7"), None);
    }
}
