//! Asks for one line, which only the Enter key sends.

use std::io;

use unicode_width::UnicodeWidthStr as _;

use super::keyboard::{KeyPress, Keyboard};
use super::{print, safe, style};

/// The most characters of an answer.
const MAX_LINE_CHARS: usize = 64 * 1024;

/// What the person did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum LineInput {
    Line(String),
    /// Esc or Ctrl-D: the question stays open.
    Later,
}

/// What happens to pasted text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Paste {
    /// It joins the line, which still needs Enter.
    Insert,
    /// It is dropped: a choice is typed.
    Refuse,
}

/// Asks for a line at this cue. Keys that were pressed before the cue is shown do not count.
///
/// # Errors
/// `Interrupted` for Ctrl-C.
pub(super) fn read_line(keyboard: &mut Keyboard, cue: &str, paste: Paste) -> io::Result<LineInput> {
    keyboard.settle()?;
    print::aside(&style::bold(cue));
    let mut line: Vec<char> = Vec::new();
    let entry = loop {
        match keyboard.next()? {
            KeyPress::Enter => break LineInput::Line(line.into_iter().collect()),
            KeyPress::Esc => break LineInput::Later,
            KeyPress::End if line.is_empty() => break LineInput::Later,
            KeyPress::CtrlC => {
                print::note("");
                return Err(io::ErrorKind::Interrupted.into());
            }
            KeyPress::Char(char) => insert(&mut line, char),
            KeyPress::Paste(text) if paste == Paste::Insert => {
                text.trim_end_matches('\n').chars().for_each(|char| insert(&mut line, char));
            }
            KeyPress::Paste(_) => {
                print::note("\npasted text is not accepted: type the answer");
                keyboard.settle()?;
                line.clear();
                print::aside(&style::bold(cue));
            }
            KeyPress::Backspace => erase(&mut line, 1),
            KeyPress::DeleteLine => erase(&mut line, usize::MAX),
            KeyPress::DeleteWord => {
                let spaces = line.iter().rev().take_while(|char| char.is_whitespace()).count();
                let rest = line.iter().rev().skip(spaces);
                let word = rest.take_while(|char| !char.is_whitespace()).count();
                erase(&mut line, spaces + word);
            }
            KeyPress::End | KeyPress::Up | KeyPress::Down | KeyPress::Tab | KeyPress::Other => {}
        }
    };
    print::note("");
    Ok(entry)
}

fn insert(line: &mut Vec<char>, char: char) {
    if line.len() < MAX_LINE_CHARS {
        line.push(char);
        print::aside(&echo_text(char));
    }
}

fn erase(line: &mut Vec<char>, count: usize) {
    for char in line.drain(line.len().saturating_sub(count)..) {
        print::aside(&"\u{8} \u{8}".repeat(echo_text(char).width()));
    }
}

/// A typed character as it is echoed: an invisible one as its code.
fn echo_text(char: char) -> String {
    safe::visible(char.encode_utf8(&mut [0; 4]))
}
