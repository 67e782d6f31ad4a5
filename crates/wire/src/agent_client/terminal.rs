use super::object::object;

object! {
    pub struct CreateTerminalRequest {
        session_id: String = "sessionId";
        command: String = "command";
    } may {
        args: Vec<String> = "args" as optional;
        /// Added to the terminal's own environment.
        env: Vec<EnvVariable> = "env" as optional;
        /// An absolute path.
        cwd: Option<String> = "cwd" as optional;
        /// The limit of the kept output, in bytes. The oldest output is dropped first.
        output_byte_limit: Option<u64> = "outputByteLimit" as optional;
    }

    pub struct EnvVariable {
        name: String = "name";
        value: String = "value";
    }

    pub struct CreateTerminalResponse {
        terminal_id: String = "terminalId";
    }

    pub struct TerminalOutputRequest {
        session_id: String = "sessionId";
        terminal_id: String = "terminalId";
    }

    pub struct TerminalOutputResponse {
        output: String = "output";
        /// Whether the beginning of the output was dropped.
        truncated: bool = "truncated";
    } may {
        /// Absent while the command runs.
        exit_status: Option<TerminalExitStatus> = "exitStatus";
    }

    pub struct TerminalExitStatus may {
        exit_code: Option<u32> = "exitCode";
        signal: Option<String> = "signal";
    }

    pub struct WaitForTerminalExitRequest {
        session_id: String = "sessionId";
        terminal_id: String = "terminalId";
    }

    pub struct WaitForTerminalExitResponse may {
        exit_code: Option<u32> = "exitCode";
        signal: Option<String> = "signal";
    }

    /// Ends a command. The terminal stays.
    pub struct KillTerminalRequest {
        session_id: String = "sessionId";
        terminal_id: String = "terminalId";
    }

    pub struct KillTerminalResponse;

    pub struct ReleaseTerminalRequest {
        session_id: String = "sessionId";
        terminal_id: String = "terminalId";
    }

    pub struct ReleaseTerminalResponse;
}
