//! Markdown.

use pulldown_cmark::{CodeBlockKind, CowStr, Event, Options, Parser, Tag, TagEnd, html};

use super::clean;

/// The Markdown of a message as HTML. HTML in it is shown as text; an image is a link with its description, so that nothing is loaded that nobody asked for.
#[must_use]
pub fn markdown(text: &str) -> String {
    let text = clean::named(text);
    let options =
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let events = Parser::new_ext(&text, options).map(shown);
    let mut drawn = String::with_capacity(text.len() * 3 / 2);
    html::push_html(&mut drawn, events);
    clean::clean(&drawn)
}

fn shown(event: Event<'_>) -> Event<'_> {
    match event {
        Event::Html(text) | Event::InlineHtml(text) => Event::Text(text),
        Event::Start(Tag::Image { link_type, dest_url, title, id }) => {
            Event::Start(Tag::Link { link_type, dest_url, title, id })
        }
        Event::End(TagEnd::Image) => Event::End(TagEnd::Link),
        // Of a language's name, only what can be one.
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
    use super::*;

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
}
