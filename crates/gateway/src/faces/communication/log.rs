//! Folds a run's log into this protocol's view of it.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use trilogue_domain::error::Result;
use trilogue_domain::event::{Body, Event, RunEvent};
use trilogue_domain::{Code, Error, RunId, RunKey};
use trilogue_mapping::communication::{Projection, ProjectionOptions, RunMessage};
use trilogue_store::Frame;
use trilogue_store::rows::RunRow;

use super::CommunicationCall;
use crate::core::log_ref::LogRef;
use crate::http::reply::{INTERRUPT_ID, Reply};
use crate::stream::inline::inlined;
use crate::stream::log_reader::LogReader;

#[derive(Clone, Copy, Debug)]
pub(super) enum Until {
    /// Up to the present end of the log.
    Now,
    /// Up to the event of this number.
    Number(u64),
    /// Up to the first event after this number that resumes the run.
    Resumed(u64),
    /// Up to the event that ends the run, exclusively.
    End,
}

#[derive(Clone, Debug)]
pub(super) struct Log {
    pub(super) thread: LogRef,
    pub(super) run: RunKey,
    /// The run's last number, if it has ended.
    pub(super) last: Option<u64>,
}

#[derive(Debug)]
struct ProjectionFold<'a> {
    call: &'a CommunicationCall,
    log: Log,
    projection: Projection,
    /// Whether the agent has started: earlier events are input and not shown.
    begun: bool,
    /// The size of the shown events read so far, in bytes.
    size: usize,
}

enum Next {
    Read,
    Done,
}

/// Returns how this protocol shows runs to the client of this call.
fn show(call: &CommunicationCall, input: bool) -> ProjectionOptions {
    ProjectionOptions {
        input,
        strict: call.is_strict(),
        base: Arc::from(call.state.place.base_for(call)),
        max_inline_bytes: call.state.max_output_bytes as u64,
    }
}

/// Folds the log of a run that the caller has looked up.
/// Errors: if the log cannot be read, or holds more than fits one response.
pub(super) async fn fold(
    call: &CommunicationCall,
    run: &RunRow,
    until: Until,
) -> Result<Projection> {
    let mut fold = ProjectionFold::new(call, Log::of(run), false);
    fold.read(until, |_| Ok(())).await?;
    Ok(fold.projection)
}

/// Returns all messages of a run, with its input.
pub(super) async fn messages(call: &CommunicationCall, log: Log) -> Result<Vec<RunMessage>> {
    let mut fold = ProjectionFold::new(call, log, true);
    fold.read(Until::Now, |_| Ok(())).await?;
    Ok(fold.projection.messages())
}

/// Like [`fold`], with the wire events of the run's stream.
pub(super) async fn events(
    call: &CommunicationCall,
    run: &RunRow,
) -> Result<(Projection, Vec<Bytes>)> {
    let (mut events, mut size) = (Vec::new(), 0);
    let most = call.state.max_output_bytes;
    let mut fold = ProjectionFold::new(call, Log::of(run), false);
    fold.read(Until::Now, |event| {
        size += event.len();
        events.push(event);
        if size > most { Err(too_large(most)) } else { Ok(()) }
    })
    .await?;
    Ok((fold.projection, events))
}

/// Like [`fold`], from the run's whole log.
pub(super) async fn of_frames(
    call: &CommunicationCall,
    run: &RunRow,
    frames: &[Arc<Frame>],
) -> Result<Projection> {
    let mut fold = ProjectionFold::new(call, Log::of(run), false);
    for frame in frames.iter().filter(|frame| frame.run() == Some(run.key)) {
        for event in frame.events()? {
            fold.take(event, &mut |_| Ok(())).await?;
        }
        fold.weigh(frame).await?;
    }
    Ok(fold.projection)
}

/// Responds with the folded run. A question in it counts as shown to the caller.
/// Errors: `body_too_large`.
pub(super) fn answer(
    call: &CommunicationCall,
    status: StatusCode,
    run: &RunId,
    projection: &Projection,
) -> Result<Reply> {
    let (bytes, most) = (call.turn.work(|| projection.run()), call.state.max_output_bytes);
    if bytes.len() > most {
        return Err(too_large(most));
    }
    let reply = Reply::json_bytes(status, bytes);
    Ok(match note_shown(call, run, projection) {
        Some(interrupt) => reply.header_text(INTERRUPT_ID, interrupt),
        None => reply,
    })
}

/// Records the question that a run was shown with. Returns the question's id.
pub(super) fn note_shown<'a>(
    call: &CommunicationCall,
    run: &RunId,
    projection: &'a Projection,
) -> Option<&'a str> {
    let interrupt = projection.awaiting()?;
    call.state.runtime.record_shown_question(&call.principal().id, run, &interrupt.id);
    Some(interrupt.id.as_str())
}

fn too_large(most: usize) -> Error {
    Error::new(Code::BodyTooLarge, format!("what the run holds is larger than {most} bytes"))
        .hint("read its events as a stream: 'Accept: text/event-stream'")
}

// === impl Log ===

impl Log {
    pub(super) fn of(run: &RunRow) -> Self {
        let last = run.status.is_terminal().then_some(run.last_run_number);
        Self { thread: LogRef::from(run), run: run.key, last }
    }
}

// === impl ProjectionFold ===

impl<'a> ProjectionFold<'a> {
    fn new(call: &'a CommunicationCall, log: Log, input: bool) -> Self {
        Self { call, log, projection: Projection::new(show(call, input)), begun: input, size: 0 }
    }

    async fn read(
        &mut self,
        until: Until,
        mut each: impl FnMut(Bytes) -> Result<()> + Send,
    ) -> Result<()> {
        let last = self.log.last.unwrap_or(u64::MAX);
        let mut log =
            LogReader::new(self.call.state.read.as_ref(), self.log.thread.key, Some(self.log.run))
                .until(last);
        while let Some(page) = log.next().await? {
            for frame in &page.frames {
                for event in page.events_of(frame)? {
                    if let Next::Done = self.step(event, until, &mut each).await? {
                        return Ok(());
                    }
                }
                self.weigh(frame).await?;
            }
        }
        Ok(())
    }

    async fn weigh(&mut self, frame: &Frame) -> Result<()> {
        if self.begun {
            self.size += frame.bytes().len();
        }
        let most = self.call.state.max_output_bytes;
        if self.size > most {
            return Err(too_large(most));
        }
        self.call.weigh_response(self.size).await;
        Ok(())
    }

    async fn step(
        &mut self,
        event: &Event,
        until: Until,
        each: &mut (impl FnMut(Bytes) -> Result<()> + Send),
    ) -> Result<Next> {
        let number = event.run_number;
        let before = match until {
            Until::Number(last) => number > last,
            Until::End => event.body.is_run_end(),
            Until::Now | Until::Resumed(_) => false,
        };
        if before {
            return Ok(Next::Done);
        }
        self.take(event, each).await?;
        let behind = match until {
            Until::Number(last) => number >= last,
            Until::Resumed(after) => {
                number > after && matches!(event.body, Body::Run(RunEvent::Resumed))
            }
            Until::Now | Until::End => false,
        };
        Ok(if behind { Next::Done } else { Next::Read })
    }

    async fn take(
        &mut self,
        event: &Event,
        each: &mut (impl FnMut(Bytes) -> Result<()> + Send),
    ) -> Result<()> {
        self.begun |= matches!(event.body, Body::Run(RunEvent::Started));
        let wants = |blob: &_| self.projection.can_inline(blob);
        let event = inlined(&self.call.state.read, self.log.thread.key, event, wants).await?;
        self.projection.push(&event, &self.log.thread.id).into_iter().try_for_each(each)
    }
}
