//! What the server asks the editor, under numbers that last longer than a connection.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use trilogue_wire::agent_client::splice;
use trilogue_wire::jsonrpc::Id;

/// The most questions that the editor is remembered to have been asked.
const MAX_OPEN: usize = 1_024;
/// The most answers that are kept in case that they were lost on the way.
const MAX_ANSWERS: usize = 64;

/// Questions to the editor.
#[derive(Debug, Default)]
pub(super) struct Asked {
    open: BTreeMap<u64, Question>,
    next: u64,
    answers: VecDeque<Answer>,
}

/// A question that the editor has not answered.
#[derive(Clone, Debug)]
struct Question {
    /// The server's own id for it, as JSON; `None` while the server has not asked it again.
    request: Option<String>,
    /// What outlives the connection on which it was asked.
    interrupt: Option<String>,
    session: Option<String>,
    /// The editor was told that no answer is needed.
    is_withdrawn: bool,
}

/// An answer to an interrupt, which the server may not have kept.
#[derive(Clone, Debug)]
struct Answer {
    interrupt: String,
    line: Bytes,
}

/// What becomes of a question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Put {
    /// It is passed on to the editor, as this line.
    Ask(String),
    /// The editor has it open already.
    Again,
    /// The editor has answered it, and the server gets the answer again.
    Answered(String),
}

// === impl Asked ===

impl Asked {
    /// The server asks something.
    pub(super) fn ask(
        &mut self,
        line: &str,
        request: &Id<'_>,
        interrupt: Option<String>,
        session: Option<String>,
    ) -> Option<Put> {
        let same = |question: &&mut Question| {
            let is_waiting = question.request.is_none() && !question.is_withdrawn;
            is_waiting && interrupt.is_some() && question.interrupt == interrupt
        };
        if let Some(question) = self.open.values_mut().find(same) {
            question.request = Some(request.as_str().to_owned());
            return Some(Put::Again);
        }
        let kept = self.answers.iter().position(|kept| Some(&kept.interrupt) == interrupt.as_ref());
        if let Some(kept) = kept.and_then(|at| self.answers.remove(at)) {
            let text = std::str::from_utf8(&kept.line).ok()?;
            return splice::set(text, &["id"], request.as_str()).map(Put::Answered);
        }
        let id = self.next;
        self.next += 1;
        let request = request.as_str().to_owned();
        let asked = splice::set(line, &["id"], &id.to_string())?;
        self.bound();
        let question = Question { request: Some(request), interrupt, session, is_withdrawn: false };
        self.open.insert(id, question);
        Some(Put::Ask(asked))
    }

    /// The editor answers. Gives the line that the server gets, where it waits for one.
    pub(super) fn answer(&mut self, id: &Id<'_>, line: &Bytes) -> Option<String> {
        let question = self.open.remove(&id.as_number()?)?;
        if question.is_withdrawn {
            return None;
        }
        if let Some(interrupt) = question.interrupt {
            self.answers.push_back(Answer { interrupt, line: line.clone() });
            if self.answers.len() > MAX_ANSWERS {
                self.answers.pop_front();
            }
        }
        splice::set(std::str::from_utf8(line).ok()?, &["id"], &question.request?)
    }

    /// The server takes a question back. Gives the editor's number for it.
    pub(super) fn withdraw(&mut self, request: &str) -> Option<u64> {
        let is = |question: &Question| question.request.as_deref() == Some(request);
        let (number, question) = self.open.iter_mut().find(|(_, question)| is(question))?;
        let is_news = !std::mem::replace(&mut question.is_withdrawn, true);
        is_news.then_some(*number)
    }

    /// The connection is gone. Gives the questions that go with it: nobody waits for their answers any more.
    pub(super) fn disconnect(&mut self) -> Vec<u64> {
        for question in self.open.values_mut() {
            question.request = None;
        }
        self.take_back(|question| question.interrupt.is_none())
    }

    /// The server has said everything that is still asked in a session. Gives the questions that it did not ask again.
    pub(super) fn settle(&mut self, session: &str) -> Vec<u64> {
        self.take_back(|question| {
            question.request.is_none() && question.session.as_deref().is_none_or(|it| it == session)
        })
    }

    fn take_back(&mut self, which: impl Fn(&Question) -> bool) -> Vec<u64> {
        let open = self.open.iter_mut().filter(|(_, it)| !it.is_withdrawn && which(it));
        let taken = open.map(|(number, question)| {
            question.is_withdrawn = true;
            *number
        });
        taken.collect()
    }

    /// Forgets what was taken back longest ago: not every editor answers what it is told to let be.
    fn bound(&mut self) {
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

    fn ask(asked: &mut Asked, request: u64, interrupt: &str) -> Option<Put> {
        asked.ask(LINE, &Id::number(request), some(interrupt), some("s"))
    }

    #[test]
    fn a_question_keeps_its_number_over_connections() {
        let mut asked = Asked::default();
        assert_eq!(ask(&mut asked, 5, "i"), Some(Put::Ask(LINE.replace('5', "0"))));
        assert!(asked.disconnect().is_empty());
        assert_eq!(ask(&mut asked, 77, "i"), Some(Put::Again));
        assert!(asked.settle("s").is_empty());
        let line = asked.answer(&Id::number(0), &Bytes::from_static(ANSWER)).unwrap();
        assert_eq!(line, r#"{"jsonrpc":"2.0","id":77,"result":{"a":1}}"#);
        // The server was killed before it kept the answer.
        asked.disconnect();
        let again = Put::Answered(r#"{"jsonrpc":"2.0","id":8,"result":{"a":1}}"#.to_owned());
        assert_eq!(ask(&mut asked, 8, "i"), Some(again));
        // It did not take it: the editor is asked anew.
        assert!(matches!(ask(&mut asked, 9, "i"), Some(Put::Ask(_))));
    }

    #[test]
    fn what_is_not_asked_again_is_taken_back_once() {
        let mut asked = Asked::default();
        ask(&mut asked, 5, "i");
        asked.ask(LINE, &Id::number(6), None, some("s"));
        assert_eq!(asked.withdraw("4"), None);
        assert_eq!(asked.disconnect(), [1]);
        assert!(asked.settle("t").is_empty());
        assert_eq!(asked.settle("s"), [0]);
        assert!(asked.settle("s").is_empty());
        assert_eq!(asked.answer(&Id::number(0), &Bytes::from_static(ANSWER)), None);
        assert_eq!(asked.answer(&Id::number(9), &Bytes::from_static(ANSWER)), None);
        ask(&mut asked, 7, "j");
        assert_eq!(asked.withdraw("7"), Some(2));
        assert_eq!(asked.withdraw("7"), None);
    }
}
