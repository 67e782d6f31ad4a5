//! Errors are texts for people: no error of a server shows a Rust value in its debug form.
//!
//! [`Client`](crate::Client) and [`Editor`](crate::Editor) check each error that they receive, so every suite of invalid input checks this too.
#![expect(clippy::panic, reason = "a failed expectation ends the test")]

use serde_json::Value;

/// Parts of values in debug form.
const MARKS: [&str; 7] =
    ["Some(", "Err(", "Ok(", "Error(", "panicked at", "called `Option::", "called `Result::"];

/// Returns the part of a text that shows a Rust value in its debug form: `Some(1)`, `Err("x")`, `Os { code: 2 }`.
pub fn rust_debug_text(text: &str) -> Option<&str> {
    let mark = MARKS.iter().find_map(|mark| text.find(mark)).or_else(|| struct_in(text))?;
    let end = text[mark..].char_indices().nth(60).map_or(text.len(), |(at, _)| mark + at);
    Some(&text[mark..end])
}

/// Returns the place of a struct with fields, such as `Os { code: 2 }`.
fn struct_in(text: &str) -> Option<usize> {
    text.match_indices(" { ").map(|(at, _)| at).find_map(|at| {
        let name = text[..at].rsplit(|it: char| !it.is_alphanumeric()).next()?;
        let field = text[at + 3..].split(|it: char| !it.is_alphanumeric() && it != '_').next()?;
        let is_struct = name.starts_with(|it: char| it.is_ascii_uppercase());
        let is_field = !field.is_empty() && text[at + 3 + field.len()..].starts_with(": ");
        (is_struct && is_field).then(|| at - name.len())
    })
}

/// Panics if an HTTP response with this status is an error that shows a Rust value, or describes a run that failed with one.
pub(crate) fn check_response(status: u16, body: &[u8]) {
    if status >= 400 {
        return check(&String::from_utf8_lossy(body));
    }
    // Most responses have no outcome, and some are large.
    let has_error = body.windows(9).any(|it| it == b"\"outcome\"");
    if has_error && let Ok(run) = serde_json::from_slice::<Value>(body) {
        check_message(&run["outcome"]["error"]);
    }
}

/// Panics if an error object in JSON shows a Rust value.
pub(crate) fn check_message(error: &Value) {
    if error.is_object() {
        check(&error.to_string());
    }
}

fn check(text: &str) {
    // Texts of JSON have their quotes escaped.
    let text = text.replace("\\\"", "\"");
    if let Some(shown) = rust_debug_text(&text) {
        panic!("an error shows a Rust value, {shown:?}: {text}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_in_debug_form_are_found() {
        for (text, shown) in [
            ("invalid: Some(1)", "Some(1)"),
            ("Err(\"x\")", "Err(\"x\")"),
            ("failed: Os { code: 2, kind: NotFound }", "Os { code: 2, kind: NotFound }"),
            ("hyper::Error(Connect)", "Error(Connect)"),
        ] {
            assert_eq!(rust_debug_text(text), Some(shown));
        }
        for text in [
            "an error (some of them)",
            r#"expected {"a": 1}, or A { } "#,
            "the type Foo { \"a\": 1 }",
        ] {
            assert_eq!(rust_debug_text(text), None);
        }
    }

    #[test]
    #[should_panic(expected = "shows a Rust value")]
    fn an_error_response_with_one_fails_its_test() {
        check_response(400, br#"{"code":"invalid_request","detail":"Some(\"x\")"}"#);
    }

    #[test]
    #[should_panic(expected = "shows a Rust value")]
    fn a_run_that_failed_with_one_fails_its_test() {
        check_response(200, br#"{"outcome":{"status":"failed","error":{"message":"Err(1)"}}}"#);
    }
}
