//! What an operation costs the server in counts that hold on a busy machine: instructions, allocations, atomic operations,
//! system calls, commits and pages.
//!
//! `crates/bench/ledger.tsv` has the counts of the last commit that changed them. A check fails if a count is higher than recorded.
//!
//! | file | what it does |
//! |---|---|
//! | `operation` | the operations, and how a client makes each |
//! | `callgrind` | starts a server under callgrind, and reads its counts |
//! | `record` | reads, compares and writes the committed counts |

mod callgrind;
mod operation;
mod record;

use anyhow::{Result, bail, ensure};

use crate::report::say;
use operation::OPERATIONS;
use record::Record;

/// Counts operations and compares them with the record: those whose names contain an argument, or every one without arguments. `--bless` writes the record of all.
/// Returns whether nothing got worse.
pub(crate) async fn run(arguments: &[String]) -> Result<bool> {
    let is_blessing = arguments == ["--bless"];
    let parts = if is_blessing { &[] } else { arguments };
    if let Some(option) = parts.iter().find(|part| part.starts_with('-')) {
        bail!("expected `ledger [NAME…]` or `ledger --bless`, got '{option}'");
    }
    let is_meant = |name: &str| parts.is_empty() || parts.iter().any(|part| name.contains(part));
    callgrind::check_installed()?;
    let recorded = Record::read()?;
    let mut counted = Record::default();
    for operation in OPERATIONS {
        let name = operation.name();
        if !is_meant(&name) {
            continue;
        }
        let costs = operation.count().await?;
        for line in recorded.compare(&name, costs) {
            say(&line);
        }
        counted.insert(name, costs);
    }
    ensure!(!counted.is_empty(), "no operation's name contains {}", parts.join(" or "));
    if is_blessing {
        counted.write()?;
        say("recorded: say in the commit why each higher count is worth it");
        return Ok(true);
    }
    let worse = recorded.worse(&counted);
    if worse.is_empty() {
        say("\nno count is higher than recorded");
        return Ok(true);
    }
    say(&format!("\nhigher than recorded: {}", worse.join("; ")));
    say(
        "hint: make it cheaper, or record it with `cargo xtask bench ledger --bless` and say why in the commit",
    );
    Ok(false)
}
