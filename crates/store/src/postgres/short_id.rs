//! The statements that find the ids that an abbreviation matches.

/// The statements for a table and the column that names the owner, as [`crate::sql::short_id::resolve`] uses them.
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

/// For threads, runs and interrupts.
pub(super) const STATEMENTS: [[&str; 2]; 3] = [
    statements!("threads", "owner"),
    statements!("runs", "principal"),
    statements!("interrupts", "principal"),
];
