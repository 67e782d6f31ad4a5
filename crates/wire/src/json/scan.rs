//! Walks over checked JSON without parsing its values.
//!
//! For text that is not JSON, a walk ends early or returns arbitrary parts. It never fails and always ends.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memchr2;

use super::text;

/// How many bytes are searched one by one for the end of a string.
const NEAR_BYTES: usize = 16;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member<'a> {
    pub key: Cow<'a, str>,
    pub value: &'a str,
    /// The offset of the name's quote.
    pub start: usize,
    pub span: Range<usize>,
}

/// Returns the members of an object, in order. Empty if the text is not an object.
pub fn members(json: &str) -> Members<'_> {
    let at = skip_space(json, 0);
    let is_object = json.as_bytes().get(at) == Some(&b'{');
    Members { json, at: if is_object { at + 1 } else { json.len() } }
}

/// Returns the items of an array, in order. Empty if the text is not an array.
pub fn items(json: &str) -> Items<'_> {
    let at = skip_space(json, 0);
    let is_array = json.as_bytes().get(at) == Some(&b'[');
    Items { json, at: if is_array { at + 1 } else { json.len() } }
}

/// Returns the last member with this name.
pub(crate) fn member<'a>(json: &'a str, key: &str) -> Option<Member<'a>> {
    let mut walk = members(json);
    let mut found = None;
    while let Some(member) = walk.next_span() {
        if is_key(json.get(member.key.clone())?, key) {
            found = Some(member);
        }
    }
    let MemberSpan { key, value } = found?;
    let (start, name) = (key.start, text::decode(json.get(key)?)?);
    Some(Member { key: name, value: json.get(value.clone())?, start, span: value })
}

/// Returns the last value of each of these names, in one walk.
pub(crate) fn values<'a, const N: usize>(json: &'a str, keys: [&str; N]) -> [Option<&'a str>; N] {
    let mut walk = members(json);
    let mut found = [None; N];
    while let Some(member) = walk.next_span() {
        let Some(name) = json.get(member.key) else { break };
        if let Some(place) = keys.iter().position(|key| is_key(name, key)) {
            found[place] = json.get(member.value);
        }
    }
    found
}

/// Whether a name, written with its quotes, is this one. Nearly all names have no escapes, and need no decoding.
fn is_key(name: &str, key: &str) -> bool {
    let inner = name.strip_prefix('"').and_then(|it| it.strip_suffix('"')).unwrap_or_default();
    match inner.as_bytes().contains(&b'\\') {
        false => inner == key,
        true => text::decode(name).is_some_and(|name| name == key),
    }
}

/// Where a member is: its name with the quotes, and its value.
#[derive(Clone, Debug)]
struct MemberSpan {
    key: Range<usize>,
    value: Range<usize>,
}

#[derive(Clone, Debug)]
pub struct Members<'a> {
    json: &'a str,
    at: usize,
}

#[derive(Clone, Debug)]
pub struct Items<'a> {
    json: &'a str,
    at: usize,
}

/// The items of an array that it owns, each copied only when it is its turn: a list of many small values needs no more memory than its text.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OwnedItems {
    json: Box<str>,
    at: usize,
}

// === impl Members ===

impl<'a> Iterator for Members<'a> {
    type Item = Member<'a>;

    fn next(&mut self) -> Option<Member<'a>> {
        let json = self.json;
        let MemberSpan { key, value } = self.next_span()?;
        let start = key.start;
        let Some(key) = json.get(key).and_then(text::decode) else {
            self.at = json.len();
            return None;
        };
        Some(Member { key, value: json.get(value.clone())?, start, span: value })
    }
}

impl Members<'_> {
    fn next_span(&mut self) -> Option<MemberSpan> {
        let start = skip_separator(self.json, self.at);
        let found = self.span_at(start);
        self.at = found.as_ref().map_or(self.json.len(), |member| member.value.end);
        found
    }

    fn span_at(&self, start: usize) -> Option<MemberSpan> {
        let bytes = self.json.as_bytes();
        if bytes.get(start) != Some(&b'"') {
            return None;
        }
        let end = string_end(bytes, start)?;
        let colon = skip_space(self.json, end);
        if bytes.get(colon) != Some(&b':') {
            return None;
        }
        let from = skip_space(self.json, colon + 1);
        Some(MemberSpan { key: start..end, value: from..value_end(bytes, from)? })
    }
}

// === impl Items ===

impl<'a> Iterator for Items<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let start = skip_separator(self.json, self.at);
        let end = value_end(self.json.as_bytes(), start);
        self.at = end.unwrap_or(self.json.len());
        self.json.get(start..end?)
    }
}

// === impl OwnedItems ===

impl OwnedItems {
    /// Returns the items of an array. `None` if the text is not an array.
    pub fn new(json: impl Into<Box<str>>) -> Option<Self> {
        let json = json.into();
        let at = skip_space(&json, 0);
        (json.as_bytes().get(at) == Some(&b'[')).then_some(Self { json, at: at + 1 })
    }

    pub fn is_empty(&self) -> bool {
        self.rest().next().is_none()
    }

    fn rest(&self) -> Items<'_> {
        Items { json: &self.json, at: self.at }
    }
}

impl Iterator for OwnedItems {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let mut rest = self.rest();
        let item = rest.next().map(str::to_owned);
        self.at = rest.at;
        item
    }
}

pub(crate) fn skip_space(json: &str, from: usize) -> usize {
    let bytes = json.as_bytes();
    // Most JSON here has no space.
    if bytes.get(from).is_some_and(|byte| *byte > b' ') {
        return from;
    }
    let rest = bytes.get(from..).unwrap_or_default();
    let space = rest.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
    from + space.unwrap_or(rest.len())
}

fn skip_separator(json: &str, from: usize) -> usize {
    let at = skip_space(json, from);
    if json.as_bytes().get(at) == Some(&b',') { skip_space(json, at + 1) } else { at }
}

/// Returns the end of the value that begins here; `None` if it is cut off or if no value begins here.
fn value_end(bytes: &[u8], from: usize) -> Option<usize> {
    match bytes.get(from)? {
        b'"' => string_end(bytes, from),
        b'{' | b'[' => nest_end(bytes, from),
        b'}' | b']' | b',' | b':' => None,
        _ => {
            let rest = bytes.get(from..)?;
            let end = rest.iter().position(|byte| {
                matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r' | b':' | b'"')
            });
            // A number at the end of the text is whole in checked text, and may be cut off in the head of a line.
            Some(from + end.unwrap_or(rest.len()))
        }
    }
}

/// Returns the end of the string that begins here, after its quote.
fn string_end(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from + 1;
    loop {
        let rest = bytes.get(at..)?;
        // Names and ids are short. For them a search that is made for long strings costs more than checking each byte.
        let near = rest.iter().take(NEAR_BYTES).position(|byte| matches!(byte, b'"' | b'\\'));
        let step = match near {
            Some(step) => step,
            None => NEAR_BYTES + memchr2(b'"', b'\\', rest.get(NEAR_BYTES..)?)?,
        };
        let found = at + step;
        if bytes.get(found) == Some(&b'"') {
            return Some(found + 1);
        }
        at = found + 2;
    }
}

/// Returns the end of the array or object that begins here, after its bracket.
fn nest_end(bytes: &[u8], from: usize) -> Option<usize> {
    let (mut at, mut depth) = (from, 0_usize);
    loop {
        match bytes.get(at)? {
            b'"' => {
                at = string_end(bytes, at)?;
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::{OwnedItems, items, member, members};

    fn pairs(json: &str) -> Vec<(String, &str)> {
        members(json).map(|member| (member.key.into_owned(), member.value)).collect()
    }

    #[test]
    fn members_and_items_are_found_where_they_stand() {
        let json =
            " { \"a\" : 1 ,\"b\\\"\":{\"x\":[\"}\",2]}, \"c\":[ ] ,\"d\":\"\\\\\",\"a\":null}";
        let expected = [
            ("a".to_owned(), "1"),
            ("b\"".to_owned(), r#"{"x":["}",2]}"#),
            ("c".to_owned(), "[ ]"),
            ("d".to_owned(), r#""\\""#),
            ("a".to_owned(), "null"),
        ];
        assert_eq!(pairs(json), expected);
        let last = member(json, "a").unwrap();
        assert_eq!((&json[last.start..last.start + 3], &json[last.span]), ("\"a\"", "null"));
        assert_eq!(
            items("[1, [2,\"]\"],{} ,\"x\"]").collect::<Vec<_>>(),
            ["1", "[2,\"]\"]", "{}", "\"x\""]
        );
        let mut owned = OwnedItems::new(" [1, [2,\"]\"]\n]").unwrap();
        assert_eq!((owned.next().as_deref(), owned.is_empty()), (Some("1"), false));
        assert_eq!((owned.next().as_deref(), owned.is_empty()), (Some("[2,\"]\"]"), true));
        assert_eq!((owned.next(), OwnedItems::new("{}")), (None, None));
        for none in ["", "{}", "[]", "1", "null", " { } "] {
            assert_eq!((pairs(none).len(), items(none).count()), (0, 0), "{none}");
        }
    }

    #[test]
    fn text_that_is_cut_off_gives_what_is_whole() {
        let json = r#"{"id":"x","params":{"a":[1,"b"#;
        assert_eq!(pairs(json), [("id".to_owned(), "\"x\"")]);
        for end in 0..json.len() {
            assert!(pairs(&json[..end]).len() <= 1);
        }
    }
}
