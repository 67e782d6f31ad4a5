//! What reaches the terminal, and what is read from it.

pub(crate) mod ask;
pub(crate) mod beside;
pub(crate) mod cited;
pub(crate) mod permission;
pub(crate) mod print;
pub(crate) mod safe;
pub(crate) mod save;
pub(crate) mod show;
pub(crate) mod style;
pub(crate) mod table;
