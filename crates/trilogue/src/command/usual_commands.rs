//! Commands that people type because other programs have them, and what they are called here.

use clap::CommandFactory as _;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use trilogue::config::nearest;

use crate::command::arguments::Arguments;
use crate::terminal::exit::CliError;

struct UsualCommand {
    written: &'static [&'static str],
    hint: &'static str,
}

const USUAL: &[UsualCommand] = &[
    UsualCommand {
        written: &["start", "up", "server", "daemon"],
        hint: "start your server with `trilogue demo`, or a configured one with `trilogue serve --config FILE`",
    },
    UsualCommand {
        written: &["restart", "reload"],
        hint: "stop your server with `trilogue stop`, and start it again with `trilogue demo`",
    },
    UsualCommand {
        written: &["shutdown", "down", "quit", "exit"],
        hint: "stop your server with `trilogue stop`",
    },
    UsualCommand {
        written: &["kill", "abort"],
        hint: "cancel a run with `trilogue cancel RUN`, or stop your server with `trilogue stop`",
    },
    UsualCommand {
        written: &["ls", "list", "sessions", "conversations"],
        hint: "list with `trilogue threads`, `trilogue runs` or `trilogue agents`",
    },
    UsualCommand {
        written: &["ps", "jobs", "tasks", "info", "health", "ping"],
        hint: "see the server with `trilogue status`, and its runs with `trilogue runs`",
    },
    UsualCommand {
        written: &["show", "get", "inspect", "history", "cat", "messages"],
        hint: "read a thread with `trilogue threads show THREAD`",
    },
    UsualCommand {
        written: &["events", "watch", "follow", "stream"],
        hint: "follow a thread with `trilogue tail THREAD --follow`",
    },
    UsualCommand {
        written: &["send", "ask", "prompt", "exec", "call", "query"],
        hint: "run an agent with `trilogue run AGENT TEXT`",
    },
    UsualCommand {
        written: &["answer", "reply", "allow", "deny", "reject", "confirm", "questions", "pending"],
        hint: "list open questions with `trilogue inbox`, and answer one with `trilogue approve INTERRUPT`",
    },
    UsualCommand {
        written: &["delete", "rm", "remove", "erase"],
        hint: "erase a thread with `trilogue threads erase THREAD`",
    },
    UsualCommand {
        written: &["config", "check", "validate"],
        hint: "check a configuration with `trilogue serve --config FILE --check`",
    },
    UsualCommand {
        written: &["acp", "stdio", "proxy", "attach", "bridge"],
        hint: "an editor starts `trilogue connect AGENT`",
    },
];

/// Explains a command that does not exist, and `serve` without its file. `None` for any other error of the command line.
pub(crate) fn explain(error: &clap::Error) -> Option<CliError> {
    match error.kind() {
        ErrorKind::InvalidSubcommand => explain_command(error),
        ErrorKind::MissingRequiredArgument => explain_serve(),
        _ => None,
    }
}

/// `serve` names a file, because it is how others run the server; a person's own server needs none.
fn explain_serve() -> Option<CliError> {
    let is_serve = std::env::args().skip(1).find(|it| !it.starts_with('-'))? == "serve";
    is_serve.then(|| {
        CliError::usage("the configuration file is missing: `trilogue serve --config FILE`").hint(
            "write one with `trilogue init --file trilogue.toml`; your own server needs none: `trilogue demo`",
        )
    })
}

fn explain_command(error: &clap::Error) -> Option<CliError> {
    let Some(ContextValue::String(written)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    // The commands below a command have names of their own.
    let first = std::env::args().skip(1).find(|it| !it.starts_with('-'))?;
    if first != *written {
        return None;
    }
    let unknown = CliError::usage(format!("unknown command '{written}'"));
    let lower = written.to_ascii_lowercase();
    if let Some(usual) = USUAL.iter().find(|usual| usual.written.contains(&lower.as_str())) {
        return Some(unknown.hint(usual.hint));
    }
    let root = Arguments::command();
    let shown = root.get_subcommands().filter(|command| !command.is_hide_set());
    let names: Vec<&str> = shown.map(clap::Command::get_name).collect();
    Some(match nearest(&lower, &names) {
        Some(name) => unknown.hint(format!("did you mean '{name}'?")),
        None => unknown.hint("list the commands with --help"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_usual_word_is_a_command() {
        let root = Arguments::command();
        for word in USUAL.iter().flat_map(|usual| usual.written) {
            assert!(root.find_subcommand(word).is_none(), "{word}");
        }
    }
}
