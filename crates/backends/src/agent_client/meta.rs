//! What clients attach to what they say, where an agent is to get none of it.

use std::borrow::Cow;

use trilogue_sdk::agent_client::peer::RawJson;
use trilogue_wire::agent_client::Meta;
use trilogue_wire::agent_client::splice::{items, members};

use super::ClientMeta;

/// What goes to an agent and came from a client, as the agent gets it.
pub(super) fn passed(text: RawJson, meta: ClientMeta) -> RawJson {
    if meta == ClientMeta::Pass {
        return text;
    }
    match without_meta(text.as_str()) {
        Cow::Borrowed(_) => text,
        // What is taken out of JSON leaves JSON.
        Cow::Owned(less) => RawJson::parse(less).unwrap_or(RawJson::EMPTY),
    }
}

/// JSON without the members called `_meta`, wherever they are. Nothing else is changed but space.
pub(super) fn without_meta(json: &str) -> Cow<'_, str> {
    // A name can be written with code points.
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
