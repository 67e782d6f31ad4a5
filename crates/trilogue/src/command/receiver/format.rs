//! Formats a delivery as one line, or as JSON.

use serde_json::{Value, json as value};
use trilogue_wire::native::Json;

use super::{CheckedDelivery, Verdict};
use crate::terminal::{render, safe};

/// A line for people: id, verdict, path, event, run, status, output.
pub(crate) fn line(checked: &CheckedDelivery, path: &str, body: &[u8]) -> String {
    let mut words = vec![safe::visible(checked.id.as_deref().unwrap_or("-"))];
    words.push(match &checked.verdict {
        Verdict::Verified => "verified".to_owned(),
        Verdict::Unverified => "unverified".to_owned(),
        Verdict::Refused(why) => format!("REFUSED: {}", safe::visible(why)),
    });
    if checked.repeated {
        words.push("repeated".to_owned());
    }
    if checked.late {
        words.push("out of order".to_owned());
    }
    words.push(safe::visible(path));
    match serde_json::from_slice::<Value>(body) {
        Ok(body) => words.extend(summary(&body)),
        Err(_) => words.push(render::inline(&Json::from_value(&text(body)))),
    }
    format!("{}\n", words.join("  "))
}

pub(crate) fn json(checked: &CheckedDelivery, path: &str, body: &[u8]) -> Value {
    let (verdict, reason) = match &checked.verdict {
        Verdict::Verified => ("verified", None),
        Verdict::Unverified => ("unverified", None),
        Verdict::Refused(why) => ("refused", Some(why)),
    };
    value!({
        "id": checked.id,
        "timestamp": checked.timestamp,
        "path": path,
        "verdict": verdict,
        "reason": reason,
        "repeated": checked.repeated,
        "out_of_order": checked.late,
        "body": serde_json::from_slice(body).unwrap_or_else(|_| text(body)),
    })
}

fn text(body: &[u8]) -> Value {
    Value::String(String::from_utf8_lossy(body).into_owned())
}

fn summary(body: &Value) -> Vec<String> {
    let member = |name: &str| body.get(name).and_then(Value::as_str);
    let named = ["event", "run_id", "status"].into_iter().filter_map(member).map(safe::visible);
    let mut words: Vec<_> = named.collect();
    let content = body.get("output").and_then(outcome).or_else(|| {
        let shown = body.get("update").or_else(|| words.is_empty().then_some(body))?;
        Some(render::inline(&Json::from_value(shown)))
    });
    words.extend(content);
    words
}

fn outcome(output: &Value) -> Option<String> {
    let inline = |value: &Value| render::inline(&Json::from_value(value));
    let values = output.get("values").map(|values| match values.get("message") {
        Some(message @ Value::String(_)) => inline(message),
        _ => inline(values),
    });
    let description = output.get("description").map(inline);
    values.or_else(|| output.get("interrupt").map(inline)).or(description)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked() -> CheckedDelivery {
        CheckedDelivery {
            id: Some("r.7\u{1b}[2J".to_owned()),
            timestamp: Some("1".to_owned()),
            verdict: Verdict::Verified,
            repeated: false,
            late: false,
        }
    }

    #[test]
    fn a_delivery_is_one_safe_line() {
        let body = r#"{"event":"run.status","run_id":"r\n","status":"success","output":{"type":"result","values":{"message":"hi\u001b[31m","messages":[]}}}"#;
        let shown = line(&checked(), "/", body.as_bytes());
        assert_eq!(
            shown,
            "r.7\\u{1b}[2J  verified  /  run.status  r\\n  success  \"hi\\u001b[31m\"\n"
        );
        let odd = CheckedDelivery {
            repeated: true,
            late: true,
            verdict: Verdict::Refused("why\n".into()),
            ..checked()
        };
        let shown = line(&odd, "/", b"\xffnot json\n");
        assert!(shown.contains("REFUSED: why\\n  repeated  out of order  /  "), "{shown}");
        assert_eq!(shown.lines().count(), 1);
    }

    #[test]
    fn each_outcome_is_summarised() {
        for (output, words) in [
            (r#"{"type":"interrupt","interrupt":{"approval":{"q":1}}}"#, r#"{"approval":{"q":1}}"#),
            (r#"{"type":"error","description":"boom"}"#, r#""boom""#),
            (r#"{"type":"result","values":{"a":1}}"#, r#"{"a":1}"#),
        ] {
            let body = format!(r#"{{"run_id":"r","output":{output}}}"#);
            assert!(line(&checked(), "/", body.as_bytes()).ends_with(&format!("  r  {words}\n")));
        }
        let long = format!(r#"{{"run_id":"r","update":"{}"}}"#, "x".repeat(100_000));
        assert!(line(&checked(), "/", long.as_bytes()).len() < 1_000);
    }

    #[test]
    fn json_holds_the_whole_delivery() {
        let odd = CheckedDelivery { verdict: Verdict::Refused("why".to_owned()), ..checked() };
        let shown = json(&odd, "/hook?x=1", b"[1]");
        assert_eq!((&shown["verdict"], &shown["reason"]), (&value!("refused"), &value!("why")));
        assert_eq!((&shown["body"], &shown["path"]), (&value!([1]), &value!("/hook?x=1")));
        assert_eq!(json(&checked(), "/", b"plain")["body"], "plain");
    }
}
