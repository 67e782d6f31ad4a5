//! The few styles of the output. Colour and weight never carry a meaning that the words do not.
//!
//! Styled text is written through `anstream`, which takes the styles out where they do not belong: into pipes, and where `NO_COLOR` is set.

use anstyle::{AnsiColor, Style};

const DIM: Style = Style::new().dimmed();
const BOLD: Style = Style::new().bold();
const ERROR: Style = AnsiColor::Red.on_default().bold();
const HINT: Style = AnsiColor::Cyan.on_default().bold();

/// Text that stands beside the answer.
pub(crate) fn dim(text: &str) -> String {
    paint(DIM, text)
}

/// Text that stands out.
pub(crate) fn bold(text: &str) -> String {
    paint(BOLD, text)
}

/// The word `error`.
pub(crate) fn error(text: &str) -> String {
    paint(ERROR, text)
}

/// The word `hint`.
pub(crate) fn hint(text: &str) -> String {
    paint(HINT, text)
}

fn paint(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}
