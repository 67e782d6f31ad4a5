//! The stages: the outer one is the process that the server knows. It starts the inner one, which restricts itself and becomes the program.
//!
//! The outer stage stays outside of the sandbox as the parent of every process that loses its own, so that none gets lost. With namespaces, the inner stage stays too, as the first process of the
//! namespace of processes, which ends everything in it when it exits.
//!
//! The outer stage leaves the pipes of the server to the program, or [holds](holder) the program with pipes of its own, if the policy asks for it.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus};

use nix::sys::signal::{SigSet, Signal as NixSignal};
use rustix::io::Errno;
use rustix::process::{
    Signal, WaitOptions, getpid, kill_process, set_child_subreaper,
    set_parent_process_death_signal, setsid, wait,
};

use crate::broker::{PassedListener, ServerLink};
use crate::child_tree::{Descendants, number};
use crate::control_group::ProgramGroup;
use crate::lease::{OpenLease, run_under};
use crate::policy::{COMMAND, HELD, JOIN, program_variable};
use crate::{
    NOT_STARTED, Network, SELF, STAGE_COMMAND, SandboxPolicy, calls, files, holder, namespaces,
    resources,
};

/// The argument of the inner stage.
const INNER: &str = "--inner";
/// The argument of the stage that only looks whether namespaces work here.
pub(crate) const PROBE: &str = "--probe";
/// The exit status of a stage whose program a signal has ended, less the number of the signal.
const SIGNAL_BASE: u8 = 128;

/// Which program of a policy an outer stage starts.
#[derive(Clone, Copy)]
enum ProgramKind<'a> {
    /// The one that the policy is for, with the pipes of the server.
    Main,
    /// The same, with pipes of the stage.
    Held,
    /// A further one. It joins a network, by the files of it and of its namespace of users.
    Command(Option<(&'a Path, &'a Path)>),
}

/// What one look at the processes has reaped.
pub(crate) enum Reaped {
    Child(ExitStatus),
    /// A process that has lost its parent.
    Orphan,
    Nothing,
}

/// Runs the stage with the arguments after its command. Returns only if the program was not started, or has exited.
pub(crate) fn run(arguments: &[OsString]) -> io::Result<ExitCode> {
    let is = |argument: &OsString, name: &str| argument == name;
    match arguments {
        [inner, probe] if is(inner, INNER) && is(probe, PROBE) => namespaces::probe(),
        [probe] if is(probe, PROBE) => {
            namespaces::enter(crate::Network::None)?;
            Ok(exit_as(inner(arguments).status()?))
        }
        [inner, policy, command @ ..] if is(inner, INNER) => start(&read(policy)?, command),
        [held, program @ ..] if is(held, HELD) => hold(program, ProgramKind::Held),
        [command, join, network, users, program @ ..] if is(command, COMMAND) && is(join, JOIN) => {
            hold(program, ProgramKind::Command(Some((network.as_ref(), users.as_ref()))))
        }
        [command, program @ ..] if is(command, COMMAND) => {
            hold(program, ProgramKind::Command(None))
        }
        program => hold(program, ProgramKind::Main),
    }
}

/// Starts the inner stage of a program with its policy before it, and waits until it and all processes of the program are gone.
fn hold(program: &[OsString], kind: ProgramKind<'_>) -> io::Result<ExitCode> {
    let [policy, ..] = program else { return Err(io::Error::other("the policy is missing")) };
    let policy = &read(policy)?;
    let missing = || io::Error::other("invalid policy: it does not say how to hold the program");
    let settings = match kind {
        ProgramKind::Held => Some(policy.hold.as_ref().ok_or_else(missing)?),
        ProgramKind::Main | ProgramKind::Command(_) => None,
    };
    // First: everything that this process starts is in the group too.
    if let Some(folder) = &policy.group {
        ProgramGroup::at(folder.clone()).enter()?;
    }
    // Signals for the whole group reach the program itself, which starts without this mask.
    signals_of_stop().thread_block()?;
    set_child_subreaper(Some(getpid()))?;
    // Before the namespaces, which show other processes and files.
    let descendants = Descendants::open()?;
    let lease = policy.lease.as_ref().map(OpenLease::open).transpose()?;
    let broker = match kind {
        ProgramKind::Command(_) => None,
        ProgramKind::Main | ProgramKind::Held => policy.broker.as_ref(),
    };
    let link = broker.map(ServerLink::connect).transpose()?.flatten();
    match kind {
        _ if !policy.layers.namespaces => {}
        ProgramKind::Command(Some((network, users))) => namespaces::join(network, users)?,
        _ => namespaces::enter(policy.network)?,
    }
    let passed = link.map(|link| pass_listener(link, policy.layers.namespaces)).transpose()?;
    // Without a holder, the server alone has the listener.
    let broker = passed.filter(|_| settings.is_some());
    let mut inner = inner(program);
    let has_namespaces = policy.layers.namespaces;
    let exit = match (settings, &lease) {
        (Some(settings), _) => {
            holder::hold(inner, (settings, broker), has_namespaces, &descendants)?
        }
        (None, Some(lease)) => run_under(lease, inner, has_namespaces, &descendants)?,
        (None, None) => Some(program_status(reap(inner.spawn()?.id())?, has_namespaces)),
    };
    descendants.end()?;
    // Without a server, the status has no reader.
    Ok(exit.map_or(ExitCode::FAILURE, exit_as))
}

/// Passes the listener of the broker: to the server if the program has a network of its own, else from the server.
fn pass_listener(link: ServerLink<'_>, has_namespaces: bool) -> io::Result<PassedListener> {
    let passed = if has_namespaces { link.send_own() } else { link.receive_from_server() };
    passed.map_err(|error| io::Error::other(format!("it cannot reach the broker: {error}")))
}

fn inner(arguments: &[OsString]) -> Command {
    let mut command = Command::new(SELF);
    command.args([STAGE_COMMAND, INNER]).args(arguments);
    command
}

/// Restricts this process, and becomes the program or its parent.
fn start(policy: &SandboxPolicy, command: &[OsString]) -> io::Result<ExitCode> {
    // Without the outer stage, this process would be out of sight.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // In a session of its own, the program does not reach the terminal of the server.
    setsid()?;
    // A new process starts with the mask of its parent: the outer stage has blocked what ends a program.
    SigSet::empty().thread_set_mask()?;
    let (program, arguments) =
        command.split_first().ok_or_else(|| io::Error::other("the program is missing"))?;
    let variables: Vec<_> = std::env::vars_os()
        .filter_map(|(name, value)| Some((program_variable(&name)?.to_owned(), value)))
        .collect();
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(variables);
    let failed = |error: io::Error| {
        let program = program.to_string_lossy();
        io::Error::other(format!("'{}' cannot be started in it: {error}", program.escape_debug()))
    };
    if policy.layers.namespaces {
        namespaces::build(policy)?;
        restrict(policy)?;
        let exit = reap(command.spawn().map_err(failed)?.id())?;
        return Ok(exit_as(exit));
    }
    restrict(policy)?;
    Err(failed(command.exec()))
}

fn read(policy: &OsString) -> io::Result<SandboxPolicy> {
    let invalid = |error: io::Error| io::Error::other(format!("invalid policy: {error}"));
    SandboxPolicy::load(policy.as_ref()).map_err(invalid)
}

/// Restricts this process, and what it starts. The order matters: each layer refuses what the ones before it need.
fn restrict(policy: &SandboxPolicy) -> io::Result<()> {
    if policy.network == Network::Broker
        && (policy.broker.is_none() || !policy.network.is_enforced_by(policy.layers))
    {
        return Err(io::Error::other("invalid policy: nothing keeps the program from the network"));
    }
    resources::limit(&policy.limits)?;
    resources::drop_rights()?;
    if policy.layers.files {
        files::restrict(policy)?;
    }
    if policy.layers.calls {
        calls::restrict(policy.network)?;
    }
    Ok(())
}

/// Waits until a child exits. Reaps the processes that have lost their parent meanwhile.
fn reap(child: u32) -> io::Result<ExitStatus> {
    loop {
        if let Reaped::Child(status) = reap_next(child, WaitOptions::empty())? {
            return Ok(status);
        }
    }
}

/// Reaps one process. Fails with `ECHILD` if this process has no children.
pub(crate) fn reap_next(child: u32, options: WaitOptions) -> Result<Reaped, Errno> {
    loop {
        match wait(options) {
            Ok(Some((pid, status))) if number(pid) == child => {
                return Ok(Reaped::Child(ExitStatus::from_raw(status.as_raw())));
            }
            Ok(Some(_)) => return Ok(Reaped::Orphan),
            Ok(None) => return Ok(Reaped::Nothing),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Returns the status of a program, as the process of its inner stage ends with it. The inner stage of namespaces cannot end itself by a signal: as the first process there, it gets none.
pub(crate) fn program_status(status: ExitStatus, has_namespaces: bool) -> ExitStatus {
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    let signal = code.filter(|_| has_namespaces).and_then(|code| code.checked_sub(SIGNAL_BASE));
    signal.map_or(status, |signal| ExitStatus::from_raw(i32::from(signal)))
}

/// Exits with the status of a program. For a signal, this process ends itself by the same one, if it can.
fn exit_as(status: ExitStatus) -> ExitCode {
    let Some(signal) = status.signal() else {
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        return ExitCode::from(code.unwrap_or(NOT_STARTED));
    };
    if let Some(signal) = Signal::from_named_raw(signal) {
        // If it stays blocked, only the reason of the exit is lost.
        let _ = signals_of_stop().thread_unblock();
        // Twice: the first one of some signals removes a handler of the language.
        for _ in 0..2 {
            let _ = kill_process(getpid(), signal);
        }
    }
    ExitCode::from(SIGNAL_BASE.saturating_add(u8::try_from(signal).unwrap_or_default()))
}

fn signals_of_stop() -> SigSet {
    let all = [NixSignal::SIGTERM, NixSignal::SIGINT, NixSignal::SIGHUP, NixSignal::SIGQUIT];
    all.into_iter().collect()
}
