//! Calls of other agents: the SDK's port over the runtime's child runs.

use trilogue_domain::{Answer, Body, Code, Failure, Input, InterruptId, Outcome, RunId, ThreadId};
use trilogue_runtime::{CallRequest, ChildOutcome, ChildRun};
use trilogue_sdk::AgentError;
use trilogue_sdk::port::{ChildEnd, ChildHandle, ChildRuns, NewChild, PortFuture};

use super::ports::Ports;

/// A child run of a native agent.
#[derive(Debug)]
struct NativeChild(ChildRun);

impl ChildRuns for Ports {
    fn call_agent(
        &self,
        call: NewChild,
    ) -> PortFuture<'_, Result<Box<dyn ChildHandle>, AgentError>> {
        Box::pin(async move {
            self.check_intact()?;
            let input = match call.input {
                trilogue_sdk::Input::Messages(messages) => Input::Messages(messages),
                trilogue_sdk::Input::Value(value) => Input::Value(value),
            };
            let request = CallRequest {
                agent: call.agent,
                input,
                thread: call.thread,
                config: call.config,
                allows_recursion: call.allows_recursion,
                passes_questions_up: call.passes_questions_up,
            };
            let child: Box<dyn ChildHandle> =
                Box::new(NativeChild(self.run_context().call(request).await?));
            Ok(child)
        })
    }
}

impl ChildHandle for NativeChild {
    fn run(&self) -> &RunId {
        self.0.run()
    }

    fn thread(&self) -> &ThreadId {
        self.0.thread()
    }

    fn next(&mut self) -> PortFuture<'_, Result<Option<Body>, AgentError>> {
        Box::pin(async move { Ok(self.0.next().await?.map(|event| event.body)) })
    }

    fn end(&self) -> PortFuture<'_, Result<ChildEnd, AgentError>> {
        Box::pin(async move {
            let ChildOutcome { outcome, messages, result, values } = self.0.outcome().await?;
            Ok(ChildEnd { messages, result, values, failure: failure(outcome) })
        })
    }

    fn answer(
        &self,
        interrupt: InterruptId,
        answer: Answer,
    ) -> PortFuture<'_, Result<(), AgentError>> {
        Box::pin(async move { Ok(self.0.answer(interrupt, answer).await?) })
    }

    fn cancel(&self) -> PortFuture<'_, Result<(), AgentError>> {
        Box::pin(async move { Ok(self.0.cancel().await?) })
    }
}

/// Why a child did not complete.
fn failure(outcome: Outcome) -> Option<Failure> {
    match outcome {
        Outcome::Completed => None,
        Outcome::Failed(failure) => Some(failure),
        Outcome::Cancelled { reason } => {
            let message = match reason {
                Some(reason) => {
                    format!("the called agent's run was cancelled: {}", reason.as_str())
                }
                None => "the called agent's run was cancelled".to_owned(),
            };
            let code = "run_cancelled".to_owned();
            Some(Failure { code, message, transient: false, data: None })
        }
        Outcome::TimedOut { .. } => {
            Some(Failure::of(Code::AwaitTimeout, "no answer to the called agent in time"))
        }
    }
}
