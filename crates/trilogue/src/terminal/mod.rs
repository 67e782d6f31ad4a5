//! Output to the terminal and input from it.
//!
//! | modules | what they do |
//! |---|---|
//! | `print`, `style`, `exit` | Write to standard output and standard error, with styles, and end a command with its exit code. |
//! | `render` | Turns a run's events into pieces: `plain` writes them as text, `rich` draws them on a terminal. |
//! | `beside`, `tool_content`, `file_change`, `permission` | Render everything except the answer: thoughts, plans, tool calls, permission requests. |
//! | `markdown`, `cited`, `rows`, `image` | Render content: Markdown, citations, rows of styled text, images. |
//! | `table`, `age`, `words` | Format lists, times and long lines. |
//! | `live`, `screen` | Redraw the bottom rows, or the whole terminal. |
//! | `ask`, `question`, `form`, `choice`, `menu`, `prompt`, `keyboard` | Show a question and read its answer, key by key. |
//! | `save` | Saves artifacts under safe names. |

pub(crate) mod age;
pub(crate) mod ask;
pub(crate) mod beside;
pub(crate) mod choice;
pub(crate) mod cited;
pub(crate) mod exit;
mod file_change;
pub(crate) mod form;
pub(crate) mod image;
mod keyboard;
mod live;
pub(crate) mod markdown;
#[cfg(test)]
mod markdown_time;
mod menu;
pub(crate) mod permission;
pub(crate) mod print;
mod prompt;
pub(crate) mod question;
pub(crate) mod render;
pub(crate) mod rows;
pub(crate) mod save;
pub(crate) mod screen;
pub(crate) mod style;
pub(crate) mod table;
pub(crate) mod tool_content;
pub(crate) mod words;

pub(crate) use trilogue_domain::safe;
