//! The rules that a card must keep.

use std::collections::HashSet;
use std::sync::Arc;

use trilogue_domain::error::Result;
use trilogue_domain::{
    AgentCard, Code, DeclaredError, DeclaredInterrupt, Error, InterruptKind, limits,
};
use uuid::Uuid;

use crate::error::is_code;

/// Returns the canonical form of an agent's UUID.
pub(super) fn agent_id(id: &str) -> Result<Arc<str>> {
    let parsed = Uuid::try_parse(id).map_err(|_| {
        Error::new(
            Code::InvalidId,
            format!("invalid agent id '{}': expected a UUID", id.escape_debug()),
        )
    })?;
    Ok(Arc::from(parsed.hyphenated().to_string()))
}

/// Returns an error if the card contradicts itself.
pub(super) fn coherent(card: &AgentCard) -> Result<()> {
    check_interrupts(card)?;
    check_errors(card)?;
    check_abilities(card)
}

fn contradiction(card: &AgentCard, what: impl std::fmt::Display) -> Error {
    Error::new(Code::InvalidRequest, format!("the card of the agent '{}' {what}", card.name))
}

fn check_interrupts(card: &AgentCard) -> Result<()> {
    let mut kinds = HashSet::new();
    for DeclaredInterrupt { kind, .. } in &card.interrupts {
        let shown = kind.escape_debug();
        if !matches!(InterruptKind::from_text(kind), InterruptKind::Custom(_)) {
            let what = format!("declares the interrupt '{shown}', which every agent has");
            return Err(contradiction(card, what).hint("give it a name of your own"));
        }
        if !kinds.insert(kind) {
            return Err(contradiction(card, format!("declares the interrupt '{shown}' twice")));
        }
    }
    Ok(())
}

fn check_errors(card: &AgentCard) -> Result<()> {
    if card.errors.len() > limits::MAX_AGENT_ERRORS {
        let most = limits::MAX_AGENT_ERRORS;
        return Err(contradiction(card, format!("declares more than {most} errors")));
    }
    let mut codes = HashSet::new();
    for DeclaredError { code, .. } in &card.errors {
        let shown = code.escape_debug();
        if !is_code(code) {
            let what = format!("declares the invalid error code '{shown}'");
            let hint = "a code has 1 to 64 lower-case letters, digits, '_', '-' or '.'";
            return Err(contradiction(card, what).hint(hint));
        }
        if Code::from_text(code).is_some() {
            let what = format!("declares the error '{shown}', which is the server's own");
            return Err(contradiction(card, what).hint("give it a code of your own"));
        }
        if !codes.insert(code) {
            return Err(contradiction(card, format!("declares the error '{shown}' twice")));
        }
    }
    Ok(())
}

fn check_abilities(card: &AgentCard) -> Result<()> {
    let abilities = &card.abilities;
    if !abilities.threads && card.state_schema.is_some() {
        return Err(contradiction(card, "has a state schema and no threads to keep the state in"));
    }
    if abilities.streams_updates == Some(false) && card.update_schema.is_some() {
        return Err(contradiction(card, "has a schema for updates and says that it streams none"));
    }
    Ok(())
}
