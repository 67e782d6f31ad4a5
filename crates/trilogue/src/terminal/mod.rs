//! Output to the terminal and input from it.

pub(crate) mod ask;
pub(crate) mod beside;
pub(crate) mod cited;
pub(crate) mod permission;
pub(crate) mod print;
pub(crate) mod render;
pub(crate) mod save;
pub(crate) mod style;
pub(crate) mod table;

pub(crate) use trilogue_domain::safe;
