//! The statements that find the ids that an abbreviation matches.

use trilogue_domain::IdKind;

/// The statements for a table and the column that names the owner, as [`crate::sql::short_id::meant`] uses them.
macro_rules! statements {
    ($table:literal, $owner:literal) => {
        [
            concat!(
                "SELECT id FROM (SELECT id, ",
                $owner,
                " AS creator FROM ",
                $table,
                " WHERE tenant = ?1 AND id >= ?2 AND id < ?3 ORDER BY id LIMIT ?6) AS found",
                " WHERE ?4::text IS NULL OR creator = ?4 LIMIT ?5"
            ),
            concat!(
                "SELECT id FROM (SELECT id, ",
                $owner,
                " AS creator FROM ",
                $table,
                " WHERE tenant = ?1 AND id >= '0' AND id < 'g' ORDER BY id DESC LIMIT ?6) AS found",
                " WHERE length(id) = 36 AND substr(id, 25) >= ?2 AND substr(id, 25) < ?3",
                " AND (?4::text IS NULL OR creator = ?4) LIMIT ?5"
            ),
        ]
    };
}

const THREADS: [&str; 2] = statements!("threads", "owner");
const RUNS: [&str; 2] = statements!("runs", "principal");
const INTERRUPTS: [&str; 2] = statements!("interrupts", "principal");

pub(super) fn statements_of(kind: IdKind) -> [&'static str; 2] {
    match kind {
        IdKind::Thread => THREADS,
        IdKind::Run => RUNS,
        IdKind::Interrupt => INTERRUPTS,
    }
}
