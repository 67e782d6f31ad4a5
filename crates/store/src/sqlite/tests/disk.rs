use std::sync::Arc;
use std::time::{Duration, Instant};

use trilogue_domain::error::Code;

use super::seed::{Folder, batch, frames, numbers, options, run_row, thread_row, thread_with_run};
use crate::port::{Admin, Append, Batch, Change};
use crate::sqlite::SqliteStore;
use crate::sqlite::file::{Reserve, sibling_path};

const MIB: u64 = 1024 * 1024;

/// Appends large frames until the disk is full. Returns the last number that was stored.
async fn fill(store: &SqliteStore, thread: trilogue_domain::ThreadKey) -> u64 {
    let text = "x".repeat(60_000);
    for number in 1..1_000 {
        let frames = frames(thread, None, number, 0, &[&text]);
        match store.append(Batch { frames, ..batch(thread, number - 1) }).await {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error.code(), Code::DiskFull);
                return number - 1;
            }
        }
    }
    panic!("the store took 60 MB");
}

#[tokio::test]
async fn a_full_store_still_ends_runs_and_takes_everything_again_when_there_is_room() {
    let folder = Folder::new();
    let store = Arc::new(
        folder
            .open_with(|options| {
                options.max_bytes = Some(2 * MIB);
                options.reserve_bytes = MIB / 2;
            })
            .await,
    );
    let (ending, run) = thread_with_run(&store, 1).await;
    let (thread, _) = thread_with_run(&store, 0).await;
    assert!(sibling_path(&folder.path, ".reserve").exists());
    let last = fill(&store, thread.key).await;
    assert!(last > 5, "{last}");
    assert_eq!(store.health().unwrap_err().code(), Code::DiskFull);
    assert!(!sibling_path(&folder.path, ".reserve").exists());

    // The end of a run is admitted, in a group with changes that are not.
    let row = crate::rows::RunRow {
        status: trilogue_domain::RunStatus::Completed,
        ..run_row(ending.key, run)
    };
    let end = Batch {
        frames: frames(ending.key, Some(run), 2, 2, &["the end"]),
        changes: vec![Change::Run(Box::new(row))],
        vital: true,
        ..batch(ending.key, 1)
    };
    let more = Batch {
        frames: frames(thread.key, None, last + 1, 0, &["more"]),
        ..batch(thread.key, last)
    };
    let (ended, refused) = tokio::join!(store.append(end), store.append(more.clone()));
    ended.unwrap();
    assert_eq!(refused.unwrap_err().code(), Code::DiskFull);
    assert_eq!(numbers(&store, &thread_row(thread.key)).await.len() as u64, last);

    // Erasing frees space, and the store detects that by itself.
    let erase =
        Batch { changes: vec![Change::RemoveThread], vital: true, ..batch(thread.key, last) };
    store.append(erase).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while store.health().is_err() {
        assert!(Instant::now() < deadline, "the store does not see that there is room");
        tokio::task::yield_now().await;
    }
    assert!(sibling_path(&folder.path, ".reserve").exists());
    let on = Batch { frames: frames(ending.key, None, 3, 0, &["on"]), ..batch(ending.key, 2) };
    store.append(on).await.unwrap();
}

#[tokio::test]
async fn what_was_acknowledged_before_the_disk_was_full_is_there_after_a_restart() {
    let folder = Folder::new();
    let last = {
        let store = folder.open_with(|options| options.max_bytes = Some(MIB)).await;
        let (thread, _) = thread_with_run(&store, 0).await;
        fill(&store, thread.key).await
    };
    let store = folder.open().await;
    store.health().unwrap();
    let thread = thread_row(trilogue_domain::ThreadKey(1));
    assert_eq!(numbers(&store, &thread).await, (1..=last).collect::<Vec<_>>());
}

#[test]
fn the_reserve_really_takes_its_room() {
    use std::os::unix::fs::MetadataExt;
    let folder = Folder::new();
    let reserve = Reserve::new(&folder.path, 4 * MIB);
    assert!(reserve.fill().unwrap());
    let file = sibling_path(&folder.path, ".reserve");
    let found = std::fs::metadata(&file).unwrap();
    assert_eq!(found.len(), 4 * MIB);
    assert!(found.blocks() * 512 >= 4 * MIB);
    reserve.release().unwrap();
    assert!(!file.exists());
    reserve.release().unwrap();
}

#[tokio::test]
async fn a_reserve_that_cannot_be_written_does_not_count_as_a_full_disk() {
    let folder = Folder::new();
    let reserve = sibling_path(&folder.path, ".reserve");
    std::fs::create_dir(&reserve).unwrap();
    let error = SqliteStore::open(folder.path.clone(), options()).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidRequest);
    assert!(error.message().contains(reserve.to_str().unwrap()), "{error}");
    std::fs::remove_dir(&reserve).unwrap();
    folder.open().await.health().unwrap();
}
