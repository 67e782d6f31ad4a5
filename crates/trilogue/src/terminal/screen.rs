//! Uses the whole terminal as one screen until it is dropped. Then the earlier content returns.

use std::io;

use super::keyboard::{KeyPress, Keyboard};
use super::print;

const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l";
const LEAVE: &[u8] = b"\x1b[?25h\x1b[?1049l";
const HOME: &str = "\u{1b}[H";
/// Clears the rest of the row.
const CLEAR_ROW: &str = "\u{1b}[K";
const CLEAR_BELOW: &str = "\u{1b}[J";
/// The size of a terminal that does not say it.
const DEFAULT_SIZE: (usize, usize) = (80, 24);

/// The action of a key in a view of lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ScreenKey {
    Up,
    Down,
    Next,
    Open,
    Leave,
    Char(char),
    Other,
}

#[derive(Debug)]
pub(crate) struct Screen {
    keyboard: Keyboard,
}

// === impl Screen ===

impl Screen {
    pub(crate) fn open() -> io::Result<Self> {
        let keyboard = Keyboard::open()?;
        print::control(ENTER);
        Ok(Self { keyboard })
    }

    /// Its columns and rows.
    pub(crate) fn size() -> (usize, usize) {
        let (columns, rows) = DEFAULT_SIZE;
        (print::columns().unwrap_or(columns), print::rows().unwrap_or(rows))
    }

    /// Shows rows from the top; each must fit the columns and be safe for a terminal.
    pub(crate) fn draw(&self, rows: &[String]) {
        print::control(HOME.as_bytes());
        let clear = |row: &String| format!("{row}{CLEAR_ROW}");
        let text = rows.iter().map(clear).collect::<Vec<_>>().join("\r\n");
        print::control(print::styled(&text).as_bytes());
        print::control(CLEAR_BELOW.as_bytes());
    }

    /// Returns the next key, or `None` if no key is pressed within `tenths` tenths of a second.
    pub(crate) fn key(&mut self, tenths: u8) -> io::Result<Option<ScreenKey>> {
        let key = match self.keyboard.next_within(tenths)? {
            None => return Ok(None),
            Some(KeyPress::Up) => ScreenKey::Up,
            Some(KeyPress::Down) => ScreenKey::Down,
            Some(KeyPress::Tab) => ScreenKey::Next,
            Some(KeyPress::Enter) => ScreenKey::Open,
            Some(KeyPress::Esc | KeyPress::End | KeyPress::CtrlC) => ScreenKey::Leave,
            Some(KeyPress::Char(char)) => ScreenKey::Char(char),
            Some(_) => ScreenKey::Other,
        };
        Ok(Some(key))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        print::control(LEAVE);
    }
}
