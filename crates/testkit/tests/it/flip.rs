//! Flipped bytes in the files of a stopped server: the server never serves wrong data.

use std::collections::BTreeMap;
use std::fs;

use anyhow::Result;
use serde_json::{Value, json};
use trilogue_testkit::{Client, Folder, Home, Seed, Server, ServerOptions};

use crate::{echo, events, run_of};

const DAMAGES: u64 = 24;
const FLIPS: u64 = 3;
/// A part of a message.
const SAID: &[u8] = b"turn 2 turn 2 turn 2";
/// The length of the file's header, in bytes.
const HEADER_BYTES: usize = 100;
/// Errors that report a damaged store or thread.
const DAMAGE_CODES: [&str; 2] = ["thread_quarantined", "store_corrupt"];

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
enum Reading {
    Equal,
    Refused,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flipped_bytes_are_refused_and_never_served() {
    let (number, mut seed) = Seed::from_env("TRILOGUE_SEED");
    eprintln!("TRILOGUE_SEED={number}");
    let dir = Folder::new().unwrap();
    let server = Server::start(dir.path(), &ServerOptions::default()).await.unwrap();
    let truth = furnish(&server.client()).await.unwrap();
    let (home, _) = server.stop().await.unwrap();
    let intact = read_files(&home);
    let file = home.store_dir().join("trilogue.db");
    let length = fs::metadata(&file).unwrap().len();

    let mut readings: BTreeMap<Reading, usize> = BTreeMap::new();
    let mut refused_starts = 0;
    for damage in 0..=DAMAGES {
        restore_files(&home, &intact);
        let mut bytes = fs::read(&file).unwrap();
        let mut is_other_file = false;
        // The last damage is in a message, to make sure that one is noticed.
        let in_message = damage == DAMAGES;
        if in_message {
            let said = bytes.windows(SAID.len()).position(|part| part == SAID);
            bytes[said.unwrap()] ^= 1;
        }
        for _ in (0..FLIPS).filter(|_| !in_message) {
            let offset = usize::try_from(seed.below(length)).unwrap();
            bytes[offset] ^= 1 << seed.below(8);
            is_other_file |= offset < HEADER_BYTES;
        }
        fs::write(&file, bytes).unwrap();
        match home.start().await {
            Ok(server) => {
                let mut refused = 0;
                for (thread, expected) in &truth {
                    let reading = read(&server.client(), thread, expected).await;
                    *readings.entry(reading).or_default() += 1;
                    refused += usize::from(reading == Reading::Refused);
                }
                assert!(!in_message || refused > 0, "damage in a message was not noticed");
                server.kill().await.unwrap();
            }
            Err(error) => {
                let message = format!("{error:#}");
                let names_it = message.contains("is damaged") && message.contains("restore");
                // For example a newer store, or a file of another program.
                assert!(
                    names_it || is_other_file && !message.contains("panicked"),
                    "damage {damage}: the start failed otherwise: {message}"
                );
                refused_starts += 1;
            }
        }
    }
    eprintln!("{readings:?}, {refused_starts} starts refused");
    assert!(readings.contains_key(&Reading::Equal), "every thread was closed by every damage");

    // The intact files still work: only the damage was refused.
    restore_files(&home, &intact);
    let server = home.start().await.unwrap();
    for (thread, expected) in &truth {
        assert_eq!(read(&server.client(), thread, expected).await, Reading::Equal);
    }
}

async fn furnish(client: &Client) -> Result<BTreeMap<String, Vec<Value>>> {
    let mut truth = BTreeMap::new();
    for index in 0..12 {
        let thread = format!("t{index}");
        for turn in 0..4 {
            echo(client, &thread, &format!("turn {turn} ").repeat(200)).await.ok()?;
        }
        let research = run_of("researcher", &thread, &json!("what is a log?"), "wait");
        client.post("/api/v1/runs", &research).await?.ok()?;
        truth.insert(thread.clone(), events(client, &thread).await?);
    }
    Ok(truth)
}

/// Reads a thread of a damaged store: it must be intact, or be refused with a code that gives the reason.
async fn read(client: &Client, thread: &str, expected: &[Value]) -> Reading {
    let reply = client.get(&format!("/api/v1/threads/{thread}/events?limit=1000")).await.unwrap();
    if reply.status >= 400 {
        let code = reply.code();
        assert!(DAMAGE_CODES.contains(&code.as_str()), "{thread}: {} {code}", reply.status);
        return Reading::Refused;
    }
    match events(client, thread).await {
        Ok(served) => {
            assert_eq!(served, expected, "{thread} was served with other events");
            Reading::Equal
        }
        Err(_) => Reading::Refused,
    }
}

fn read_files(home: &Home) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let files = fs::read_dir(home.store_dir()).unwrap().map(|entry| entry.unwrap().path());
    files
        .filter(|path| path.is_file())
        .map(|path| (path.clone(), fs::read(&path).unwrap()))
        .collect()
}

fn restore_files(home: &Home, files: &[(std::path::PathBuf, Vec<u8>)]) {
    for entry in fs::read_dir(home.store_dir()).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    for (path, bytes) in files {
        fs::write(path, bytes).unwrap();
    }
}
