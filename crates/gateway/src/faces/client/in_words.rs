//! Prompts that answer what the last turn has ended with: a question in words. Each is a message of the run that asked.

use std::sync::Arc;

use trilogue_domain::error::Result;
use trilogue_domain::{Body, Code, Interrupt, Resolution, Transcript};
use trilogue_mapping::agent_client as mapping;
use trilogue_mapping::native::hex;
use trilogue_runtime::AnswerTo;
use trilogue_store::Range;
use trilogue_store::rows::{MessageRow, RunRow};

use super::cancel;
use super::link::Answer;
use super::prompt::{Prompt, not_begun};
use super::request::invalid_params;
use super::said::{self, Said};
use super::session::{OpenPrompt, scope_of};
use crate::stream::inline::inlined;

/// How much of a run's log is read at once, in bytes.
const READ_BYTES: usize = 256 * 1024;

/// What became of a prompt that may answer a question.
pub(super) enum InWords {
    /// It is the answer, or was refused as one.
    Taken(Option<Answer>),
    /// Another answer was faster.
    TooLate,
    /// Nobody waits for it.
    Unasked,
}

// === impl Prompt ===

impl Prompt<'_> {
    /// What this prompt said in answer to a question before its connection broke, where it may come again.
    pub(super) async fn said_before(&self) -> Result<Option<Said>> {
        let may_repeat = self.session.state().may_repeat;
        let Some(key) = self.key().filter(|_| may_repeat) else { return Ok(None) };
        let known = self.session.state().said_before.clone();
        let known = match known {
            Some(known) => known,
            None => {
                let found = Arc::new(said::keyed(self.link, &self.session).await?);
                self.session.state().said_before = Some(Arc::clone(&found));
                found
            }
        };
        Ok(known.iter().find(|said| said.key.as_ref() == Some(&key)).cloned())
    }

    /// What a prompt that answers a question is known by when it comes again.
    fn key(&self) -> Option<(String, String)> {
        let key = self.asked.extras.key.as_ref()?;
        Some((key.clone(), hex(&self.digest)))
    }

    /// The run whose question was answered with this.
    pub(super) async fn answered_run(&self, said: &Said) -> Result<Option<RunRow>> {
        let (read, scope) = (self.link.read(), scope_of(&self.session.thread));
        let Some(row) = read.interrupt(&scope, &said.interrupt).await? else { return Ok(None) };
        match &row.resolution {
            Some(Resolution::Answered { answer, .. }) if said.is(answer) => {
                read.run(&scope, &row.run_id).await
            }
            _ => Ok(None),
        }
    }

    /// Whether this prompt says what was said with a message that answered a question.
    pub(super) async fn is_answer(&self, row: &MessageRow) -> Result<bool> {
        let (read, thread) = (self.link.read(), &self.session.thread);
        let (mut transcript, mut after) = (Transcript::default(), 0);
        loop {
            let range = Range { run: Some(row.run), after, max_bytes: READ_BYTES };
            let frames = read.frames(thread, range).await?;
            for frame in &frames {
                for event in frame.events()?.iter().filter(|event| event.run_number > after) {
                    if let Body::Message(piece) = &event.body
                        && piece.message() == Some(&row.id)
                    {
                        let piece = inlined(read, thread, event, |_| true).await?;
                        transcript.push(&piece);
                    }
                }
            }
            match frames.last().map(|frame| frame.last_run()) {
                Some(last) if last > after => after = last,
                _ => break,
            }
        }
        let known = transcript.into_messages().into_iter().next();
        let now = mapping::message_of_prompt(&self.request.prompt, row.id.clone());
        Ok(known.is_some_and(|known| known.parts == now.parts))
    }

    /// Whether a run waits for the answer to what the client is asked in words.
    pub(super) async fn asks(&self, run: &RunRow) -> Result<bool> {
        let Some(asked) = self.session.state().asked.clone() else { return Ok(false) };
        let scope = scope_of(&self.session.thread);
        let row = self.link.read().interrupt(&scope, &asked.id).await?;
        Ok(row.is_some_and(|row| row.run == run.key && row.resolution.is_none()))
    }

    /// Takes the prompt as the answer to the question that the last turn ended with. `before` is what it said on a connection that has broken since.
    pub(super) async fn answer_in_words(
        &self,
        question: &Interrupt,
        before: Option<Said>,
    ) -> Result<InWords> {
        let link = self.link;
        let scope = scope_of(&self.session.thread);
        let row = link.read().interrupt(&scope, &question.id).await?;
        let Some(row) = row.filter(|row| row.resolution.is_none()) else {
            self.session.state().asked = None;
            return Ok(InWords::Unasked);
        };
        let before = before.filter(|said| said.interrupt == question.id);
        if before.is_none() && !self.heard.has(&row) {
            // It was said before anybody asked.
            return Ok(InWords::Unasked);
        }
        let mut chosen = self.choose_id().await?;
        if let Some(said) = &before {
            chosen.told = chosen.told.map(|_| said.message.as_str().to_owned());
            chosen.message = said.message.clone();
        }
        let message = mapping::message_of_prompt(&self.request.prompt, chosen.message.clone());
        let Some(answer) = mapping::answer_of_prompt(question, &message) else {
            let error = invalid_params("/prompt", "does not answer what the agent asks");
            return Ok(InWords::Taken(Some(Err(error))));
        };
        if self.is_cancelled() {
            return Ok(InWords::Taken(Some(not_begun())));
        }
        if before.is_none()
            && let Some(key) = self.key()
        {
            // What makes the prompt the same when it comes again stands before the answer.
            let said = Said {
                interrupt: question.id.clone(),
                message: chosen.message.clone(),
                words: Some(said::words(&answer)),
                key: Some(key),
                client: link.client.clone(),
            };
            let context = link.runtime().thread_context(&self.session.thread, &link.agent);
            context.note(said.body(), None).await?;
        }
        self.session.state().mine.insert(chosen.message.clone());
        let to = AnswerTo::Interrupt(question.id.clone());
        match link.runtime().answer_in_words(&link.principal, to, answer, message).await {
            Ok(_) => {
                self.session.state().asked.take_if(|asked| asked.id == question.id);
                let open = OpenPrompt {
                    request: self.asked.id.clone(),
                    run: row.run,
                    run_id: row.run_id.clone(),
                    user_message_id: chosen.told,
                    message: Some(chosen.message),
                    ended_at: None,
                    since: self.since.clone(),
                };
                self.wait_for_end(open).await;
                if self.is_cancelled() {
                    cancel::run(link, &row.run_id).await;
                }
                self.link.confirm(&self.asked.id).await;
                Ok(InWords::Taken(None))
            }
            Err(error) => {
                self.session.state().mine.remove(&chosen.message);
                match error.code() {
                    Code::InterruptResolved | Code::InterruptNotFound => Ok(InWords::TooLate),
                    _ => Err(error),
                }
            }
        }
    }
}
