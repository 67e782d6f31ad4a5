//! Answers to an agent's forms: what does not fit is refused, and the agent is told nothing of it.

use trilogue_domain::error::{Result, Violation};
use trilogue_domain::{Answer, Code, Error, Interrupt};
use trilogue_mapping::agent_client::filled_in;

use crate::native::schema::Schema;

/// Passes when the agent can be told of this answer as it was meant, and it fits the form.
///
/// # Errors
/// `answer_invalid`, naming each place that does not fit.
pub(super) fn answer(interrupt: &Interrupt, answer: &Answer) -> Result<()> {
    let unfit = |why: String, places: Vec<Violation>| {
        let message = format!("the answer does not fit the interrupt '{}': {why}", interrupt.id);
        Error::new(Code::AnswerInvalid, message)
            .violations(places)
            .hint("the interrupt's 'schema' says what fits; `false` declines")
    };
    let filled = filled_in(interrupt, answer).map_err(|place| {
        let at = if place.path.is_empty() { "the value" } else { &place.path };
        unfit(format!("{at} {}", place.message), vec![place])
    })?;
    let (Some(value), Some(schema)) = (filled, &interrupt.schema) else { return Ok(()) };
    // By a schema that is none, nobody can tell what fits.
    let Ok(schema) = Schema::compile(schema) else { return Ok(()) };
    schema.check(value).map_err(|why| unfit(why.to_string(), why.into_violations()))
}
