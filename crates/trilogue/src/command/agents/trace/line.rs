//! One call in the output of `strace`: its name, its arguments and its result.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

/// A call that has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SystemCall<'a> {
    pub(super) name: &'a str,
    pub(super) arguments: Vec<&'a str>,
    pub(super) result: &'a str,
}

/// How a call ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CallOutcome {
    Done,
    /// The user of the program lacks a right.
    Refused,
    Failed,
}

/// The errors of a call that needs a right.
const REFUSALS: [&str; 3] = ["-1 EACCES", "-1 EPERM", "-1 EROFS"];

// === impl SystemCall ===

impl<'a> SystemCall<'a> {
    /// Reads a line without its process id. `None` if it is not a call.
    pub(super) fn parse(line: &'a str) -> Option<Self> {
        let (name, rest) = line.split_once('(')?;
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        {
            return None;
        }
        let mut arguments = Vec::new();
        let (mut depth, mut from) = (0_usize, 0);
        let mut at = 0;
        let bytes = rest.as_bytes();
        while let Some(byte) = bytes.get(at) {
            match byte {
                b'"' => at = end_of_text(bytes, at)?,
                // The path of a descriptor.
                b'<' if bytes
                    .get(at + 1)
                    .is_some_and(|next| next.is_ascii_alphabetic() || *next == b'/') =>
                {
                    at += bytes.get(at..)?.iter().position(|byte| *byte == b'>')?;
                }
                b'(' | b'[' | b'{' => depth += 1,
                b')' if depth == 0 => {
                    arguments.push(rest.get(from..at)?.trim());
                    let (_, result) = rest.get(at..)?.split_once("= ")?;
                    return Some(Self { name, arguments, result: result.trim() });
                }
                b')' | b']' | b'}' => depth = depth.saturating_sub(1),
                b',' if depth == 0 => {
                    arguments.push(rest.get(from..at)?.trim());
                    from = at + 1;
                }
                _ => {}
            }
            at += 1;
        }
        None
    }

    pub(super) fn outcome(&self) -> CallOutcome {
        if REFUSALS.iter().any(|refusal| self.result.starts_with(refusal)) {
            return CallOutcome::Refused;
        }
        match self.result.starts_with(|first: char| first.is_ascii_digit()) {
            true => CallOutcome::Done,
            false => CallOutcome::Failed,
        }
    }

    pub(super) fn argument(&self, place: usize) -> &'a str {
        self.arguments.get(place).copied().unwrap_or_default()
    }

    /// The process id that a call returns.
    pub(super) fn returned_id(&self) -> Option<u32> {
        self.result.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    }
}

/// The place of the quote that ends a text.
fn end_of_text(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        match bytes.get(at)? {
            b'"' => return Some(at),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// The path in quotes that an argument begins with. `None` for another argument, and for a text that was cut off.
pub(super) fn quoted_path(argument: &str) -> Option<PathBuf> {
    let end = end_of_text(argument.as_bytes(), 0).filter(|_| argument.starts_with('"'))?;
    let is_whole = !argument.get(end + 1..)?.starts_with("...");
    is_whole.then(|| unescape(argument.get(1..end).unwrap_or_default()))
}

/// The path behind a descriptor, such as `3</etc/hosts>`.
pub(super) fn descriptor_path(argument: &str) -> Option<PathBuf> {
    let (_, rest) = argument.split_once('<')?;
    let (path, _) = rest.split_once('>')?;
    path.starts_with('/').then(|| unescape(path))
}

/// Replaces the escapes of C.
fn unescape(text: &str) -> PathBuf {
    let mut plain = Vec::with_capacity(text.len());
    let mut bytes = text.bytes().peekable();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            plain.push(byte);
            continue;
        }
        let Some(escaped) = bytes.next() else { break };
        plain.push(match escaped {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'v' => 0x0b,
            b'f' => 0x0c,
            b'0'..=b'7' => {
                let mut value = escaped - b'0';
                for _ in 0..2 {
                    let Some(digit) = bytes.next_if(|next| (b'0'..=b'7').contains(next)) else {
                        break;
                    };
                    value = value.wrapping_mul(8).wrapping_add(digit - b'0');
                }
                value
            }
            other => other,
        });
    }
    PathBuf::from(OsString::from_vec(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_its_arguments_and_its_result() {
        let line = r#"openat(AT_FDCWD</tmp/a, b>, "z\"q\n)", O_WRONLY|O_CREAT, 0666) = 5</tmp/a, b/z\"q\n)>"#;
        let call = SystemCall::parse(line).unwrap();
        assert_eq!((call.name, call.arguments.len()), ("openat", 4));
        assert_eq!(call.outcome(), CallOutcome::Done);
        assert_eq!(descriptor_path(call.argument(0)), Some("/tmp/a, b".into()));
        assert_eq!(quoted_path(call.argument(1)), Some("z\"q\n)".into()));
        assert_eq!(descriptor_path(call.result), Some("/tmp/a, b/z\"q\n)".into()));

        let line = r#"unlink("\303\244\\") = -1 EACCES (Permission denied)"#;
        let call = SystemCall::parse(line).unwrap();
        assert_eq!(call.outcome(), CallOutcome::Refused);
        assert_eq!(quoted_path(call.argument(0)), Some("ä\\".into()));
        assert_eq!(SystemCall::parse("vfork() = 17").unwrap().returned_id(), Some(17));
    }

    #[test]
    fn what_is_no_whole_call_is_left_out() {
        for line in ["", "openat(AT_FDCWD, \"a", "exit_group(0)", "--- SIGCHLD {si_signo=1} ---"] {
            assert_eq!(SystemCall::parse(line), None, "{line}");
        }
        for argument in ["\"abc\"...", "NULL", "0x7ffd", "\"abc"] {
            assert_eq!(quoted_path(argument), None, "{argument}");
        }
        assert_eq!(descriptor_path("5<socket:[12]>"), None);
    }
}
