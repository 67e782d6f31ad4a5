//! The keys of the person at the terminal, one by one.
//!
//! A question must not be answered by keys that were pressed before it was shown, nor by pasted text.
//! So the terminal marks pasted text while a [`Keyboard`] is open, and [`Keyboard::settle`] discards what comes before the person can have read.

use std::collections::VecDeque;
use std::io::{self, Stdin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios, tcflush,
    tcgetattr, tcsetattr,
};

use super::print;

/// How long the keyboard must be silent before a shown question takes keys, in tenths of a second.
const QUIET_TENTHS: u8 = 3;
/// How long the rest of an escape sequence may take, in tenths of a second. Without a rest it is the Esc key.
const SEQUENCE_TENTHS: u8 = 1;
/// How long pasted text may pause before it counts as complete, in tenths of a second.
const PASTE_PAUSE_TENTHS: u8 = 10;
/// How often a keyboard that waits for a key looks whether its question is still open, in tenths of a second.
const WITHDRAWAL_TENTHS: u8 = 2;
/// The most characters that are kept of pasted text.
const MAX_PASTED_CHARS: usize = 64 * 1024;
/// The longest escape sequence, in bytes.
const MAX_SEQUENCE_BYTES: usize = 32;

const MARK_PASTES: &[u8] = b"\x1b[?2004h";
const MARK_NO_PASTES: &[u8] = b"\x1b[?2004l";
const PASTE_BEGIN: &[u8] = b"[200~";
const PASTE_END: &str = "\u{1b}[201~";

const CTRL_C: u8 = 0x03;
const CTRL_D: u8 = 0x04;
const BACKSPACE: u8 = 0x08;
const TAB: u8 = 0x09;
const CTRL_U: u8 = 0x15;
const CTRL_W: u8 = 0x17;
const ESC: u8 = 0x1b;
const DELETE: u8 = 0x7f;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum KeyPress {
    Char(char),
    Enter,
    Backspace,
    /// Deletes the last word.
    DeleteWord,
    /// Deletes the line.
    DeleteLine,
    Esc,
    /// Ctrl-D.
    End,
    CtrlC,
    Up,
    Down,
    Tab,
    /// Text that was pasted, not typed.
    Paste(String),
    /// A key without a meaning here.
    Other,
}

/// The keyboard, key by key and without an echo, until it is dropped.
#[derive(Debug)]
pub(super) struct Keyboard {
    terminal: Stdin,
    /// How the terminal was before.
    before: Termios,
    /// Bytes that were read and not yet taken.
    unread: VecDeque<u8>,
    withdrawal: Withdrawal,
}

/// Ends the wait for keys of a question that is no longer open. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Withdrawal(Arc<AtomicBool>);

// === impl Withdrawal ===

impl Withdrawal {
    pub(super) fn withdraw(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn is_withdrawn(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// How long a read waits.
#[derive(Clone, Copy)]
enum Wait {
    /// Until a key is pressed.
    ForKey,
    /// Wait at most this number of tenths of a second.
    Tenths(u8),
}

// === impl Keyboard ===

impl Keyboard {
    /// Takes the keyboard, and discards unread input typed before.
    pub(super) fn open() -> io::Result<Self> {
        Self::open_until(Withdrawal::default())
    }

    /// The same for a question that can be withdrawn: waiting for a key fails then.
    pub(super) fn open_until(withdrawal: Withdrawal) -> io::Result<Self> {
        let terminal = io::stdin();
        let before = tcgetattr(&terminal)?;
        let mut modes = before.clone();
        modes.local_modes -=
            LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG | LocalModes::IEXTEN;
        modes.input_modes |= InputModes::ICRNL;
        tcsetattr(&terminal, OptionalActions::Flush, &modes)?;
        if knows_controls() {
            print::control(MARK_PASTES);
        }
        Ok(Self { terminal, before, unread: VecDeque::new(), withdrawal })
    }

    /// Discards keys until none was pressed for a moment: a person cannot read a question faster than that.
    ///
    /// # Errors
    /// `Interrupted` for Ctrl-C, which needs no question.
    pub(super) fn settle(&mut self) -> io::Result<()> {
        loop {
            if self.unread.contains(&CTRL_C) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            self.unread.clear();
            if !self.read(QUIET_TENTHS)? {
                return Ok(tcflush(&self.terminal, QueueSelector::IFlush)?);
            }
        }
    }

    /// Returns the next key, or `None` if no key is pressed within `tenths` tenths of a second.
    pub(super) fn next_within(&mut self, tenths: u8) -> io::Result<Option<KeyPress>> {
        if self.unread.is_empty() && !self.read(tenths)? {
            return Ok(None);
        }
        self.next().map(Some)
    }

    /// Waits for the next key.
    ///
    /// # Errors
    /// If the question was withdrawn, or the terminal is gone.
    pub(super) fn next(&mut self) -> io::Result<KeyPress> {
        let Some(byte) = self.byte(Wait::ForKey)? else { return Ok(KeyPress::End) };
        Ok(match byte {
            b'\n' | b'\r' if self.unread.is_empty() => KeyPress::Enter,
            // Several lines at once were pasted into a terminal that does not mark pastes.
            b'\n' | b'\r' => KeyPress::Paste(self.rest()),
            CTRL_C => KeyPress::CtrlC,
            CTRL_D => KeyPress::End,
            BACKSPACE | DELETE => KeyPress::Backspace,
            CTRL_U => KeyPress::DeleteLine,
            CTRL_W => KeyPress::DeleteWord,
            TAB => KeyPress::Tab,
            ESC => self.sequence()?,
            byte if byte < b' ' => KeyPress::Other,
            byte => self.char(byte)?,
        })
    }

    /// Reads the key that an escape sequence represents.
    fn sequence(&mut self) -> io::Result<KeyPress> {
        let mut sequence = Vec::new();
        while let Some(byte) = self.byte(Wait::Tenths(SEQUENCE_TENTHS))? {
            if byte == CTRL_C {
                return Ok(KeyPress::CtrlC);
            }
            sequence.push(byte);
            let is_complete = match sequence.as_slice() {
                [b'[' | b'O'] => false,
                [b'[' | b'O', .., end] => (b'@'..=b'~').contains(end),
                _ => true,
            };
            if is_complete || sequence.len() == MAX_SEQUENCE_BYTES {
                break;
            }
        }
        match sequence.as_slice() {
            [] => Ok(KeyPress::Esc),
            PASTE_BEGIN => self.pasted(),
            b"[A" | b"OA" => Ok(KeyPress::Up),
            b"[B" | b"OB" => Ok(KeyPress::Down),
            _ => Ok(KeyPress::Other),
        }
    }

    /// Pasted text, after the mark of its beginning.
    fn pasted(&mut self) -> io::Result<KeyPress> {
        let mut text = Vec::new();
        while let Some(byte) = self.byte(Wait::Tenths(PASTE_PAUSE_TENTHS))? {
            text.push(byte);
            if text.ends_with(PASTE_END.as_bytes()) {
                text.truncate(text.len() - PASTE_END.len());
                break;
            }
            // The end may be among the last bytes.
            if text.len() > 8 * MAX_PASTED_CHARS {
                text.drain(4 * MAX_PASTED_CHARS..7 * MAX_PASTED_CHARS);
            }
        }
        let text = String::from_utf8_lossy(&text).replace("\r\n", "\n").replace('\r', "\n");
        Ok(KeyPress::Paste(text.chars().take(MAX_PASTED_CHARS).collect()))
    }

    /// The character that begins with this byte.
    fn char(&mut self, first: u8) -> io::Result<KeyPress> {
        let length = match first {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => 1,
        };
        let mut bytes = vec![first];
        while bytes.len() < length {
            let Some(byte) = self.byte(Wait::Tenths(SEQUENCE_TENTHS))? else { break };
            bytes.push(byte);
        }
        let text = std::str::from_utf8(&bytes).ok();
        Ok(text.and_then(|text| text.chars().next()).map_or(KeyPress::Other, KeyPress::Char))
    }

    /// Returns the bytes that were read and not taken, as text.
    fn rest(&mut self) -> String {
        let bytes: Vec<u8> = self.unread.drain(..).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn byte(&mut self, wait: Wait) -> io::Result<Option<u8>> {
        match wait {
            Wait::ForKey => {
                let mut has_key = !self.unread.is_empty();
                while !has_key && !self.withdrawal.is_withdrawn() {
                    // A terminal that is gone fails here.
                    has_key = self.read(WITHDRAWAL_TENTHS)?;
                }
                if self.withdrawal.is_withdrawn() {
                    return Err(io::Error::other("the question is no longer open"));
                }
            }
            Wait::Tenths(tenths) => {
                if self.unread.is_empty() {
                    self.read(tenths)?;
                }
            }
        }
        Ok(self.unread.pop_front())
    }

    /// Reads the available bytes, or those that arrive in time. Returns `false` if none arrive.
    fn read(&mut self, tenths: u8) -> io::Result<bool> {
        let mut modes = tcgetattr(&self.terminal)?;
        modes.special_codes[SpecialCodeIndex::VMIN] = 0;
        modes.special_codes[SpecialCodeIndex::VTIME] = tenths;
        tcsetattr(&self.terminal, OptionalActions::Now, &modes)?;
        let mut piece = [0; 4096];
        let length = loop {
            match rustix::io::read(&self.terminal, &mut piece) {
                Err(Errno::INTR) => {}
                read => break read?,
            }
        };
        self.unread.extend(piece.iter().take(length));
        Ok(length > 0)
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        if knows_controls() {
            print::control(MARK_NO_PASTES);
        }
        // Keys typed for this question must not reach the shell. A terminal that is gone needs no reset.
        let _ = tcsetattr(&self.terminal, OptionalActions::Flush, &self.before);
    }
}

/// Whether the terminal knows control sequences. Of those that do, nearly all mark pasted text, and the others ignore the request.
pub(super) fn knows_controls() -> bool {
    std::env::var_os("TERM").is_some_and(|name| name != "dumb")
}
