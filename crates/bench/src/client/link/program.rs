//! An agent's program on its standard streams.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::{MessageLink, READ_BYTES};

/// A program. Killed when dropped.
#[derive(Debug)]
pub(in super::super) struct ProgramLink {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    line: Vec<u8>,
}

// === impl ProgramLink ===

impl ProgramLink {
    pub(in super::super) fn launch(command: &mut Command) -> Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().context("the agent is mute")?;
        let output = BufReader::with_capacity(READ_BYTES, output);
        Ok(Self { input: child.stdin.take(), output, child, line: Vec::new() })
    }
}

impl MessageLink for ProgramLink {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        self.line.clear();
        self.line.extend_from_slice(message);
        self.line.push(b'\n');
        let input = self.input.as_mut().context("the agent was closed")?;
        Ok(input.write_all(&self.line)?)
    }

    fn receive(&mut self, message: &mut Vec<u8>) -> Result<()> {
        message.clear();
        if self.output.read_until(b'\n', message)? == 0 {
            bail!("the agent ended");
        }
        Ok(())
    }

    /// Ends the program by the end of its input.
    fn close(mut self: Box<Self>) -> Result<()> {
        drop(self.input.take());
        let mut rest = Vec::new();
        self.output.read_to_end(&mut rest)?;
        ensure!(self.child.wait()?.success(), "the agent failed");
        Ok(())
    }
}

impl Drop for ProgramLink {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
