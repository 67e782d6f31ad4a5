use super::object::object;

object! {
    /// The commands that a user can give, all of them.
    pub struct AvailableCommandsUpdate {
        /// The commands.
        available_commands: Vec<AvailableCommand> = "availableCommands" as fitting_there;
    } may {
    }
}

object! {
    /// A command that a user can give.
    pub struct AvailableCommand {
        /// Its name, without a slash.
        name: String = "name" as required;
        /// What it does.
        description: String = "description" as required;
    } may {
        /// What it takes; nothing where this is absent.
        input: Option<CommandInput> = "input" as lenient;
    }
}

object! {
    /// What a command takes: all that is typed behind its name.
    pub struct CommandInput {
        /// What is shown as long as nothing is typed.
        hint: String = "hint" as required;
    } may {
    }
}
