//! Namespaces: the program sees its own processes, temporary files and messages, and none of the server's folders.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::sched::{CloneFlags, setns, unshare};
use rustix::fs::{CWD, Mode, OFlags, StatVfsMountFlags, mkdirat, openat, symlinkat};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, mount, mount_bind, mount_bind_recursive, mount_change,
    mount_remount,
};
use rustix::process::{geteuid, getgid, getuid};

use crate::broker::bring_up;
use crate::control_group::unescape;
use crate::stage::PROBE;
use crate::{Network, SELF, STAGE_COMMAND, SandboxPolicy, is_git_repository, links, resources};

const TEMPORARY: &str = "/tmp";
/// The folders of the kernel, which are mounted again, or only restricted.
const OF_KERNEL: [&str; 3] = ["/proc", "/sys", "/dev"];

/// What decides which programs `git` runs, below the folder of a repository.
const GIT_PROGRAMS: [&str; 3] = ["hooks", "config", "config.worktree"];

/// How a place for a mount is opened.
const PLACE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

/// The namespaces that each program has for itself.
const OWN: CloneFlags =
    CloneFlags::CLONE_NEWNS.union(CloneFlags::CLONE_NEWPID).union(CloneFlags::CLONE_NEWIPC);

/// What happens to a path in the view of the program.
enum PathView {
    /// An empty folder or file covers it.
    Covered,
    /// It is there, also below a covered one. It was opened before anything was mounted.
    Kept(OwnedFd),
    /// It is a link on the way to what is kept.
    Link(PathBuf),
}

/// Whether this machine lets this user have namespaces. Starts a stage.
pub(crate) fn is_available() -> bool {
    let mut probe = Command::new(SELF);
    probe.args([STAGE_COMMAND, PROBE]);
    probe.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    probe.status().is_ok_and(|status| status.success())
}

/// Builds the part that containers often refuse.
pub(crate) fn probe() -> io::Result<ExitCode> {
    mount_tmpfs(Path::new("/dev/shm"))?;
    mount_terminals()?;
    mount_proc()?;
    Ok(ExitCode::SUCCESS)
}

/// Enters new namespaces. Only processes that are started now are in the new one of processes.
pub(crate) fn enter(network: Network) -> io::Result<()> {
    let mut flags = OWN;
    if network != Network::Open {
        flags |= CloneFlags::CLONE_NEWNET;
    }
    // Root needs no namespace of users, in which it could not use the files of others.
    if !geteuid().is_root() || unshare(flags).is_err() {
        enter_as_user(flags)?;
    }
    if network == Network::Broker {
        let failed = |error| io::Error::other(format!("it cannot listen for the broker: {error}"));
        bring_up().map_err(failed)?;
    }
    finish()
}

/// Enters new namespaces, but the network of another program, by the files of it and of its namespace of users.
pub(crate) fn join(network: &Path, users: &Path) -> io::Result<()> {
    let (network, users) = (File::open(network)?, File::open(users)?);
    // Root may be in no other one, which it cannot join again.
    if !is_same(&users, &File::open("/proc/self/ns/user")?)? {
        setns(users, CloneFlags::CLONE_NEWUSER)?;
    }
    setns(network, CloneFlags::CLONE_NEWNET)?;
    unshare(OWN)?;
    finish()
}

fn is_same(one: &File, other: &File) -> io::Result<bool> {
    let (one, other) = (one.metadata()?, other.metadata()?);
    Ok((one.dev(), one.ino()) == (other.dev(), other.ino()))
}

fn finish() -> io::Result<()> {
    // What is mounted from now on stays in here.
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    resources::keep_for_inner_stage()
}

fn enter_as_user(flags: CloneFlags) -> io::Result<()> {
    let (user, group) = (getuid().as_raw(), getgid().as_raw());
    unshare(flags | CloneFlags::CLONE_NEWUSER)?;
    // The kernel allows a mapping of groups only without a way to leave one.
    fs::write("/proc/self/setgroups", "deny")?;
    write_once("/proc/self/uid_map", &format!("{user} {user} 1"))?;
    write_once("/proc/self/gid_map", &format!("{group} {group} 1"))
}

/// Writes a file of the kernel, which takes one write.
fn write_once(path: &str, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
}

/// Builds the view of the file system of the inner stage.
pub(crate) fn build(policy: &SandboxPolicy) -> io::Result<()> {
    let start = std::env::current_dir();
    let temporary = policy.temporary.canonicalize()?;
    let empty_path = temporary.join(empty_name());
    File::create_new(&empty_path)?;
    let empty = links::open(&empty_path)?;
    let views = views(policy, &temporary)?;
    for (path, view) in &views {
        // A path is as its nearest parent with a view, if it has no own one.
        let parent = path.ancestors().skip(1).find_map(|parent| views.get(parent));
        let is_covered = matches!(parent, Some(PathView::Covered));
        match view {
            PathView::Covered if is_covered => {}
            PathView::Covered if path == Path::new(TEMPORARY) => mount_bind(&temporary, path)?,
            PathView::Covered if path.is_dir() => mount_tmpfs(path)?,
            PathView::Covered => {
                mount_bind(name_of(&empty), path)?;
                remount_read_only(path)?;
            }
            PathView::Kept(opened) if is_covered => mount_again(path, opened)?,
            PathView::Link(target) if is_covered => link_again(path, target)?,
            PathView::Kept(_) | PathView::Link(_) => {}
        }
    }
    // What it covers keeps it without its name.
    fs::remove_file(&empty_path)?;
    let existing = policy.write.iter().filter(|path| links::open(path).is_ok());
    let writable: Vec<_> = existing.map(PathBuf::as_path).chain([&*temporary]).collect();
    for path in &writable {
        mount_itself(path)?;
    }
    remount_all_read_only(&writable)?;
    mount_tmpfs(Path::new("/dev/shm"))?;
    mount_terminals()?;
    for folder in &policy.write {
        protect_git(folder, &policy.write)?;
    }
    if let Ok(start) = start {
        // The folder of before is below what covers it now. A program that may not see its folder starts in the one of the root.
        std::env::set_current_dir(start).or_else(|_| std::env::set_current_dir("/"))?;
    }
    mount_proc()
}

/// Returns the views of paths, a folder before what lies in it. Covered are all folders of the root, the home folder, and what the policy hides, except for what is granted.
fn views(policy: &SandboxPolicy, temporary: &Path) -> io::Result<BTreeMap<PathBuf, PathView>> {
    let mut views = BTreeMap::new();
    for entry in fs::read_dir("/")? {
        let path = entry?.path();
        if !path.is_symlink() && path.is_dir() && !OF_KERNEL.iter().any(|it| path == Path::new(it))
        {
            views.insert(path, PathView::Covered);
        }
    }
    let real = |path: &PathBuf| path.canonicalize().ok();
    let hidden: Vec<_> = policy.hidden.iter().filter_map(real).collect();
    let home = policy.home.iter().filter_map(real);
    // A mount over `/` would hide everything.
    let named = home.chain(hidden.iter().cloned()).filter(|path| path.parent().is_some());
    views.extend(named.map(|path| (path, PathView::Covered)));
    views.extend(
        policy.links.iter().map(|(link, target)| (link.clone(), PathView::Link(target.clone()))),
    );
    for path in policy.read.iter().chain(&policy.write).map(PathBuf::as_path).chain([temporary]) {
        // A granted folder counts, also if it is the home folder; a hidden path itself does not.
        if let Some(opened) = links::open(path).ok().filter(|_| !hidden.iter().any(|it| it == path))
        {
            views.insert(path.to_owned(), PathView::Kept(opened));
        }
    }
    Ok(views)
}

/// A name that no other stage of the same policy chooses at the same time.
fn empty_name() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("empty-{}", now.as_nanos())
}

/// Mounts a path where it was, below a covered folder.
fn mount_again(path: &Path, opened: &OwnedFd) -> io::Result<()> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    let place = if links::is_folder(opened) {
        make_folder(path)?
    } else {
        let folder = make_folder(folder)?;
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(&folder, name, flags, Mode::from(0o600)) {
            // A file that may not be written is there, too.
            Ok(_) | Err(Errno::ACCESS | Errno::ROFS) => {}
            Err(error) => return Err(error.into()),
        }
        openat(&folder, name, PLACE, Mode::empty())?
    };
    Ok(mount_bind_recursive(name_of(opened), name_of(&place))?)
}

/// Makes a link where it was, below a covered folder.
fn link_again(path: &Path, target: &Path) -> io::Result<()> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    match symlinkat(target, make_folder(folder)?, name) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Opens a folder, and makes what is missing of it. Follows no links: the program may have put some into its temporary folder.
fn make_folder(path: &Path) -> io::Result<OwnedFd> {
    let flags = PLACE | OFlags::DIRECTORY;
    let mut folder = openat(CWD, "/", flags, Mode::empty())?;
    for name in path.iter().skip(1) {
        match mkdirat(&folder, name, Mode::from(0o755)) {
            Ok(()) | Err(Errno::EXIST | Errno::ACCESS | Errno::ROFS) => {}
            Err(error) => return Err(error.into()),
        }
        folder = openat(&folder, name, flags, Mode::empty())?;
    }
    Ok(folder)
}

/// Makes a path a mount of its own, with what is mounted below it.
fn mount_itself(path: &Path) -> io::Result<()> {
    let opened = links::open(path)?;
    Ok(mount_bind_recursive(name_of(&opened), name_of(&opened))?)
}

/// The same, and makes it read-only.
fn protect(path: &Path) -> io::Result<()> {
    mount_itself(path)?;
    // The mount, and no longer what is below it.
    remount_read_only(&name_of(&links::open(path)?))
}

fn name_of(opened: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd()))
}

/// Makes all mounts read-only, except for those below these paths: modes, times and attributes of files are no matter of the layer for files.
fn remount_all_read_only(writable: &[&Path]) -> io::Result<()> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    for mount in mounts.lines().filter_map(|line| line.split(' ').nth(4)) {
        let path = PathBuf::from(unescape(mount));
        // Processes are mounted again, and `/tmp` itself is the program's own folder.
        let mut kept = writable.iter().copied().chain([Path::new("/proc")]);
        if path != Path::new(TEMPORARY) && !kept.any(|kept| path.starts_with(kept)) {
            // Some cannot be changed, such as one that another mount covers. The layer for files is in force there, too.
            let _ = remount_read_only(&path);
        }
    }
    Ok(())
}

fn mount_tmpfs(path: &Path) -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    Ok(mount("tmpfs", path, "tmpfs", flags, Some(c"mode=0755"))?)
}

/// Mounts terminals of the program's own: it does not see those of its user.
fn mount_terminals() -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    let options = c"newinstance,ptmxmode=0666,mode=0620";
    mount("devpts", "/dev/pts", "devpts", flags, Some(options))?;
    Ok(mount_bind("/dev/pts/ptmx", "/dev/ptmx")?)
}

fn mount_proc() -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    Ok(mount("proc", "/proc", "proc", flags, None)?)
}

/// Makes a mount read-only, with the flags that it has: a namespace of users may take none away.
fn remount_read_only(path: &Path) -> io::Result<()> {
    let has = rustix::fs::statvfs(path)?.f_flag;
    let mut flags = MountFlags::BIND | MountFlags::RDONLY;
    for (is_set, flag) in [
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
    ] {
        if has.contains(is_set) {
            flags |= flag;
        }
    }
    Ok(mount_remount(path, flags, "")?)
}

/// Makes the file or the folder `.git` of a folder stay where it is, and what decides about the programs of `git` in it read-only, unless the policy names it.
///
/// A program can still lead `git` to other settings by a repository that it may change.
fn protect_git(folder: &Path, writable: &[PathBuf]) -> io::Result<()> {
    let inside = folder.join(".git");
    if inside.is_file() && !inside.is_symlink() {
        return protect(&inside);
    }
    let repository = if is_git_repository(folder) { folder.to_owned() } else { inside };
    // A link leads to a repository elsewhere.
    if repository.is_symlink() || !is_git_repository(&repository) {
        return Ok(());
    }
    // A missing folder of hooks could be created.
    match mkdirat(links::open(&repository)?, "hooks", Mode::from(0o755)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    // A mount cannot be renamed.
    mount_itself(&repository)?;
    for name in GIT_PROGRAMS {
        let path = repository.join(name);
        if path.exists() && !path.is_symlink() && !writable.contains(&path) {
            protect(&path)?;
        }
    }
    Ok(())
}
