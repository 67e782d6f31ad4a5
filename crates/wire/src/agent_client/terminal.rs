use super::object::object;

object! {
    /// Runs a command in a terminal of the client's.
    pub struct CreateTerminalRequest {
        /// The session.
        session_id: String = "sessionId" as required;
        /// The program.
        command: String = "command" as required;
    } may {
        /// Its arguments.
        args: Vec<String> = "args" as optional;
        /// Its variables, beside those that the terminal has.
        env: Vec<EnvVariable> = "env" as optional;
        /// Where it runs, as an absolute path.
        cwd: Option<String> = "cwd" as optional;
        /// How much of its output is kept, in bytes; the oldest goes first.
        output_byte_limit: Option<u64> = "outputByteLimit" as optional;
    }
}

object! {
    /// A variable of the environment.
    pub struct EnvVariable {
        /// Its name.
        name: String = "name" as required;
        /// Its value.
        value: String = "value" as required;
    } may {
    }
}

object! {
    /// The command runs.
    pub struct CreateTerminalResponse {
        /// The terminal's id.
        terminal_id: String = "terminalId" as required;
    } may {
    }
}

object! {
    /// Asks for what a terminal shows.
    pub struct TerminalOutputRequest {
        /// The session.
        session_id: String = "sessionId" as required;
        /// The terminal.
        terminal_id: String = "terminalId" as required;
    } may {
    }
}

object! {
    /// What a terminal shows.
    pub struct TerminalOutputResponse {
        /// The output so far.
        output: String = "output" as required;
        /// Whether its beginning is gone.
        truncated: bool = "truncated" as required;
    } may {
        /// How the command ended, if it did.
        exit_status: Option<TerminalExitStatus> = "exitStatus" as lenient;
    }
}

object! {
    /// How a command ended.
    #[derive(Default)]
    pub struct TerminalExitStatus {
    } may {
        /// Its exit code.
        exit_code: Option<u32> = "exitCode" as lenient;
        /// The signal that ended it.
        signal: Option<String> = "signal" as lenient;
    }
}

object! {
    /// Waits until a command ends.
    pub struct WaitForTerminalExitRequest {
        /// The session.
        session_id: String = "sessionId" as required;
        /// The terminal.
        terminal_id: String = "terminalId" as required;
    } may {
    }
}

object! {
    /// The command ended.
    #[derive(Default)]
    pub struct WaitForTerminalExitResponse {
    } may {
        /// Its exit code.
        exit_code: Option<u32> = "exitCode" as lenient;
        /// The signal that ended it.
        signal: Option<String> = "signal" as lenient;
    }
}

object! {
    /// Ends a command. The terminal stays.
    pub struct KillTerminalRequest {
        /// The session.
        session_id: String = "sessionId" as required;
        /// The terminal.
        terminal_id: String = "terminalId" as required;
    } may {
    }
}

object! {
    /// The command was ended.
    #[derive(Default)]
    pub struct KillTerminalResponse {
    } may {
    }
}

object! {
    /// Lets a terminal go. A command that runs in it is ended.
    pub struct ReleaseTerminalRequest {
        /// The session.
        session_id: String = "sessionId" as required;
        /// The terminal.
        terminal_id: String = "terminalId" as required;
    } may {
    }
}

object! {
    /// The terminal is gone.
    #[derive(Default)]
    pub struct ReleaseTerminalResponse {
    } may {
    }
}
