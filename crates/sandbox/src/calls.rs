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
const X32_NUMBERS: [(i64, i64); 8] = [
    (libc::SYS_ioctl, 514),
    (libc::SYS_sendmsg, 518),
    (libc::SYS_ptrace, 521),
    (libc::SYS_kexec_load, 528),
    (libc::SYS_sendmmsg, 538),
    (libc::SYS_process_vm_readv, 539),
    (libc::SYS_process_vm_writev, 540),
    (libc::SYS_setsockopt, 541),
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

/// Families of sockets that reach the kernel, other machines or devices, if the program may use the network.
const REFUSED_FAMILIES: &[i32] = &[
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

/// Sockets that reach beyond the program's own connections, and calls that would connect without a look at the port.
fn sockets(network: Network) -> Result<CallRules, BackendError> {
    const FAMILY: u8 = 0;
    const TYPE: u8 = 1;
    const PROTOCOL: u8 = 2;
    /// The bits of a socket's type, without its flags.
    const TYPE_MASK: u64 = 0xf;
    let family = |number: i32| equal(FAMILY, number);
    let kind = |number: u64| Condition::new(TYPE, ArgLen::Dword, Op::MaskedEq(TYPE_MASK), number);
    let internet = [libc::AF_INET, libc::AF_INET6];
    let mut rules = Vec::new();
    match network {
        Network::Open => {
            for number in REFUSED_FAMILIES {
                rules.push(SeccompRule::new(vec![family(*number)?])?);
            }
            let raw = u64::from(libc::SOCK_RAW.unsigned_abs());
            for number in internet {
                rules.push(SeccompRule::new(vec![family(number)?, kind(raw)?])?);
            }
        }
        // Others can carry internet protocols too, such as those of RxRPC and SMC.
        Network::None => rules.push(other_than(FAMILY, &[libc::AF_UNIX, libc::AF_NETLINK])?),
        Network::Broker => {
            let allowed = [libc::AF_UNIX, libc::AF_NETLINK, libc::AF_INET, libc::AF_INET6];
            rules.push(other_than(FAMILY, &allowed)?);
            // Landlock restricts TCP alone.
            let stream = u64::from(libc::SOCK_STREAM.unsigned_abs());
            let others: Vec<_> = (0..=TYPE_MASK).filter(|number| *number != stream).collect();
            for number in internet {
                for other in &others {
                    rules.push(SeccompRule::new(vec![family(number)?, kind(*other)?])?);
                }
                let protocols = [different(PROTOCOL, 0)?, different(PROTOCOL, libc::IPPROTO_TCP)?];
                let [default, tcp] = protocols;
                rules.push(SeccompRule::new(vec![family(number)?, default, tcp])?);
            }
        }
    }
    let mut all = CallRules::from([(libc::SYS_socket, rules)]);
    if network == Network::Broker {
        all.extend(hidden_connections()?);
    }
    Ok(all)
}

/// Calls that connect without the check of Landlock: data with the first packet, and a socket that becomes one of another protocol.
fn hidden_connections() -> Result<CallRules, BackendError> {
    const FLAGS_OF_SENDMSG: u8 = 2;
    const FLAGS_OF_OTHERS: u8 = 3;
    const LEVEL: u8 = 1;
    const OPTION: u8 = 2;
    let fast_open = |place| {
        let flag = u64::from(libc::MSG_FASTOPEN.unsigned_abs());
        let condition = Condition::new(place, ArgLen::Dword, Op::MaskedEq(flag), flag)?;
        Ok::<_, BackendError>(vec![SeccompRule::new(vec![condition])?])
    };
    let upper_protocol = vec![equal(LEVEL, libc::IPPROTO_TCP)?, equal(OPTION, libc::TCP_ULP)?];
    Ok(CallRules::from([
        (libc::SYS_sendmsg, fast_open(FLAGS_OF_SENDMSG)?),
        (libc::SYS_sendto, fast_open(FLAGS_OF_OTHERS)?),
        (libc::SYS_sendmmsg, fast_open(FLAGS_OF_OTHERS)?),
        (libc::SYS_setsockopt, vec![SeccompRule::new(upper_protocol)?]),
    ]))
}

fn equal(place: u8, number: i32) -> Result<Condition, BackendError> {
    Condition::new(place, ArgLen::Dword, Op::Eq, u64::from(number.unsigned_abs()))
}

fn different(place: u8, number: i32) -> Result<Condition, BackendError> {
    Condition::new(place, ArgLen::Dword, Op::Ne, u64::from(number.unsigned_abs()))
}

/// A rule for all values of an argument except for these.
fn other_than(place: u8, numbers: &[i32]) -> Result<SeccompRule, BackendError> {
    let all = numbers.iter().map(|number| different(place, *number));
    SeccompRule::new(all.collect::<Result<_, _>>()?)
}
