use std::path::Path;
use std::time::Duration;

/// The variable by which a child and its descendants are found.
pub const MARKER: &str = "TRILOGUE_AGENT_INSTANCE";
/// How long each step of stopping a child takes at most: its input is closed, it is asked to exit, it is killed.
pub const STEP: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    pub name: &'a str,
    pub command: &'a [String],
    pub cwd: &'a Path,
    pub env: &'a [(String, String)],
    /// The server's own variables that it gets beside [`super::INHERITED`].
    pub inherit: &'a [String],
}
