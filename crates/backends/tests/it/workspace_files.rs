//! Files that are served to an agent, and files that it cannot reach.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use tempfile::TempDir;
use trilogue_backends::workspace::{Files, Grants, Limits, PrivatePaths, Workspace};
use trilogue_wire::jsonrpc::ErrorObject;

use crate::harness::DEADLINE;

/// A file outside of every workspace here.
const SECRET: &str = "secret";

/// A workspace, and a folder with a secret outside of it.
struct WorkspaceFixture {
    folder: TempDir,
    workspace: Workspace,
}

impl WorkspaceFixture {
    fn new() -> Self {
        Self::with(Grants { files: Files::Write, ..Grants::default() })
    }

    fn with(grants: Grants) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for inner in ["ws", "ws-evil", "outside"] {
            fs::create_dir(folder.path().join(inner)).unwrap();
        }
        for file in ["ws-evil/file", "outside/file"] {
            fs::write(folder.path().join(file), SECRET).unwrap();
        }
        let workspace = Workspace::open(&folder.path().join("ws"), grants).unwrap();
        Self { folder, workspace }
    }

    fn outer(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.outer("ws").join(name)
    }

    async fn read(&self, path: impl AsRef<Path>) -> Result<String, ErrorObject> {
        self.read_lines(path, json!({})).await
    }

    async fn read_lines(
        &self,
        path: impl AsRef<Path>,
        mut more: Value,
    ) -> Result<String, ErrorObject> {
        more["sessionId"] = json!("");
        more["path"] = json!(path.as_ref());
        let params = more.to_string();
        let result = self.workspace.call("fs/read_text_file", &params);
        let result = tokio::time::timeout(DEADLINE, result).await.unwrap()?;
        let result: Value = serde_json::from_slice(&result).unwrap();
        Ok(result["content"].as_str().unwrap().to_owned())
    }

    async fn write(&self, path: impl AsRef<Path>, content: &str) -> Result<(), ErrorObject> {
        let params = json!({ "sessionId": "", "path": path.as_ref(), "content": content });
        let params = params.to_string();
        let result = self.workspace.call("fs/write_text_file", &params);
        let result = tokio::time::timeout(DEADLINE, result).await.unwrap()?;
        assert_eq!(result, b"{}");
        Ok(())
    }

    /// The path can be neither read nor written, and nothing outside has changed.
    async fn assert_unreachable(&self, path: impl AsRef<Path>, code: i32, why: &str) {
        let path = path.as_ref();
        for error in [self.read(path).await.unwrap_err(), self.write(path, "x").await.unwrap_err()]
        {
            assert_eq!(error.code.0, code, "{path:?}: {error}");
            assert!(error.message.contains(why), "{path:?}: {error}");
        }
        self.assert_outside_is_as_it_was();
    }

    fn assert_outside_is_as_it_was(&self) {
        for folder in ["outside", "ws-evil"] {
            let names: Vec<_> = fs::read_dir(self.outer(folder)).unwrap().collect();
            assert_eq!(names.len(), 1, "{names:?}");
            assert_eq!(fs::read_to_string(self.outer(folder).join("file")).unwrap(), SECRET);
        }
    }
}

#[tokio::test]
async fn the_server_s_own_folders_are_not_served() {
    let folder = tempfile::tempdir().unwrap();
    let (home, state) = (folder.path().join("home"), folder.path().join("home/.state/server"));
    fs::create_dir_all(&state).unwrap();
    fs::write(state.join("token"), SECRET).unwrap();
    symlink(&state, home.join("link")).unwrap();
    let grants = Grants {
        files: Files::Write,
        private: PrivatePaths::default().with_folder(&state),
        ..Grants::default()
    };
    assert!(Workspace::open(&state, grants.clone()).is_err());
    let workspace = Workspace::open(&home, grants).unwrap();
    let desk = WorkspaceFixture { folder, workspace };
    for path in ["token", "new", "deep/new"] {
        for place in [home.join("link"), state.clone()] {
            let path = place.join(path);
            let refused = desk.read(&path).await.unwrap_err();
            assert!(refused.message.contains("outside"), "{path:?}: {refused}");
            assert!(desk.write(&path, "x").await.is_err(), "{path:?}");
        }
    }
    assert_eq!(fs::read_to_string(state.join("token")).unwrap(), SECRET);
    desk.write(home.join(".state/other"), "x").await.unwrap();
}

#[tokio::test]
async fn the_server_s_own_files_are_not_served() {
    let folder = tempfile::tempdir().unwrap();
    let (home, state) = (folder.path().join("home"), folder.path().join("home/state"));
    fs::create_dir_all(&state).unwrap();
    let inside = state.join("token");
    let [store, log, settings] = ["t.db", "t.db-wal", "t.toml"].map(|name| home.join(name));
    let all = [&inside, &store, &log, &settings];
    all.iter().for_each(|file| fs::write(file, SECRET).unwrap());
    for (link, target) in [("db", &*store), ("named", Path::new("t.toml"))] {
        symlink(target, home.join(link)).unwrap();
    }
    // A link that the settings name stands for the file to which it leads.
    let private =
        PrivatePaths::default().with_folder(&state).with_file(&store).with_file(home.join("named"));
    let grants = Grants { files: Files::Write, private, ..Grants::default() };
    let workspace = Workspace::open(&home, grants).unwrap();
    let desk = WorkspaceFixture { folder, workspace };
    for path in [
        "t.db",
        "./t.db",
        "t.db-wal",
        "t.db-journal",
        "t.db.commits/new",
        "db",
        "t.toml",
        "named",
        "state/../t.db",
        // The first folder does not exist yet, and a write would create it.
        "none/../t.db",
        "none/../t.db-journal",
        "none/../state/token",
        "none/none/../../state/new",
    ] {
        for path in [Path::new(path).to_owned(), home.join(path)] {
            assert!(desk.read(&path).await.is_err(), "{path:?}");
            assert!(desk.write(&path, "x").await.is_err(), "{path:?}");
        }
    }
    assert!(all.iter().all(|file| fs::read_to_string(file).unwrap() == SECRET));
    assert!(!home.join("t.db-journal").exists() && !state.join("new").exists());
    desk.write("database/t.db", "x").await.unwrap();
}

#[tokio::test]
async fn text_is_written_and_read_back() {
    let desk = WorkspaceFixture::new();
    let path = desk.path("new/folder/a.txt");
    desk.write(&path, "one\r\nzwei ü\nthree").await.unwrap();
    assert_eq!(desk.read(&path).await.unwrap(), "one\r\nzwei ü\nthree");
    // Relative paths begin in the workspace. A path that goes up and comes back is within it.
    assert_eq!(desk.read("new/../new/./folder/a.txt").await.unwrap(), "one\r\nzwei ü\nthree");
    desk.write(&path, "").await.unwrap();
    assert_eq!(desk.read(&path).await.unwrap(), "");
    let names: Vec<_> = fs::read_dir(desk.path("new/folder")).unwrap().collect();
    assert_eq!(names.len(), 1, "{names:?}");
}

#[tokio::test]
async fn lines_are_counted_from_one_and_keep_their_ends() {
    let desk = WorkspaceFixture::new();
    let path = desk.path("lines");
    fs::write(&path, "one\r\n\ntwo\nlast").unwrap();
    for (line, limit, expected) in [
        (Some(1), Some(1), "one\r\n"),
        (Some(2), Some(2), "\ntwo\n"),
        (Some(3), None, "two\nlast"),
        (None, Some(2), "one\r\n\n"),
        (Some(4), Some(9), "last"),
        (Some(5), Some(1), ""),
        (Some(u32::MAX), None, ""),
        (Some(0), Some(1), "one\r\n"),
        (Some(2), Some(0), ""),
    ] {
        let asked = json!({ "line": line, "limit": limit });
        assert_eq!(desk.read_lines(&path, asked).await.unwrap(), expected, "{line:?} {limit:?}");
    }
}

#[tokio::test]
async fn a_file_that_is_not_there_is_named() {
    let desk = WorkspaceFixture::new();
    let path = desk.path("none.txt");
    let error = desk.read(&path).await.unwrap_err();
    let shown = path.to_str().unwrap();
    assert_eq!(error.code.0, -32002);
    assert_eq!(error.message, format!("Resource not found: {shown}"));
    assert_eq!(error.data.unwrap().to_value(), json!({ "uri": shown }));
}

#[tokio::test]
async fn no_path_leads_outside() {
    let desk = WorkspaceFixture::new();
    let refused = "outside of the workspace";
    fs::create_dir(desk.path("a")).unwrap();
    for path in ["../outside/file", "a/../../outside/file", "../ws-evil/file", "..", "../none"] {
        desk.assert_unreachable(path, -32602, refused).await;
        desk.assert_unreachable(desk.path(path), -32602, refused).await;
    }
    for path in ["outside/file", "ws-evil/file", "ws-evil", "none"] {
        desk.assert_unreachable(desk.outer(path), -32602, refused).await;
    }
    for path in ["/etc/passwd", "/proc/self/environ", "/proc/self/cwd/x", "/dev/null", "/"] {
        desk.assert_unreachable(path, -32602, refused).await;
    }
    for path in ["", "a\0b"] {
        desk.assert_unreachable(path, -32602, "is not a path").await;
    }
    desk.assert_unreachable("x/".repeat(2_100), -32602, "is not a path").await;
}

#[tokio::test]
async fn links_are_followed_within_and_never_outside() {
    let desk = WorkspaceFixture::new();
    fs::create_dir(desk.path("real")).unwrap();
    fs::write(desk.path("real/file"), "here").unwrap();
    symlink("real", desk.path("folder")).unwrap();
    symlink("real/file", desk.path("file")).unwrap();
    desk.write(desk.path("file"), "changed").await.unwrap();
    assert_eq!(desk.read(desk.path("folder/file")).await.unwrap(), "changed");
    assert!(desk.path("file").is_symlink() && desk.path("folder").is_symlink());

    let outside = desk.outer("outside");
    symlink(&outside, desk.path("out")).unwrap();
    symlink("../outside", desk.path("up")).unwrap();
    symlink(outside.join("file"), desk.path("secret")).unwrap();
    symlink(outside.join("new"), desk.path("dangling-out")).unwrap();
    symlink("/proc/self/environ", desk.path("environ")).unwrap();
    let refused = "outside of the workspace";
    for path in ["out/file", "out/new", "up/file", "secret", "dangling-out", "environ"] {
        desk.assert_unreachable(desk.path(path), -32602, refused).await;
    }
    // Even a link to a place within is refused: its target is unknown until it is used.
    symlink("nowhere", desk.path("dangling")).unwrap();
    let error = desk.write(desk.path("dangling"), "x").await.unwrap_err();
    assert!(error.message.contains("dangling link"), "{error}");
    assert!(!desk.path("nowhere").exists());
    symlink("circle", desk.path("circle")).unwrap();
    assert!(desk.read(desk.path("circle")).await.is_err());
    assert!(desk.write(desk.path("circle"), "x").await.is_err());
}

#[tokio::test]
async fn what_is_no_text_file_is_refused_at_once() {
    let desk = WorkspaceFixture::new();
    fs::create_dir(desk.path("folder")).unwrap();
    fs::write(desk.path("binary"), b"a\xFFb").unwrap();
    let fifo = desk.path("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    let socket = desk.path("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    for path in ["fifo", "folder"] {
        let path = desk.path(path);
        assert_eq!(desk.read(&path).await.unwrap_err().code.0, -32602);
        assert_eq!(desk.write(&path, "x").await.unwrap_err().code.0, -32602);
    }
    assert!(desk.read(&socket).await.is_err());
    assert!(desk.write(&socket, "x").await.is_err());
    let error = desk.read(desk.path("binary")).await.unwrap_err();
    assert!(error.code.0 == -32602 && error.message.contains("not UTF-8 text"), "{error}");
    fs::write(desk.path("file"), "").unwrap();
    let error = desk.read(desk.path("file/x")).await.unwrap_err();
    assert!(error.code.0 == -32602, "{error}");
}

#[tokio::test]
async fn a_write_keeps_the_mode_and_leaves_other_names_alone() {
    let desk = WorkspaceFixture::new();
    let path = desk.path("run.sh");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o751)).unwrap();
    fs::hard_link(&path, desk.path("other")).unwrap();
    fs::hard_link(desk.outer("outside/file"), desk.path("linked")).unwrap();
    desk.write(&path, "new").await.unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o751);
    assert_eq!(desk.read(desk.path("other")).await.unwrap(), "old");
    // A hard link is a normal file of the workspace. Writing it does not change the linked file.
    assert_eq!(desk.read(desk.path("linked")).await.unwrap(), SECRET);
    desk.write(desk.path("linked"), "mine").await.unwrap();
    assert_eq!(desk.read(desk.path("linked")).await.unwrap(), "mine");
    desk.assert_outside_is_as_it_was();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    let error = desk.write(&path, "x").await.unwrap_err();
    assert!(error.message.contains("read-only"), "{error}");
    assert_eq!(desk.read(&path).await.unwrap(), "new");
}

#[tokio::test]
async fn the_folder_stays_the_one_that_was_opened() {
    let desk = WorkspaceFixture::new();
    fs::write(desk.path("file"), "mine").unwrap();
    fs::rename(desk.outer("ws"), desk.outer("moved")).unwrap();
    symlink(desk.outer("outside"), desk.outer("ws")).unwrap();
    assert_eq!(desk.read(desk.path("file")).await.unwrap(), "mine");
    desk.write(desk.path("new"), "x").await.unwrap();
    assert_eq!(fs::read_to_string(desk.outer("moved/new")).unwrap(), "x");
    desk.assert_outside_is_as_it_was();
}

/// Reports the end when it is dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Another thread changes a name from a folder to an outside link and back, as fast as possible.
#[tokio::test(flavor = "multi_thread")]
async fn no_race_of_links_leads_outside() {
    const ROUNDS: usize = 400;
    let desk = WorkspaceFixture::new();
    for name in ["inner", "link"] {
        fs::create_dir(desk.path(name)).unwrap();
    }
    fs::write(desk.path("inner/file"), "mine").unwrap();
    fs::write(desk.path("plain"), "mine").unwrap();
    fs::remove_dir(desk.path("link")).unwrap();
    symlink(desk.outer("outside"), desk.path("link")).unwrap();
    symlink(desk.outer("outside/file"), desk.path("plain-link")).unwrap();
    let done = AtomicBool::new(false);
    let (mut inside, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let exchange = |one: &str, other: &str| {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                let (one, other) = (desk.path(one), desk.path(other));
                rustix::fs::renameat_with(rustix::fs::CWD, one, rustix::fs::CWD, other, flags)
                    .unwrap();
            };
            while !done.load(Ordering::Relaxed) {
                exchange("inner", "link");
                exchange("plain", "plain-link");
            }
        });
        // The other thread must end in any case.
        let _over = Over(&done);
        let handle = tokio::runtime::Handle::current();
        tokio::task::block_in_place(|| {
            handle.block_on(async {
                for round in 0..ROUNDS {
                    for path in ["inner/file", "plain"] {
                        match desk.read(desk.path(path)).await {
                            Ok(text) => {
                                inside += 1;
                                assert_ne!(text, SECRET);
                            }
                            Err(_) => refused += 1,
                        }
                        let _ = desk.write(desk.path(path), &format!("mine {round}")).await;
                    }
                    let _ = desk.write(desk.path(&format!("inner/new-{round}")), "mine").await;
                    desk.assert_outside_is_as_it_was();
                }
            });
        });
    });
    assert!(inside > 0 && refused > 0, "the race was none: {inside} {refused}");
}

#[tokio::test]
async fn sizes_are_bounded() {
    let limits = Limits { max_text_bytes: 10, max_scanned_bytes: 30, ..Limits::default() };
    let desk = WorkspaceFixture::with(Grants { files: Files::Write, limits, ..Grants::default() });
    let path = desk.path("file");
    desk.write(&path, "0123456789").await.unwrap();
    assert_eq!(desk.read(&path).await.unwrap(), "0123456789");
    let error = desk.write(&path, "0123456789a").await.unwrap_err();
    assert!(error.code.0 == -32602 && error.message.contains("10 bytes"), "{error}");
    fs::write(&path, "one\ntwo\nthree\nfour\nfive\nsix\nseven\n").unwrap();
    let error = desk.read(&path).await.unwrap_err();
    assert!(error.code.0 == -32602 && error.message.contains("`limit`"), "{error}");
    let lines = |line: u32, limit: u32| json!({ "line": line, "limit": limit });
    assert_eq!(desk.read_lines(&path, lines(3, 1)).await.unwrap(), "three\n");
    assert!(desk.read_lines(&path, lines(1, 4)).await.is_err());
    let error = desk.read_lines(&path, lines(7, 1)).await.unwrap_err();
    assert!(error.message.contains("not within its first"), "{error}");
}

#[tokio::test]
async fn what_is_not_granted_is_not_there() {
    let both = ["fs/read_text_file", "fs/write_text_file"];
    for (files, advertised) in
        [(Files::None, [false, false]), (Files::Read, [true, false]), (Files::Write, [true, true])]
    {
        let desk = WorkspaceFixture::with(Grants { files, ..Grants::default() });
        fs::write(desk.path("file"), "here").unwrap();
        let fs = desk.workspace.capabilities().fs.unwrap();
        assert_eq!([fs.read_text_file, fs.write_text_file], advertised);
        assert!(!desk.workspace.capabilities().terminal);
        let read = desk.read("file").await.map_err(|error| error.code.0);
        assert_eq!(read.is_ok(), advertised[0], "{read:?}");
        let written = desk.write("file", "x").await.map_err(|error| error.code.0);
        assert_eq!(written.is_ok(), advertised[1], "{written:?}");
        for (method, granted) in both.into_iter().zip(advertised) {
            assert_eq!(desk.workspace.serves(method), granted);
        }
        let params = json!({ "sessionId": "", "command": "true" }).to_string();
        let error = desk.workspace.call("terminal/create", &params).await.unwrap_err();
        assert_eq!(error.code.0, -32601);
    }
}

#[tokio::test]
async fn some_folders_are_no_workspaces() {
    for root in ["/", "/proc", "/proc/self", "/dev", "/none/such"] {
        assert!(Workspace::open(Path::new(root), Grants::default()).is_err(), "{root}");
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    assert!(Workspace::open(file.path(), Grants::default()).is_err());
}

#[tokio::test]
async fn params_are_read_as_the_protocol_has_them() {
    let desk = WorkspaceFixture::new();
    fs::write(desk.path("file"), "here").unwrap();
    // The session id may be missing, and `null` counts as missing.
    let params = r#"{"path":"file","line":null,"limit":1.0,"_meta":{"a":1},"more":2}"#;
    assert!(desk.workspace.call("fs/read_text_file", params).await.is_ok());
    for bad in ["{}", r#"{"path":1}"#, r#"{"path":"file","line":-1}"#] {
        let error = desk.workspace.call("fs/read_text_file", bad).await.unwrap_err();
        assert_eq!(error.code.0, -32602, "{bad}");
    }
}
