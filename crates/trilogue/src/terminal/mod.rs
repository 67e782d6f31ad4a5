//! Output to the terminal and input from it.

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
