use std::fmt;

use proptest::prelude::Rng as _;
use proptest::test_runner::{RngAlgorithm, TestRng};

use super::ledger::Ledger;
use super::process::{Process, ProcessState, Request, SentMessage};
use super::{Checked, Rules, SentAppend, Shared, THREADS};

/// How many steps a schedule tries before its faults end, how many processes it begins with, and how many it has at most.
const STEPS: usize = 80;
const NODES: usize = 3;
const MAX_PROCESSES: usize = 7;
/// The longest outage of the database, in units of time: ten times the silence after which a node is dead.
const MOST_OUTAGE: usize = 100;
/// The largest step of the database's clock, ahead or back, in units of time.
const MOST_CLOCK_STEP: usize = 1_000;

#[derive(Clone, Debug)]
#[expect(dead_code, reason = "a failure prints the steps")]
pub(super) enum ScheduleStep {
    Pass(u64),
    /// No node reaches the database for this long.
    Outage(u64),
    SetClock(i64),
    Sign(usize),
    Pause(usize),
    Continue(usize),
    Crash(usize),
    Leave(usize),
    Open {
        name: usize,
    },
    Drain {
        process: usize,
        draining: bool,
    },
    HandOver {
        process: usize,
        thread: usize,
        to: Option<usize>,
    },
    HandOverIdle(usize),
    Ask {
        command: u32,
        thread: usize,
        at: usize,
    },
    Take(Request),
    Look {
        process: usize,
        thread: usize,
    },
    Forget {
        process: usize,
        thread: usize,
    },
    Send {
        process: usize,
        thread: usize,
    },
    Arrive(SentAppend),
    /// The connection breaks, and the process sends the append again.
    Break {
        stamp: i64,
        is_still_on_its_way: bool,
    },
    Answer(i64),
    GiveUp {
        stamp: i64,
        is_still_on_its_way: bool,
    },
    Stray(SentAppend),
    FaultsEnd,
    Alone(usize),
}

pub(crate) struct Schedule<S> {
    pub(super) shared: S,
    pub(super) rules: Rules,
    pub(super) ledger: Ledger,
    pub(super) processes: Vec<Process>,
    /// Requests on their way to a node.
    pub(super) requests: Vec<Request>,
    pub(super) messages: Vec<SentMessage>,
    /// Appends whose senders no longer wait, and which may still arrive.
    pub(super) strays: Vec<SentAppend>,
    /// Commands that a client may send again.
    pub(super) refused: Vec<(u32, usize)>,
    pub(super) stamps: i64,
    pub(super) commands: u32,
    names: usize,
    random: TestRng,
    pub(super) steps: Vec<ScheduleStep>,
}

/// A schedule that failed a check.
pub(crate) struct Failure {
    pub(crate) seed: u64,
    pub(crate) what: String,
    steps: Vec<ScheduleStep>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {}", self.seed, self.what)?;
        self.steps.iter().enumerate().try_for_each(|(at, step)| writeln!(f, "{at:4} {step:?}"))
    }
}

/// Runs the schedule of a seed. `stamps` is the number of stamps that others have used.
pub(crate) async fn check<S: Shared>(
    seed: u64,
    rules: Rules,
    shared: S,
    stamps: i64,
) -> Result<S, Box<Failure>> {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    // The generator needs a seed that is not all zeros.
    bytes[15] = 1;
    let mut schedule = Schedule {
        shared,
        rules,
        ledger: Ledger::default(),
        processes: Vec::new(),
        requests: Vec::new(),
        messages: Vec::new(),
        strays: Vec::new(),
        refused: Vec::new(),
        stamps,
        commands: 0,
        names: 0,
        random: TestRng::from_seed(RngAlgorithm::XorShift, &bytes),
        steps: Vec::new(),
    };
    match schedule.run().await {
        Ok(()) => Ok(schedule.shared),
        Err(what) => Err(Box::new(Failure { seed, what, steps: schedule.steps })),
    }
}

// === impl Schedule ===

impl<S: Shared> Schedule<S> {
    async fn run(&mut self) -> Checked {
        for _ in 0..NODES {
            self.open_new().await;
        }
        self.shared.create(0).await;
        self.ledger.record_creation(0);
        for _ in 0..STEPS {
            self.step().await?;
        }
        self.calm().await
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.random.next_u32() as usize % bound.max(1)
    }

    fn is_heads(&mut self) -> bool {
        self.below(2) == 0
    }

    /// Does a random step, if it is possible.
    async fn step(&mut self) -> Checked {
        let kind = self.below(100);
        let process = self.below(self.processes.len());
        let thread = self.below(THREADS);
        let state = self.processes[process].state;
        match (kind, state) {
            (0..10, _) => {
                let time = 1 + self.below(4) as u64;
                self.pass(time).await;
            }
            (10..22, ProcessState::Running) => self.sign(process).await,
            (22..26, ProcessState::Running) => {
                self.steps.push(ScheduleStep::Pause(process));
                self.processes[process].state = ProcessState::Paused;
            }
            (22..26 | 28..32, ProcessState::Paused) => self.resume(process),
            (26..28, ProcessState::Running | ProcessState::Paused) => self.crash(process).await?,
            (28..30, ProcessState::Running) => self.leave(process).await?,
            (30..34, _) => self.open(process).await,
            (34..36, ProcessState::Running) => self.drain(process).await,
            (36..40, ProcessState::Running) => self.hand_over(process, thread).await,
            (40..52, ProcessState::Running | ProcessState::Paused) => self.ask(thread, process),
            (52..54, ProcessState::Running) if self.processes[process].owners[thread].is_none() => {
                self.steps.push(ScheduleStep::Look { process, thread });
                self.acquire(process, thread).await?;
            }
            (54..55, ProcessState::Running) => {
                self.steps.push(ScheduleStep::Forget { process, thread });
                let owner = &mut self.processes[process].owners[thread];
                *owner = owner.take().filter(|owner| !owner.is_idle());
            }
            (55..68, ProcessState::Running) => {
                self.steps.push(ScheduleStep::Send { process, thread });
                self.send(process, thread);
            }
            (68, _) => self.outage().await,
            (69, _) => self.set_clock().await,
            (70..80, _) => self.take_some().await?,
            (80..100, _) => self.network(kind).await?,
            _ => {}
        }
        Ok(())
    }

    async fn take_some(&mut self) -> Checked {
        let index = self.below(self.requests.len());
        let Some(request) = self.requests.get(index) else { return Ok(()) };
        if self.processes[request.at].state == ProcessState::Paused {
            // The client may stop waiting; the request stays where it is.
            let is_awaited = self.is_heads();
            self.requests[index].is_awaited &= is_awaited;
            return Ok(());
        }
        let request = self.requests.swap_remove(index);
        self.steps.push(ScheduleStep::Take(request.clone()));
        self.take(request).await
    }

    /// Applies a fault of the network to an append that is under way.
    async fn network(&mut self, kind: usize) -> Checked {
        if kind >= 97 {
            let index = self.below(self.strays.len());
            return if index < self.strays.len() { self.stray(index).await } else { Ok(()) };
        }
        let index = self.below(self.messages.len());
        let Some(message) = self.messages.get(index) else { return Ok(()) };
        let (stamp, has_arrived) = (message.append.stamp, message.answer.is_some());
        let state = self.processes[message.append.process].state;
        match kind {
            80..88 if !has_arrived => {
                self.steps.push(ScheduleStep::Arrive(message.append.clone()));
                self.arrive(index).await
            }
            80..92 if has_arrived && state == ProcessState::Running => {
                self.steps.push(ScheduleStep::Answer(stamp));
                let message = self.messages.swap_remove(index);
                self.answer(message).await
            }
            92..95 => {
                let is_still_on_its_way = !has_arrived && self.is_heads();
                self.steps.push(ScheduleStep::Break { stamp, is_still_on_its_way });
                let message = &mut self.messages[index];
                (message.is_again, message.answer) = (true, None);
                if is_still_on_its_way {
                    self.strays.push(message.append.clone());
                }
                Ok(())
            }
            95..97 if state == ProcessState::Running => {
                let is_still_on_its_way = !has_arrived && self.is_heads();
                self.steps.push(ScheduleStep::GiveUp { stamp, is_still_on_its_way });
                let mut message = self.messages.swap_remove(index);
                message.answer = None;
                if is_still_on_its_way {
                    self.strays.push(message.append.clone());
                }
                self.answer(message).await
            }
            _ => Ok(()),
        }
    }

    pub(super) async fn stray(&mut self, index: usize) -> Checked {
        let append = self.strays.swap_remove(index);
        self.steps.push(ScheduleStep::Stray(append.clone()));
        let appended = self.shared.append(&append, false).await;
        self.ledger.check_appended(&append, appended)
    }

    pub(super) async fn pass(&mut self, time: u64) {
        self.steps.push(ScheduleStep::Pass(time));
        self.shared.pass(time).await;
        self.ledger.advance(time);
    }

    /// Begins an outage: appends under way wait, or their connections break. Later the nodes reach the database again in any order.
    async fn outage(&mut self) {
        let time = 1 + self.below(MOST_OUTAGE) as u64;
        self.steps.push(ScheduleStep::Outage(time));
        self.shared.pass(time).await;
        self.ledger.unreachable(time);
    }

    async fn set_clock(&mut self) {
        let by = self.below(2 * MOST_CLOCK_STEP) as i64 - MOST_CLOCK_STEP as i64;
        self.steps.push(ScheduleStep::SetClock(by));
        self.shared.set_clock(by).await;
        self.ledger.clock_set(by);
    }

    pub(super) async fn sign(&mut self, process: usize) {
        self.steps.push(ScheduleStep::Sign(process));
        self.shared.sign(process).await;
        self.ledger.record_sign(process);
    }

    pub(super) fn resume(&mut self, process: usize) {
        self.steps.push(ScheduleStep::Continue(process));
        self.processes[process].state = ProcessState::Running;
    }

    /// Crashes a process: its memory is lost, but appends that it has sent may arrive.
    pub(super) async fn crash(&mut self, process: usize) -> Checked {
        self.steps.push(ScheduleStep::Crash(process));
        self.processes[process].state = ProcessState::Ended;
        self.shared.end(process, false).await;
        self.lose(process)
    }

    /// Ends a process cleanly: it first finishes what it has begun.
    async fn leave(&mut self, process: usize) -> Checked {
        if self.messages.iter().any(|message| message.append.process == process) {
            return Ok(());
        }
        self.steps.push(ScheduleStep::Leave(process));
        self.processes[process].state = ProcessState::Ended;
        self.shared.end(process, true).await;
        self.ledger.record_leave(process);
        self.lose(process)
    }

    fn lose(&mut self, process: usize) -> Checked {
        let owners = std::mem::take(&mut self.processes[process].owners);
        let mut lost: Vec<Request> =
            owners.into_iter().flatten().flat_map(|owner| owner.requests).collect();
        let (ended, kept) = std::mem::take(&mut self.messages)
            .into_iter()
            .partition(|message| message.append.process == process);
        self.messages = kept;
        for SentMessage { append, requests, answer, .. } in ended {
            lost.extend(requests);
            if answer.is_none() && self.is_heads() {
                self.strays.push(append);
            }
        }
        // Clients that this process forwarded for see the connection break.
        let mut under_way: Vec<&mut Request> = self.requests.iter_mut().collect();
        under_way.extend(self.messages.iter_mut().flat_map(|message| &mut message.requests));
        let owners = self.processes.iter_mut().flat_map(|process| process.owners.iter_mut());
        under_way.extend(owners.flatten().flat_map(|owner| &mut owner.requests));
        for request in under_way.into_iter().filter(|request| request.via == Some(process)) {
            request.is_awaited = false;
        }
        lost.into_iter().try_for_each(|request| self.next_try(request, true))
    }

    pub(super) async fn open_new(&mut self) {
        let name = self.names;
        self.names += 1;
        self.open_as(name).await;
    }

    /// Opens a process under a new name, or under that of another process that has ended or is paused.
    async fn open(&mut self, other: usize) {
        if self.processes.len() >= MAX_PROCESSES {
            return;
        }
        match self.processes[other].state {
            ProcessState::Running => self.open_new().await,
            _ => self.open_as(self.processes[other].name).await,
        }
    }

    async fn open_as(&mut self, name: usize) {
        self.steps.push(ScheduleStep::Open { name });
        if self.shared.open(name).await {
            self.ledger.record_open(name);
            let (state, owners) = (ProcessState::Running, Default::default());
            self.processes.push(Process { name, state, is_draining: false, owners });
        }
    }

    async fn drain(&mut self, process: usize) {
        let draining = !self.processes[process].is_draining;
        self.steps.push(ScheduleStep::Drain { process, draining });
        self.processes[process].is_draining = draining;
        self.shared.set_draining(process, draining).await;
        self.ledger.record_sign(process);
    }

    /// Hands over an idle thread: to another process, or to the next one that requests it. A draining process may give up all threads that it does not have in memory.
    async fn hand_over(&mut self, process: usize, thread: usize) {
        let is_idle = |owner: &super::process::Owner| owner.is_idle();
        let owners = &self.processes[process].owners;
        let held = owners[thread].as_ref().filter(|owner| is_idle(owner)).map(|owner| owner.epoch);
        if let Some(epoch) = held {
            let other = self.below(self.processes.len());
            let to = Some(self.processes[other].name).filter(|_| other != process);
            self.steps.push(ScheduleStep::HandOver { process, thread, to });
            if self.shared.hand_over(process, thread, epoch, to).await {
                self.ledger.record_hand_over(process, thread, to);
                self.processes[process].owners[thread] = None;
            }
        } else if self.processes[process].is_draining {
            let but: Vec<usize> = (0..THREADS).filter(|thread| owners[*thread].is_some()).collect();
            self.steps.push(ScheduleStep::HandOverIdle(process));
            self.shared.hand_over_all_but(process, &but).await;
            for thread in (0..THREADS).filter(|thread| !but.contains(thread)) {
                self.ledger.record_hand_over(process, thread, None);
            }
        }
    }

    /// A client sends a new command, or one that was refused.
    fn ask(&mut self, thread: usize, at: usize) {
        let (command, thread) = match self.refused.pop() {
            Some(again) => again,
            None => {
                self.commands += 1;
                (self.commands, thread)
            }
        };
        self.request(command, thread, at);
    }

    pub(super) fn request(&mut self, command: u32, thread: usize, at: usize) {
        self.steps.push(ScheduleStep::Ask { command, thread, at });
        self.requests.push(Request { command, thread, at, via: None, tries: 0, is_awaited: true });
    }
}
