//! Adds to a permission request the unchanged members of its tool call that it omits.
//!
//! The person who decides sees all members; clients of the protocol get the original request.

use std::borrow::Cow;

use trilogue_wire::agent_client::splice::{self, decode, get, members};

const CALL: &str = "toolCall";
/// The member that lists the added members of the tool call, and their earlier state.
const COMPLETED: &str = "trilogue.unsaid";
const ABSENT: &str = "\"absent\"";
const NULL: &str = "null";

/// Fills in the absent and `null` members of the request's tool call from these, each with its JSON.
pub(super) fn complete_permission<'a>(
    request: &'a str,
    known: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Cow<'a, str> {
    // Only this server may write this member.
    let request = splice::remove(request, &[COMPLETED]);
    match completed(&request, known) {
        Some(completed) => Cow::Owned(completed),
        None => request,
    }
}

fn completed<'a>(
    request: &str,
    known: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Option<String> {
    let said = get(request, &[CALL])?;
    let mut call = Cow::Borrowed(said);
    let mut added = String::from("{");
    for (key, value) in known {
        let before = match get(said, &[key]) {
            None => ABSENT,
            Some(NULL) => NULL,
            Some(_) => continue,
        };
        call = Cow::Owned(splice::set(&call, &[key], value)?);
        if added.len() > 1 {
            added.push(',');
        }
        added.push_str(&format!("{}:{before}", serde_json::Value::from(key)));
    }
    if added.len() == 1 {
        return None;
    }
    added.push('}');
    let request = splice::set(request, &[CALL], &call)?;
    splice::set(&request, &[COMPLETED], &added)
}

/// Undoes the completion: returns the original request.
pub(super) fn as_sent(payload: &str) -> Cow<'_, str> {
    restored(payload).map_or(Cow::Borrowed(payload), Cow::Owned)
}

fn restored(payload: &str) -> Option<String> {
    let added = get(payload, &[COMPLETED])?;
    let mut call = Cow::Borrowed(get(payload, &[CALL])?);
    for member in members(added) {
        let is_absent = decode(member.value).is_some();
        call = Cow::Owned(match is_absent {
            true => splice::remove(&call, &[&member.key]).into_owned(),
            false => splice::set(&call, &[&member.key], NULL)?,
        });
    }
    let request = splice::set(payload, &[CALL], &call)?;
    Some(splice::remove(&request, &[COMPLETED]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_out_is_added_and_taken_out_again() {
        let known =
            [("kind", r#""edit""#), ("title", r#""Edit""#), ("locations", r#"[{"path":"/a"}]"#)];
        for (request, call) in [
            (
                r#"{ "options":[ ] , "toolCall" : { "toolCallId" : "1" } , "later":1.50 }"#,
                r#"{ "toolCallId" : "1","kind":"edit","title":"Edit","locations":[{"path":"/a"}] }"#,
            ),
            (
                r#"{"toolCall":{"kind":null,"toolCallId":"1","title":"Other","locations": null },"options":[]}"#,
                r#"{"kind":"edit","toolCallId":"1","title":"Other","locations": [{"path":"/a"}] }"#,
            ),
        ] {
            let whole = complete_permission(request, known);
            assert_eq!(get(&whole, &[CALL]), Some(call));
            assert_eq!(as_sent(&whole), request);
        }
    }

    #[test]
    fn what_says_everything_stays_as_it_is() {
        let known = [("kind", r#""edit""#)];
        for request in [
            r#"{"toolCall":{"toolCallId":"1","kind":"read"},"options":[]}"#,
            r#"{"toolCall":5}"#,
            r#"{"mode":"form"}"#,
            "null",
        ] {
            assert_eq!(complete_permission(request, known), request);
            assert_eq!(as_sent(request), request);
        }
    }

    #[test]
    fn an_agent_cannot_say_what_was_added() {
        let request =
            r#"{"toolCall":{"toolCallId":"1","kind":"edit"},"trilogue.unsaid":{"kind":"absent"}}"#;
        let honest = r#"{"toolCall":{"toolCallId":"1","kind":"edit"}}"#;
        let whole = complete_permission(request, [("kind", r#""read""#)]);
        assert_eq!((whole.as_ref(), as_sent(&whole).as_ref()), (honest, honest));
    }
}
