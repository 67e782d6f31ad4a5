use std::path::Path;
use std::time::Duration;

use super::{BrokerVariables, Confinement, SERVER_PREFIX};

/// The environment variable that identifies a child and its descendants.
pub const MARKER: &str = "TRILOGUE_AGENT_INSTANCE";
/// The environment variable of the commands that a child runs through the server: the value of its [`MARKER`].
pub(crate) const COMMAND_MARKER: &str = "TRILOGUE_COMMAND_OF";
/// How long each step of stopping a child may take: after its input was closed, and after it got `TERM`. Then it is killed.
pub const STEP: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    pub name: &'a str,
    pub command: &'a [String],
    pub cwd: &'a Path,
    pub env: &'a [(String, String)],
    /// The names of the server's variables that it gets in addition to [`super::INHERITED`].
    pub inherit: &'a [String],
    pub confinement: Confinement<'a>,
    /// Whether it works on when the server is gone, if it has a sandbox. The next server can continue with it.
    pub can_outlive: bool,
    /// Makes the variables by which it knows the broker, if its sandbox has the network of one.
    pub broker: Option<&'a dyn BrokerVariables>,
}

/// An invalid setting of a program: with it, the program cannot be started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InvalidSetting {
    /// The name of the setting in the configuration.
    pub key: &'static str,
    pub why: String,
    pub hint: String,
}

/// Checks a command and its variables. The command is started without a shell.
/// Errors: the first problem with `command`, `env` or `inherit`.
pub(crate) fn check_program(
    command: &[String],
    env: &[(String, String)],
    inherit: &[String],
) -> Result<(), InvalidSetting> {
    let invalid =
        |key, why: &str, hint: String| Err(InvalidSetting { key, why: why.to_owned(), hint });
    let Some(program) = command.first().filter(|program| !program.is_empty()) else {
        let hint =
            "set command to the program and its arguments, such as [\"some-agent\", \"acp\"]";
        return invalid("command", "it must name a program", hint.to_owned());
    };
    if command.len() == 1 && is_command_line(program) {
        let why = "the program and its arguments are in one text";
        return invalid("command", why, words_hint("command", program));
    }
    if command.iter().any(|text| text.contains('\0')) {
        let hint = "remove the zero byte".to_owned();
        return invalid("command", "an argument has a zero byte", hint);
    }
    let mut names = env.iter().map(|(name, _)| name).chain(inherit);
    if let Some(name) = names.find(|name| name.is_empty() || name.contains(['=', '\0'])) {
        let why = format!("'{}' is not the name of a variable", name.escape_debug());
        return invalid("env", &why, "a name is not empty and has no '='".to_owned());
    }
    if let Some(name) = inherit.iter().find(|name| name.starts_with(SERVER_PREFIX)) {
        let why = format!("'{name}' is about the server, not about the agent");
        let hint = "remove it; set it in `env` if the agent needs a token of its own";
        return invalid("inherit", &why, hint.to_owned());
    }
    if let Some((name, _)) = env.iter().find(|(_, value)| value.contains('\0')) {
        let why = format!("the value of '{}' has a zero byte", name.escape_debug());
        return invalid("env", &why, "remove the zero byte".to_owned());
    }
    Ok(())
}

/// Whether the name of a program is probably a whole command line: no shell splits it, and such names rarely contain white space.
pub(super) fn is_command_line(program: &str) -> bool {
    program.contains(char::is_whitespace) && !Path::new(program).exists()
}

/// Returns how to write a command line as a setting.
pub(super) fn words_hint(key: &str, line: &str) -> String {
    let words: Vec<_> = line.split_whitespace().map(|word| format!("{word:?}")).collect();
    format!("write {key} = [{}]", words.join(", "))
}
