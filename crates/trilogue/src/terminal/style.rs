//! The styles of the output. The text alone always carries the meaning.
//!
//! Styled text is written through `anstream`, which removes styles in pipes and if `NO_COLOR` is set.

use anstyle::{AnsiColor, Style};

pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const LINK: Style = Style::new().underline();
pub(crate) const CODE: Style = AnsiColor::Cyan.on_default();
pub(crate) const SUCCEEDED: Style = AnsiColor::Green.on_default();
pub(crate) const FAILED: Style = AnsiColor::Red.on_default();
const ERROR: Style = AnsiColor::Red.on_default().bold();
const HINT: Style = AnsiColor::Cyan.on_default().bold();

pub(crate) fn dim(text: &str) -> String {
    paint(DIM, text)
}

pub(crate) fn bold(text: &str) -> String {
    paint(BOLD, text)
}

pub(crate) fn error(text: &str) -> String {
    paint(ERROR, text)
}

pub(crate) fn hint(text: &str) -> String {
    paint(HINT, text)
}

fn paint(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}
