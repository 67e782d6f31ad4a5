use std::sync::Arc;

use trilogue_domain::ThreadKey;
use trilogue_domain::error::Code;

use super::seed::{Folder, batch, creation, everything, frames, numbers, scope, thread_with_run};
use crate::port::{Admin, Append, Batch, Change, Range, Read};
use crate::rows::{Page, ThreadFilter};

#[tokio::test]
async fn an_attached_reader_is_served_from_memory_and_agrees_with_the_file() {
    let folder = Folder::new();
    let store = Arc::new(folder.open().await);
    let (thread, run) = thread_with_run(&store, 3).await;
    let mut tail = store.tail(thread.key);
    tail.committed.wait_for(|committed| *committed == 3).await.unwrap();
    for number in 4..=20 {
        let texts = ["one", "two"];
        let first = 4 + (number - 4) * 2;
        let frames = frames(thread.key, Some(run), first, first, &texts);
        store.append(Batch { frames, ..batch(thread.key, first - 1) }).await.unwrap();
    }
    tail.committed.changed().await.unwrap();
    assert_eq!(*tail.committed.borrow(), 37);
    assert!(store.stats().await.unwrap().cache_bytes > 0);
    let cold = folder.raw();
    cold.execute("UPDATE frames SET body = x'00' WHERE first > 3", []).unwrap();
    // From the fourth number, reads do not use the file, which would be found damaged.
    for (run, after) in
        [(None, 3), (None, 8), (Some(run), 3), (Some(run), 9), (None, 37), (Some(run), 37)]
    {
        let range = Range { run, after, max_bytes: usize::MAX };
        let found = store.frames(thread.key, range).await.unwrap();
        let wanted: Vec<_> = found.iter().flat_map(|frame| frame.first()..=frame.last()).collect();
        let begin = if after >= 37 { 38 } else { 4 + (after - 3) / 2 * 2 };
        assert_eq!(wanted, (begin..=37).collect::<Vec<_>>(), "{run:?} after {after}");
    }
    drop(tail);
    assert_eq!(store.stats().await.unwrap().cache_bytes, 0);
    let error = store.frames(thread.key, Range { after: 3, ..everything() }).await.unwrap_err();
    assert_eq!(error.code(), Code::ThreadQuarantined);
}

#[tokio::test]
async fn a_reader_of_a_log_that_was_written_in_this_life_knows_its_end_without_a_look_up() {
    let folder = Folder::new();
    let store = folder.open().await;
    let (thread, _) = thread_with_run(&store, 3).await;
    // A look-up would find the damage.
    folder.raw().execute("UPDATE frames SET body = x'00'", []).unwrap();
    let mut tail = store.tail(thread.key);
    assert_eq!(*tail.committed.borrow_and_update(), 3);
    assert_eq!(store.last_number(thread.key).await.unwrap(), 3);
    let more = Batch { frames: frames(thread.key, None, 4, 0, &["x"]), ..batch(thread.key, 3) };
    store.append(more).await.unwrap();
    assert_eq!(*tail.committed.borrow_and_update(), 4);
    assert!(store.frames(thread.key, Range { after: 4, ..everything() }).await.unwrap().is_empty());
    // A refused batch has changed nothing.
    let late = Batch { frames: frames(thread.key, None, 4, 0, &["y"]), ..batch(thread.key, 3) };
    store.append(late).await.unwrap_err();
    assert_eq!(store.last_number(thread.key).await.unwrap(), 4);
    // A removed thread has no end.
    store
        .append(Batch { changes: vec![Change::RemoveThread], ..batch(thread.key, 4) })
        .await
        .unwrap();
    assert_eq!(store.last_number(thread.key).await.unwrap(), 0);
}

#[tokio::test]
async fn the_cache_of_tails_is_bounded_per_thread_and_in_all() {
    let folder = Folder::new();
    let store = folder.open_with(|options| options.tail_cache_bytes = 3_000_000).await;
    let text = "x".repeat(200_000);
    let mut tails = Vec::new();
    for _ in 0..5 {
        let (thread, _) = thread_with_run(&store, 0).await;
        tails.push(store.tail(thread.key));
        for number in 1..=8 {
            let frames = frames(thread.key, None, number, 0, &[&text]);
            store.append(Batch { frames, ..batch(thread.key, number - 1) }).await.unwrap();
        }
        let bytes = store.stats().await.unwrap().cache_bytes;
        assert!((800_000..=3_200_000).contains(&bytes), "{bytes}");
        assert_eq!(numbers(&store, &thread).await, (1..=8).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn pages_are_bounded_in_bytes_and_continue() {
    let folder = Folder::new();
    let store = folder.open().await;
    let (thread, _) = thread_with_run(&store, 50).await;
    let (mut after, mut reads, mut seen) = (0, 0, Vec::new());
    loop {
        let frames =
            store.frames(thread.key, Range { run: None, after, max_bytes: 300 }).await.unwrap();
        let Some(last) = frames.last() else { break };
        after = last.last();
        seen.extend(frames.iter().map(|frame| frame.first()));
        reads += 1;
    }
    assert_eq!(seen, (1..=50).collect::<Vec<_>>());
    assert!(reads > 5, "{reads}");
}

#[tokio::test]
async fn a_condition_that_no_index_serves_looks_at_a_bounded_number_of_rows() {
    let folder = Folder::new();
    let store = folder.open_with(|options| options.durability = crate::Durability::Buffered).await;
    let store = Arc::new(store);
    let mut tasks = Vec::new();
    for _ in 0..10_050 {
        let (store, key) = (Arc::clone(&store), store.next_thread_key());
        tasks.push(tokio::spawn(async move { store.append(creation(key)).await }));
    }
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    let filter = |conditions: &[(&str, &str)]| ThreadFilter {
        metadata: conditions.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        ..ThreadFilter::default()
    };
    let page = Page { limit: 3, after: None, skip: 0 };
    let broad = filter(&[("colour", "\"blue\""), ("nested", "{\"a\":1}")]);
    let error = store.threads(&scope(), &broad, &page).await.unwrap_err();
    assert_eq!(error.code(), Code::FilterTooBroad);
    // The condition with few matches is used as the access path, in any position.
    let narrow = filter(&[("colour", "\"blue\""), ("key", "77")]);
    let found = store.threads(&scope(), &narrow, &page).await.unwrap();
    assert_eq!(found.rows.iter().map(|row| row.key).collect::<Vec<_>>(), [ThreadKey(77)]);
    let hostile = filter(&[("colour' OR '1'='1", "\"blue\"")]);
    assert!(store.threads(&scope(), &hostile, &page).await.unwrap().rows.is_empty());
}

#[tokio::test]
async fn removed_runs_leave_gaps_that_are_no_damage() {
    let folder = Folder::new();
    let store = folder.open().await;
    let (thread, run) = thread_with_run(&store, 3).await;
    let (second, third) = (store.next_run_key(), store.next_run_key());
    for (next, (key, first_run)) in (4..).zip([(second, 1), (third, 1), (second, 2), (third, 2)]) {
        let frames = frames(thread.key, Some(key), next, first_run, &["x"]);
        let row = super::seed::run_row(thread.key, key);
        let changes = vec![Change::Run(Box::new(row))];
        store.append(Batch { frames, changes, ..batch(thread.key, next - 1) }).await.unwrap();
    }
    for (key, left) in [(second, vec![1, 2, 3, 5, 7]), (run, vec![5, 7]), (third, vec![])] {
        let removal = Batch { changes: vec![Change::RemoveRun(key)], ..batch(thread.key, 7) };
        store.append(removal).await.unwrap();
        assert_eq!(numbers(&store, &thread).await, left);
    }
    let gaps: i64 =
        folder.raw().query_row("SELECT count(*) FROM gaps", [], |row| row.get(0)).unwrap();
    assert_eq!(gaps, 1);
}

#[tokio::test]
async fn a_panic_of_one_read_does_not_close_the_store() {
    let folder = Folder::new();
    let store = folder.open().await;
    let read = |is_broken: bool| {
        store.context.read(move |_, _| {
            assert!(!is_broken, "broken");
            Ok(())
        })
    };
    assert_eq!(read(true).await.unwrap_err().code(), Code::Internal);
    read(false).await.unwrap();
}
