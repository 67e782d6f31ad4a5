//! The input of a run.

use std::sync::Arc;

use trilogue_domain::error::Result;
use trilogue_domain::event::{Body, RunEvent};
use trilogue_domain::{Input, Transcript};
use trilogue_store::Read;
use trilogue_store::rows::RunRow;

use crate::stream::inline::inlined;
use crate::stream::log_reader::LogReader;

/// Returns the input of a run from its log, with large content inlined; `None` if the run has no input.
pub(crate) async fn read(read: &Arc<dyn Read>, run: &RunRow) -> Result<Option<Input>> {
    let mut transcript = Transcript::default();
    let mut log = LogReader::new(read.as_ref(), run.thread, Some(run.key));
    while let Some(page) = log.next().await? {
        for event in page.events()? {
            match &event.body {
                Body::Run(RunEvent::Created { input: Some(value), .. }) => {
                    return Ok(Some(Input::Value(value.clone())));
                }
                Body::Run(RunEvent::Started | RunEvent::Ended(_)) => {
                    return Ok(messages(transcript));
                }
                _ => {
                    let event = inlined(read, run.thread, event, |_| true).await?;
                    transcript.push(&event);
                }
            }
        }
    }
    Ok(messages(transcript))
}

fn messages(transcript: Transcript) -> Option<Input> {
    let messages = transcript.into_messages();
    (!messages.is_empty()).then_some(Input::Messages(messages))
}
