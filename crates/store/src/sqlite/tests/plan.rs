//! The query plans of listings and of the queue: each uses an index, in the order of the results.

use rusqlite::config::DbConfig;
use rusqlite::{Connection, params_from_iter};
use trilogue_domain::{AgentName, PrincipalId, RunStatus, Scope, ThreadKey};

use super::seed::{Folder, scope};
use crate::rows::{RunRow, ThreadRow};
use crate::sqlite::access_path::{AccessPath, Listed};
use crate::sqlite::schema::{MIGRATIONS, migrate};

/// SQLite's query plan of a statement, one step per line.
fn plan(conn: &Connection, sql: &str, values: &[rusqlite::types::Value]) -> String {
    let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let steps = statement
        .query_map(params_from_iter(values), |row| row.get::<_, String>("detail"))
        .unwrap();
    steps.map(|step| step.unwrap() + "\n").collect()
}

fn plan_of<R: Listed>(conn: &Connection, driver: AccessPath<'_>) -> String {
    let scope = Scope { owner: Some(PrincipalId::parse("alice").unwrap()), ..scope() };
    let query = driver.query::<R>(&scope, i64::MAX);
    plan(conn, &query.sql, &query.bound)
}

fn store() -> (Folder, Connection) {
    let folder = Folder::new();
    let mut conn = folder.raw();
    migrate(&mut conn, MIGRATIONS).unwrap();
    // As on the store's connections: a plan does not depend on the bound values.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).unwrap();
    (folder, conn)
}

#[test]
fn every_listing_is_led_by_an_index_and_sorts_nothing() {
    let (_folder, conn) = store();
    let agent = AgentName::parse("echo").unwrap();
    let condition = ("k".to_owned(), "1".to_owned());
    let some = [RunStatus::Queued, RunStatus::Running, RunStatus::Cancelling];
    let runs: [(AccessPath<'_>, &[&str]); 7] = [
        (AccessPath::Tenant, &["SEARCH runs USING INTEGER PRIMARY KEY"]),
        (AccessPath::Owner, &["USING INDEX runs_by_principal"]),
        (AccessPath::Agent(&agent), &["USING INDEX runs_by_agent"]),
        (AccessPath::Thread(ThreadKey(1)), &["USING INDEX runs_by_thread"]),
        (AccessPath::Statuses(&some[..1]), &["USING INDEX runs_by_status"]),
        (AccessPath::Statuses(&some), &["MERGE (UNION ALL)", "USING INDEX runs_by_status"]),
        (
            AccessPath::Metadata(&condition),
            &["SEARCH search USING PRIMARY KEY", "SEARCH runs USING INTEGER PRIMARY KEY"],
        ),
    ];
    for (driver, expected) in runs {
        let plan = plan_of::<RunRow>(&conn, driver);
        assert!(expected.iter().all(|step| plan.contains(step)), "{driver:?}\n{plan}");
        assert!(!plan.contains("TEMP B-TREE") && !plan.contains("SCAN"), "{driver:?}\n{plan}");
    }
    let threads: [(AccessPath<'_>, &[&str]); 5] = [
        (AccessPath::Tenant, &["USING INDEX threads_by_tenant"]),
        (AccessPath::Owner, &["USING INDEX threads_by_owner"]),
        (
            AccessPath::ThreadAgent(&agent),
            &["SEARCH search USING PRIMARY KEY", "SEARCH threads USING INTEGER PRIMARY KEY"],
        ),
        (AccessPath::Open, &["SEARCH threads USING INTEGER PRIMARY KEY", "INDEX runs_open"]),
        (
            AccessPath::Metadata(&condition),
            &["SEARCH search USING PRIMARY KEY", "SEARCH threads USING INTEGER PRIMARY KEY"],
        ),
    ];
    for (driver, expected) in threads {
        let plan = plan_of::<ThreadRow>(&conn, driver);
        assert!(expected.iter().all(|step| plan.contains(step)), "{driver:?}\n{plan}");
        assert!(!plan.contains("TEMP B-TREE") && !plan.contains("SCAN"), "{driver:?}\n{plan}");
    }
}

#[test]
fn messages_are_found_by_an_index_in_the_order_of_their_age() {
    use crate::sqlite::lookups::{BY_ALIAS, BY_ID};
    let (_folder, conn) = store();
    for (rest, index) in [(BY_ID, "messages_by_thread"), (BY_ALIAS, "messages_by_alias")] {
        let sql = format!("SELECT body FROM messages {rest}");
        let plan = plan(&conn, &sql, &[1.into(), "m".to_owned().into()]);
        assert!(plan.contains(&format!("INDEX {index}")), "{plan}");
        assert!(!plan.contains("TEMP B-TREE") && !plan.contains("SCAN"), "{plan}");
    }
}

#[test]
fn abbreviated_ids_are_found_in_the_index_of_ids() {
    use crate::sqlite::short_id::STATEMENTS;
    let (_folder, conn) = store();
    for (statements, table) in STATEMENTS.into_iter().zip(["threads", "runs", "interrupts"]) {
        for sql in statements {
            let text = || "0199".to_owned().into();
            let values = [text(), text(), text(), text(), 1.into(), 1.into()];
            let plan = plan(&conn, sql, &values);
            assert!(plan.contains(&format!("COVERING INDEX {table}_by_id")), "{plan}");
            assert!(!plan.contains("TEMP B-TREE"), "{plan}");
        }
    }
}

#[test]
fn retention_removal_and_the_queue_look_at_what_is_due_alone() {
    use crate::sqlite::queue::CLAIMABLE;
    use crate::sqlite::retention::{LATEST_FIRST, NEWEST_FIRST, TOO_OLD, TOO_OLD_STATELESS};
    let (_folder, conn) = store();
    for (sql, index) in [(TOO_OLD, "runs_ended"), (TOO_OLD_STATELESS, "runs_stateless")] {
        let plan = plan(&conn, sql, &[1.into(), 1.into()]);
        assert!(plan.contains(&format!("INDEX {index}")), "{plan}");
        assert!(plan.contains("queue_in_line"), "{plan}");
        assert!(!plan.contains("SCAN"), "{plan}");
    }
    let newest = plan(&conn, NEWEST_FIRST, &[]);
    assert!(newest.contains("INDEX runs_ended") && !newest.contains("TEMP B-TREE"), "{newest}");
    let latest = plan(&conn, LATEST_FIRST, &[]);
    assert!(!latest.contains("TEMP B-TREE"), "{latest}");
    use crate::sqlite::remove::{ABOUT_RUN, UNDER_ID, UNDER_INTERRUPT};
    for (sql, expected) in [
        (ABOUT_RUN, "queue_about"),
        (UNDER_ID, "queue_by_thread (thread=? AND key=?)"),
        (UNDER_INTERRUPT, "queue_by_thread (thread=? AND key=?)"),
    ] {
        let plan = plan(&conn, sql, &[1.into(), 1.into()]);
        assert!(plan.contains(expected) && !plan.contains("SCAN"), "{plan}");
    }
    let plan = plan(&conn, CLAIMABLE, &["callback".to_owned().into(), 1.into(), 1.into()]);
    assert!(plan.contains("queue_claimable") && !plan.contains("TEMP B-TREE"), "{plan}");
}

#[test]
fn the_removal_of_threads_looks_at_their_rows_alone() {
    use crate::sqlite::thread_removal::{DELETE, ENDED, HIDE, MEASURE, PARTS};
    let (_folder, conn) = store();
    let parts = PARTS.into_iter().flatten().copied().map(|sql| (sql, 1.into()));
    let together = [MEASURE, ENDED].into_iter().chain(DELETE).chain(HIDE);
    for (sql, value) in parts.chain(together.map(|sql| (sql, "[1, 2]".to_owned().into()))) {
        let plan = plan(&conn, sql, &[value]);
        let scans = |step: &&str| {
            // Only the list of threads, and the union of index results, may be scanned.
            step.starts_with("SCAN")
                && !step.contains("VIRTUAL TABLE")
                && !step.contains("subquery")
        };
        assert_eq!(plan.lines().find(scans), None, "{sql}\n{plan}");
    }
}
