use trilogue_domain::error::Result;
use trilogue_domain::{Answer, Code, Error, Part};
use trilogue_wire::native::AnswerCreate;

use super::{input, read_json};

/// Converts an answer from a client; fails with `invalid_request` unless it has exactly one form, and with the errors of the form's content.
pub fn answer(given: AnswerCreate) -> Result<Answer> {
    match (given.option, given.value, given.message, given.text) {
        (Some(option), None, None, None) => Ok(Answer::Option(option)),
        (None, Some(value), None, None) => Ok(Answer::Json(read_json(value)?)),
        (None, None, Some(parts), None) => Ok(Answer::Message(input::parts(parts)?)),
        (None, None, None, Some(text)) => Ok(Answer::Message(vec![Part::text(text)])),
        _ => Err(Error::new(
            Code::InvalidRequest,
            "an answer has exactly one of 'option', 'value', 'message' and 'text'",
        )),
    }
}
