//! A bounded queue between the tasks that log and the thread that writes, so that a request does not wait for the log.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use metrics::counter;
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;
use trilogue_gateway::{AUDIT_TARGET, metric_names};

/// The lines that may wait for the writing thread. Those beyond it are counted and left out.
const MAX_QUEUED_LINES: usize = 8_192;
/// The bytes that those lines may have together.
const MAX_QUEUED_BYTES: usize = 4 * 1024 * 1024;
/// The bytes that are joined for one write.
const JOINED_BYTES: usize = 64 * 1024;
/// How long the end of the server waits until the queued lines are written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
/// How long it waits between two attempts to put its request into a full queue.
const FLUSH_INTERVAL: Duration = Duration::from_millis(10);

/// Writes lines of the levels `info` and below in the background, joined. Audit lines, warnings and errors are written at once.
///
/// So a line that was queued can come after a later warning; the times of the lines tell the order.
#[derive(Debug)]
pub(super) struct LogQueue<W> {
    output: W,
    queue: SyncSender<LogEntry>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    /// The bytes of the queued lines.
    queued_bytes: AtomicUsize,
    /// The lines that were left out since the last warning about them.
    left_out: AtomicU64,
}

/// Writes the queued lines when it is dropped: keep it until the server has stopped.
#[derive(Debug)]
#[must_use = "queued lines are lost at the end of the process unless this is kept until then"]
pub struct LogGuard(Vec<SyncSender<LogEntry>>);

/// A line, or a request to report when all lines before it are written.
#[derive(Debug)]
enum LogEntry {
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
        let counts = Arc::new(Counts::default());
        let (writer, counted) = (output.clone(), Arc::clone(&counts));
        thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || write_entries(writer, &entries, &counted))?;
        let guard = LogGuard(vec![queue.clone()]);
        Ok((Self { output, queue, counts }, guard))
    }

    fn push(&self, line: &[u8]) {
        let Counts { queued_bytes, left_out } = self.counts.as_ref();
        let has_room =
            queued_bytes.fetch_add(line.len(), Ordering::Relaxed) + line.len() <= MAX_QUEUED_BYTES;
        if has_room && self.queue.try_send(LogEntry::Line(line.to_vec())).is_ok() {
            return;
        }
        queued_bytes.fetch_sub(line.len(), Ordering::Relaxed);
        left_out.fetch_add(1, Ordering::Relaxed);
        counter!(metric_names::LOG_LINES_LEFT_OUT).increment(1);
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
fn write_entries(mut output: impl Write, entries: &Receiver<LogEntry>, counts: &Counts) {
    let mut joined = Vec::with_capacity(JOINED_BYTES);
    while let Ok(first) = entries.recv() {
        let (mut flushes, mut joined_lines) = (Vec::new(), 0);
        let mut next = Some(first);
        while let Some(entry) = next {
            match entry {
                LogEntry::Line(line) => {
                    counts.queued_bytes.fetch_sub(line.len(), Ordering::Relaxed);
                    joined.extend_from_slice(&line);
                    joined_lines += 1;
                }
                LogEntry::Flush(done) => flushes.push(done),
            }
            next = (joined.len() < JOINED_BYTES).then(|| entries.try_recv().ok()).flatten();
        }
        let written = output.write_all(&joined).and_then(|()| output.flush());
        joined.clear();
        joined.shrink_to(JOINED_BYTES);
        let lines = match written {
            // Only a line shows that the log can be written.
            Ok(()) if joined_lines > 0 => counts.left_out.swap(0, Ordering::Relaxed),
            Ok(()) => 0,
            // The log cannot say so now: the metric does, and the log itself when it can be written again.
            Err(_) => {
                counts.left_out.fetch_add(joined_lines, Ordering::Relaxed);
                counter!(metric_names::LOG_LINES_LEFT_OUT).increment(joined_lines);
                0
            }
        };
        if lines > 0 {
            tracing::warn!(
                lines,
                "log lines were left out: they came faster than they could be written, or the log could not be written"
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
            Self::Queued(queue) => {
                queue.push(line);
                Ok(line.len())
            }
        }
    }

    /// Writes a line: the library writes each event with one call.
    fn write_all(&mut self, line: &[u8]) -> io::Result<()> {
        match self {
            // The output's own, which lets no other line in between.
            Self::Direct(output) => output.write_all(line),
            Self::Queued(queue) => {
                queue.push(line);
                Ok(())
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
            let until = Instant::now() + FLUSH_TIMEOUT;
            let (done, written) = sync_channel(1);
            let mut entry = LogEntry::Flush(done);
            // A standard error that takes nothing must not keep the server from its end: neither a full queue nor the write.
            while let Err(TrySendError::Full(back)) = queue.try_send(entry) {
                if Instant::now() >= until {
                    return;
                }
                entry = back;
                thread::sleep(FLUSH_INTERVAL);
            }
            // After this time, the end of the server no longer waits for its log.
            let _ = written.recv_timeout(until.saturating_duration_since(Instant::now()));
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
        assert_eq!(queue.counts.left_out.load(Ordering::Relaxed), 100);
        gate.open();
        drop(guard);
        let written = gate.0.written.lock().unwrap();
        let lines = written.text.lines();
        let numbers: Vec<usize> = lines.map(|line| line.parse().unwrap()).collect();
        assert_eq!(numbers, Vec::from_iter(0..=MAX_QUEUED_LINES));
        assert!(written.writes < 10, "{}", written.writes);
    }

    /// An output that fails until it is repaired.
    #[derive(Clone, Default)]
    struct FailingOutput(Arc<Mutex<(bool, String)>>);

    impl Write for FailingOutput {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut state = self.0.lock().unwrap();
            if !state.0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            state.1.push_str(std::str::from_utf8(bytes).unwrap());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted() {
        let output = FailingOutput::default();
        let (queue, guard) = LogQueue::start(output.clone()).unwrap();
        for _ in 0..3 {
            queue.push(b"lost\n");
        }
        drop(guard);
        assert_eq!(queue.counts.left_out.load(Ordering::Relaxed), 3);
        output.0.lock().unwrap().0 = true;
        queue.push(b"written\n");
        drop(LogGuard(vec![queue.queue.clone()]));
        assert_eq!(output.0.lock().unwrap().1, "written\n");
        assert_eq!(queue.counts.left_out.load(Ordering::Relaxed), 0, "a warning has said it");
    }

    #[test]
    fn audit_lines_and_warnings_do_not_wait_for_the_thread_and_its_end_has_a_limit() {
        let gate = Gate::default();
        let (queue, guard) = LogQueue::start(gate.clone()).unwrap();
        queue.push(b"first\n");
        gate.wait_for_writer();
        for _ in 0..=MAX_QUEUED_LINES {
            queue.push(b"waits\n");
        }
        let direct = |metadata: &'static Metadata<'static>| {
            matches!(queue.make_writer_for(metadata), LineWriter::Direct(_))
        };
        use tracing::Callsite as _;
        let audit = tracing::callsite!(name: "audit", kind: tracing::metadata::Kind::EVENT, target: AUDIT_TARGET, level: Level::INFO, fields: );
        let warning = tracing::callsite!(name: "warning", kind: tracing::metadata::Kind::EVENT, level: Level::WARN, fields: );
        let info = tracing::callsite!(name: "info", kind: tracing::metadata::Kind::EVENT, level: Level::INFO, fields: );
        assert!(direct(audit.metadata()) && direct(warning.metadata()));
        assert!(!direct(info.metadata()));
        // The thread stands at the gate and the queue is full: this returns all the same.
        drop(guard);
        gate.open();
    }
}
