//! System calls by seccomp. A refused call returns an error and does not end the program: many try a call to see whether it is there. Only a call by the interface of another processor ends it.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use seccompiler::{
    BackendError, SeccompAction, SeccompCmpArgLen as ArgLen, SeccompCmpOp as Op,
    SeccompCondition as Condition, SeccompFilter, SeccompRule, TargetArch,
};

use crate::Network;

type CallRules = BTreeMap<i64, Vec<SeccompRule>>;

/// The bit of the calls of the x32 interface, which has the same calls under other numbers.
const X32: i64 = 0x4000_0000;

/// Calls that have another number in the x32 interface.
const X32_NUMBERS: [(i64, i64); 5] = [
    (libc::SYS_ioctl, 514),
    (libc::SYS_ptrace, 521),
    (libc::SYS_kexec_load, 528),
    (libc::SYS_process_vm_readv, 539),
    (libc::SYS_process_vm_writev, 540),
];

/// Calls that reach other processes, the kernel itself, or mounts.
const REFUSED: &[i64] = &[
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_bpf,
    libc::SYS_userfaultfd,
    libc::SYS_perf_event_open,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_mount_setattr,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_open_by_handle_at,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
];

/// Calls that look as if the kernel did not have them: their arguments cannot be checked here, and programs have a second way.
const MISSING: &[i64] = &[
    libc::SYS_clone3,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

/// Whether this kernel filters calls, and this program knows its processor.
pub(crate) fn is_available() -> bool {
    Path::new("/proc/sys/kernel/seccomp/actions_avail").exists() && architecture().is_ok()
}

/// Filters the calls of this thread, and of what it starts.
/// Errors: the kernel cannot.
pub(crate) fn restrict(network: Network) -> io::Result<()> {
    let filters = [
        (sockets(network).map_err(io::Error::other)?, libc::EACCES),
        (rules_of_refused().map_err(io::Error::other)?, libc::EPERM),
        // Last: it would refuse calls of the first ones.
        (rules_of(MISSING), libc::ENOSYS),
    ];
    for (rules, error) in filters {
        let refuse = SeccompAction::Errno(error.unsigned_abs());
        let filter =
            SeccompFilter::new(with_x32(rules), SeccompAction::Allow, refuse, architecture()?);
        let filter: seccompiler::BpfProgram =
            filter.and_then(TryInto::try_into).map_err(io::Error::other)?;
        seccompiler::apply_filter(&filter).map_err(io::Error::other)?;
    }
    Ok(())
}

fn architecture() -> io::Result<TargetArch> {
    std::env::consts::ARCH.try_into().map_err(io::Error::other)
}

fn rules_of(calls: &[i64]) -> CallRules {
    calls.iter().map(|call| (*call, Vec::new())).collect()
}

fn with_x32(rules: CallRules) -> CallRules {
    if std::env::consts::ARCH != "x86_64" {
        return rules;
    }
    let number = |call: i64| {
        let own = X32_NUMBERS.iter().find(|(known, _)| *known == call);
        own.map_or(call, |(_, number)| *number) | X32
    };
    rules
        .into_iter()
        .flat_map(|(call, rule)| [(number(call), rule.clone()), (call, rule)])
        .collect()
}

fn rules_of_refused() -> Result<CallRules, BackendError> {
    let mut rules = rules_of(REFUSED);
    let new_user = u64::from(libc::CLONE_NEWUSER.unsigned_abs());
    let new_user = Condition::new(0, ArgLen::Qword, Op::MaskedEq(new_user), new_user)?;
    rules.insert(libc::SYS_clone, vec![SeccompRule::new(vec![new_user])?]);
    // The limits of other processes.
    let other = Condition::new(0, ArgLen::Dword, Op::Ne, 0)?;
    rules.insert(libc::SYS_prlimit64, vec![SeccompRule::new(vec![other])?]);
    // Writes into the input of a terminal that the server may share.
    let command = |number| Condition::new(1, ArgLen::Dword, Op::Eq, number);
    let ioctl = [libc::TIOCSTI, libc::TIOCLINUX]
        .into_iter()
        .map(|number| SeccompRule::new(vec![command(number)?]))
        .collect::<Result<_, BackendError>>()?;
    rules.insert(libc::SYS_ioctl, ioctl);
    Ok(rules)
}

/// Sockets of families and types that reach beyond the program's own connections.
fn sockets(network: Network) -> Result<CallRules, BackendError> {
    const FAMILY: u8 = 0;
    const TYPE: u8 = 1;
    /// The bits of a socket's type, without its flags.
    const TYPE_MASK: u64 = 0xf;
    let family = |number: i32| {
        Condition::new(FAMILY, ArgLen::Dword, Op::Eq, u64::from(number.unsigned_abs()))
    };
    let kind = |number: i32| {
        Condition::new(
            TYPE,
            ArgLen::Dword,
            Op::MaskedEq(TYPE_MASK),
            u64::from(number.unsigned_abs()),
        )
    };
    let whole = [
        libc::AF_PACKET,
        libc::AF_VSOCK,
        libc::AF_ALG,
        libc::AF_BLUETOOTH,
        libc::AF_CAN,
        libc::AF_TIPC,
        libc::AF_RDS,
        libc::AF_KEY,
        libc::AF_XDP,
    ];
    let mut rules = Vec::new();
    for number in whole {
        rules.push(SeccompRule::new(vec![family(number)?])?);
    }
    for number in [libc::AF_INET, libc::AF_INET6] {
        rules.push(match network {
            Network::Open => SeccompRule::new(vec![family(number)?, kind(libc::SOCK_RAW)?])?,
            Network::None => SeccompRule::new(vec![family(number)?])?,
        });
    }
    Ok(CallRules::from([(libc::SYS_socket, rules)]))
}
