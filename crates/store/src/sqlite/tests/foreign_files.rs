//! Foreign files: their authors can neither run code nor get access through them.

use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, params};
use trilogue_domain::error::Code;
use trilogue_domain::{Json, Rights};

use super::seed::{
    Folder, OVERWRITE, Random, batch, creation, options, tenant, thread_row, thread_with_run,
};
use crate::fixtures::{self, START};
use crate::port::{Admin, Append, Batch, Change, Tokens};
use crate::rows::{QueueItem, QueueKind};
use crate::sql::tokens;
use crate::sqlite::export::StoreSnapshot;
use crate::sqlite::file::sibling_path;
use crate::sqlite::row::run_to_end;
use crate::sqlite::schema::{MIGRATIONS, check_objects};
use crate::sqlite::{RestoreOptions, SqliteStore, restore, settle_draft, verify};

/// How many changed files are tried. `TRILOGUE_FOREIGN_FILES` sets another number.
const FILES: usize = 1_000;
/// One in 16 restored files is opened as a store.
const OPENED: usize = 16;

/// Changes that an attacker can make to a file with SQLite's tools. `T` is a table of a store.
const STATEMENTS: [&str; 26] = [
    "CREATE TRIGGER x AFTER INSERT ON T BEGIN DELETE FROM threads; END",
    "CREATE TRIGGER x BEFORE DELETE ON T BEGIN SELECT raise(ignore); END",
    "CREATE TRIGGER x AFTER UPDATE ON T BEGIN INSERT INTO gaps VALUES (1, 1, 99); END",
    "CREATE TRIGGER x AFTER DELETE ON tokens BEGIN INSERT INTO tokens SELECT old.key, old.tenant, old.id, old.principal, old.hash, old.body; END",
    "CREATE VIEW x AS SELECT * FROM T",
    "ALTER TABLE T RENAME TO hidden; CREATE VIEW T AS SELECT * FROM hidden",
    "ALTER TABLE T RENAME TO hidden; CREATE VIEW T AS SELECT * FROM hidden; CREATE TRIGGER x INSTEAD OF INSERT ON T BEGIN DELETE FROM frames; END",
    "CREATE TABLE x (y)",
    "CREATE TABLE x (y AS (hex(randomblob(1000000000))))",
    "ALTER TABLE T ADD COLUMN x TEXT DEFAULT 'y'",
    "ALTER TABLE T ADD COLUMN x INTEGER AS (abs(-9223372036854775808)) VIRTUAL",
    "CREATE INDEX x ON T (abs(rowid))",
    "CREATE INDEX x ON T (rowid) WHERE abs(rowid) > 0",
    "CREATE UNIQUE INDEX x ON tokens (principal)",
    "DROP INDEX runs_by_id",
    "DROP INDEX tokens_by_hash",
    "DROP TABLE T",
    "CREATE VIRTUAL TABLE x USING fts5(y)",
    "CREATE VIRTUAL TABLE x USING rtree(a, b, c)",
    "PRAGMA writable_schema = on; INSERT INTO sqlite_schema VALUES ('table', 'x', 'x', 0, 'CREATE VIRTUAL TABLE x USING dbstat')",
    "PRAGMA writable_schema = on; UPDATE sqlite_schema SET sql = replace(sql, 'NOT NULL', 'NOT NULL CHECK (length(randomblob(9)))') WHERE name = 'T'",
    "PRAGMA writable_schema = on; UPDATE sqlite_schema SET rootpage = 2 WHERE name = 'T'",
    "PRAGMA writable_schema = on; UPDATE sqlite_schema SET name = 'x' WHERE name = 'T'",
    "PRAGMA writable_schema = on; UPDATE sqlite_schema SET sql = 'CREATE TABLE T (key INTEGER PRIMARY KEY)' WHERE name = 'T'",
    "PRAGMA user_version = 1",
    "CREATE TABLE y (z); ANALYZE",
];
const TABLES: [&str; 8] =
    ["threads", "runs", "frames", "tokens", "queue", "interrupts", "blobs", "configurations"];

/// The tokens of a file, the forged ones too.
fn count_tokens(path: &Path) -> i64 {
    let conn = Connection::open(path).unwrap();
    conn.query_row("SELECT count(*) FROM tokens", [], |row| row.get(0)).unwrap()
}

/// A backup with a thread and a token.
async fn backup(folder: &Folder) -> Vec<u8> {
    let store = folder.open().await;
    thread_with_run(&store, 3).await;
    store.put_token(fixtures::token_row("tenant", "own", Rights::all())).await.unwrap();
    let copy = sibling_path(&folder.path, ".backup");
    crate::port::Admin::backup(&store, &copy).await.unwrap();
    crate::port::Admin::close(&store).await.unwrap();
    std::fs::read(copy).unwrap()
}

/// A token as the server would write it, for an attacker who knows its secret.
fn forge_token(conn: &Connection, number: usize) {
    let mut token = fixtures::token_row("default", &format!("forged-{number}"), Rights::all());
    token.hash = [u8::try_from(number % 250).unwrap(); 32];
    // The token may exist already, or the table may be gone.
    drop(run_to_end(tokens::put(conn, &token)));
}

/// Changes a file in one to three ways. Returns a description of each.
fn change(path: &Path, random: &mut Random, number: usize) -> Vec<String> {
    let mut done = Vec::new();
    for _ in 0..=random.below(3) {
        match random.below(8) {
            0 => {
                let mut bytes = std::fs::read(path).unwrap();
                let at = random.below(bytes.len());
                bytes[at] ^= 1 << random.below(8);
                std::fs::write(path, bytes).unwrap();
                done.push(format!("flip a bit of byte {at}"));
            }
            1 => {
                let bytes = std::fs::read(path).unwrap();
                let length = random.below(bytes.len());
                std::fs::write(path, &bytes[..length]).unwrap();
                done.push(format!("cut at {length}"));
                return done;
            }
            2 => {
                let conn = Connection::open(path).unwrap();
                forge_token(&conn, number);
                done.push("forge a token".to_owned());
            }
            _ => {
                let table = TABLES[random.below(TABLES.len())];
                let sql = STATEMENTS[random.below(STATEMENTS.len())];
                let sql =
                    sql.replace(" T ", &format!(" {table} ")).replace("'T'", &format!("'{table}'"));
                let sql = match sql.strip_suffix(" T") {
                    Some(rest) => format!("{rest} {table}"),
                    None => sql,
                };
                let conn = Connection::open(path).unwrap();
                conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, false).unwrap();
                // An earlier change may prevent this one.
                let changed = conn.execute_batch(&sql).is_ok();
                done.push(format!("{sql} ({changed})"));
            }
        }
    }
    done
}

#[tokio::test]
async fn a_changed_backup_is_refused_or_harmless() {
    let seed = std::env::var("TRILOGUE_SEED").ok().and_then(|text| text.parse().ok());
    let seed: u64 = seed.unwrap_or(0x5eed);
    let files = std::env::var("TRILOGUE_FOREIGN_FILES").ok().and_then(|text| text.parse().ok());
    let mut random = Random(seed);
    let original = Folder::new();
    let bytes = backup(&original).await;
    let (mut refused, mut restored) = (0, 0);
    for number in 0..files.unwrap_or(FILES) {
        let folder = Folder::new();
        let backup = sibling_path(&folder.path, ".backup");
        std::fs::write(&backup, &bytes).unwrap();
        let changes = change(&backup, &mut random, number);
        let case = format!("TRILOGUE_SEED={seed}, file {number}: {changes:?}");
        // A copy to another engine reads any file that it accepts, without its tokens.
        if let Ok(snapshot) = StoreSnapshot::open(&backup) {
            let is_token = |part: &crate::core::transfer::CopyPart| matches!(part, crate::core::transfer::CopyPart::Tokens(rows) if !rows.is_empty());
            let mut has_tokens = false;
            drop(snapshot.read(false, |part| {
                has_tokens |= is_token(&part);
                true
            }));
            assert!(!has_tokens, "{case}");
        }
        let Ok(report) = restore(
            &backup,
            &folder.path,
            RestoreOptions { with_runs: true, ..RestoreOptions::default() },
        ) else {
            refused += 1;
            assert!(!folder.path.exists(), "{case}");
            continue;
        };
        restored += 1;
        let conn = Connection::open(&folder.path).unwrap();
        let version = report.schema_version as usize;
        assert!(check_objects(&conn, &MIGRATIONS[..version]).is_ok(), "{case}");
        drop(conn);
        assert_eq!(count_tokens(&folder.path), 0, "{case}");
        assert_eq!((report.threads, report.runs), (1, 1), "{case}");
        if restored % OPENED == 0 {
            let store = folder.open().await;
            thread_with_run(&store, 1).await;
            assert!(store.tokens(&fixtures::tenant("default")).await.unwrap().is_empty(), "{case}");
        }
    }
    // Both outcomes must occur.
    assert!(refused > restored && restored > 10, "{refused} refused, {restored} restored");
}

#[tokio::test]
async fn foreign_parts_of_a_schema_are_named_and_nothing_opens_them() {
    for (sql, part) in [
        ("CREATE TRIGGER x AFTER INSERT ON runs BEGIN DELETE FROM runs; END", "the trigger 'x'"),
        ("CREATE VIEW \"a\nb\" AS SELECT 1", "the view 'a\\nb'"),
        ("CREATE VIRTUAL TABLE x USING rtree(a, b, c)", "'x"),
        ("CREATE INDEX x ON runs (abs(thread))", "the index 'x'"),
        ("DROP INDEX runs_by_id", "the index 'runs_by_id' is missing"),
        ("ALTER TABLE runs ADD COLUMN x TEXT", "the table 'runs'"),
    ] {
        let folder = Folder::new();
        backup(&folder).await;
        let copy = sibling_path(&folder.path, ".backup");
        for path in [&folder.path, &copy] {
            let conn = Connection::open(path).unwrap();
            // A build of SQLite may lack a kind of virtual table.
            if conn.execute_batch(sql).is_err() {
                let row = "PRAGMA writable_schema = on; INSERT INTO sqlite_schema VALUES ('table', 'x', 'x', 0, 'CREATE VIRTUAL TABLE x USING dbstat')";
                conn.execute_batch(row).unwrap();
            }
        }
        let opened = SqliteStore::open(folder.path.clone(), options()).await.map(drop);
        let snapshot = StoreSnapshot::open(&copy).map(drop);
        let restored = restore(&copy, &folder.path, OVERWRITE).map(drop);
        for refused in [opened, snapshot, restored, verify(&copy).map(drop)] {
            let error = refused.unwrap_err();
            assert_eq!(error.code(), Code::StoreCorrupt, "{sql}: {error}");
            assert!(error.message().contains(part), "{sql}: {error}");
        }
    }
}

#[tokio::test]
async fn keys_that_leave_no_number_for_the_next_row_are_refused() {
    for sql in [
        "INSERT INTO removed_keys (kind, key) VALUES ('run', 9223372036854775807)",
        "INSERT INTO removed_keys (kind, key) VALUES ('thread', 4503599627370496)",
        "INSERT INTO sqlite_sequence (name, seq) VALUES ('queue', 9223372036854775807)",
    ] {
        let folder = Folder::new();
        backup(&folder).await;
        let copy = sibling_path(&folder.path, ".backup");
        Connection::open(&folder.path).unwrap().execute_batch(sql).unwrap();
        let error = SqliteStore::open(folder.path.clone(), options()).await.map(drop).unwrap_err();
        assert_eq!(error.code(), Code::StoreCorrupt, "{sql}: {error}");
        Connection::open(&copy).unwrap().execute_batch(sql).unwrap();
        let error = restore(&copy, &folder.path, OVERWRITE).map(drop).unwrap_err();
        assert_eq!(error.code(), Code::StoreCorrupt, "{sql}: {error}");
    }
}

#[tokio::test]
async fn tokens_are_restored_only_on_demand() {
    let folder = Folder::new();
    backup(&folder).await;
    let copy = sibling_path(&folder.path, ".backup");
    forge_token(&Connection::open(&copy).unwrap(), 1);
    assert_eq!(restore(&copy, &folder.path, OVERWRITE).unwrap().tokens, 2);
    assert_eq!(count_tokens(&folder.path), 0);
    // Deleted content is not in the file either.
    let stored = std::fs::read(&folder.path).unwrap();
    assert!(!stored.windows(8).any(|bytes| bytes == b"forged-1"));
    restore(&copy, &folder.path, RestoreOptions { with_tokens: true, ..OVERWRITE }).unwrap();
    assert_eq!(count_tokens(&folder.path), 2);
}

/// The numbers of later events would count as removed, and reads would leave them out.
#[tokio::test]
async fn gaps_that_no_removal_made_are_refused() {
    let folder = Folder::new();
    backup(&folder).await;
    let copy = sibling_path(&folder.path, ".backup");
    let original = std::fs::read(&copy).unwrap();
    for (first, last) in [(4, i64::MAX), (100, 200), (1, 2), (0, 0), (4, 3), (2, i64::MAX)] {
        std::fs::write(&copy, &original).unwrap();
        let gap = "INSERT INTO gaps SELECT key, ?1, ?2 FROM threads";
        Connection::open(&copy).unwrap().execute(gap, [first, last]).unwrap();
        let refused = [
            restore(&copy, &folder.path, OVERWRITE).map(drop),
            settle_draft(&copy, OVERWRITE).map(drop),
        ];
        for refused in refused {
            let error = refused.unwrap_err();
            assert_eq!(error.code(), Code::StoreCorrupt, "{first} to {last}: {error}");
            assert!(error.message().contains("cannot have been removed"), "{error}");
        }
    }
    // The newest events of a thread can be removed.
    std::fs::write(&copy, &original).unwrap();
    let gap = "INSERT INTO gaps SELECT key, 4, 9 FROM threads";
    Connection::open(&copy).unwrap().execute(gap, []).unwrap();
    restore(&copy, &folder.path, OVERWRITE).unwrap();
}

/// A server would sign what the file's author wrote, and send it where the author says.
#[tokio::test]
async fn callbacks_are_restored_only_with_runs() {
    let folder = Folder::new();
    let store = folder.open().await;
    let thread = thread_row(store.next_thread_key());
    let item = |kind: QueueKind, key: &str| {
        Change::Offer(QueueItem {
            kind,
            key: key.to_owned(),
            due: START,
            tenant: tenant(),
            principal: thread.owner.clone(),
            thread: Some(thread.key),
            reference: Json::empty_object(),
        })
    };
    let changes = vec![
        item(QueueKind::Callback, "waiting"),
        item(QueueKind::Callback, "dead"),
        item(QueueKind::Notify, "notice"),
        item(QueueKind::Retention, "kept"),
    ];
    store.append(creation(thread.key)).await.unwrap();
    store.append(Batch { changes, ..batch(thread.key, 0) }).await.unwrap();
    let copy = sibling_path(&folder.path, ".backup");
    Admin::backup(&store, &copy).await.unwrap();
    Admin::close(&store).await.unwrap();
    let dead = "UPDATE queue SET dead = 1 WHERE key = 'dead'";
    Connection::open(&copy).unwrap().execute(dead, []).unwrap();
    let kept = || {
        let conn = folder.raw();
        let mut keys = conn.prepare("SELECT key FROM queue ORDER BY key").unwrap();
        let keys = keys.query_map([], |row| row.get::<_, String>(0)).unwrap();
        keys.collect::<Result<Vec<_>, _>>().unwrap()
    };
    assert_eq!(restore(&copy, &folder.path, OVERWRITE).unwrap().callbacks, 2);
    assert_eq!(kept(), ["dead", "kept", "notice", "waiting"]);
    let without_runs = RestoreOptions { with_runs: false, ..OVERWRITE };
    assert_eq!(settle_draft(&folder.path, without_runs).unwrap(), 2);
    assert_eq!(kept(), ["kept"]);
}

/// Connections of the store run nothing of a schema, even of one that the check did not see.
#[tokio::test]
async fn no_trigger_runs_and_no_setting_can_weaken_the_schema() {
    let folder = Folder::new();
    backup(&folder).await;
    let mut conn = crate::sqlite::connection::writer(&folder.path, &options()).unwrap();
    folder
        .raw()
        .execute_batch(
            "CREATE TRIGGER x AFTER INSERT ON gaps BEGIN DELETE FROM threads; END; CREATE VIEW y AS SELECT 1",
        )
        .unwrap();
    conn.execute("INSERT INTO gaps VALUES (?1, 1, 1)", params![99]).unwrap();
    let threads: i64 =
        conn.query_row("SELECT count(*) FROM threads", [], |row| row.get(0)).unwrap();
    assert_eq!(threads, 1);
    assert!(conn.query_row("SELECT * FROM y", [], |_| Ok(())).is_err());
    let transaction = conn.transaction().unwrap();
    transaction.execute_batch("PRAGMA writable_schema = on").unwrap();
    transaction.execute("DELETE FROM sqlite_schema", []).unwrap_err();
}
