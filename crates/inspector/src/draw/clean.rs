//! Removes characters that a reader cannot see, and HTML that the page does not allow.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use ammonia::{Builder, UrlRelative};

/// The allowed HTML: elements of text, and links that a reader must click.
static BUILDER: LazyLock<Builder<'static>> = LazyLock::new(|| {
    let tags = [
        "p",
        "br",
        "hr",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "em",
        "strong",
        "del",
        "code",
        "pre",
        "blockquote",
        "ul",
        "ol",
        "li",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "a",
        "span",
        "sup",
        "section",
        "input",
    ];
    let classes = ["unseen", "math", "footnote", "address", "lost"];
    let attributes = HashMap::from([
        ("a", HashSet::from(["href", "title"])),
        ("ol", HashSet::from(["start"])),
        ("code", HashSet::from(["data-language"])),
    ]);
    let mut builder = Builder::empty();
    builder
        .tags(HashSet::from(tags))
        .tag_attributes(attributes)
        .allowed_classes(HashMap::from([("span", HashSet::from(classes))]))
        .url_schemes(HashSet::from(["http", "https", "mailto"]))
        .url_relative(UrlRelative::Deny)
        .tag_attribute_values(HashMap::from([(
            "input",
            HashMap::from([("type", HashSet::from(["checkbox"]))]),
        )]))
        .set_tag_attribute_values(HashMap::from([
            ("a", HashMap::from([("target", "_blank")])),
            ("input", HashMap::from([("disabled", "")])),
        ]))
        .link_rel(Some("noopener noreferrer nofollow"));
    builder
});

/// Removes all HTML that is not on the list above.
pub(super) fn clean(html: &str) -> String {
    BUILDER.clean(html).to_string()
}

/// Returns `true` if a character is a control character, is invisible, or changes the direction of its neighbours.
pub(crate) fn is_unseen(letter: char) -> bool {
    letter.is_control()
        || matches!(letter,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Returns the name of an invisible character.
pub(super) fn name(letter: char) -> String {
    format!("U+{:04X}", u32::from(letter))
}

/// Replaces invisible characters with their names, for places without elements.
pub(super) fn name_unseen(text: &str) -> Cow<'_, str> {
    let stays = |letter: char| matches!(letter, '\n' | '\t') || !is_unseen(letter);
    if text.chars().all(stays) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        if stays(letter) {
            shown.push(letter);
        } else {
            shown.push('⟨');
            shown.push_str(&name(letter));
            shown.push('⟩');
        }
    }
    Cow::Owned(shown)
}
