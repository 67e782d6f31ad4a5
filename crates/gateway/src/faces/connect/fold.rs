//! Folds a run's log into its output.

use std::sync::Arc;

use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, Event, ThreadKey};
use trilogue_mapping::connect::{self as mapping, Links, Values, ValuesOptions};
use trilogue_store::Frame;
use trilogue_store::rows::RunRow;

use super::{ConnectCall, look_up};
use crate::stream::inline::inlined;
use crate::stream::log_reader::LogReader;

/// Returns the run's output up to the state of this row.
/// Errors: if the log cannot be read, or holds more than fits one response.
pub(super) async fn of_log(call: &ConnectCall, run: &RunRow) -> Result<Values> {
    let mut values = new_values(call, run);
    let most = call.state.max_output_bytes;
    let mut log = LogReader::new(call.state.read.as_ref(), run.thread, Some(run.key))
        .until(run.last_run_number);
    while let Some(page) = log.next().await? {
        for event in page.events()? {
            take(call, run.thread, &mut values, event).await?;
        }
        if log.bytes() > most {
            return Err(too_large(most));
        }
        call.weigh_response(log.bytes()).await;
    }
    Ok(values)
}

/// Returns the error for a run that fits no response.
pub(super) fn too_large(most: usize) -> Error {
    let message = format!("the response would be larger than {most} bytes");
    Error::new(Code::BodyTooLarge, message).hint("read the run as a stream")
}

/// Like [`of_log`], from the run's whole log.
pub(super) async fn of_frames(
    call: &ConnectCall,
    run: &RunRow,
    frames: &[Arc<Frame>],
) -> Result<Values> {
    let (mut values, mut size) = (new_values(call, run), 0);
    let most = call.state.max_output_bytes;
    for frame in frames.iter().filter(|frame| frame.run() == Some(run.key)) {
        for event in frame.events()? {
            take(call, run.thread, &mut values, event).await?;
        }
        size += frame.bytes().len();
        if size > most {
            return Err(too_large(most));
        }
        call.weigh_response(size).await;
    }
    Ok(values)
}

pub(super) fn links(call: &ConnectCall, thread: &trilogue_domain::ThreadId) -> Links {
    Links::new(&Arc::from(call.state.place.base_for(call)), thread)
}

fn new_values(call: &ConnectCall, run: &RunRow) -> Values {
    let show = ValuesOptions {
        card: look_up::agent_of(call, run).card,
        base: Arc::from(call.state.place.base_for(call)),
        max_inline_bytes: call.state.max_output_bytes as u64,
    };
    mapping::Values::new(show, &run.id, &run.thread_id)
}

async fn take(
    call: &ConnectCall,
    thread: ThreadKey,
    values: &mut Values,
    event: &Event,
) -> Result<()> {
    let event = inlined(&call.state.read, thread, event, |blob| values.can_inline(blob)).await?;
    values.push(&event);
    Ok(())
}
