//! Sends ended runs to a trace collector by the OpenTelemetry Protocol.
//!
//! A run's spans are built from its log after it has ended: an active agent has no extra cost, and a run that outlives a restart is complete.
//! A slow or failed collector delays no run: the queue is bounded, and runs that do not fit are dropped and counted.

mod collector;

use std::sync::Arc;
use std::time::Duration;

use metrics::counter;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use trilogue_domain::RunTrace;
use trilogue_domain::error::Result;
use trilogue_mapping::otlp::{RunSpans, TracedRun};
use trilogue_runtime::EndedRuns;
use trilogue_store::rows::RunRow;
use trilogue_store::{Range, Read};
use trilogue_wire::otlp::TraceSpan;

use crate::core::log_throttle::LogThrottle;
use crate::core::metric_names::{OTLP_DROPPED, OTLP_EXPORTED};

pub use collector::TraceCollector;

/// A request is sent once it has this many spans.
const MAX_SPANS_PER_REQUEST: usize = 512;
/// How long a request waits for further runs.
const GATHER_TIME: Duration = Duration::from_millis(500);
/// How much of a log is read at once.
const PAGE_BYTES: usize = 1024 * 1024;
/// How much of a run's log is read for its spans; later events are left out.
const MAX_LOG_BYTES: usize = 64 * 1024 * 1024;
/// How long a stop waits for the collector.
const CLOSE_TIME: Duration = Duration::from_secs(5);

/// The reasons for dropping runs.
const QUEUE_FULL: &str = "queue_full";
const NOT_TAKEN: &str = "collector";
const UNREADABLE: &str = "log";

/// Selects the runs to trace.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TraceOptions {
    /// The sampled fraction of the traces that begin here: from 0 to 1.
    pub sample_ratio: f64,
    /// The most runs that wait for the collector.
    pub max_queued_runs: usize,
}

/// Receives ended runs, and sends their spans in a separate task.
#[derive(Debug)]
pub struct TraceExporter {
    queue: mpsc::Sender<Box<RunRow>>,
    sample_ratio: f64,
    overflows: LogThrottle,
    closing: CancellationToken,
    /// Closed when the task has ended.
    ended: Arc<Semaphore>,
}

#[derive(Debug)]
struct ExportTask {
    queue: mpsc::Receiver<Box<RunRow>>,
    read: Arc<dyn Read>,
    collector: TraceCollector,
    sample_ratio: f64,
    closing: CancellationToken,
    is_failing: bool,
}

// === impl TraceExporter ===

impl TraceExporter {
    /// Starts the sending task.
    #[must_use]
    pub fn start(
        options: TraceOptions,
        collector: TraceCollector,
        read: Arc<dyn Read>,
    ) -> Arc<Self> {
        let TraceOptions { sample_ratio, max_queued_runs } = options;
        for reason in [QUEUE_FULL, NOT_TAKEN, UNREADABLE] {
            // Register the metric at zero.
            dropped(reason, 0);
        }
        let (queue, waiting) = mpsc::channel(max_queued_runs.clamp(1, Semaphore::MAX_PERMITS));
        let (closing, ended) = (CancellationToken::new(), Arc::new(Semaphore::new(0)));
        let task = ExportTask {
            queue: waiting,
            read,
            collector,
            sample_ratio,
            closing: closing.clone(),
            is_failing: false,
        };
        let end = Arc::clone(&ended);
        tokio::spawn(async move {
            task.run().await;
            end.close();
        });
        Arc::new(Self { queue, sample_ratio, overflows: LogThrottle::default(), closing, ended })
    }

    /// Sends the waiting runs, for a few seconds at most.
    pub async fn close(&self) {
        self.closing.cancel();
        // The semaphore has no permits: the task closes it at its end.
        if tokio::time::timeout(CLOSE_TIME, self.ended.acquire()).await.is_err() {
            tracing::warn!("the collector of traces does not answer: the last runs are left out");
        }
    }
}

impl EndedRuns for TraceExporter {
    fn on_run_ended(&self, run: &RunRow) {
        if !trace_of(run, self.sample_ratio).context.is_sampled {
            return;
        }
        if self.queue.try_send(Box::new(run.clone())).is_err() {
            dropped(QUEUE_FULL, 1);
            if let Some(runs) = self.overflows.count() {
                tracing::warn!(runs, "traces are left out: the collector does not keep up");
            }
        }
    }
}

fn trace_of(run: &RunRow, sample_ratio: f64) -> RunTrace {
    let caller = run.provenance.as_ref().and_then(|provenance| provenance.trace.as_deref());
    RunTrace::of(&run.tenant, &run.id, caller, sample_ratio)
}

fn dropped(reason: &'static str, runs: u64) {
    counter!(OTLP_DROPPED, "reason" => reason).increment(runs);
}

// === impl ExportTask ===

impl ExportTask {
    async fn run(mut self) {
        while let Some(first) = self.next().await {
            self.gather().await;
            let (mut spans, mut runs) = (Vec::new(), 0);
            let mut next = Some(first);
            while let Some(run) = next {
                match self.spans(&run).await {
                    Ok(more) => {
                        spans.extend(more);
                        runs += 1;
                    }
                    Err(error) => {
                        dropped(UNREADABLE, 1);
                        tracing::debug!(run = %run.id, %error, "a run cannot be read for its trace");
                    }
                }
                let has_room = spans.len() < MAX_SPANS_PER_REQUEST;
                next = has_room.then(|| self.queue.try_recv().ok()).flatten();
            }
            if runs > 0 {
                self.send(spans, runs).await;
            }
        }
    }

    /// Returns the next run, or `None` if the server stops and no run waits.
    async fn next(&mut self) -> Option<Box<RunRow>> {
        tokio::select! {
            biased;
            run = self.queue.recv() => run,
            () = self.closing.cancelled() => None,
        }
    }

    /// Waits for further runs, because several often end together.
    async fn gather(&self) {
        drop(tokio::time::timeout(GATHER_TIME, self.closing.cancelled()).await);
    }

    async fn send(&mut self, spans: Vec<TraceSpan>, runs: u64) {
        match self.collector.send(spans, &self.closing).await {
            Ok(()) => {
                counter!(OTLP_EXPORTED).increment(runs);
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!("the collector of traces answers again");
                }
            }
            Err(reason) => {
                dropped(NOT_TAKEN, runs);
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::warn!(reason, "traces are left out: the collector takes none");
                }
            }
        }
    }

    /// Returns a run's spans from its log.
    async fn spans(&self, row: &RunRow) -> Result<Vec<TraceSpan>> {
        let mut spans = RunSpans::new(traced_run(row, self.sample_ratio));
        let (mut after, mut read) = (0, 0);
        while read < MAX_LOG_BYTES && after < row.last_run_number {
            let range = Range { run: Some(row.key), after, max_bytes: PAGE_BYTES };
            let frames = self.read.frames(row.thread, range).await?;
            // The run may have been removed meanwhile.
            let Some(last) = frames.last().map(|frame| frame.last_run()) else { break };
            for frame in &frames {
                read += frame.bytes().len();
                // Decode the frame only here, so that the cache does not keep the result.
                for record in frame.raw()? {
                    let record = record?;
                    if record.run_number > after {
                        spans.push(&record.event()?);
                    }
                }
            }
            after = last;
        }
        Ok(spans.finish())
    }
}

fn traced_run(row: &RunRow, sample_ratio: f64) -> TracedRun {
    let ended_at = row.ended_at.unwrap_or(row.created_at);
    TracedRun {
        id: row.id.clone(),
        thread: row.thread_id.clone(),
        tenant: row.tenant.clone(),
        agent: row.agent.clone(),
        parent: row.parent.clone(),
        created_at: row.created_at,
        due: row.due(),
        started_at: row.started_at,
        ended_at,
        outcome: row.outcome.clone().unwrap_or(trilogue_domain::Outcome::Completed),
        events: row.last_run_number,
        trace: trace_of(row, sample_ratio),
    }
}
