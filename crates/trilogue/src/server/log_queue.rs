//! A bounded queue between the tasks that log and the thread that writes, so that a request does not wait for the log.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use metrics::counter;
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;
use trilogue_gateway::{AUDIT_TARGET, metric_names};

/// The lines that may wait for the writing thread. Those beyond it are counted and left out.
const MAX_QUEUED_LINES: usize = 8_192;
/// The bytes that are joined for one write.
const JOINED_BYTES: usize = 64 * 1024;
/// How long the end of the server waits until the queued lines are written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Writes lines of the levels `info` and below in the background, joined. Audit lines, warnings and errors are written at once.
///
/// So a line that was queued can come after a later warning; the times of the lines tell the order.
#[derive(Debug)]
pub(super) struct LogQueue<W> {
    output: W,
    queue: SyncSender<Entry>,
    left_out: Arc<AtomicU64>,
}

/// Writes the queued lines when it is dropped: keep it until the server has stopped.
#[derive(Debug)]
#[must_use = "queued lines are lost at the end of the process unless this is kept until then"]
pub struct LogGuard(Vec<SyncSender<Entry>>);

/// A line, or a request to report when all lines before it are written.
#[derive(Debug)]
enum Entry {
    Line(Vec<u8>),
    Flush(SyncSender<()>),
}

/// Writes one line, in the way that its level needs.
pub(super) enum LineWriter<'a, W> {
    Direct(W),
    Queued(&'a LogQueue<W>),
}

// === impl LogQueue ===

impl<W: Write + Clone + Send + 'static> LogQueue<W> {
    /// Starts the writing thread.
    ///
    /// # Errors
    /// If the system refuses another thread.
    pub(super) fn start(output: W) -> io::Result<(Self, LogGuard)> {
        let (queue, entries) = sync_channel(MAX_QUEUED_LINES);
        let left_out = Arc::new(AtomicU64::new(0));
        let (writer, counted) = (output.clone(), Arc::clone(&left_out));
        thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || write_entries(writer, &entries, &counted))?;
        let guard = LogGuard(vec![queue.clone()]);
        Ok((Self { output, queue, left_out }, guard))
    }

    fn push(&self, line: &[u8]) {
        if let Err(TrySendError::Full(_)) = self.queue.try_send(Entry::Line(line.to_vec())) {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            counter!(metric_names::LOG_LINES_LEFT_OUT).increment(1);
        }
    }
}

impl<'a, W: Write + Clone + Send + 'static> MakeWriter<'a> for LogQueue<W> {
    type Writer = LineWriter<'a, W>;

    fn make_writer(&'a self) -> Self::Writer {
        LineWriter::Queued(self)
    }

    fn make_writer_for(&'a self, line: &Metadata<'_>) -> Self::Writer {
        // An audit line must not be lost by a crash right after it, and a crash is often behind a warning.
        if line.target() == AUDIT_TARGET || *line.level() <= Level::WARN {
            return LineWriter::Direct(self.output.clone());
        }
        LineWriter::Queued(self)
    }
}

/// Writes entries until every sender is gone. Joins the lines that wait, so that a busy server makes few system calls.
fn write_entries(mut output: impl Write, entries: &Receiver<Entry>, left_out: &AtomicU64) {
    let mut joined = Vec::with_capacity(JOINED_BYTES);
    while let Ok(first) = entries.recv() {
        let mut flushes = Vec::new();
        let mut next = Some(first);
        while let Some(entry) = next {
            match entry {
                Entry::Line(line) => joined.extend_from_slice(&line),
                Entry::Flush(done) => flushes.push(done),
            }
            next = (joined.len() < JOINED_BYTES).then(|| entries.try_recv().ok()).flatten();
        }
        // There is nowhere to report that the log cannot be written.
        let _ = output.write_all(&joined).and_then(|()| output.flush());
        joined.clear();
        joined.shrink_to(JOINED_BYTES);
        let lines = left_out.swap(0, Ordering::Relaxed);
        if lines > 0 {
            tracing::warn!(
                lines,
                "log lines were left out: they came faster than they could be written"
            );
        }
        for done in flushes {
            // The guard may have given up waiting.
            let _ = done.send(());
        }
    }
}

// === impl LineWriter ===

impl<W: Write + Clone + Send + 'static> Write for LineWriter<'_, W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self {
            Self::Direct(output) => output.write(line),
            // The library writes an event with one call, so this is a whole line.
            Self::Queued(queue) => {
                queue.push(line);
                Ok(line.len())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Direct(output) => output.flush(),
            Self::Queued(_) => Ok(()),
        }
    }
}

// === impl LogGuard ===

impl LogGuard {
    /// A guard of a process whose log is not ours.
    pub(super) const fn none() -> Self {
        Self(Vec::new())
    }

    /// Adds the queues of another guard, which this one then writes too.
    pub(super) fn and(mut self, mut other: Self) -> Self {
        self.0.append(&mut other.0);
        self
    }
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        for queue in &self.0 {
            let (done, written) = sync_channel(1);
            if queue.send(Entry::Flush(done)).is_ok() {
                // A standard error that takes nothing must not keep the server from its end.
                let _ = written.recv_timeout(FLUSH_TIMEOUT);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Condvar, Mutex};

    use super::*;

    /// An output that takes nothing until it is opened.
    #[derive(Clone, Default)]
    struct Gate(Arc<GateState>);

    #[derive(Default)]
    struct GateState {
        written: Mutex<Written>,
        changed: Condvar,
    }

    #[derive(Default)]
    struct Written {
        is_open: bool,
        has_waiter: bool,
        text: String,
        writes: usize,
    }

    impl Gate {
        fn open(&self) {
            self.0.written.lock().unwrap().is_open = true;
            self.0.changed.notify_all();
        }

        /// Waits until a write waits.
        fn wait_for_writer(&self) {
            let written = self.0.written.lock().unwrap();
            drop(self.0.changed.wait_while(written, |it| !it.has_waiter).unwrap());
        }
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut written = self.0.written.lock().unwrap();
            written.has_waiter = true;
            self.0.changed.notify_all();
            let mut written = self.0.changed.wait_while(written, |it| !it.is_open).unwrap();
            written.text.push_str(std::str::from_utf8(bytes).unwrap());
            written.writes += 1;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_keep_their_order_and_share_writes_and_the_rest_is_counted() {
        let gate = Gate::default();
        let (queue, guard) = LogQueue::start(gate.clone()).unwrap();
        queue.push(b"0\n");
        gate.wait_for_writer();
        for number in 1..=MAX_QUEUED_LINES + 100 {
            queue.push(format!("{number}\n").as_bytes());
        }
        assert_eq!(queue.left_out.load(Ordering::Relaxed), 100);
        gate.open();
        drop(guard);
        let written = gate.0.written.lock().unwrap();
        let lines = written.text.lines();
        let numbers: Vec<usize> = lines.map(|line| line.parse().unwrap()).collect();
        assert_eq!(numbers, Vec::from_iter(0..=MAX_QUEUED_LINES));
        assert!(written.writes < 10, "{}", written.writes);
    }
}
