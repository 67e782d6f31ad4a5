use std::borrow::Cow;

use schemars::json_schema;
use serde::{Serialize, Serializer};

use crate::json::object::{members_of, unknown};
use crate::json::schema::schema;
use crate::json::{Extra, Json, Path, Read, Violation};
use crate::json::{scan::members, text};

/// The member `_meta`: data that implementations attach to an object. A reader must not rely on it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Meta(pub Extra);

/// Parameter names of Python handlers. A Python library passes attached members as arguments next to the declared ones, so a client could set a handler's own parameter. Ordinary words that clients attach are not in the list.
const PARAMETERS: [&str; 15] = [
    "session_id",
    "message_id",
    "cwd",
    "mcp_servers",
    "additional_directories",
    "mode_id",
    "model_id",
    "config_id",
    "method_id",
    "protocol_version",
    "client_capabilities",
    "client_info",
    "request_id",
    "tool_call_id",
    "terminal_id",
];

/// Removes attached members that have the name of a handler's parameter. All other bytes stay.
pub fn without_parameters(params: &str) -> Cow<'_, str> {
    let is_one = |name: &str| PARAMETERS.contains(&name);
    let (mut out, mut from) = (String::new(), 0);
    for meta in members(params).filter(|member| member.key == Meta::KEY) {
        if !members(meta.value).any(|member| is_one(&member.key)) {
            continue;
        }
        out.push_str(params.get(from..meta.span.start).unwrap_or_default());
        from = meta.span.end;
        let kept = members(meta.value).filter(|member| !is_one(&member.key));
        let kept = kept.map(|it| format!("{}:{}", serde_json::Value::from(&*it.key), it.value));
        out.push_str(&format!("{{{}}}", kept.collect::<Vec<_>>().join(",")));
    }
    if from == 0 {
        return Cow::Borrowed(params);
    }
    out.push_str(params.get(from..).unwrap_or_default());
    Cow::Owned(out)
}

// === impl Meta ===

impl Meta {
    pub const KEY: &'static str = "_meta";

    pub const fn new() -> Self {
        Self(Extra::new())
    }

    pub fn get(&self, name: &str) -> Option<&Json> {
        self.0.get(name)
    }

    pub fn text(&self, name: &str) -> Option<Cow<'_, str>> {
        self.get(name).and_then(|json| text::decode(json.as_str()))
    }

    pub fn traceparent(&self) -> Option<Cow<'_, str>> {
        self.text("traceparent")
    }

    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: Json) -> Self {
        self.0.set(name, value);
        self
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Read for Meta {
    fn read(json: &str, at: &Path<'_>) -> Result<Self, Violation> {
        let all = members_of(json, at)?.map(|member| (member.key, member.value)).collect();
        unknown(all, at).map(Self)
    }
}

impl Serialize for Meta {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(to)
    }
}

schema!(inline Meta = "Meta", |_| json_schema!({ "type": "object" }));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_attached_under_the_name_of_a_parameter() {
        let params = r#"{"_meta": {"session_id":"x","a":1,"mcp_\u0073ervers":[],"b":{"cwd":2}},"sessionId":"s", "cwd":3}"#;
        let kept = r#"{"_meta": {"a":1,"b":{"cwd":2}},"sessionId":"s", "cwd":3}"#;
        assert_eq!(without_parameters(params), kept);
        assert!(matches!(without_parameters(kept), Cow::Borrowed(it) if it == kept));
        let plain = r#"{"_meta":{"name":1,"value":2,"method":3,"params":4,"update":5,"prompt":6}}"#;
        assert_eq!(without_parameters(plain), plain);
        assert_eq!(without_parameters(r#"{"_meta":5}"#), r#"{"_meta":5}"#);
        let twice = r#"{"_meta":{"cwd":1},"_meta":{"session_id":2}}"#;
        assert_eq!(without_parameters(twice), r#"{"_meta":{},"_meta":{}}"#);
    }
}
