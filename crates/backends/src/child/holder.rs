//! The connection to the holder of a child: the process that owns the child's streams, and keeps it alive while no server is connected.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::{CancellationToken, PollSender};
use trilogue_sandbox::broker::PassedListener;
use trilogue_sandbox::holder::{FrameReader, HOLDER_VERSION, HolderFrame, ServerFrame};
use uuid::Uuid;

use super::held_output::HeldOutput;
use super::identity::Identity;
use super::sent_labels::SentLabels;

/// How long a holder may take to answer.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause before the next attempt.
const ATTACH_PAUSE: Duration = Duration::from_millis(20);
/// The frames that wait to be sent to a holder.
const MAX_FRAMES: usize = 16;
pub(super) const BUFFER_BYTES: usize = 64 * 1024;
/// A longer line of input is sent in pieces, in bytes.
const MAX_INPUT_BYTES: usize = 16 * 1024 * 1024;
/// How often a child is looked at whose holder sends nothing any more.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// How long an ended child may take to be gone.
const REAP_TIMEOUT: Duration = Duration::from_secs(1);

/// The place of a holder's socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct HolderSocket {
    folder: PathBuf,
    name: String,
}

/// What a holder keeps for the next server.
#[derive(Debug)]
pub(crate) struct HolderState {
    /// The offset of the first byte of the child's output that it has.
    pub(crate) kept_from: u64,
    /// Earlier servers may have got the output before this offset.
    seen_to: u64,
    /// What earlier servers have sent since then.
    pub(crate) sent: SentLabels,
    pub(crate) note: Vec<u8>,
}

/// A connection whose holder has answered. Its streams have not begun.
#[derive(Debug)]
pub(crate) struct AttachedHolder {
    stream: UnixStream,
    frames: FrameReader,
    pub(crate) state: HolderState,
}

/// The streams of a child.
#[derive(Debug)]
pub(crate) struct HeldStreams {
    pub(crate) input: HolderInput,
    pub(crate) output: DuplexStream,
    pub(super) errors: DuplexStream,
    pub(super) link: HolderLink,
    pub(super) exit: watch::Receiver<HeldExit>,
    pub(crate) begin: BeginOutput,
}

/// Lets the output flow once it is dropped.
#[derive(Debug)]
pub struct BeginOutput(CancellationToken);

/// How a held child exited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HeldExit {
    Running,
    Exited(ExitStatus),
    /// The holder sends nothing more.
    Lost,
}

/// Sends to the holder of a child. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct HolderLink {
    frames: mpsc::Sender<Vec<u8>>,
    /// Whether the child outlives this server.
    is_detached: Arc<AtomicBool>,
}

/// The standard input of a held child.
#[derive(Debug)]
pub struct HolderInput {
    frames: PollSender<Vec<u8>>,
    link: HolderLink,
    /// A line without its end.
    line: Vec<u8>,
    is_ended: bool,
}

/// A held child that another server has started.
#[derive(Debug)]
pub(super) struct AdoptedLeader {
    pub(super) identity: Identity,
    pub(super) exit: watch::Receiver<HeldExit>,
}

// === impl HolderSocket ===

impl HolderSocket {
    pub(super) fn new(folder: &Path, instance: Uuid) -> Self {
        Self { folder: folder.to_owned(), name: format!("{instance}.sock") }
    }

    /// Binds the socket, for this user only: its folder is.
    pub(super) fn bind(&self) -> io::Result<UnixListener> {
        self.remove();
        let folder = File::open(&self.folder)?;
        UnixListener::bind(self.short(&folder))
    }

    /// Connects, and proves with the secret that this server may. Tries again for a while: other programs can keep the socket busy.
    pub(super) async fn attach(&self, secret: &str) -> io::Result<AttachedHolder> {
        while_busy(|| self.attach_once(secret)).await
    }

    /// Gets the listener of the broker that the holder keeps, over a connection of its own.
    pub(super) async fn take_broker(&self, secret: &str) -> io::Result<PassedListener> {
        while_busy(|| async {
            let taking = self.take_broker_once(secret);
            timeout(ATTACH_TIMEOUT, taking).await.unwrap_or(Err(io::ErrorKind::TimedOut.into()))
        })
        .await
    }

    #[cfg(target_os = "linux")]
    async fn take_broker_once(&self, secret: &str) -> io::Result<PassedListener> {
        let folder = File::open(&self.folder)?;
        let mut stream = UnixStream::connect(self.short(&folder)).await?;
        let take = ServerFrame::TakeBroker { secret: secret.to_owned() };
        stream.write_all(&take.encode()).await?;
        let receive = || PassedListener::receive(&stream);
        let passed = stream.async_io(tokio::io::Interest::READABLE, receive).await?;
        passed.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    #[cfg(not(target_os = "linux"))]
    async fn take_broker_once(&self, _: &str) -> io::Result<PassedListener> {
        Err(io::ErrorKind::Unsupported.into())
    }

    async fn attach_once(&self, secret: &str) -> io::Result<AttachedHolder> {
        let attaching = async {
            let folder = File::open(&self.folder)?;
            let mut stream = UnixStream::connect(self.short(&folder)).await?;
            let attach = ServerFrame::Attach { version: HOLDER_VERSION, secret: secret.to_owned() };
            stream.write_all(&attach.encode()).await?;
            let mut frames = FrameReader::default();
            loop {
                if let Some(frame) = next(&mut frames)? {
                    return AttachedHolder::of(stream, frames, frame);
                }
                let mut bytes = vec![0; BUFFER_BYTES];
                match stream.read(&mut bytes).await? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    count => frames.push(bytes.get(..count).unwrap_or_default()),
                }
            }
        };
        timeout(ATTACH_TIMEOUT, attaching).await.unwrap_or(Err(io::ErrorKind::TimedOut.into()))
    }

    pub(super) fn remove(&self) {
        // It may be gone already.
        let _ = std::fs::remove_file(self.folder.join(&self.name));
    }

    /// Its path below an open folder: the path of a socket is short.
    fn short(&self, folder: &File) -> PathBuf {
        path_below(folder, self.name.as_ref())
    }
}

/// The short path of a name below an open folder.
pub(super) fn path_below(folder: &File, name: &Path) -> PathBuf {
    Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name)
}

/// Tries again for a while, as long as the socket of a holder is busy.
async fn while_busy<T, F>(attempt: impl Fn() -> F) -> io::Result<T>
where
    F: Future<Output = io::Result<T>>,
{
    let until = Instant::now() + ATTACH_TIMEOUT;
    loop {
        match attempt().await {
            Err(error) if is_busy(&error) && Instant::now() < until => {
                tokio::time::sleep(ATTACH_PAUSE).await;
            }
            done => return done,
        }
    }
}

// === impl AttachedHolder ===

impl AttachedHolder {
    fn of(stream: UnixStream, frames: FrameReader, first: HolderFrame) -> io::Result<Self> {
        match first {
            HolderFrame::State {
                version: HOLDER_VERSION,
                kept_from,
                seen_to,
                has_lost_labels: false,
                labels,
                note,
            } => {
                let sent = SentLabels::read(&labels);
                let state = HolderState { kept_from, seen_to, sent, note };
                Ok(Self { stream, frames, state })
            }
            HolderFrame::State { version: HOLDER_VERSION, .. } => {
                Err(io::Error::other("the turn had more requests than a holder keeps"))
            }
            _ => Err(io::Error::other("a holder of another version")),
        }
    }

    /// Starts the streams. The output begins at this offset, without the requests that were answered.
    pub(crate) fn start(self, from: u64) -> HeldStreams {
        let (read, write) = self.stream.into_split();
        let (frames, waiting) = mpsc::channel(MAX_FRAMES);
        let link = HolderLink { frames: frames.clone(), is_detached: Arc::default() };
        let (output, output_end) = duplex(BUFFER_BYTES);
        let (errors, errors_end) = duplex(BUFFER_BYTES);
        let (exited, exit) = watch::channel(HeldExit::Running);
        let begin = CancellationToken::new();
        let reader = HeldOutput {
            stream: read,
            frames: self.frames,
            from,
            seen_to: self.state.seen_to,
            position: from,
            sent: self.state.sent,
            link: link.clone(),
            line: Vec::new(),
            output: output_end,
            errors: errors_end,
        };
        let begun = begin.clone();
        tokio::spawn(async move {
            begun.cancelled().await;
            let status = reader.read().await;
            exited.send_replace(status.map_or(HeldExit::Lost, HeldExit::Exited));
        });
        tokio::spawn(write_frames(write, waiting));
        let (frames, line) = (PollSender::new(frames), Vec::new());
        let input = HolderInput { frames, link: link.clone(), line, is_ended: false };
        HeldStreams { input, output, errors, link, exit, begin: BeginOutput(begin) }
    }
}

/// Whether the same may succeed a moment later.
fn is_busy(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof, WouldBlock};
    matches!(error.kind(), WouldBlock | UnexpectedEof | BrokenPipe | ConnectionReset)
}

/// Writes frames until no sender is left. The reader of the output is one, so the connection lasts as long as there is output.
async fn write_frames(mut stream: OwnedWriteHalf, mut waiting: mpsc::Receiver<Vec<u8>>) {
    while let Some(mut frames) = waiting.recv().await {
        // One write wakes the holder once.
        while let Ok(more) = waiting.try_recv() {
            frames.extend(more);
        }
        if stream.write_all(&frames).await.is_err() {
            return;
        }
    }
}

pub(super) fn next(frames: &mut FrameReader) -> io::Result<Option<HolderFrame>> {
    frames.next_holder_frame().map_err(io::Error::other)
}

// === impl HeldStreams ===

impl HeldStreams {
    /// Connects to the holder of a new child. If it cannot be reached, the streams are at their end, and the exit of the child says why.
    pub(super) async fn connect(socket: &HolderSocket, secret: &str) -> Self {
        match socket.attach(secret).await {
            Ok(attached) => {
                let streams = attached.start(0);
                streams.begin.0.cancel();
                streams
            }
            Err(error) => {
                tracing::debug!(%error, "the holder of a child cannot be reached");
                Self::without_holder()
            }
        }
    }

    fn without_holder() -> Self {
        let (frames, _) = mpsc::channel(1);
        let link = HolderLink { frames: frames.clone(), is_detached: Arc::default() };
        let (frames, line) = (PollSender::new(frames), Vec::new());
        let input = HolderInput { frames, link: link.clone(), line, is_ended: true };
        let (output, errors) = (duplex(1).0, duplex(1).0);
        let exit = watch::channel(HeldExit::Lost).1;
        let begin = BeginOutput(CancellationToken::new());
        Self { input, output, errors, link, exit, begin }
    }
}

// === impl BeginOutput ===

impl Drop for BeginOutput {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

// === impl HolderLink ===

impl HolderLink {
    /// Tells the holder that no server needs the output before this offset any more, nor what was sent until now.
    pub(crate) async fn mark(&self, offset: u64) {
        self.send(&ServerFrame::Mark { offset }).await;
    }

    /// Replaces what the holder keeps for the next server.
    pub(crate) async fn note(&self, note: Vec<u8>) {
        self.send(&ServerFrame::Note(note)).await;
    }

    /// Sets how long the child works without a server. If too much waits to be sent, the time stays as it is.
    pub(super) fn set_orphan_time(&self, time: Duration) {
        let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        drop(self.frames.try_send(ServerFrame::OrphanTime { ms }.encode()));
    }

    /// Lets the child work on when this server exits.
    pub(super) fn detach(&self) {
        self.is_detached.store(true, Ordering::Release);
    }

    pub(super) async fn send(&self, frame: &ServerFrame) {
        // Without the holder, the child is gone too.
        drop(self.frames.send(frame.encode()).await);
    }
}

// === impl HolderInput ===

impl HolderInput {
    /// The frames of the complete lines, and of a line that is too long to wait for its end.
    fn take_frames(&mut self) -> Vec<u8> {
        let mut frames = Vec::new();
        let mut add = |label: String, bytes: Vec<u8>| {
            frames.append(&mut ServerFrame::Input { label, bytes }.encode());
        };
        while let Some(end) = memchr::memchr(b'\n', &self.line) {
            let rest = self.line.split_off(end + 1);
            let line = std::mem::replace(&mut self.line, rest);
            add(SentLabels::label(&line), line);
        }
        if self.line.len() > MAX_INPUT_BYTES {
            add(String::new(), std::mem::take(&mut self.line));
        }
        frames
    }
}

impl AsyncWrite for HolderInput {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let broken = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        if self.link.is_detached.load(Ordering::Acquire) {
            // The next server talks to the child.
            return Poll::Ready(Ok(bytes.len()));
        }
        ready!(self.frames.poll_reserve(cx)).map_err(broken)?;
        self.line.extend_from_slice(bytes);
        let frames = self.take_frames();
        if !frames.is_empty() {
            self.frames.send_item(frames).map_err(broken)?;
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let broken = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        if !self.is_ended && !self.link.is_detached.load(Ordering::Acquire) {
            ready!(self.frames.poll_reserve(cx)).map_err(broken)?;
            self.is_ended = true;
            let bytes = std::mem::take(&mut self.line);
            let last = ServerFrame::Input { label: String::new(), bytes }.encode();
            let frames = [last, ServerFrame::EndInput.encode()].concat();
            self.frames.send_item(frames).map_err(broken)?;
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for HolderInput {
    fn drop(&mut self) {
        if self.is_ended || self.link.is_detached.load(Ordering::Acquire) {
            return;
        }
        // A full queue belongs to a child that does not read: it is stopped by signals.
        drop(self.link.frames.try_send(ServerFrame::EndInput.encode()));
    }
}

// === impl AdoptedLeader ===

impl AdoptedLeader {
    /// Waits until the child has exited. `None` if its status is unknown.
    pub(super) async fn wait_for_exit(&self) -> Option<ExitStatus> {
        let mut exit = self.exit.clone();
        let ended = exit.wait_for(|exit| *exit != HeldExit::Running).await.map(|exit| *exit);
        if let Ok(HeldExit::Exited(status)) = ended {
            return Some(status);
        }
        self.wait_until_gone().await;
        None
    }

    /// Waits until the holder is gone too. Returns `false` if it stays.
    pub(super) async fn reap(self) -> bool {
        timeout(REAP_TIMEOUT, self.wait_until_gone()).await.is_ok()
    }

    async fn wait_until_gone(&self) {
        while self.identity.is_alive() {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}
