//! Listings: newest first, page by page, stable while rows are added and removed.

use serde_json::json;
use trilogue_domain::{Json, RunStatus, limits};
use trilogue_store::Change;
use trilogue_store::rows::{InterruptFilter, RunFilter, RunRow, ThreadFilter};

use crate::harness::{World, agent, alice, contract, now, page, thread_id, thread_row};
use crate::rows;

contract!(
    threads_come_newest_first_in_pages,
    a_page_stays_whole_while_rows_are_added_and_removed,
    ephemeral_threads_are_not_listed,
    runs_are_listed_by_thread_agent_and_status,
    interrupts_are_listed_by_thread_run_and_state,
    a_page_is_never_longer_than_the_limit,
    a_page_ends_behind_the_row_that_makes_it_too_large,
);

async fn threads_come_newest_first_in_pages(world: World) {
    for number in 0..7 {
        world.thread(&format!("t{number}")).await;
    }
    let (mut seen, mut after, mut pages) = (Vec::new(), None, 0);
    loop {
        let filter = ThreadFilter::default();
        let listing = world.store.threads(&alice(), &filter, &page(3, after)).await.unwrap();
        seen.extend(listing.rows.into_iter().map(|row| row.id.to_string()));
        pages += 1;
        after = listing.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, ["t6", "t5", "t4", "t3", "t2", "t1", "t0"]);
    assert_eq!(pages, 3);
    let exact = world.store.threads(&alice(), &ThreadFilter::default(), &page(7, None)).await;
    assert_eq!(exact.unwrap().next, None, "a full last page is the last");
}

async fn a_page_stays_whole_while_rows_are_added_and_removed(world: World) {
    let mut logs = Vec::new();
    for number in 0..6 {
        logs.push(world.thread(&format!("t{number}")).await);
    }
    let filter = ThreadFilter::default();
    let first = world.store.threads(&alice(), &filter, &page(2, None)).await.unwrap();
    world.thread("new").await;
    // Even the last row of a page may be removed.
    logs[4].step().change(Change::RemoveThread).commit().await.unwrap();
    logs[2].step().change(Change::RemoveThread).commit().await.unwrap();
    let second = world.store.threads(&alice(), &filter, &page(10, first.next)).await.unwrap();
    let ids: Vec<_> = first.rows.iter().chain(&second.rows).map(|row| row.id.as_str()).collect();
    assert_eq!(ids, ["t5", "t4", "t3", "t1", "t0"]);
}

async fn ephemeral_threads_are_not_listed(world: World) {
    world.thread("shown").await;
    let mut row = thread_row(world.store.next_thread_key(), &alice(), "hidden");
    row.ephemeral = true;
    world.create(row.clone()).await.unwrap();
    let listing = world.store.threads(&alice(), &ThreadFilter::default(), &page(10, None)).await;
    let ids: Vec<_> = listing.unwrap().rows.into_iter().map(|row| row.id.to_string()).collect();
    assert_eq!(ids, ["shown"]);
    assert_eq!(world.store.thread(&alice(), &thread_id("hidden")).await.unwrap(), Some(row));
}

async fn runs_are_listed_by_thread_agent_and_status(world: World) {
    let mut one = world.thread("one").await;
    let mut two = world.thread("two").await;
    let mut a = one.start("a").await;
    let b = two.start("b").await;
    let mut c = one.run_row("c");
    c.agent = agent("mail");
    one.step().run(&c).commit().await.unwrap();
    a = one.end(a).await;
    let runs = async |filter: RunFilter| {
        let listing = world.store.runs(&alice(), &filter, &page(10, None)).await.unwrap();
        listing.rows
    };
    assert_eq!(runs(RunFilter::default()).await, [c.clone(), b.clone(), a.clone()]);
    let thread = Some(thread_id("one"));
    let of_thread = RunFilter { thread: thread.clone(), ..RunFilter::default() };
    assert_eq!(runs(of_thread).await, [c.clone(), a.clone()]);
    let of_agent = RunFilter { agent: Some(agent("mail")), ..RunFilter::default() };
    assert_eq!(runs(of_agent).await, [c.clone()]);
    let of_status = RunFilter { statuses: vec![RunStatus::Running], ..RunFilter::default() };
    assert_eq!(runs(of_status).await, [c, b]);
    let all = RunFilter {
        thread,
        agent: Some(agent("echo")),
        statuses: vec![RunStatus::Completed],
        metadata: Vec::new(),
    };
    assert_eq!(runs(all).await, [a]);
    let none = RunFilter { thread: Some(thread_id("none")), ..RunFilter::default() };
    assert_eq!(runs(none).await, []);
}

async fn interrupts_are_listed_by_thread_run_and_state(world: World) {
    let mut log = world.thread("t").await;
    let (one, two) = (log.start("one").await, log.start("two").await);
    let mut first = log.interrupt("i-1", &one);
    let second = log.interrupt("i-2", &two);
    for row in [&first, &second] {
        let change = Change::Interrupt(Box::new(row.clone()));
        log.write([change]).await;
    }
    first.resolution = Some(trilogue_domain::Resolution::Cancelled);
    first.resolved_at = Some(now());
    log.write([Change::Interrupt(Box::new(first.clone()))]).await;
    let interrupts = async |filter: InterruptFilter, limit, after| {
        world.store.interrupts(&alice(), &filter, &page(limit, after)).await.unwrap()
    };
    let all = interrupts(InterruptFilter::default(), 1, None).await;
    assert_eq!(all.rows, std::slice::from_ref(&second));
    let rest = interrupts(InterruptFilter::default(), 1, all.next).await;
    assert_eq!((rest.rows, rest.next), (vec![first.clone()], None));
    let pending = InterruptFilter { pending: true, ..InterruptFilter::default() };
    assert_eq!(interrupts(pending, 9, None).await.rows, std::slice::from_ref(&second));
    let of_run = InterruptFilter { run: Some(one.id.clone()), ..InterruptFilter::default() };
    assert_eq!(interrupts(of_run, 9, None).await.rows, [first.clone()]);
    let of_thread = InterruptFilter { thread: Some(thread_id("t")), ..InterruptFilter::default() };
    assert_eq!(interrupts(of_thread, 9, None).await.rows, [second, first.clone()]);
    let none = InterruptFilter { thread: Some(thread_id("u")), ..InterruptFilter::default() };
    assert_eq!(interrupts(none, 9, None).await.rows, []);
    let id = rows::interrupt_id("i-1");
    assert_eq!(world.store.interrupt(&alice(), &id).await.unwrap(), Some(first));
}

async fn a_page_is_never_longer_than_the_limit(world: World) {
    let mut log = world.thread("t").await;
    for chunk in 0..11 {
        let rows: Vec<_> =
            (0..100).map(|n| log.run_row(&format!("r{}", chunk * 100 + n))).collect();
        let mut step = log.step();
        for row in &rows {
            step = step.run(row);
        }
        step.commit().await.unwrap();
    }
    let filter = RunFilter::default();
    let listing = world.store.runs(&alice(), &filter, &page(usize::MAX, None)).await.unwrap();
    assert_eq!(listing.rows.len(), limits::MAX_PAGE_ROWS);
    let rest = world.store.runs(&alice(), &filter, &page(usize::MAX, listing.next)).await.unwrap();
    assert_eq!((rest.rows.len(), rest.next), (100, None));
}

/// `PathReader` reads the states of a path in parts with the same bound.
async fn a_page_ends_behind_the_row_that_makes_it_too_large(world: World) {
    const ROWS: usize = 70;
    let text = "x".repeat(limits::MAX_METADATA_BYTES - 100);
    let mut log = world.thread("t").await;
    for number in 0..ROWS {
        let metadata = Json::from_value(&json!({ "text": text }));
        let mut row = thread_row(world.store.next_thread_key(), &alice(), &format!("t{number}"));
        row.metadata = metadata.clone();
        world.create(row).await.unwrap();
        let run = RunRow { metadata, ..log.run_row(&format!("r{number}")) };
        log.step().say(Some(run.key), &["x"]).run(&run).commit().await.unwrap();
    }
    let most = limits::MAX_PAGE_BYTES / text.len() + 1;
    let (mut threads, mut runs, mut after) = (0, 0, [None, None]);
    loop {
        let filter = ThreadFilter::default();
        let listing = world.store.threads(&alice(), &filter, &page(1_000, after[0])).await.unwrap();
        assert!(listing.rows.len() <= most + 1, "{} threads", listing.rows.len());
        threads += listing.rows.len();
        after[0] = listing.next;
        if after[0].is_none() {
            break;
        }
    }
    loop {
        let filter = RunFilter::default();
        let listing = world.store.runs(&alice(), &filter, &page(1_000, after[1])).await.unwrap();
        assert!(listing.rows.len() <= most, "{} runs", listing.rows.len());
        runs += listing.rows.len();
        after[1] = listing.next;
        if after[1].is_none() {
            break;
        }
    }
    // The runs' thread has no metadata.
    assert_eq!((threads, runs), (ROWS + 1, ROWS));
}
