use std::time::Duration;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The most text of one read or write, in bytes.
    pub max_text_bytes: usize,
    /// How far a file is searched for the requested lines, in bytes.
    pub max_scanned_bytes: u64,
    pub max_terminals: usize,
    pub max_terminals_per_minute: usize,
    /// How much output of a terminal is kept, in bytes. The oldest is dropped first.
    pub max_output_bytes: usize,
    /// The most output of a terminal, in bytes per second. A faster command waits.
    pub max_output_rate: usize,
    /// The longest command with its arguments and variables, in bytes.
    pub max_command_bytes: usize,
    /// How long a command has to exit before it is killed.
    pub kill_grace: Duration,
}

// === impl Limits ===

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_text_bytes: 10 * 1024 * 1024,
            max_scanned_bytes: 1024 * 1024 * 1024,
            max_terminals: 32,
            max_terminals_per_minute: 240,
            max_output_bytes: 1024 * 1024,
            max_output_rate: 32 * 1024 * 1024,
            max_command_bytes: 128 * 1024,
            kill_grace: Duration::from_secs(1),
        }
    }
}
