//! The processes of an agent: which one a thread gets, how many there are, and when they are stopped.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;
use trilogue_domain::ThreadId;
use trilogue_domain::error::{Code, Error};

use super::breaker::Breaker;
use super::process::Process;
use super::profile::Profile;
use super::threads::Threads;
use super::trouble::Trouble;
use super::{Launch, Processes, lock};
use crate::child::Children;

/// The processes of an agent.
#[derive(Debug)]
pub(super) struct Pool {
    agent: Arc<str>,
    children: Arc<Children>,
    /// Whose sessions are in the processes.
    threads: Arc<Threads>,
    breaker: Breaker,
    all: Arc<Mutex<All>>,
    /// Held while a shared process is started, so that there is one of it.
    starting: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct All {
    running: Vec<Entry>,
    /// How many are being started.
    starting: usize,
}

#[derive(Clone, Debug)]
struct Entry {
    process: Arc<Process>,
    /// Whose it is. Nobody's where it is shared, or was only asked who it is.
    thread: Option<ThreadId>,
    launch: Arc<Launch>,
}

/// A place among the processes, until it is dropped.
struct Place(Arc<Mutex<All>>);

// === impl Pool ===

impl Pool {
    pub(super) fn new(agent: Arc<str>, children: Arc<Children>, threads: Arc<Threads>) -> Self {
        let (all, starting) = (Arc::default(), tokio::sync::Mutex::default());
        Self { agent, children, threads, breaker: Breaker::default(), all, starting }
    }

    /// A process for the sessions of a thread: its own, one that is shared, one that nobody has, or a new one.
    pub(super) async fn of_thread(
        &self,
        launch: &Arc<Launch>,
        profile: Profile,
        thread: &ThreadId,
        cwd: &Path,
    ) -> Result<Arc<Process>, Trouble> {
        match launch.processes {
            Processes::Shared => self.any(launch, profile, cwd).await,
            Processes::Thread => {
                if let Some(process) = self.take(launch, &profile, thread) {
                    return Ok(process);
                }
                self.start(launch, profile, Some(thread.clone()), cwd).await
            }
        }
    }

    /// A process of this profile.
    pub(super) async fn any(
        &self,
        launch: &Arc<Launch>,
        profile: Profile,
        cwd: &Path,
    ) -> Result<Arc<Process>, Trouble> {
        let _one = self.starting.lock().await;
        let found = self.find(|entry| entry.fits(launch, &profile));
        match found {
            Some(process) => Ok(process),
            None => self.start(launch, profile, None, cwd).await,
        }
    }

    /// All processes that run.
    pub(super) fn all(&self) -> Vec<Arc<Process>> {
        lock(&self.all).running.iter().map(|entry| Arc::clone(&entry.process)).collect()
    }

    /// The process of a thread alone.
    pub(super) fn own(&self, thread: &ThreadId) -> Option<Arc<Process>> {
        self.find(|entry| entry.thread.as_ref() == Some(thread))
    }

    /// The agent is started in another way from now on.
    pub(super) fn reset(&self) {
        self.breaker.reset();
    }

    fn find(&self, fits: impl Fn(&Entry) -> bool) -> Option<Arc<Process>> {
        let all = lock(&self.all);
        let found = all.running.iter().find(|entry| fits(entry) && entry.process.is_alive());
        found.map(|entry| Arc::clone(&entry.process))
    }

    /// The process of a thread, or one that nobody has, which is the thread's from now on.
    fn take(
        &self,
        launch: &Arc<Launch>,
        profile: &Profile,
        thread: &ThreadId,
    ) -> Option<Arc<Process>> {
        if let Some(own) = self.own(thread) {
            return Some(own);
        }
        let mut all = lock(&self.all);
        let spare = all.running.iter_mut().find(|entry| {
            entry.thread.is_none() && entry.process.is_alive() && entry.fits(launch, profile)
        })?;
        spare.thread = Some(thread.clone());
        Some(Arc::clone(&spare.process))
    }

    async fn start(
        &self,
        launch: &Arc<Launch>,
        profile: Profile,
        thread: Option<ThreadId>,
        cwd: &Path,
    ) -> Result<Arc<Process>, Trouble> {
        self.breaker.check(&self.agent)?;
        let place = self.place(launch).await?;
        let started = Process::start(&self.agent, &self.children, launch, profile, cwd).await;
        let process = match started {
            Ok(process) => process,
            Err(trouble) => {
                self.breaker.failed(&trouble.text());
                return Err(trouble);
            }
        };
        self.breaker.reset();
        let entry = Entry { process: Arc::clone(&process), thread, launch: Arc::clone(launch) };
        lock(&self.all).running.push(entry);
        drop(place);
        let (all, watched) = (Arc::clone(&self.all), Arc::clone(&process));
        let threads = Arc::clone(&self.threads);
        let idle_stop = launch.idle_stop;
        tokio::spawn(async move {
            tokio::select! {
                () = watched.watch() => {}
                () = idle(&watched, idle_stop) => {
                    tracing::debug!(process = ?watched, "an idle process is stopped");
                    lock(&all).remove(&watched);
                    watched.stop().await;
                    watched.watch().await;
                }
            }
            lock(&all).remove(&watched);
            threads.let_go(&watched);
        });
        Ok(process)
    }

    /// Waits for a place. Where there is none, the process that was idle longest makes room.
    async fn place(&self, launch: &Launch) -> Result<Place, Error> {
        loop {
            let victim = {
                let mut all = lock(&self.all);
                if all.running.len() + all.starting < launch.max_processes {
                    all.starting += 1;
                    return Ok(Place(Arc::clone(&self.all)));
                }
                let victim = all.idle_longest();
                if let Some(victim) = &victim {
                    all.remove(victim);
                }
                victim
            };
            let Some(victim) = victim else {
                let most = launch.max_processes;
                let message = format!(
                    "the agent '{}' has {most} processes at work, which is the most",
                    self.agent
                );
                return Err(Error::new(Code::Overloaded, message)
                    .hint("wait until one is done, or raise `max_processes`"));
            };
            victim.stop().await;
        }
    }
}

/// Returns when the process has not been worked with for so long, and its sessions can be opened again.
async fn idle(process: &Process, time: Option<Duration>) {
    let Some(time) = time else { return std::future::pending().await };
    loop {
        let until = process.idle_since() + time;
        let now = Instant::now();
        let may_stop = process.is_idle() && (process.opens_again() || process.router().is_empty());
        if until <= now && may_stop {
            return;
        }
        let wait = if until <= now { time } else { until - now };
        tokio::time::sleep(wait).await;
    }
}

// === impl All ===

impl All {
    /// The process that was idle longest; one whose sessions can be opened again goes first.
    fn idle_longest(&self) -> Option<Arc<Process>> {
        let idle =
            self.running.iter().map(|entry| &entry.process).filter(|process| process.is_idle());
        let key = |process: &&Arc<Process>| (!process.opens_again(), process.idle_since());
        idle.min_by_key(key).cloned()
    }

    fn remove(&mut self, process: &Arc<Process>) {
        self.running.retain(|entry| !Arc::ptr_eq(&entry.process, process));
    }
}

// === impl Entry ===

impl Entry {
    fn fits(&self, launch: &Arc<Launch>, profile: &Profile) -> bool {
        self.process.profile() == profile && Arc::ptr_eq(&self.launch, launch)
    }
}

// === impl Place ===

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.0).starting -= 1;
    }
}
