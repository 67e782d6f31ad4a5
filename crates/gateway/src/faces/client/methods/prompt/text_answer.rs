//! Prompts that answer the question with which the last turn ended. Each is a message of the run that asked.

use trilogue_domain::error::Result;
use trilogue_domain::{Code, Interrupt};
use trilogue_mapping::agent_client as mapping;
use trilogue_runtime::{AnswerKey, RunRequest};
use trilogue_store::rows::RunRow;

use super::super::super::asking::question::audit_answer;
use super::super::super::wire::lines::MethodResult;
use super::super::request::invalid_params;
use super::{Prompt, cancelled_result};

/// The outcome of a prompt that may answer a question.
pub(super) enum TextAnswer {
    /// The prompt is the answer, or was refused as one.
    Done(Option<MethodResult>),
    /// Another answer was faster.
    TooLate,
    /// No question was open when the client sent it.
    NotAsked,
}

// === impl Prompt ===

impl Prompt<'_> {
    /// Whether a run waits for the answer to the session's question.
    pub(super) async fn waits_for_text(&self, run: &RunRow) -> Result<bool> {
        let Some(question) = self.session.state().question.clone() else { return Ok(false) };
        let found = self.connection.read().interrupt(&self.session.scope(), &question.id).await?;
        Ok(found.is_some_and(|row| row.run == run.key && row.resolution.is_none()))
    }

    /// Takes the prompt as the answer to the session's question.
    pub(super) async fn answer_question(
        &self,
        question: &Interrupt,
        new: &RunRequest,
    ) -> Result<TextAnswer> {
        let connection = self.connection;
        let row = connection.read().interrupt(&self.session.scope(), &question.id).await?;
        let Some(row) = row.filter(|row| row.resolution.is_none()) else {
            self.session.state().question = None;
            return Ok(TextAnswer::NotAsked);
        };
        if !self.snapshot.includes(&row) {
            return Ok(TextAnswer::NotAsked);
        }
        let chosen = self.choose_id().await?;
        let id = chosen.message.clone();
        let message = mapping::message_of_prompt(&self.request.prompt, id.clone());
        let Some(answer) = mapping::answer_of_prompt(question, &message) else {
            let error = invalid_params("/prompt", "does not answer what the agent asks");
            return Ok(TextAnswer::Done(Some(Err(error))));
        };
        if self.mark.is_cancelled() {
            return Ok(TextAnswer::Done(Some(cancelled_result())));
        }
        let key = self.key.clone().map(|text| AnswerKey {
            agent: connection.agent.clone(),
            text,
            request: self.digest,
        });
        self.session.state().own_messages.insert(id.clone());
        let answered = connection.answer_with_message(&question.id, &answer, message, key).await;
        let Err(error) = answered else {
            self.session.state().question.take_if(|open| open.id == question.id);
            audit_answer(connection, &row);
            self.accept(row.run, &row.run_id, chosen).await;
            return Ok(TextAnswer::Done(None));
        };
        self.session.state().own_messages.remove(&id);
        match error.code() {
            Code::InterruptResolved | Code::InterruptNotFound | Code::AlreadyExists => {
                // The same prompt may have arrived on another connection meanwhile.
                match self.repeated(new).await? {
                    Some((run, message)) => {
                        self.join(run, message).await.map(|()| TextAnswer::Done(None))
                    }
                    None => Ok(TextAnswer::TooLate),
                }
            }
            _ => Err(error),
        }
    }
}
