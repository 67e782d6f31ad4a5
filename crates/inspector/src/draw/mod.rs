//! Safe HTML of texts from agents and people.

mod bounds;
mod clean;
mod difference;
mod markdown;

pub use bounds::{BoundedEvents, MAX_NESTING, WorkGuard, WorkLimit};
pub(crate) use clean::is_unseen;
pub use difference::difference;
pub use markdown::markdown;

/// Renders text as HTML that shows each character. Invisible characters, and characters that change the direction of others, are shown by their names.
#[must_use]
pub fn text(text: &str) -> String {
    let mut html = String::with_capacity(text.len() + text.len() / 8);
    for letter in text.chars() {
        match letter {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            '\n' | '\t' => html.push(letter),
            _ if clean::is_unseen(letter) => {
                html.push_str("<span class=\"unseen\">");
                html.push_str(&clean::name(letter));
                html.push_str("</span>");
            }
            _ => html.push(letter),
        }
    }
    html
}
