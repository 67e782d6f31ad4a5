//! Many writers at once.

use trilogue_domain::Code;

use crate::harness::{Log, World, code, contract};

contract!(
    many_threads_stay_gapless,
    one_of_two_writers_wins,
    a_bad_batch_among_good_ones_fails_alone,
);

async fn many_threads_stay_gapless(world: World) {
    let mut tasks = Vec::new();
    for number in 0..64 {
        let mut log = world.thread(&format!("t{number}")).await;
        tasks.push(tokio::spawn(async move {
            let run = log.start(&format!("r{number}")).await;
            for step in 0..20 {
                let run = (step % 3 != 0).then_some(run.key);
                log.step().say(run, &["a", "b"]).commit().await.unwrap();
            }
            log
        }));
    }
    for task in tasks {
        let log = task.await.unwrap();
        let numbers: Vec<_> = log.read().await.into_iter().map(|event| event.0).collect();
        assert_eq!(numbers, (1..=41).collect::<Vec<_>>());
    }
    let stats = world.store.stats().await.unwrap();
    assert_eq!((stats.threads, stats.frames), (64, 64 * 21));
}

async fn one_of_two_writers_wins(world: World) {
    let log = world.thread("t").await;
    let mut tasks = Vec::new();
    for number in 0..8 {
        // Each writer acts as if it were alone.
        let mut copy = Log::of(log.store.clone(), log.row.clone());
        let text = number.to_string();
        tasks.push(tokio::spawn(async move { copy.step().say(None, &[&text]).commit().await }));
    }
    let mut won = 0;
    for task in tasks {
        match task.await.unwrap() {
            Ok(()) => won += 1,
            Err(error) => assert_eq!(error.code(), Code::OwnershipLost),
        }
    }
    assert_eq!(won, 1);
    assert_eq!(log.read().await.len(), 1);
}

async fn a_bad_batch_among_good_ones_fails_alone(world: World) {
    let mut taken = world.thread("taken").await;
    taken.start("r").await;
    let mut tasks = Vec::new();
    for number in 0..32 {
        let mut log = world.thread(&format!("t{number}")).await;
        tasks.push(tokio::spawn(async move {
            let is_bad = number % 4 == 0;
            let id = if is_bad { "r".to_owned() } else { format!("r{number}") };
            let row = log.run_row(&id);
            let result = log.step().say(Some(row.key), &["a"]).run(&row).commit().await;
            (is_bad, result, log)
        }));
    }
    for task in tasks {
        let (is_bad, result, mut log) = task.await.unwrap();
        if is_bad {
            assert_eq!(code(result), Code::AlreadyExists);
            assert_eq!(log.read().await, []);
        } else {
            result.unwrap();
            assert_eq!(log.read().await.len(), 1);
        }
        log.step().say(None, &["b"]).commit().await.unwrap();
    }
}
