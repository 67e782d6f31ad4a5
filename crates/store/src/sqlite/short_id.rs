//! The statements that find the ids that an abbreviation matches.

/// The statements for a table and the column that names the owner, as [`crate::sql::short_id::resolve`] uses them.
macro_rules! statements {
    ($table:literal, $owner:literal) => {
        [
            concat!(
                "SELECT found.id FROM (SELECT key, id FROM ",
                $table,
                " INDEXED BY ",
                $table,
                "_by_id WHERE tenant = ?1 AND id >= ?2 AND id < ?3 ORDER BY id LIMIT ?6)",
                " AS found JOIN ",
                $table,
                " AS row ON row.key = found.key",
                " WHERE ?4 IS NULL OR row.",
                $owner,
                " = ?4 LIMIT ?5"
            ),
            concat!(
                "SELECT found.id FROM (SELECT key, id FROM ",
                $table,
                " INDEXED BY ",
                $table,
                "_by_id WHERE tenant = ?1 AND id >= '0' AND id < 'g' ORDER BY id DESC LIMIT ?6)",
                " AS found JOIN ",
                $table,
                " AS row ON row.key = found.key",
                " WHERE length(found.id) = 36 AND substr(found.id, 25) >= ?2",
                " AND substr(found.id, 25) < ?3 AND (?4 IS NULL OR row.",
                $owner,
                " = ?4) LIMIT ?5"
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
