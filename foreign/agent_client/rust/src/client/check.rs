//! Named checks: each runs separately, prints one line, and fails alone.

use std::pin::Pin;
use std::time::{Duration, Instant};

use agent_client_protocol::Error;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use uuid::Uuid;

use crate::editor::Target;

/// The time limit for one check.
const CHECK_LIMIT: Duration = Duration::from_secs(60);

/// A check: whether it applies to a target, and its function.
pub struct Check {
    pub name: &'static str,
    pub applies: fn(&Target) -> bool,
    pub run: fn(Target) -> Pin<Box<dyn Future<Output = Result<()>>>>,
}

/// Checks by their functions; those with an `if` apply to some targets only.
#[macro_export]
macro_rules! checks {
    ($($name:ident $(if $applies:expr)?),* $(,)?) => {
        pub const CHECKS: &[$crate::check::Check] = &[$($crate::check::Check {
            name: stringify!($name),
            applies: |_target| { true $(&& $applies(_target))? },
            run: |target| Box::pin($name(target)),
        }),*];
    };
}

/// Runs the checks that apply; returns how many ran and how many failed.
pub async fn run(suite: &str, checks: &[Check], target: &Target, only: Option<&str>) -> (u32, u32) {
    let (mut ran, mut failed) = (0, 0);
    for check in checks {
        let name = format!("{suite}.{}", check.name);
        if !(check.applies)(target) || only.is_some_and(|only| !name.contains(only)) {
            continue;
        }
        ran += 1;
        let begun = Instant::now();
        let done = tokio::time::timeout(CHECK_LIMIT, (check.run)(target.clone())).await;
        match done.context("the check took too long").flatten() {
            Ok(()) => println!("ok {name} ({} ms)", begun.elapsed().as_millis()),
            Err(error) => {
                failed += 1;
                println!("FAILED {name}\n{error:#}");
            }
        }
    }
    (ran, failed)
}

/// Fails unless this is a UUID in lower case.
pub fn is_uuid(seen: &Value, what: &str) -> Result<()> {
    let text = seen.as_str().unwrap_or_default();
    let uuid = Uuid::try_parse(text).with_context(|| format!("{what} is {seen}"))?;
    ensure!(uuid.hyphenated().to_string() == text, "{what} is {seen}, in other letters");
    Ok(())
}

/// The error of a call that must be refused with this code.
pub fn refused<T: std::fmt::Debug>(result: Result<T, Error>, code: i32) -> Result<Error> {
    match result {
        Ok(answer) => bail!("the call was answered: {answer:?}"),
        Err(error) => {
            ensure!(
                i32::from(error.code) == code,
                "the call was refused with {error:?}, not {code}"
            );
            ensure!(!error.message.is_empty(), "the error has no message");
            Ok(error)
        }
    }
}

/// Fails with both values if they differ.
#[macro_export]
macro_rules! equal {
    ($seen:expr, $wanted:expr) => {
        match (&$seen, &$wanted) {
            (seen, wanted) => {
                anyhow::ensure!(
                    seen == wanted,
                    "{} is {seen:?}, not {wanted:?}",
                    stringify!($seen)
                );
            }
        }
    };
}
