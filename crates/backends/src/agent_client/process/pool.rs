//! The processes of an agent: how many run, which threads use them, and when they are stopped.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use trilogue_domain::error::{Code, Error};
use trilogue_domain::{ThreadKey, lock};
use trilogue_runtime::ProcessFailure;
use trilogue_runtime::shares::default_share;
use uuid::Uuid;

use super::greeting::GreetingCache;
use super::lease::ProcessLease;
use super::principal::PrincipalKey;
use super::process::{AdoptedProcess, PoolContext, Process};
use super::profile::Profile;
use crate::agent_client::failure::AgentFailure;
use crate::agent_client::launch::Launch;
use crate::child::{AdoptedChild, Breaker, Children, count_failure};
use crate::workspace::lease::WorkspaceLease;

/// How long after a start or an opening a process may still become idle, because its first turn has not begun yet.
const SETTLE_TIME: Duration = Duration::from_secs(2);

/// How often an idle agent is looked at again: for its child processes, or for its use.
const CHILDREN_INTERVAL: Duration = Duration::from_secs(30);

/// The number of principals above which the failures of those are forgotten who have neither a process nor a pause.
const MAX_BREAKERS: usize = 1_000;

/// When a process counts as idle.
#[derive(Clone, Copy, Debug)]
struct IdleRule {
    stop: Option<Duration>,
    /// Whether running child processes count as work.
    counts_children: bool,
    /// How long child processes and tool calls without an end count as work.
    limit: Duration,
}

type OnExit = dyn Fn(&Arc<Process>) + Send + Sync;

pub(crate) struct Pool {
    agent: Arc<str>,
    children: Arc<Children>,
    greetings: Arc<GreetingCache>,
    breakers: Breakers,
    state: Arc<State>,
    on_exit: Arc<OnExit>,
    has_started: AtomicBool,
    /// Held while a process without a thread is started, so that only one is started at a time.
    starting: tokio::sync::Mutex<()>,
}

/// A breaker for each principal: what one principal makes the agent do keeps no other principal from it, and is in no error of another one.
#[derive(Default)]
struct Breakers(Mutex<HashMap<PrincipalKey, Arc<Breaker>>>);

#[derive(Clone, Debug)]
pub(crate) struct ProcessSpec {
    pub(crate) launch: Arc<Launch>,
    pub(crate) principal: PrincipalKey,
    pub(crate) profile: Profile,
    pub(crate) cwd: PathBuf,
    /// The folders in which its sessions work, if it has a sandbox: it can use no others.
    pub(crate) folders: Vec<PathBuf>,
}

#[derive(Debug, Default)]
struct State {
    processes: Mutex<ProcessTable>,
    /// Notified when there may be space for a process: after a start, an opening, a lease or a process has ended.
    changed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct ProcessTable {
    running: Vec<PoolEntry>,
    /// Whose processes are being started.
    starting: Vec<PrincipalKey>,
    opening: usize,
    /// When the last start or opening ended.
    settled_at: Option<Instant>,
}

#[derive(Clone, Debug)]
struct PoolEntry {
    process: Arc<Process>,
    /// The thread that owns it. `None` for a shared process, or for one that was only started to answer `initialize`.
    thread: Option<ThreadKey>,
    launch: Arc<Launch>,
    cwd: PathBuf,
    folders: Vec<PathBuf>,
}

struct StartGuard {
    state: Arc<State>,
    principal: PrincipalKey,
}

/// Counts a session as being opened until this is dropped.
#[derive(Debug)]
pub(crate) struct OpeningGuard(Arc<State>);

/// The running process that a thread can use, if there is one.
enum ThreadProcess {
    Process(ProcessLease),
    /// No process. The given one must stop before another is started: the thread owned it, but it does not fit any more.
    StopFirst(Arc<Process>),
    /// No process. The given one belongs to no thread and must be stopped too.
    StopBeside(Arc<Process>),
    Nothing,
}

/// Whether one more process may be started.
enum Vacancy {
    /// Yes, and the space is reserved.
    Taken,
    /// After the given process has stopped.
    AfterStop(Arc<Process>),
    /// No. Another may become idle before this time.
    Wait(Option<Instant>),
    /// No: all are in use.
    Full,
}

// === impl Pool ===

impl Pool {
    pub(crate) fn new(
        agent: Arc<str>,
        children: Arc<Children>,
        greetings: Arc<GreetingCache>,
        on_exit: impl Fn(&Arc<Process>) + Send + Sync + 'static,
    ) -> Self {
        let (breakers, state, on_exit) = (Breakers::default(), Arc::default(), Arc::new(on_exit));
        let (starting, has_started) = (tokio::sync::Mutex::default(), AtomicBool::new(false));
        Self { agent, children, greetings, breakers, state, on_exit, has_started, starting }
    }

    /// A process that the thread owns: its current one, an unowned one, or a new one.
    pub(crate) async fn of_thread(
        &self,
        spec: ProcessSpec,
        thread: ThreadKey,
    ) -> Result<ProcessLease, AgentFailure> {
        match self.claim(&spec, thread) {
            ThreadProcess::Process(lease) => return Ok(lease),
            ThreadProcess::StopFirst(process) => process.stop().await,
            ThreadProcess::StopBeside(process) => {
                // In a task: the new process does not depend on the end of this one.
                drop(tokio::spawn(async move { process.stop().await }))
            }
            ThreadProcess::Nothing => {}
        }
        self.start(spec, Some(thread)).await
    }

    /// A process that belongs to no thread.
    pub(crate) async fn lease_unowned(
        &self,
        spec: ProcessSpec,
    ) -> Result<ProcessLease, AgentFailure> {
        let find = || self.matching(&spec).iter().find_map(Process::lease);
        // A caller that finds one must not wait for another that is starting.
        if let Some(lease) = find() {
            return Ok(lease);
        }
        // One start at a time: a caller that waited here finds the process that the other one started.
        let _starting = self.starting.lock().await;
        match find() {
            Some(lease) => Ok(lease),
            None => self.start(spec, None).await,
        }
    }

    /// The running processes without a thread that this specification started, in any directory that a sandbox allows.
    pub(crate) fn matching(&self, spec: &ProcessSpec) -> Vec<Arc<Process>> {
        self.alive(|entry| {
            entry.thread.is_none() && entry.fits(spec) && entry.folders == spec.folders
        })
    }

    pub(crate) fn has_room(&self, launch: &Launch) -> bool {
        lock(&self.state.processes).has_room(launch.max_processes)
    }

    /// Whether a process has ever started and answered.
    pub(crate) fn has_started(&self) -> bool {
        self.has_started.load(Ordering::Acquire)
    }

    pub(crate) fn agent(&self) -> &str {
        &self.agent
    }

    /// The name of this server among the nodes that share its store.
    pub(crate) fn node(&self) -> Option<&str> {
        self.children.node()
    }

    /// Releases a lease when the server stops and no child is left.
    pub(crate) fn release_at_close(&self, lease: &WorkspaceLease) {
        self.children.release_at_close(lease.as_child_lease());
    }

    pub(crate) fn starting(&self) -> &tokio::sync::Mutex<()> {
        &self.starting
    }

    /// The processes of a principal that belong to no thread.
    pub(crate) fn unowned_of(&self, principal: &PrincipalKey) -> Vec<Arc<Process>> {
        self.alive(|entry| entry.thread.is_none() && entry.process.principal() == principal)
    }

    pub(crate) fn all_of(&self, principal: &PrincipalKey) -> Vec<Arc<Process>> {
        self.alive(|entry| entry.process.principal() == principal)
    }

    pub(crate) fn all_of_thread(&self, thread: ThreadKey) -> Vec<Arc<Process>> {
        self.alive(|entry| entry.thread == Some(thread))
    }

    fn alive(&self, is_wanted: impl Fn(&PoolEntry) -> bool) -> Vec<Arc<Process>> {
        let processes = lock(&self.state.processes);
        let all = processes.running.iter();
        let found = all.filter(|entry| is_wanted(entry) && entry.process.is_alive());
        found.map(|entry| Arc::clone(&entry.process)).collect()
    }

    /// Whether the agent has never started, and is not started for a while for any principal that has tried. Failures after a start may be due to what a principal asked for.
    pub(crate) fn is_paused(&self) -> bool {
        let breakers = lock(&self.breakers.0);
        !self.has_started()
            && !breakers.is_empty()
            && breakers.values().all(|breaker| breaker.pause().is_some())
    }

    /// Returns the last failure, unless a turn of any principal has completed since.
    pub(crate) fn last_failure(&self) -> Option<ProcessFailure> {
        let breakers = lock(&self.breakers.0);
        let failures = breakers.values().filter_map(|breaker| breaker.last_failure());
        let last_reset = breakers.values().filter_map(|breaker| breaker.last_reset()).max();
        let last = failures.max_by_key(|failure| failure.at);
        last.filter(|failure| last_reset.is_none_or(|reset| reset < failure.at))
    }

    pub(crate) fn reset(&self) {
        lock(&self.breakers.0).values().for_each(|breaker| breaker.reset());
    }

    /// Counts a session as being opened in a process of this pool.
    pub(crate) fn opening(&self) -> OpeningGuard {
        lock(&self.state.processes).opening += 1;
        OpeningGuard(Arc::clone(&self.state))
    }

    /// The process of a thread, or an unowned one, which the thread then owns.
    fn claim(&self, spec: &ProcessSpec, thread: ThreadKey) -> ThreadProcess {
        let mut processes = lock(&self.state.processes);
        let mut all = processes.running.iter();
        if let Some(own) = all.find(|it| it.thread == Some(thread) && it.process.is_alive()) {
            if !own.fits_in(spec) && own.process.leases().retire_if_idle() {
                return ThreadProcess::StopFirst(Arc::clone(&own.process));
            }
            // A process in use is returned unchanged.
            return own.process.lease().map_or(ThreadProcess::Nothing, ThreadProcess::Process);
        }
        let is_spare = |entry: &&mut PoolEntry| {
            entry.thread.is_none() && entry.fits(spec) && entry.process.is_alive()
        };
        for spare in processes.running.iter_mut().filter(|entry| is_spare(entry)) {
            if spare.cwd == spec.cwd
                && spare.folders == spec.folders
                && let Some(lease) = spare.process.lease()
            {
                spare.thread = Some(thread);
                // Its earlier output is not about this thread.
                lease.process().host().clear_output();
                return ThreadProcess::Process(lease);
            }
            // It was started only to answer `initialize`, and the response is remembered.
            if spare.process.leases().retire_if_idle() {
                return ThreadProcess::StopBeside(Arc::clone(&spare.process));
            }
        }
        ThreadProcess::Nothing
    }

    pub(crate) async fn start(
        &self,
        spec: ProcessSpec,
        thread: Option<ThreadKey>,
    ) -> Result<ProcessLease, AgentFailure> {
        self.start_or_adopt(spec, thread, None).await
    }

    /// The process of a thread that a previous server has started. Its output begins at this position.
    pub(crate) async fn adopt(
        &self,
        spec: ProcessSpec,
        thread: ThreadKey,
        adopted: (AdoptedProcess, u64),
    ) -> Result<ProcessLease, AgentFailure> {
        self.start_or_adopt(spec, Some(thread), Some(adopted)).await
    }

    /// The child of a previous server with this id, whose output begins at this position. `None` if it is gone.
    pub(crate) fn take_child(&self, instance: Uuid, position: u64) -> Option<AdoptedChild> {
        self.children.adopt(instance, &self.agent, position)
    }

    /// Ends the processes of previous servers with this session, with which no run continues: another process opens it now.
    pub(crate) async fn end_held(&self, session: &str) {
        self.children.end_held(|kept| kept["session"] == session).await;
    }

    async fn start_or_adopt(
        &self,
        spec: ProcessSpec,
        thread: Option<ThreadKey>,
        adopted: Option<(AdoptedProcess, u64)>,
    ) -> Result<ProcessLease, AgentFailure> {
        let breaker = self.breakers.of(&spec.principal);
        breaker.check(format_args!("the agent '{}'", self.agent))?;
        let guard = self.reserve_space(&spec.launch, &spec.principal).await?;
        // A connection takes no place among the processes of this machine.
        if spec.launch.remote.is_none() {
            self.children.make_room().await?;
        }
        let (launch, cwd) = (Arc::clone(&spec.launch), spec.cwd.clone());
        let folders = spec.folders.clone();
        let shared = PoolContext {
            agent: &self.agent,
            children: &self.children,
            breaker: &breaker,
            changed: &self.state.changed,
        };
        let process = match adopted {
            Some(adopted) => Process::adopt(shared, spec, adopted),
            None => Process::start(shared, spec).await,
        };
        let process = process.inspect_err(|failure| {
            count_failure(&self.agent);
            breaker.record_failure(&failure.text());
        })?;
        self.has_started.store(true, Ordering::Release);
        self.greetings.insert(&launch, process.profile(), process.greeting().clone());
        let lease = process.lease();
        if process.host().child().is_some() {
            let weak = Arc::downgrade(&process);
            self.children.may_stop(weak);
        }
        let idle = IdleRule {
            stop: launch.idle_stop,
            counts_children: launch.children_count,
            limit: launch.children_limit,
        };
        let entry = PoolEntry { process: Arc::clone(&process), thread, launch, cwd, folders };
        lock(&self.state.processes).running.push(entry);
        // Only now: until the process was in the list, the guard counted it.
        drop(guard);
        self.watch(process, breaker, idle);
        let broken =
            || AgentFailure::local(Code::Internal, "a process was stopped while it started");
        lease.ok_or_else(broken)
    }

    /// Stops a process once it has been idle for `idle_stop`, and forgets it once it has exited.
    fn watch(&self, process: Arc<Process>, breaker: Arc<Breaker>, rule: IdleRule) {
        let (state, agent) = (Arc::clone(&self.state), Arc::clone(&self.agent));
        let on_exit = Arc::clone(&self.on_exit);
        tokio::spawn(async move {
            tokio::select! {
                () = process.watch() => {}
                () = idle(&process, rule) => {
                    process.stop_idle("idle").await;
                    process.watch().await;
                }
            }
            if !process.is_stopping() && !process.has_completed_turn() {
                count_failure(&agent);
                breaker.record_failure(&process.exit_text().await);
            }
            state.remove(&process);
            on_exit(&process);
        });
    }

    /// Waits for space for one more process. If all space is taken, stops the process that has been idle longest. Processes
    /// that are being started or opened do not count as in use: this waits for them.
    async fn reserve_space(
        &self,
        launch: &Launch,
        principal: &PrincipalKey,
    ) -> Result<StartGuard, Error> {
        let most = launch.max_processes;
        let give_up_at = Instant::now() + launch.start_timeout + launch.open_timeout;
        loop {
            let mut changed = std::pin::pin!(self.state.changed.notified());
            // Subscribe before the first check, so that no change is missed.
            changed.as_mut().enable();
            let room = lock(&self.state.processes).take_room(most, principal);
            match room {
                Vacancy::Taken => {
                    let (state, principal) = (Arc::clone(&self.state), principal.clone());
                    return Ok(StartGuard { state, principal });
                }
                Vacancy::AfterStop(process) => {
                    process.stop_idle("another thread needs its place").await;
                    self.state.remove(&process);
                }
                Vacancy::Wait(until) if Instant::now() < give_up_at => {
                    // The next check shows whether a change or the timeout ended the wait.
                    drop(timeout_at(until.unwrap_or(give_up_at).min(give_up_at), changed).await);
                }
                Vacancy::Wait(_) | Vacancy::Full => {
                    let has_share = lock(&self.state.processes).has_share(most, principal);
                    return Err(self.full_error(most, has_share));
                }
            }
        }
    }
}

impl Pool {
    /// The error if all processes are in use, or those of one principal.
    fn full_error(&self, most: usize, has_share: bool) -> Error {
        let agent = &self.agent;
        if has_share {
            let message = format!("all {most} processes of the agent '{agent}' are in use");
            return Error::new(Code::Overloaded, message)
                .hint("wait until one is idle, or raise `max_processes`");
        }
        let share = default_share(most);
        let message = format!(
            "{share} of the {most} processes of the agent '{agent}' are in use by you, which is the most for one principal"
        );
        Error::new(Code::Overloaded, message)
            .hint("wait until one of yours is idle, or raise `max_processes`")
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("agent", &self.agent).finish_non_exhaustive()
    }
}

/// Returns once a process has been idle for this long. The process then gives no more leases. An agent that cannot reopen its sessions gets the
/// conversation as text in its next process.
async fn idle(process: &Process, rule: IdleRule) {
    let Some(time) = rule.stop else { return std::future::pending().await };
    loop {
        let last = process.leases().last_ended();
        let (until, now) = (last + time, Instant::now());
        if until <= now {
            let may_work = now < last + rule.limit.max(time);
            let works = may_work
                && (process.has_open_calls()
                    || rule.counts_children && process.host().has_descendants().await);
            if !works && process.leases().retire_if_idle() {
                return;
            }
        }
        let wait = if until <= now { time.min(CHILDREN_INTERVAL) } else { until - now };
        tokio::time::sleep(wait).await;
    }
}

// === impl Breakers ===

impl Breakers {
    fn of(&self, principal: &PrincipalKey) -> Arc<Breaker> {
        let mut breakers = lock(&self.0);
        if breakers.len() >= MAX_BREAKERS {
            breakers.retain(|_, it| Arc::strong_count(it) > 1 || it.pause().is_some());
        }
        Arc::clone(breakers.entry(principal.clone()).or_default())
    }
}

// === impl State ===

impl State {
    fn remove(&self, process: &Arc<Process>) {
        lock(&self.processes).running.retain(|entry| !Arc::ptr_eq(&entry.process, process));
        self.changed.notify_waiters();
    }

    /// Ends a start or an opening.
    fn settle(&self, end: impl FnOnce(&mut ProcessTable)) {
        {
            let mut processes = lock(&self.processes);
            end(&mut processes);
            processes.settled_at = Some(Instant::now());
        }
        self.changed.notify_waiters();
    }
}

// === impl ProcessTable ===

impl ProcessTable {
    fn take_room(&mut self, most: usize, principal: &PrincipalKey) -> Vacancy {
        let has_share = self.has_share(most, principal);
        if has_share && self.has_room(most) {
            self.starting.push(principal.clone());
            return Vacancy::Taken;
        }
        // Only its own processes help a principal that has its share.
        let helps = |entry: &&PoolEntry| has_share || entry.process.principal() == principal;
        let mut stopping = self.running.iter().filter(helps);
        if let Some(entry) = stopping.find(|entry| entry.process.is_stopping()) {
            return Vacancy::AfterStop(Arc::clone(&entry.process));
        }
        if let Some(process) = self.retire_longest_idle(helps) {
            return Vacancy::AfterStop(process);
        }
        if self.starting.len() + self.opening > 0 {
            return Vacancy::Wait(None);
        }
        match self.settled_at.map(|at| at + SETTLE_TIME) {
            Some(until) if Instant::now() < until => Vacancy::Wait(Some(until)),
            _ => Vacancy::Full,
        }
    }

    fn has_room(&self, most: usize) -> bool {
        self.running.len() + self.starting.len() < most
    }

    /// Whether this principal can have one more process.
    fn has_share(&self, most: usize, principal: &PrincipalKey) -> bool {
        let running = self.running.iter().map(|entry| entry.process.principal());
        let own = running.chain(&self.starting).filter(|it| *it == principal).count();
        own < default_share(most)
    }

    /// The process that has been idle longest, which then gives no more leases. Processes whose sessions can be reopened come first.
    fn retire_longest_idle(
        &self,
        is_wanted: impl FnMut(&&PoolEntry) -> bool,
    ) -> Option<Arc<Process>> {
        let processes = self.running.iter().filter(is_wanted).map(|entry| &entry.process);
        let mut idle: Vec<_> = processes
            .filter_map(|process| Some((process.leases().idle_since()?, process)))
            .collect();
        idle.sort_by_key(|(since, process)| {
            (process.has_open_calls(), !process.can_reopen(), *since)
        });
        let retired = idle.into_iter().find(|(_, process)| process.leases().retire_if_idle());
        retired.map(|(_, process)| Arc::clone(process))
    }
}

// === impl PoolEntry ===

impl PoolEntry {
    /// Whether this specification started it, in any directory.
    fn fits(&self, spec: &ProcessSpec) -> bool {
        *self.process.profile() == spec.profile
            && *self.process.principal() == spec.principal
            && Arc::ptr_eq(&self.launch, &spec.launch)
    }

    /// Whether it can continue for this specification, in its directory. A thread keeps its process for every principal that uses the thread.
    fn fits_in(&self, spec: &ProcessSpec) -> bool {
        self.process.profile().serves(&spec.profile)
            && Arc::ptr_eq(&self.launch, &spec.launch)
            && self.cwd == spec.cwd
            && self.folders == spec.folders
    }
}

// === impl StartGuard ===

impl Drop for StartGuard {
    fn drop(&mut self) {
        self.state.settle(|processes| {
            let mut starting = processes.starting.iter();
            if let Some(place) = starting.position(|it| *it == self.principal) {
                processes.starting.swap_remove(place);
            }
        });
    }
}

// === impl OpeningGuard ===

impl Drop for OpeningGuard {
    fn drop(&mut self) {
        self.0.settle(|processes| processes.opening -= 1);
    }
}
