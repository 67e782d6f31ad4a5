use std::borrow::Cow;

use trilogue_wire::agent_client::Meta;
use trilogue_wire::agent_client::splice::{items, members, set};

pub fn with_members(object: &str, more: &str) -> String {
    let mut all = object.to_owned();
    for member in members(more) {
        if let Some(more) = set(&all, &[&member.key], member.value) {
            all = more;
        }
    }
    all
}

/// Returns the JSON without members called `_meta`. Otherwise only white space changes.
pub fn without_meta(json: &str) -> Cow<'_, str> {
    // A name can be written with escapes.
    if !json.contains(Meta::KEY) && !json.contains("\\u") {
        return Cow::Borrowed(json);
    }
    let mut less = String::with_capacity(json.len());
    push(json, &mut less);
    Cow::Owned(less)
}

fn push(json: &str, less: &mut String) {
    let json = json.trim_ascii();
    if json.starts_with('{') {
        less.push('{');
        let kept = members(json).filter(|member| member.key != Meta::KEY);
        for (at, member) in kept.enumerate() {
            if at > 0 {
                less.push(',');
            }
            less.push_str(json.get(member.start..member.span.start).unwrap_or_default());
            push(member.value, less);
        }
        less.push('}');
    } else if json.starts_with('[') {
        less.push('[');
        for (at, item) in items(json).enumerate() {
            if at > 0 {
                less.push(',');
            }
            push(item, less);
        }
        less.push(']');
    } else {
        less.push_str(json);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_attached_is_taken_out_wherever_it_is() {
        for (whole, less) in [
            (r#"{"_meta":{"a":1},"x":1.50}"#, r#"{"x":1.50}"#),
            (
                r#"{"p": [{"_meta": 1, "t": "_meta"}, {"\u005fmeta": 2}], "_meta": null}"#,
                r#"{"p": [{"t": "_meta"},{}]}"#,
            ),
            (r#"[[],"\u005fmeta",{"m":{"_meta":[]}}]"#, r#"[[],"\u005fmeta",{"m":{}}]"#),
            (r#"{"meta":{}}"#, r#"{"meta":{}}"#),
        ] {
            let parse = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
            assert_eq!(parse(&without_meta(whole)), parse(less), "{whole}");
        }
        assert_eq!(without_meta(r#"{"_meta":{"a":1},"x":1.50}"#), r#"{"x":1.50}"#);
    }
}
