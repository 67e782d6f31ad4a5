//! The page of the inspector, and its rendering.
//!
//! The page is a folder of HTML, CSS and JavaScript modules that a browser loads directly. [`page`] contains them; the modules are without comments and unneeded spaces. Rendering that needs a real library is done here: [`draw`] makes safe HTML from Markdown, code and differences. [`code`] writes requests as code to paste.
//!
//! # Invariants
//! - For every text, the HTML of [`draw`] contains no script, no style, no handler and no address that a browser loads by itself.
//! - Nothing here reads a file or the network: the page is in the library.

pub mod code;
pub mod draw;
pub mod page;
