//! Calls to other agents of the same server.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use trilogue_domain::event::{InterruptEvent, MessageEvent};
use trilogue_domain::{
    AgentName, Answer, Body, Interrupt, InterruptId, Json, Message, MessageId, RunId, ThreadId,
};

use super::{Context, ToolCall};
use crate::agent::Input;
use crate::error::AgentError;
use crate::port::{ChildEnd, ChildHandle, NewChild};
use crate::typed::{from_json, to_json};

/// The future of a call.
type CallFuture<T> = Pin<Box<dyn Future<Output = Result<T, AgentError>> + Send>>;

/// The function that answers a child's questions.
type QuestionHandler = Arc<dyn Fn(Interrupt) -> CallFuture<Answer> + Send + Sync>;

/// A call to another agent, from [`Context::call`]. Await it to get its output, or [`NewAgentCall::start`] it.
#[must_use = "a call starts when it is awaited or started"]
pub struct NewAgentCall {
    context: Context,
    agent: String,
    input: Input,
    thread: Option<ThreadId>,
    config: Option<Result<Json, AgentError>>,
    allows_recursion: bool,
    answers_questions: bool,
    on_question: Option<QuestionHandler>,
}

/// A running call to another agent. Dropping it cancels the child run.
///
/// Await it, or its [`AgentCall::next`] event. The child run ends with this run's turn at the latest.
pub struct AgentCall {
    child: Box<dyn ChildHandle>,
    tool: Option<ToolCall>,
    on_question: Option<QuestionHandler>,
    /// The user messages in the child's log. Its agent did not write them, so they are not part of its text.
    of_users: Vec<MessageId>,
}

/// The output of a called agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallOutput {
    /// The child run.
    pub run: RunId,
    /// Its thread. To continue the conversation, call the agent [on this thread](NewAgentCall::on_thread) again.
    pub thread: ThreadId,
    /// The agent's messages, oldest first.
    pub messages: Vec<Message>,
    /// The agent's result value, if it gave one.
    pub result: Option<Json>,
    /// The thread's state as the run set it last.
    pub values: Option<Json>,
}

// === impl Context ===

impl Context {
    /// Calls another agent of the same server by its name there. The agent can be native, hosted, or behind another server.
    ///
    /// The call is a separate run on a new thread, which stays. It acts for the same principal as this run. The log shows it as a tool call named after the agent, with the ids of the child run.
    /// This run also asks the child's questions, unless the call [answers](NewAgentCall::on_question) them itself.
    pub fn call(&self, agent: &str, input: impl Into<Input>) -> NewAgentCall {
        NewAgentCall {
            context: self.clone(),
            agent: agent.to_owned(),
            input: input.into(),
            thread: None,
            config: None,
            allows_recursion: false,
            answers_questions: false,
            on_question: None,
        }
    }
}

// === impl NewAgentCall ===

impl NewAgentCall {
    /// Uses an existing thread, such as the thread of an earlier call.
    pub fn on_thread(self, thread: &ThreadId) -> Self {
        Self { thread: Some(thread.clone()), ..self }
    }

    /// Sets the agent's configuration, as its card declares it.
    pub fn config(self, config: impl Serialize) -> Self {
        Self { config: Some(to_json(&config)), ..self }
    }

    /// Calls the agent even if it is already among the callers. The limit on the length of the call chain still applies.
    pub fn allow_recursion(self) -> Self {
        Self { allows_recursion: true, ..self }
    }

    /// Does not pass the child's questions to this run's client. They arrive as events; answer them with [`AgentCall::answer`].
    pub fn answer_questions(self) -> Self {
        Self { answers_questions: true, ..self }
    }

    /// Does not pass the child's questions to this run's client: this function answers them. It runs while you await the call or its next event.
    pub fn on_question<F, A>(self, handler: F) -> Self
    where
        F: Fn(Interrupt) -> A + Send + Sync + 'static,
        A: Future<Output = Result<Answer, AgentError>> + Send + 'static,
    {
        let handler: QuestionHandler = Arc::new(move |question| Box::pin(handler(question)));
        Self { on_question: Some(handler), ..self }
    }

    /// Starts the run. Returns when the server has accepted it.
    ///
    /// # Errors
    /// `agent_not_found`; `call_refused` if the agent is among the callers or the chain of calls is too long; `overloaded` if too many calls of this run are open; `thread_busy` if the thread belongs to a caller; `invalid_input` and `config_schema_violation`; and the errors of the store.
    pub async fn start(self) -> Result<AgentCall, AgentError> {
        let child = NewChild {
            agent: AgentName::parse(&self.agent)?,
            input: self.input,
            thread: self.thread,
            config: self.config.transpose()?,
            allows_recursion: self.allows_recursion,
            passes_questions_up: !self.answers_questions && self.on_question.is_none(),
        };
        let context = self.context;
        let child = context.shared.host.call_agent(child).await?;
        let input = json!({
            "agent": self.agent,
            "run_id": child.run().as_str(),
            "thread_id": child.thread().as_str(),
        });
        let title = format!("Call {}", self.agent);
        let tool = Some(context.tool(&self.agent, &title, input).await?);
        Ok(AgentCall { child, tool, on_question: self.on_question, of_users: Vec::new() })
    }
}

impl IntoFuture for NewAgentCall {
    type Output = Result<CallOutput, AgentError>;
    type IntoFuture = CallFuture<CallOutput>;

    /// Starts the run and waits for its end. Fails like [`NewAgentCall::start`] and [`AgentCall::output`].
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.start().await?.output().await })
    }
}

impl fmt::Debug for NewAgentCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewAgentCall").field("agent", &self.agent).finish_non_exhaustive()
    }
}

// === impl AgentCall ===

impl AgentCall {
    /// Returns the id of the child run.
    #[must_use]
    pub fn run(&self) -> &RunId {
        self.child.run()
    }

    /// Returns the id of its thread.
    #[must_use]
    pub fn thread(&self) -> &ThreadId {
        self.child.thread()
    }

    /// Returns the child's next event as its log has it; `None` after the last one.
    ///
    /// # Errors
    /// [`AgentError::run_stopped`] if this run was stopped; the store's error if the child could not be stored; the error of the function that answers questions.
    pub async fn next(&mut self) -> Result<Option<Body>, AgentError> {
        let next = self.child.next().await?;
        if let Some(Body::Interrupt(InterruptEvent::Raised(question))) = &next
            && let Some(handler) = &self.on_question
        {
            let answer = handler((**question).clone()).await?;
            self.child.answer(question.id.clone(), answer).await?;
        }
        Ok(next)
    }

    /// Returns the next text of the child's agent; `None` after the last one.
    ///
    /// # Errors
    /// Like [`AgentCall::next`].
    pub async fn next_text(&mut self) -> Result<Option<Arc<str>>, AgentError> {
        while let Some(event) = self.next().await? {
            match event {
                Body::Message(MessageEvent::Started { message, role, .. }) if role.is_user() => {
                    self.of_users.push(message);
                }
                Body::Message(MessageEvent::Delta { message, text })
                    if !self.of_users.contains(&message) =>
                {
                    return Ok(Some(text));
                }
                Body::Message(MessageEvent::Part { message, part })
                    if !self.of_users.contains(&message) =>
                {
                    if let Some(text) = part.as_text() {
                        return Ok(Some(text.into()));
                    }
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// Answers a question of the child run, for a call that [answers questions](NewAgentCall::answer_questions).
    ///
    /// # Errors
    /// `interrupt_resolved` if the question already has an answer; `answer_invalid`.
    pub async fn answer(&self, question: &InterruptId, answer: Answer) -> Result<(), AgentError> {
        self.child.answer(question.clone(), answer).await
    }

    /// Requests cancellation of the child run. Does nothing if the run has ended.
    ///
    /// # Errors
    /// The store's error.
    pub async fn cancel(&self) -> Result<(), AgentError> {
        self.child.cancel().await
    }

    /// Waits for the end of the child run and returns its output.
    ///
    /// # Errors
    /// The child's failure with its code, message and data; `run_cancelled` if the child run was cancelled; `await_timeout` if its question got no answer in time; otherwise like [`AgentCall::next`].
    pub async fn output(mut self) -> Result<CallOutput, AgentError> {
        if self.on_question.is_some() {
            while self.next().await?.is_some() {}
        }
        let ChildEnd { messages, result, values, failure } = self.child.end().await?;
        let tool = self.tool.take();
        if let Some(failure) = failure {
            if let Some(tool) = tool {
                tool.fail(json!({ "code": failure.code, "message": failure.message })).await?;
            }
            return Err(AgentError::from_failure(failure));
        }
        let (run, thread) = (self.child.run().clone(), self.child.thread().clone());
        let output = CallOutput { run, thread, messages, result, values };
        if let Some(tool) = tool {
            tool.complete(json!({ "messages": output.messages.len() })).await?;
        }
        Ok(output)
    }
}

impl IntoFuture for AgentCall {
    type Output = Result<CallOutput, AgentError>;
    type IntoFuture = CallFuture<CallOutput>;

    /// Waits like [`AgentCall::output`].
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.output())
    }
}

impl fmt::Debug for AgentCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentCall").field("child", &self.child).finish_non_exhaustive()
    }
}

// === impl CallOutput ===

impl CallOutput {
    /// Returns the text of all messages, with an empty line between two of them. If there are no messages, returns the result as JSON.
    #[must_use]
    pub fn text(&self) -> String {
        let texts: Vec<_> = self.messages.iter().map(Message::text).collect();
        match &self.result {
            Some(result) if texts.is_empty() => result.as_str().to_owned(),
            _ => texts.join("\n\n"),
        }
    }

    /// Deserializes the result.
    ///
    /// # Errors
    /// If the agent gave no result, or if it does not fit the type.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, AgentError> {
        match &self.result {
            Some(result) => from_json(result),
            None => Err(AgentError::agent_failed("the called agent gave no value")),
        }
    }
}
