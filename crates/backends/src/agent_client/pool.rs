//! The processes of an agent: which one a thread gets, how many there are, and when they are stopped.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;
use trilogue_domain::ThreadKey;
use trilogue_domain::error::{Code, Error};

use super::breaker::Breaker;
use super::met::Met;
use super::open::json_of;
use super::process::{Process, Use};
use super::profile::Profile;
use super::seat::Seat;
use super::threads::Threads;
use super::trouble::Trouble;
use super::{Launch, Processes, lock};
use crate::child::Children;

/// How long one that has just been started or opened may be about to be idle.
const SETTLES_WITHIN: Duration = Duration::from_secs(2);
/// How often a place is looked for while there may be one soon.
const LOOKS_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// The processes of an agent.
#[derive(Debug)]
pub(super) struct Pool {
    agent: Arc<str>,
    children: Arc<Children>,
    /// Whose sessions are in the processes.
    threads: Arc<Threads>,
    met: Arc<Met>,
    breaker: Arc<Breaker>,
    all: Arc<Mutex<All>>,
    /// Held while a process that belongs to no thread is started, so that there is one of it.
    starting: tokio::sync::Mutex<()>,
}

/// What a process has to be like.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) launch: Arc<Launch>,
    pub(super) profile: Profile,
    /// Where it is started.
    pub(super) cwd: PathBuf,
}

#[derive(Debug, Default)]
struct All {
    /// Those that run, and those that are being ended.
    running: Vec<Entry>,
    /// How many are being started.
    starting: usize,
    /// How many sessions are being opened in those that run.
    opening: usize,
    /// When one was started or opened last.
    settled_at: Option<Instant>,
}

#[derive(Clone, Debug)]
struct Entry {
    process: Arc<Process>,
    /// Whose it is. Nobody's where it is shared, or was only asked who it is.
    thread: Option<ThreadKey>,
    launch: Arc<Launch>,
    /// Where it was started.
    cwd: PathBuf,
}

/// A place among the processes, until it is dropped.
struct Place(Arc<Mutex<All>>);

/// A session that is being opened, until it is dropped.
#[derive(Debug)]
pub(super) struct Opening(Arc<Mutex<All>>);

/// What a thread gets of the processes that run.
enum Taken {
    /// A process.
    Process(Use),
    /// None. This one was its own and does not fit any more.
    Ends(Arc<Process>),
    /// None. This one belongs to nobody and cannot be had.
    EndsBeside(Arc<Process>),
    /// None.
    Nothing,
}

/// What makes room for a process.
enum Victim {
    /// There is room.
    Room,
    /// There is when this one has ended.
    Ends(Arc<Process>),
    /// All are at work.
    None,
}

// === impl Pool ===

impl Pool {
    pub(super) fn new(
        agent: Arc<str>,
        children: Arc<Children>,
        threads: Arc<Threads>,
        met: Arc<Met>,
    ) -> Self {
        let (all, breaker, starting) = (Arc::default(), Arc::default(), Default::default());
        Self { agent, children, threads, met, breaker, all, starting }
    }

    /// A process for the sessions of a thread: its own, one that is shared, one that nobody has, or a new one. In one that is shared, the session's place too; `own` is that of the session which is replaced.
    pub(super) async fn of_thread(
        &self,
        wanted: Wanted,
        thread: ThreadKey,
        own: Option<Arc<Seat>>,
    ) -> Result<(Use, Option<Arc<Seat>>), Trouble> {
        if wanted.launch.processes == Processes::Shared {
            return self.seat(&wanted, own).await.map(|(used, seat)| (used, Some(seat)));
        }
        match self.take(&wanted, thread) {
            Taken::Process(process) => return Ok((process, None)),
            Taken::Ends(process) => process.stop().await,
            Taken::EndsBeside(process) => drop(tokio::spawn(async move { process.stop().await })),
            Taken::Nothing => {}
        }
        self.start(wanted, Some(thread)).await.map(|used| (used, None))
    }

    /// A process that belongs to no thread.
    pub(super) async fn any(&self, wanted: Wanted) -> Result<Use, Trouble> {
        // Who finds one does not wait for another that is being started.
        if let Some(process) = self.find_any(&wanted) {
            return Ok(process);
        }
        let _one = self.starting.lock().await;
        match self.find_any(&wanted) {
            Some(process) => Ok(process),
            None => self.start(wanted, None).await,
        }
    }

    fn find_any(&self, wanted: &Wanted) -> Option<Use> {
        let all = lock(&self.all);
        let mut fitting = all.running.iter().filter(|entry| {
            entry.thread.is_none() && entry.fits(wanted) && entry.process.is_alive()
        });
        fitting.find_map(|entry| entry.process.hold())
    }

    /// The processes that run, belong to no thread and were started so.
    pub(super) fn fitting(&self, wanted: &Wanted) -> Vec<Arc<Process>> {
        self.alive(|entry| entry.thread.is_none() && entry.fits(wanted))
    }

    /// Whether there is a place for one more process.
    pub(super) fn has_place(&self, launch: &Launch) -> bool {
        lock(&self.all).has_place(launch.max_processes)
    }

    pub(super) fn agent(&self) -> &str {
        &self.agent
    }

    pub(super) fn threads(&self) -> &Threads {
        &self.threads
    }

    /// See the field.
    pub(super) fn starting(&self) -> &tokio::sync::Mutex<()> {
        &self.starting
    }

    /// The processes that run and belong to no thread.
    pub(super) fn unowned(&self) -> Vec<Arc<Process>> {
        self.alive(|entry| entry.thread.is_none())
    }

    /// All processes that run.
    pub(super) fn all(&self) -> Vec<Arc<Process>> {
        self.alive(|_| true)
    }

    /// The processes of a thread alone.
    pub(super) fn own(&self, thread: ThreadKey) -> Vec<Arc<Process>> {
        self.alive(|entry| entry.thread == Some(thread))
    }

    fn alive(&self, is_wanted: impl Fn(&Entry) -> bool) -> Vec<Arc<Process>> {
        let all = lock(&self.all);
        let found = all.running.iter().filter(|entry| is_wanted(entry) && entry.process.is_alive());
        found.map(|entry| Arc::clone(&entry.process)).collect()
    }

    /// The agent is started in another way from now on.
    pub(super) fn reset(&self) {
        self.breaker.reset();
    }

    /// The process of a thread, or one that nobody has, which is the thread's from now on.
    fn take(&self, wanted: &Wanted, thread: ThreadKey) -> Taken {
        let mut all = lock(&self.all);
        let own = all.running.iter().find(|it| it.thread == Some(thread) && it.process.is_alive());
        if let Some(own) = own {
            if !own.fits_in(wanted) && own.process.leave() {
                return Taken::Ends(Arc::clone(&own.process));
            }
            // One that somebody works with serves for now.
            return own.process.hold().map_or(Taken::Nothing, Taken::Process);
        }
        let is_spare = |entry: &&mut Entry| {
            entry.thread.is_none() && entry.fits(wanted) && entry.process.is_alive()
        };
        for spare in all.running.iter_mut().filter(|entry| is_spare(entry)) {
            if spare.cwd == wanted.cwd
                && let Some(used) = spare.process.hold()
            {
                spare.thread = Some(thread);
                // What it said before was not said to this thread.
                used.process().child().captured().clear();
                return Taken::Process(used);
            }
            // It was started to be asked who the agent is, which is known now.
            if spare.process.leave() {
                return Taken::EndsBeside(Arc::clone(&spare.process));
            }
        }
        Taken::Nothing
    }

    pub(super) async fn start(
        &self,
        wanted: Wanted,
        thread: Option<ThreadKey>,
    ) -> Result<Use, Trouble> {
        self.breaker.check(&self.agent)?;
        let place = self.place(&wanted.launch).await?;
        let Wanted { launch, profile, cwd } = wanted;
        let started = self.start_here(&launch, profile, &cwd).await;
        let process = match started {
            Ok(process) => process,
            Err(trouble) => {
                self.breaker.failed(&trouble.text());
                return Err(trouble);
            }
        };
        self.met.set(&launch, process.profile(), json_of(process.greeting().clone()));
        let used = process.hold();
        let entry =
            Entry { process: Arc::clone(&process), thread, launch: Arc::clone(&launch), cwd };
        lock(&self.all).running.push(entry);
        drop(place);
        self.watch(process, launch.idle_stop);
        let broken = || Trouble::ours(Code::Internal, "a process ended when it was started");
        used.ok_or_else(broken)
    }

    async fn start_here(
        &self,
        launch: &Launch,
        profile: Profile,
        cwd: &Path,
    ) -> Result<Arc<Process>, Trouble> {
        let breaker = Arc::clone(&self.breaker);
        Process::start(&self.agent, &self.children, launch, profile, cwd, breaker).await
    }

    /// Ends a process when it has been idle for so long, and forgets it when it has ended.
    fn watch(&self, process: Arc<Process>, idle_stop: Option<Duration>) {
        let (all, threads) = (Arc::clone(&self.all), Arc::clone(&self.threads));
        let breaker = Arc::clone(&self.breaker);
        tokio::spawn(async move {
            tokio::select! {
                () = process.watch() => {}
                () = idle(&process, idle_stop) => {
                    tracing::debug!(process = ?process, "an idle process is stopped");
                    process.stop().await;
                    process.watch().await;
                }
            }
            if !process.is_leaving() && !process.is_proven() {
                breaker.failed(&process.obituary().await);
            }
            lock(&all).remove(&process);
            threads.let_go(&process);
        });
    }

    /// A session is opened in a process that was had here.
    pub(super) fn opening(&self) -> Opening {
        lock(&self.all).opening += 1;
        Opening(Arc::clone(&self.all))
    }

    /// Waits for a place. Where there is none, the process that was idle longest makes room. Those that are being started or opened are not at work: they are waited for.
    async fn place(&self, launch: &Launch) -> Result<Place, Error> {
        let patience = Instant::now() + launch.start_timeout + launch.open_timeout;
        loop {
            let victim = lock(&self.all).victim(launch.max_processes);
            match victim {
                Victim::None if Instant::now() < patience && lock(&self.all).is_unsettled() => {
                    tokio::time::sleep(LOOKS_AGAIN_AFTER).await;
                }
                Victim::Room => return Ok(Place(Arc::clone(&self.all))),
                Victim::Ends(process) => {
                    process.stop().await;
                    lock(&self.all).remove(&process);
                }
                Victim::None => {
                    let most = launch.max_processes;
                    let message = format!(
                        "the agent '{}' has {most} processes at work, which is the most",
                        self.agent
                    );
                    return Err(Error::new(Code::Overloaded, message)
                        .hint("wait until one is done, or raise `max_processes`"));
                }
            }
        }
    }
}

/// Returns when the process has not been worked with for so long, and its sessions can be opened again. Nobody works with it from then on.
async fn idle(process: &Process, time: Option<Duration>) {
    let Some(time) = time else { return std::future::pending().await };
    loop {
        let until = process.idle_since() + time;
        let now = Instant::now();
        let may_stop = process.opens_again() || process.router().is_empty();
        if until <= now && may_stop && process.leave() {
            return;
        }
        let wait = if until <= now { time } else { until - now };
        tokio::time::sleep(wait).await;
    }
}

// === impl All ===

impl All {
    /// What makes room for one more. Where there is room, it is taken.
    fn victim(&mut self, most: usize) -> Victim {
        if self.has_place(most) {
            self.starting += 1;
            return Victim::Room;
        }
        let mut leaving = self.running.iter().filter(|entry| entry.process.is_leaving());
        if let Some(entry) = leaving.next() {
            return Victim::Ends(Arc::clone(&entry.process));
        }
        match self.idle_longest() {
            Some(process) => Victim::Ends(process),
            None => Victim::None,
        }
    }

    fn has_place(&self, most: usize) -> bool {
        self.running.len() + self.starting < most
    }

    /// Whether one may be idle soon although none is now.
    fn is_unsettled(&self) -> bool {
        let has_settled = self.settled_at.is_none_or(|at| at.elapsed() >= SETTLES_WITHIN);
        self.starting + self.opening > 0 || !has_settled
    }

    /// The process that was idle longest, with which nobody works from now on; one whose sessions can be opened again goes first.
    fn idle_longest(&self) -> Option<Arc<Process>> {
        let mut idle: Vec<_> =
            self.running.iter().map(|entry| &entry.process).filter(|it| it.is_idle()).collect();
        idle.sort_by_key(|process| (!process.opens_again(), process.idle_since()));
        idle.into_iter().find(|process| process.leave()).cloned()
    }

    fn remove(&mut self, process: &Arc<Process>) {
        self.running.retain(|entry| !Arc::ptr_eq(&entry.process, process));
    }
}

// === impl Entry ===

impl Entry {
    /// Whether it was started so, wherever that was.
    fn fits(&self, wanted: &Wanted) -> bool {
        *self.process.profile() == wanted.profile && Arc::ptr_eq(&self.launch, &wanted.launch)
    }

    /// Whether it was started so, there.
    fn fits_in(&self, wanted: &Wanted) -> bool {
        self.fits(wanted) && self.cwd == wanted.cwd
    }
}

// === impl Place ===

impl Drop for Place {
    fn drop(&mut self) {
        let mut all = lock(&self.0);
        all.starting -= 1;
        all.settled_at = Some(Instant::now());
    }
}

// === impl Opening ===

impl Drop for Opening {
    fn drop(&mut self) {
        let mut all = lock(&self.0);
        all.opening -= 1;
        all.settled_at = Some(Instant::now());
    }
}
