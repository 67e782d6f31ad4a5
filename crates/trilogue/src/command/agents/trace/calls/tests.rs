use super::*;

fn uses(text: &str) -> Vec<TracedUse> {
    let mut all = Vec::new();
    let skipped = CallReader::read(text.as_bytes(), |found| all.push(found)).unwrap();
    assert_eq!(skipped, 0);
    all
}

fn path(kind: PathUseKind, path: &str) -> TracedUse {
    TracedUse::Path(PathUse { path: path.into(), kind, is_refused: false })
}

#[test]
fn a_process_works_in_the_folder_of_its_parent_until_it_leaves_it() {
    let text = r#"
7  openat(AT_FDCWD</srv>, "/etc/ld.so.cache", O_RDONLY|O_CLOEXEC) = 3</etc/ld.so.cache>
7  chdir("a")                        = 0
7  vfork( <unfinished ...>
8  rename("x", "../y")               = 0
8  chdir("/opt")                     = 0
8  mkdir("in", 0777 <unfinished ...>
7  <... vfork resumed>)              = 8
7  unlink("gone")                    = -1 ENOENT (No such file or directory)
8  <... mkdir resumed>)              = 0
7  clone3({flags=CLONE_VM|CLONE_FS|CLONE_THREAD} => {parent_tid=[9]}, 88) = 9
9  chdir("/var")                     = 0
7  truncate("log", 0)                = 0
8  +++ exited with 0 +++
"#;
    let expected = [
        path(PathUseKind::Read, "/etc/ld.so.cache"),
        path(PathUseKind::Replace, "/srv/a/x"),
        path(PathUseKind::Replace, "/srv/a/../y"),
        path(PathUseKind::Create, "/opt/in"),
        path(PathUseKind::Change, "/var/log"),
    ];
    assert_eq!(uses(text), expected);
}

#[test]
fn an_opened_file_is_read_or_changed_by_its_flags() {
    let text = r#"
7  openat(3</srv/data>, "r", O_RDONLY) = 4</srv/data/r>
7  openat(3</srv/data>, "w", O_RDWR|O_CREAT, 0600) = 4</srv/data/w>
7  open("/srv/c", O_WRONLY)          = 4</srv/c>
7  openat(AT_FDCWD</srv>, "/srv/place", O_RDONLY|O_PATH) = 4</srv/place>
7  openat2(AT_FDCWD</srv>, "t", {flags=O_WRONLY|O_TRUNC, resolve=0}, 24) = -1 EACCES (Permission denied)
7  utimensat(4</srv/c>, NULL, NULL, 0) = 0
7  newfstatat(AT_FDCWD</srv>, "looked", 0x7ffd, 0) = 0
"#;
    let refused = PathUse { path: "/srv/t".into(), kind: PathUseKind::Change, is_refused: true };
    let expected = [
        path(PathUseKind::Read, "/srv/data/r"),
        path(PathUseKind::Open, "/srv/data/w"),
        path(PathUseKind::Change, "/srv/c"),
        TracedUse::Path(refused),
        path(PathUseKind::Change, "/srv/c"),
    ];
    assert_eq!(uses(text), expected);
}

#[test]
fn addresses_have_their_port() {
    let text = r#"
7  socket(AF_INET, SOCK_STREAM, IPPROTO_TCP) = 5<socket:[1]>
7  connect(5<socket:[1]>, {sa_family=AF_INET, sin_port=htons(443), sin_addr=inet_addr("192.0.2.1")}, 16) = -1 EINPROGRESS (Operation now in progress)
7  connect(6<socket:[2]>, {sa_family=AF_INET6, sin6_port=htons(53), sin6_flowinfo=htonl(0), inet_pton(AF_INET6, "::1", &sin6_addr), sin6_scope_id=0}, 28) = 0
7  sendto(6<socket:[2]>, ""..., 1, 0, {sa_family=AF_INET, sin_port=htons(0), sin_addr=inet_addr("192.0.2.1")}, 16) = 1
7  connect(7<socket:[3]>, {sa_family=AF_UNIX, sun_path="/run/agent"}, 17) = 0
7  connect(7<socket:[3]>, {sa_family=AF_UNIX, sun_path=@"abstract"}, 17) = 0
7  bind(8<socket:[4]>, {sa_family=AF_UNIX, sun_path="/srv/own"}, 17) = 0
"#;
    let expected = [
        TracedUse::InternetSocket,
        TracedUse::Peer("192.0.2.1:443".to_owned()),
        TracedUse::Peer("[::1]:53".to_owned()),
        path(PathUseKind::Read, "/run/agent"),
        path(PathUseKind::Create, "/srv/own"),
    ];
    assert_eq!(uses(text), expected);
}

#[test]
fn a_line_that_is_too_long_is_counted() {
    let long =
        format!("7  unlink(\"/{}\") = 0\n7  unlink(\"/a\") = 0\n", "x".repeat(MAX_LINE_BYTES));
    let mut all = Vec::new();
    let skipped = CallReader::read(long.as_bytes(), |found| all.push(found)).unwrap();
    assert_eq!((skipped, all), (1, vec![path(PathUseKind::Replace, "/a")]));
}
