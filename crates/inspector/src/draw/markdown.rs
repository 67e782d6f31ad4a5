//! Renders Markdown.

use pulldown_cmark::{CodeBlockKind, CowStr, Event, Options, Tag, TagEnd, html};

use super::bounds::{BoundedEvents, WorkLimit};
use super::clean;

/// The maximum HTML of one block, in bytes. A larger block is shown as plain text.
const MAX_BLOCK_HTML_BYTES: usize = 128 * 1024;
/// The maximum number of events of one block. A larger block is shown as plain text.
const MAX_BLOCK_EVENTS: usize = 32 * 1024;
/// The size of HTML that is cleaned at once, in bytes. It is small, so that a cancelled rendering ends soon.
const CLEANED_BYTES: usize = 16 * 1024;

/// Renders the Markdown of a message as HTML. HTML in it is shown as text. An image becomes a link with its description, so that the browser loads nothing without a click.
///
/// The work is proportional to the text. Blocks that are nested too deep, become too large, or remain when the time has elapsed are shown as plain text.
#[must_use]
pub fn markdown(text: &str, limit: &WorkLimit) -> String {
    let text = clean::name_unseen(text);
    let options =
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let Some(mut events) = BoundedEvents::of(&text, options) else { return plain(&text) };
    let (mut drawn, mut html) = (String::with_capacity(text.len() * 3 / 2), String::new());
    // The events of the open block, up to the limits, and where the block begins.
    let (mut block, mut is_large, mut begin) = (Vec::new(), false, 0);
    while let Some((event, place)) = events.next() {
        if block.is_empty() {
            if limit.is_over() {
                drawn.push_str(&clean::clean(&html));
                drawn.push_str(&plain(text.get(place.start..).unwrap_or_default()));
                return drawn;
            }
            begin = place.start;
        }
        is_large |= block.len() >= MAX_BLOCK_EVENTS;
        if !is_large {
            block.push(sanitize_event(event));
        }
        if events.depth() > 0 {
            continue;
        }
        let mut block_html = String::new();
        html::push_html(&mut block_html, block.drain(..));
        if is_large || block_html.len() > MAX_BLOCK_HTML_BYTES {
            drawn.push_str(&clean::clean(&std::mem::take(&mut html)));
            drawn.push_str(&plain(text.get(begin..place.end).unwrap_or_default()));
            is_large = false;
            continue;
        }
        html.push_str(&block_html);
        if html.len() >= CLEANED_BYTES {
            drawn.push_str(&clean::clean(&std::mem::take(&mut html)));
        }
    }
    drawn.push_str(&clean::clean(&html));
    drawn
}

/// Renders plain text.
fn plain(text: &str) -> String {
    format!("<p class=\"plain\">{}</p>", super::text(text))
}

fn sanitize_event(event: Event<'_>) -> Event<'_> {
    match event {
        Event::Html(text) | Event::InlineHtml(text) => Event::Text(text),
        Event::Start(Tag::Image { link_type, dest_url, title, id }) => {
            Event::Start(Tag::Link { link_type, dest_url, title, id })
        }
        Event::End(TagEnd::Image) => Event::End(TagEnd::Link),
        // Keeps only the start of a language's name that can be one.
        Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) => {
            let name: String = language
                .chars()
                .take_while(|it| it.is_ascii_alphanumeric() || matches!(it, '+' | '#' | '-' | '_'))
                .collect();
            Event::Html(CowStr::from(match name.as_str() {
                "" => "<pre><code>".to_owned(),
                _ => format!("<pre><code data-language=\"{name}\">"),
            }))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn markdown(text: &str) -> String {
        super::markdown(text, &WorkLimit::new(Duration::from_secs(60)))
    }

    #[test]
    fn markdown_becomes_html() {
        for (text, html) in [
            ("Hello *you*", "<p>Hello <em>you</em></p>\n"),
            ("- [x] done", "<ul>\n<li><input type=\"checkbox\" disabled=\"\">\ndone</li>\n</ul>\n"),
            ("```rust\nlet x;\n```", "<pre><code data-language=\"rust\">let x;\n</code></pre>\n"),
            ("    indented", "<pre><code>indented</code></pre>\n"),
        ] {
            assert_eq!(markdown(text), html, "{text}");
        }
        let link = markdown("[a](https://example.com/?q=1&r=2 \"t\")");
        assert!(link.contains("href=\"https://example.com/?q=1&amp;r=2\""), "{link}");
        assert!(link.contains("rel=\"noopener noreferrer nofollow\""), "{link}");
    }

    #[test]
    fn nothing_hostile_is_left() {
        for text in [
            "<script>alert(1)</script>",
            "<img src=x onerror=alert(1)>",
            "a <b onclick=alert(1)>b</b>",
            "[a](javascript:alert(1))",
            "[a](JaVaScRiPt&#58;alert(1))",
            "[a](data:text/html,<script>alert(1)</script>)",
            "[a](vbscript:x)",
            "![a](https://evil.example/track.png)",
            "```\"><script>alert(1)</script>\nx\n```",
            "```x onload=alert(1)\ny\n```",
            "<a href=\"x\" style=\"position:fixed\">x</a>",
            "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
            "<svg><script>alert(1)</script></svg>",
            "[a]: javascript:alert(1)\n\n[a]",
            "<https://ok.example> <javascript:alert(1)>",
        ] {
            let html = markdown(text);
            for (place, _) in html.match_indices('<') {
                let rest = &html[place..];
                let tag = rest.split_once('>').map_or(rest, |(tag, _)| tag);
                let is_link = tag.starts_with("<a ")
                    && tag.matches("href=").count() == tag.matches("href=\"https://").count();
                let is_text = ["<p", "<pre", "<code", "<code data-language=\"x\""].contains(&tag);
                assert!(is_link || is_text || tag.starts_with("</"), "{text}: {html}");
            }
        }
    }

    #[test]
    fn what_nobody_sees_is_named() {
        assert_eq!(markdown("a\u{202e}b\u{7}"), "<p>a⟨U+202E⟩b⟨U+0007⟩</p>\n");
    }

    #[test]
    fn a_block_that_becomes_too_large_is_shown_as_it_is_written() {
        let table =
            format!("{}|\n{}|\n{}", "|a".repeat(500), "|-".repeat(500), "|b|\n".repeat(200));
        let html = markdown(&format!("*a*\n\n{table}\n*b*"));
        assert!(html.starts_with("<p><em>a</em></p>\n<p class=\"plain\">|a|a"), "{html}");
        assert!(html.ends_with("</p><p><em>b</em></p>\n"), "{html}");
        assert!(html.len() < 2 * table.len(), "{}", html.len());
    }

    #[test]
    fn without_time_text_is_shown_as_it_is_written() {
        let html = super::markdown("*a* <b>", &WorkLimit::new(Duration::ZERO));
        assert_eq!(html, "<p class=\"plain\">*a* &lt;b&gt;</p>");
        let limit = WorkLimit::new(Duration::from_secs(60));
        drop(limit.cancel_on_drop());
        assert_eq!(super::markdown("*a*", &limit), "<p class=\"plain\">*a*</p>");
    }
}
