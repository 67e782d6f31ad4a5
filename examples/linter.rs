//! The agent of the guide that works with an editor's own files and terminals, served where `trilogue connect linter` finds it.
//!
//! ```text
//! cargo run -p trilogue-examples --example linter
//! ```
//!
//! An editor that launches `trilogue connect linter` reads and writes for it, unsaved changes included, and runs its commands. The first argument is an address to listen on instead of the usual one.

#[path = "guide/editing.rs"]
mod editing;

use trilogue::config::List;
use trilogue::{Error, Options};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut options = Options::in_memory();
    if let Some(address) = std::env::args().nth(1).and_then(|it| it.parse().ok()) {
        options.server.listen = List(vec![address]);
    }
    trilogue::serve(editing::Linter, options).await
}
