use std::time::Duration;

/// Bounds on what one workspace serves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The most text of one read, and of one write, in bytes.
    pub max_text_bytes: usize,
    /// The most of a file that is looked through for the lines that are asked for, in bytes.
    pub max_scanned_bytes: u64,
    /// The most terminals at once.
    pub max_terminals: usize,
    /// The most terminals that are made in one minute.
    pub max_terminals_per_minute: usize,
    /// The most output of one terminal that is kept, in bytes; the oldest goes first.
    pub max_output_bytes: usize,
    /// The most output that one terminal takes, in bytes a second; a command that says more waits.
    pub max_output_rate: usize,
    /// The most arguments and variables of one command, in bytes.
    pub max_command_bytes: usize,
    /// How long a command has to end by itself when it is ended.
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
