use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use trilogue_domain::error::Code;
use trilogue_domain::thread::OPENED_HERE_MEMBER;
use trilogue_domain::{Json, RequestSource, RunAudit};

use super::seed::{
    Folder, OVERWRITE, batch, creation, frames, naming, numbers, options, run_row, scope, tenant,
    thread_row, thread_with_run,
};
use crate::port::{Admin, Append, Batch, Change, Housekeeping, Read};
use crate::rows::{BindingRow, RunRow};
use crate::sqlite::backup::unfinished;
use crate::sqlite::file::sibling_path;
use crate::sqlite::schema::SCHEMA_VERSION;
use crate::sqlite::{
    RestoreOptions, SqliteStore, StoreSnapshot, create_preparation_folder, restore, verify,
};

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn a_second_opening_is_told_who_holds_the_store() {
    let folder = Folder::new();
    let store = folder.open().await;
    let error = SqliteStore::open(folder.path.clone(), options()).await.unwrap_err();
    assert_eq!(error.code(), Code::StoreLocked);
    assert!(error.message().contains(&std::process::id().to_string()), "{error}");
    drop(store);
    folder.open().await;
}

/// A link to a store that does not exist yet makes the store where the link leads, with everything that belongs to it.
#[tokio::test]
async fn every_link_to_a_store_is_the_same_store() {
    let (folder, other) = (Folder::new(), Folder::new());
    let (link, chain) = (other.path.clone(), sibling_path(&other.path, ".link"));
    symlink(&folder.path, &link).unwrap();
    symlink(link.file_name().unwrap(), &chain).unwrap();
    let store = SqliteStore::open(chain.clone(), options()).await.unwrap();
    let (thread, _) = thread_with_run(&store, 3).await;
    for name in [&folder.path, &link, &chain] {
        let error = SqliteStore::open(name.clone(), options()).await.unwrap_err();
        assert_eq!(error.code(), Code::StoreLocked, "{}", name.display());
        assert_eq!(restore(name, name, OVERWRITE).unwrap_err().code(), Code::StoreLocked);
    }
    let copy = sibling_path(&folder.path, ".backup");
    store.backup(&copy).await.unwrap();
    store.close().await.unwrap();
    assert!(sibling_path(&folder.path, ".lock").exists());
    assert!(!sibling_path(&link, ".lock").exists() && !sibling_path(&chain, ".lock").exists());

    restore(&copy, &chain, OVERWRITE).unwrap();
    assert!(link.is_symlink() && chain.is_symlink());
    let store = folder.open().await;
    assert_eq!(numbers(&store, &thread).await, [1, 2, 3]);
    store.close().await.unwrap();

    // No lock could hold a process off that opens the file by its other name.
    let name = sibling_path(&folder.path, ".name");
    std::fs::hard_link(&folder.path, &name).unwrap();
    for path in [&folder.path, &name] {
        let error = SqliteStore::open(path.clone(), options()).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidRequest);
        assert!(error.message().contains("2 names"), "{error}");
        assert_eq!(StoreSnapshot::open(path).unwrap_err().code(), Code::InvalidRequest);
    }
    std::fs::remove_file(&name).unwrap();
    folder.open().await;

    let circle = sibling_path(&other.path, ".circle");
    symlink(&circle, &circle).unwrap();
    SqliteStore::open(circle, options()).await.unwrap_err();
}

#[tokio::test]
async fn nobody_else_may_read_the_files() {
    let folder = Folder::new();
    std::fs::write(&folder.path, b"").unwrap();
    std::fs::set_permissions(&folder.path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let store = folder.open().await;
    thread_with_run(&store, 1).await;
    for suffix in ["", "-wal", "-shm", ".lock", ".reserve"] {
        let path = sibling_path(&folder.path, suffix);
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
    let copy = sibling_path(&folder.path, ".backup");
    store.backup(&copy).await.unwrap();
    assert_eq!(mode(&copy), 0o600);
}

#[tokio::test]
async fn a_folder_that_is_not_there_is_named() {
    let folder = Folder::new();
    let path = folder.path.join("no/such/store.db");
    let error = SqliteStore::open(path, options()).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidRequest);
    assert!(error.message().contains("no/such"), "{error}");
}

#[tokio::test]
async fn a_backup_under_load_is_whole_and_restores() {
    let folder = Folder::new();
    let store = Arc::new(folder.open().await);
    let (thread, run) = thread_with_run(&store, 5).await;
    let content = Bytes::from(vec![b'x'; 100_000]);
    let blob = store.put_blob(&tenant(), content.clone(), true).await.unwrap();
    let named = Batch {
        frames: naming(thread.key, Some(run), 6, 6, &blob),
        blobs: vec![blob.clone()],
        ..batch(thread.key, 5)
    };
    store.append(named).await.unwrap();
    let writing = tokio::spawn({
        let store = Arc::clone(&store);
        async move {
            for number in 7..=200 {
                let frames = frames(thread_row_key(1), None, number, 0, &["while it is copied"]);
                let batch = batch(thread_row_key(1), number - 1);
                store.append(Batch { frames, ..batch }).await.unwrap();
            }
        }
    });
    let copy = sibling_path(&folder.path, ".backup");
    store.backup(&copy).await.unwrap();
    writing.await.unwrap();
    assert_eq!(store.backup(&copy).await.unwrap_err().code(), Code::AlreadyExists);
    let report = verify(&copy).unwrap();
    assert!(report.is_sound(), "{report:?}");
    assert_eq!((report.threads, report.runs, report.blobs), (1, 1, 1));
    assert!(report.frames >= 6 && report.events >= 6);

    // Over a store in use, over an unused one, and without an existing one.
    assert_eq!(restore(&copy, &folder.path, OVERWRITE).unwrap_err().code(), Code::StoreLocked);
    store.close().await.unwrap();
    assert_eq!(
        restore(
            &copy,
            &folder.path,
            RestoreOptions { with_runs: true, ..RestoreOptions::default() }
        )
        .unwrap_err()
        .code(),
        Code::AlreadyExists
    );
    restore(&copy, &folder.path, OVERWRITE).unwrap();
    let elsewhere = Folder::new();
    restore(
        &copy,
        &elsewhere.path,
        RestoreOptions { with_runs: true, ..RestoreOptions::default() },
    )
    .unwrap();
    for folder in [&folder, &elsewhere] {
        assert_eq!(mode(&folder.path), 0o600);
        let store = folder.open().await;
        let found = numbers(&store, &thread).await;
        assert_eq!(found, (1..=report.events).collect::<Vec<_>>());
        assert_eq!(store.blob(thread.key, &blob).await.unwrap(), Some(content.clone()));
        assert_eq!(store.thread(&scope(), &thread.id).await.unwrap(), Some(thread_row(thread.key)));
    }
}

/// A restore into a new file that is killed while it still reads the backup is noticed too.
#[tokio::test]
async fn a_restore_into_a_new_file_is_noticed_from_its_beginning() {
    let folder = Folder::new();
    let store = folder.open().await;
    thread_with_run(&store, 3).await;
    let backup = sibling_path(&folder.path, ".backup");
    store.backup(&backup).await.unwrap();
    store.close().await.unwrap();
    let to = sibling_path(&folder.path, ".new");
    // The restore waits for this lock before it can read the backup.
    let lock = rusqlite::Connection::open(&backup).unwrap();
    lock.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let (from, target) = (backup.clone(), to.clone());
    let options = RestoreOptions { with_runs: true, ..RestoreOptions::default() };
    let restored = std::thread::spawn(move || restore(&from, &target, options));
    let begun = std::time::Instant::now();
    while unfinished(&to).is_none() {
        assert!(begun.elapsed() < std::time::Duration::from_secs(20) && !restored.is_finished());
        std::thread::yield_now();
    }
    lock.execute_batch("ROLLBACK").unwrap();
    restored.join().unwrap().unwrap();
    assert_eq!((unfinished(&to), to.exists()), (None, true));

    // One that fails leaves nothing.
    let other = sibling_path(&folder.path, ".other");
    std::fs::write(&backup, "not a store").unwrap();
    restore(&backup, &other, RestoreOptions::default()).unwrap_err();
    assert_eq!((unfinished(&other), other.exists()), (None, false));
    let prepared = create_preparation_folder(&other).unwrap();
    assert_eq!((mode(&prepared), unfinished(&other)), (0o700, Some(prepared)));
}

/// What a file says of programs on this machine holds only where they were.
#[tokio::test]
async fn a_restored_store_has_nothing_from_programs_on_this_machine() {
    let folder = Folder::new();
    let store = folder.open().await;
    let (thread, key) = (store.next_thread_key(), store.next_run_key());
    let row = thread_row(thread);
    let audit = RunAudit {
        principal: row.owner.clone(),
        thread: row.id.clone(),
        token: None,
        source: RequestSource::LocalSocket,
        can_answer: true,
    };
    let run = RunRow { audit: Some(Box::new(audit)), ..run_row(thread, key) };
    let binding = |members: &str| BindingRow {
        thread,
        agent: run.agent.clone(),
        remote: "remote".to_owned(),
        capabilities: Json::parse(members.to_owned()).unwrap(),
        last_seen: None,
    };
    let opened = binding(&format!(r#"{{"cwd":"/w","{OPENED_HERE_MEMBER}":true}}"#));
    let mut first = creation(thread);
    first.changes.extend([Change::Run(Box::new(run.clone())), Change::Binding(opened)]);
    store.append(first).await.unwrap();
    let copy = sibling_path(&folder.path, ".backup");
    store.backup(&copy).await.unwrap();
    store.close().await.unwrap();
    restore(&copy, &folder.path, OVERWRITE).unwrap();
    let store = folder.open().await;
    let restored = store.run(&scope(), &run.id).await.unwrap().unwrap();
    assert_eq!(restored.audit.as_ref().unwrap().source, RequestSource::Network);
    let audit = restored
        .audit
        .clone()
        .map(|audit| Box::new(RunAudit { source: RequestSource::LocalSocket, ..*audit }));
    assert_eq!(RunRow { audit, ..restored }, run);
    let found = store.binding(&scope(), &row.id, &run.agent).await.unwrap();
    assert_eq!(found, Some(binding(r#"{"cwd":"/w"}"#)));
}

fn thread_row_key(key: i64) -> trilogue_domain::ThreadKey {
    trilogue_domain::ThreadKey(key)
}

#[tokio::test]
async fn a_damaged_or_newer_backup_is_not_restored() {
    let folder = Folder::new();
    let store = folder.open().await;
    thread_with_run(&store, 3).await;
    let copy = sibling_path(&folder.path, ".backup");
    store.backup(&copy).await.unwrap();
    store.close().await.unwrap();
    let raw = rusqlite::Connection::open(&copy).unwrap();
    raw.pragma_update(None, "user_version", 99).unwrap();
    assert_eq!(verify(&copy).unwrap_err().code(), Code::StoreTooNew);
    assert_eq!(restore(&copy, &folder.path, OVERWRITE).unwrap_err().code(), Code::StoreTooNew);
    raw.pragma_update(None, "user_version", SCHEMA_VERSION).unwrap();
    raw.execute("DELETE FROM frames WHERE first = 2", []).unwrap();
    raw.execute("UPDATE runs SET body = x'0102'", []).unwrap();
    let report = verify(&copy).unwrap();
    assert_eq!(report.damage.len(), 2, "{report:?}");
    let error = restore(&copy, &folder.path, OVERWRITE).unwrap_err();
    assert_eq!(error.code(), Code::StoreCorrupt);
    // The existing store is unchanged.
    assert_eq!(numbers(&folder.open().await, &thread_row(thread_row_key(1))).await, [1, 2, 3]);
    assert_eq!(verify(Path::new("/no/such/backup")).unwrap_err().code(), Code::InvalidRequest);
}

#[tokio::test]
async fn what_was_removed_is_in_none_of_the_files() {
    let folder = Folder::new();
    let store = folder.open().await;
    let (thread, run) = (store.next_thread_key(), store.next_run_key());
    store.append(creation(thread)).await.unwrap();
    let secret = "a secret that must be gone";
    let content = Bytes::from(secret.repeat(4_000));
    let blob = store.put_blob(&tenant(), content, true).await.unwrap();
    let mut told = batch(thread, 0);
    told.frames = frames(thread, Some(run), 1, 1, &[secret]);
    told.frames.extend(naming(thread, Some(run), 2, 2, &blob));
    told.blobs = vec![blob];
    told.changes = vec![Change::Run(Box::new(run_row(thread, run)))];
    store.append(told).await.unwrap();
    let removal = Batch { changes: vec![Change::RemoveThread], vital: true, ..batch(thread, 2) };
    store.append(removal).await.unwrap();
    until_gone(&folder, secret).await;
    store.close().await.unwrap();
    assert!(!holds(&folder, "", secret));
}

#[tokio::test]
async fn what_was_erased_unread_is_in_none_of_the_files() {
    let folder = Folder::new();
    let store = folder.open().await;
    let (thread, run) = (store.next_thread_key(), store.next_run_key());
    store.append(creation(thread)).await.unwrap();
    let mut tail = store.tail(thread);
    let secret = "a secret of a damaged thread";
    let frames = frames(thread, Some(run), 1, 1, &[secret]);
    let changes = vec![Change::Run(Box::new(run_row(thread, run)))];
    store.append(Batch { frames, changes, ..batch(thread, 0) }).await.unwrap();
    assert!(holds(&folder, "-wal", secret), "the search finds what is there");
    assert!(store.stats().await.unwrap().cache_bytes > 0);
    tail.committed.mark_unchanged();
    store.quarantine(thread, "a test says so");
    let erased = store.erase_quarantined(&scope(), &thread_row(thread).id).await.unwrap();
    assert_eq!(erased, Some(thread));
    assert_eq!(store.stats().await.unwrap().cache_bytes, 0);
    assert!(tail.committed.has_changed().is_err(), "its readers learn that it is gone");
    until_gone(&folder, secret).await;
}

/// Whether a file of the store holds the text.
fn holds(folder: &Folder, suffix: &str, text: &str) -> bool {
    let bytes = std::fs::read(sibling_path(&folder.path, suffix)).unwrap_or_default();
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

async fn until_gone(folder: &Folder, text: &str) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while holds(folder, "", text) || holds(folder, "-wal", text) {
        assert!(std::time::Instant::now() < deadline, "the removed content is still on the disk");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_blob_goes_with_the_last_frame_that_names_it_and_not_before() {
    let folder = Folder::new();
    let store = folder.open().await;
    let (one, run) = thread_with_run(&store, 0).await;
    let (two, other) = thread_with_run(&store, 0).await;
    let content = Bytes::from_static(b"shared content");
    let blob = store.put_blob(&tenant(), content.clone(), false).await.unwrap();
    for (thread, run) in [(one.key, run), (two.key, other)] {
        let frames = naming(thread, Some(run), 1, 1, &blob);
        let named = Batch { frames, blobs: vec![blob.clone()], ..batch(thread, 0) };
        store.append(named).await.unwrap();
    }
    let removal = Batch { changes: vec![Change::RemoveRun(run)], ..batch(one.key, 1) };
    store.append(removal).await.unwrap();
    assert_eq!(store.blob(one.key, &blob).await.unwrap(), None);
    assert_eq!(store.blob(two.key, &blob).await.unwrap(), Some(content.clone()));
    // Stored again for a later frame, while the last frame that names it is removed.
    store.put_blob(&tenant(), content.clone(), false).await.unwrap();
    let removal = Batch { changes: vec![Change::RemoveThread], ..batch(two.key, 1) };
    store.append(removal).await.unwrap();
    let frames = naming(one.key, None, 2, 0, &blob);
    let named = Batch { frames, blobs: vec![blob.clone()], ..batch(one.key, 1) };
    store.append(named).await.unwrap();
    assert_eq!(store.blob(one.key, &blob).await.unwrap(), Some(content));
    // The next start sweeps blobs that no frame ever names.
    store.put_blob(&tenant(), Bytes::from_static(b"never named"), false).await.unwrap();
    drop(store);
    let count = || -> i64 {
        folder.raw().query_row("SELECT count(*) FROM blobs", [], |row| row.get(0)).unwrap()
    };
    assert_eq!(count(), 2);
    drop(folder.open().await);
    assert_eq!(count(), 1);
}

#[tokio::test]
async fn a_restore_that_ends_anywhere_leaves_the_old_store_or_the_backup() {
    let folder = Folder::new();
    let store = folder.open().await;
    let (thread, run) = thread_with_run(&store, 2).await;
    let backup = sibling_path(&folder.path, ".backup");
    store.backup(&backup).await.unwrap();
    let newer = frames(thread.key, Some(run), 3, 3, &["acknowledged, and only in the log"]);
    store.append(Batch { frames: newer, ..batch(thread.key, 2) }).await.unwrap();
    // The files after each step of a restore, if the process ends there.
    let left = |names: &[(&str, &Path)]| {
        let left = Folder::new();
        for (suffix, from) in names {
            std::fs::copy(from, sibling_path(&left.path, suffix)).unwrap();
        }
        left
    };
    let (old, log) = (folder.path.as_path(), sibling_path(&folder.path, "-wal"));
    let old_store = [("", old), ("-wal", log.as_path())];
    let half = sibling_path(&folder.path, ".half");
    std::fs::write(&half, &std::fs::read(&backup).unwrap()[..5_000]).unwrap();
    let decided = (".restored", backup.as_path());
    for (step, files, expected) in [
        ("an unfinished copy", vec![old_store[0], old_store[1], (".restoring", &half)], 3),
        ("a whole copy", vec![old_store[0], old_store[1], (".restoring", &backup)], 3),
        ("decided", vec![old_store[0], old_store[1], decided], 2),
        ("the log removed", vec![old_store[0], decided], 2),
        ("no old store", vec![decided], 2),
        ("in place", vec![("", backup.as_path())], 2),
    ] {
        let left = left(&files);
        let again = left.open().await;
        let found = numbers(&again, &thread).await;
        assert_eq!(found, (1..=expected).collect::<Vec<u64>>(), "{step}");
        drop(again);
        for suffix in [".restoring", ".restored"] {
            assert!(!sibling_path(&left.path, suffix).exists(), "{step}: '{suffix}' is left");
        }
    }
    // A second restore first finishes the interrupted one.
    let left = left(&[decided]);
    assert_eq!(
        restore(
            &backup,
            &left.path,
            RestoreOptions { with_runs: true, ..RestoreOptions::default() }
        )
        .unwrap_err()
        .code(),
        Code::AlreadyExists
    );
    restore(&backup, &left.path, OVERWRITE).unwrap();
    assert_eq!(numbers(&left.open().await, &thread).await, [1, 2]);
}
