//! The page of the inspector, and what it is drawn with.
//!
//! The page is a folder of HTML, CSS and JavaScript modules that a browser takes as they are; [`page`] has them, the modules without comments and needless spaces. What needs a real library is drawn here: [`draw`] makes safe HTML of Markdown, code and differences. [`code`] writes requests as code that people paste.
//!
//! # Invariants
//! - Whatever the text is, what [`draw`] returns holds no script, no style, no handler and no address that a browser loads by itself.
//! - Nothing here reads a file or the network: the page is in the library.

pub mod code;
pub mod draw;
pub mod page;
