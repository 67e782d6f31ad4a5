use super::object::object;

object! {
    pub struct AvailableCommandsUpdate {
        available_commands: Vec<AvailableCommand> = "availableCommands" as fitting_there;
    }

    pub struct AvailableCommand {
        /// Without a slash.
        name: String = "name";
        description: String = "description";
    } may {
        input: Option<CommandInput> = "input";
    }

    /// All text after the command's name.
    pub struct CommandInput {
        /// Shown while the input is empty.
        hint: String = "hint";
    }
}
