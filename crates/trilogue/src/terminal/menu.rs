//! A choice at the terminal: arrows, first letters and numbers mark an entry, Enter sends it.
//!
//! Nothing is marked at first unless the question has a default, so Enter alone decides nothing.

use std::io;

use trilogue_mapping::choice::Choice;

use super::keyboard::{self, KeyPress, Keyboard};
use super::prompt::{LineInput, Paste, read_line};
use super::question::fold;
use super::{choice, print, safe, style};

/// The word and the last entry that leave a question open, like the Esc key.
pub(super) const LATER: &str = "later";
const YES: [&str; 2] = ["y", "yes"];
const NO: [&str; 2] = ["n", "no"];
const MARK: &str = "› ";
const NO_MARK: &str = "  ";
/// The most characters that are typed to name an entry.
const MAX_TYPED_CHARS: usize = 64;
/// The rows that are left for the question above the entries, and for the cue.
const SPARE_ROWS: usize = 3;

/// The offered choices, and how they are shown.
#[derive(Debug)]
pub(super) struct Menu<'a> {
    pub(super) cue: &'a str,
    pub(super) choices: &'a [Choice],
    /// How each choice is shown.
    pub(super) labels: Vec<String>,
    /// Which choices `y` and `n` stand for.
    pub(super) yes: Option<usize>,
    pub(super) no: Option<usize>,
    /// The entry that is marked at first.
    pub(super) default: Option<usize>,
    /// Whether any number of choices is taken, and which are at first.
    pub(super) several: Option<Vec<usize>>,
    /// Whether nothing may be chosen.
    pub(super) optional: bool,
}

/// What the person chose.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum MenuOutcome {
    Choices(Vec<usize>),
    /// Enter alone, which takes the entries that are marked or selected at first.
    Default(Vec<usize>),
    /// The field is left out.
    Nothing,
    Later,
}

/// The marked entry and the typed text so far.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Selection {
    /// The marked entry; the entry after the choices leaves the question open.
    marked: Option<usize>,
    typed: String,
    /// The selected choices, if the question allows several.
    taken: Vec<usize>,
    /// Whether the person took one, or took one back.
    is_toggled: bool,
    /// Whether the person pressed any key but Enter.
    is_touched: bool,
}

/// The result of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
enum KeyOutcome {
    Again,
    /// A line for the person, then the menu again.
    Say(String),
    Done(MenuOutcome),
    Interrupted,
}

// === impl Menu ===

impl<'a> Menu<'a> {
    /// A menu of these choices, without a default.
    pub(super) fn new(cue: &'a str, choices: &'a [Choice]) -> Self {
        Self {
            cue,
            choices,
            labels: choices.iter().map(choice::label).collect(),
            yes: None,
            no: None,
            default: None,
            several: None,
            optional: false,
        }
    }

    /// Lets the person choose. Keys that were pressed before the menu is shown do not count.
    ///
    /// # Errors
    /// `Interrupted` for Ctrl-C.
    pub(super) fn ask(&self, keyboard: &mut Keyboard) -> io::Result<MenuOutcome> {
        let mut selection = Selection {
            marked: self.default,
            taken: self.several.clone().unwrap_or_default(),
            ..Selection::default()
        };
        if !keyboard::knows_controls() {
            return self.ask_by_line(keyboard, &selection);
        }
        let is_live = self.is_live();
        keyboard.settle()?;
        if !is_live {
            self.rows(&Selection::default()).iter().for_each(|row| print::note(row));
        }
        loop {
            let drawn = self.draw(&selection, is_live);
            let key = keyboard.next()?;
            let is_paste = matches!(key, KeyPress::Paste(_));
            let step = self.step(&mut selection, &key);
            match &step {
                KeyOutcome::Say(text) => {
                    print::note("");
                    print::note(text);
                    if is_paste {
                        keyboard.settle()?;
                    }
                }
                KeyOutcome::Again => erase(drawn),
                KeyOutcome::Done(_) | KeyOutcome::Interrupted => print::note(""),
            }
            match step {
                KeyOutcome::Done(picked) => return Ok(picked),
                KeyOutcome::Interrupted => return Err(io::ErrorKind::Interrupted.into()),
                KeyOutcome::Again | KeyOutcome::Say(_) => {}
            }
        }
    }

    /// The same on a terminal without control sequences, on which each answer is a line.
    fn ask_by_line(&self, keyboard: &mut Keyboard, first: &Selection) -> io::Result<MenuOutcome> {
        self.rows(first).iter().for_each(|row| print::note(row));
        loop {
            let LineInput::Line(typed) = read_line(keyboard, self.cue, Paste::Refuse)? else {
                return Ok(MenuOutcome::Later);
            };
            let marked = if typed.is_empty() { first.marked } else { self.find(&typed).ok() };
            let is_touched = !typed.is_empty();
            let mut selection = Selection { marked, typed, is_touched, ..first.clone() };
            match self.enter(&mut selection) {
                KeyOutcome::Done(picked) => return Ok(picked),
                KeyOutcome::Say(why) => print::note(&why),
                KeyOutcome::Again | KeyOutcome::Interrupted => {}
            }
        }
    }

    /// Whether its entries fit the terminal, so that the mark moves in them.
    fn is_live(&self) -> bool {
        let rows = self.rows(&Selection::default()).len();
        print::rows().is_none_or(|height| rows + SPARE_ROWS <= height)
    }

    /// Draws the menu up to its cue; returns the number of rows above the cue's row.
    fn draw(&self, selection: &Selection, is_live: bool) -> usize {
        let rows = if is_live { self.rows(selection) } else { Vec::new() };
        rows.iter().for_each(|row| print::note(row));
        print::aside(&style::bold(self.cue));
        let named = match (is_live, selection.marked) {
            // The mark is invisible here, so the cue names the choice.
            (false, Some(marked)) if selection.typed.is_empty() => self.name(marked),
            _ => selection.typed.clone(),
        };
        print::aside(&safe::visible(&named));
        rows.len()
    }

    /// The rows of the entries.
    fn rows(&self, selection: &Selection) -> Vec<String> {
        let columns = print::columns().map_or(usize::MAX, |columns| columns.saturating_sub(1));
        let mut rows = Vec::new();
        let labels = self.labels.iter().map(String::as_str).chain(["leave it for later"]);
        for (place, label) in labels.enumerate() {
            let is_marked = selection.marked == Some(place);
            let mark = if is_marked { MARK } else { NO_MARK };
            let taken = match &self.several {
                Some(_) if place == self.choices.len() => "    ",
                Some(_) if selection.taken.contains(&place) => "[x] ",
                Some(_) => "[ ] ",
                None => "",
            };
            let number = match place == self.choices.len() {
                true => format!("{LATER}  "),
                false => format!("{}  ", place + 1),
            };
            for row in fold(&format!("{mark}{taken}{number}{label}"), columns) {
                rows.push(if is_marked { style::bold(&row) } else { row });
            }
        }
        rows
    }

    fn name(&self, place: usize) -> String {
        self.choices.get(place).map_or_else(|| LATER.to_owned(), |choice| choice.name.clone())
    }

    fn step(&self, selection: &mut Selection, key: &KeyPress) -> KeyOutcome {
        let entries = self.choices.len() + 1;
        selection.is_touched |= *key != KeyPress::Enter;
        match key {
            KeyPress::Down | KeyPress::Tab => {
                let next = selection.marked.map_or(0, |marked| (marked + 1) % entries);
                selection.mark(Some(next));
            }
            KeyPress::Up => {
                let next = selection.marked.map_or(entries, |it| it).checked_sub(1);
                selection.mark(Some(next.unwrap_or(entries - 1)));
            }
            KeyPress::Char(' ') if self.several.is_some() => return self.toggle(selection),
            KeyPress::Char(char) if selection.typed.chars().count() < MAX_TYPED_CHARS => {
                selection.typed.push(*char);
                selection.marked = self.find(&selection.typed).ok();
            }
            KeyPress::Backspace => {
                selection.typed.pop();
                selection.marked = self.find(&selection.typed).ok();
            }
            KeyPress::DeleteLine | KeyPress::DeleteWord => selection.mark(None),
            KeyPress::Esc | KeyPress::End => return KeyOutcome::Done(MenuOutcome::Later),
            KeyPress::CtrlC => return KeyOutcome::Interrupted,
            KeyPress::Paste(_) => {
                selection.mark(None);
                return KeyOutcome::Say("pasted text is not accepted: type the answer".to_owned());
            }
            KeyPress::Enter => return self.enter(selection),
            _ => {}
        }
        KeyOutcome::Again
    }

    /// Takes a choice, or takes it back.
    fn toggle(&self, selection: &mut Selection) -> KeyOutcome {
        let Some(marked) = selection.marked.filter(|marked| *marked < self.choices.len()) else {
            return KeyOutcome::Say("mark a choice with the arrows first".to_owned());
        };
        match selection.taken.iter().position(|taken| *taken == marked) {
            Some(place) => drop(selection.taken.remove(place)),
            None => selection.taken.push(marked),
        }
        selection.typed.clear();
        selection.is_toggled = true;
        KeyOutcome::Again
    }

    fn enter(&self, selection: &mut Selection) -> KeyOutcome {
        let later = self.choices.len();
        if selection.marked == Some(later) {
            return KeyOutcome::Done(MenuOutcome::Later);
        }
        if self.several.is_some() && (selection.typed.is_empty() || selection.typed.contains(',')) {
            return self.enter_several(selection);
        }
        match (selection.marked, self.find(&selection.typed)) {
            (Some(marked), _) if !selection.is_touched => {
                KeyOutcome::Done(MenuOutcome::Default(vec![marked]))
            }
            (Some(marked), _) => KeyOutcome::Done(MenuOutcome::Choices(vec![marked])),
            (None, _) if selection.typed.is_empty() && self.optional => {
                KeyOutcome::Done(MenuOutcome::Nothing)
            }
            (None, Err(why)) => {
                selection.mark(None);
                KeyOutcome::Say(why)
            }
            (None, Ok(found)) => KeyOutcome::Done(MenuOutcome::Choices(vec![found])),
        }
    }

    /// Takes the entries with a cross, or the typed names with commas between them.
    fn enter_several(&self, selection: &mut Selection) -> KeyOutcome {
        let names = selection.typed.split(',').map(str::trim).filter(|name| !name.is_empty());
        let named: Result<Vec<usize>, String> = names.map(|name| self.find(name)).collect();
        match named {
            Ok(named) if !named.is_empty() => KeyOutcome::Done(MenuOutcome::Choices(named)),
            // Who marks one and sends it means that one.
            Ok(_) if !selection.is_toggled && selection.taken.is_empty() => {
                match selection.marked {
                    Some(marked) => KeyOutcome::Done(MenuOutcome::Choices(vec![marked])),
                    None if self.optional => KeyOutcome::Done(MenuOutcome::Nothing),
                    None => KeyOutcome::Say(
                        "choose first: the space key takes the marked one, and takes it back"
                            .to_owned(),
                    ),
                }
            }
            Ok(_) if !selection.is_touched => {
                KeyOutcome::Done(MenuOutcome::Default(selection.taken.clone()))
            }
            Ok(_) => {
                let mut taken = selection.taken.clone();
                taken.sort_unstable();
                KeyOutcome::Done(MenuOutcome::Choices(taken))
            }
            Err(why) => {
                selection.mark(None);
                KeyOutcome::Say(why)
            }
        }
    }

    /// Finds the entry that a typed text names: `y` or `n`, a number, a name, or the first letters of one
    /// name.
    ///
    /// # Errors
    /// What to type instead.
    fn find(&self, text: &str) -> Result<usize, String> {
        let wanted = text.trim().to_lowercase();
        if wanted.is_empty() {
            return Err(format!(
                "choose first: with the arrows, first letters or a number from 1 to {}",
                self.choices.len()
            ));
        }
        for (words, place) in [(YES, self.yes), (NO, self.no)] {
            if let Some(place) = place.filter(|_| words.contains(&wanted.as_str())) {
                return Ok(place);
            }
        }
        let why = match choice::find(self.choices, text) {
            Ok(found) => return Ok(found),
            Err(why) => why,
        };
        // A text that is ambiguous as a number or name does not select an entry by its first letters.
        let is_number = wanted.trim_start_matches('#').parse::<usize>().is_ok();
        let begins = |choice: &&Choice| {
            let names = [&choice.name, &choice.id];
            names.iter().any(|name| name.trim().to_lowercase().starts_with(&wanted))
        };
        let mut found: Vec<usize> = Vec::new();
        if !is_number {
            let places = self.choices.iter().enumerate().filter(|(_, choice)| begins(choice));
            found.extend(places.map(|(place, _)| place));
            found.extend(LATER.starts_with(&wanted).then_some(self.choices.len()));
        }
        match found.as_slice() {
            [only] => Ok(*only),
            [] => Err(why),
            several => {
                let typed = safe::visible(text);
                Err(format!("{} choices begin with '{typed}': type more of it", several.len()))
            }
        }
    }
}

// === impl Selection ===

impl Selection {
    fn mark(&mut self, place: Option<usize>) {
        self.typed.clear();
        self.marked = place;
    }
}

/// Removes the row of the cue and `rows_above` rows above it.
fn erase(rows_above: usize) {
    let up = if rows_above > 0 { format!("\u{1b}[{rows_above}A") } else { String::new() };
    print::control(format!("\r{up}\u{1b}[J").as_bytes());
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn choices_with_names(names: &[&str]) -> Vec<Choice> {
        names.iter().map(|name| Choice::new(json!(name.to_lowercase()), Some(name))).collect()
    }

    fn menu(choices: &[Choice]) -> Menu<'_> {
        Menu::new("choose: ", choices)
    }

    /// Returns the result of keys: `v` and `^` are arrows, `<` is Backspace, `.` is Enter.
    fn press(menu: &Menu<'_>, keys: &str) -> KeyOutcome {
        let mut selection = Selection {
            marked: menu.default,
            taken: menu.several.clone().unwrap_or_default(),
            ..Selection::default()
        };
        let mut last = KeyOutcome::Again;
        for key in keys.chars() {
            last = menu.step(
                &mut selection,
                &match key {
                    'v' => KeyPress::Down,
                    '^' => KeyPress::Up,
                    '<' => KeyPress::Backspace,
                    '.' => KeyPress::Enter,
                    key => KeyPress::Char(key),
                },
            );
        }
        last
    }

    fn one(place: usize) -> KeyOutcome {
        KeyOutcome::Done(MenuOutcome::Choices(vec![place]))
    }

    #[test]
    fn arrows_letters_and_numbers_choose_and_enter_alone_does_not() {
        let choices = choices_with_names(&["Allow once", "Allow all", "Reject"]);
        let menu = Menu { yes: Some(0), no: Some(2), ..menu(&choices) };
        for (keys, place) in [
            ("v.", 0),
            ("vv.", 1),
            ("^^.", 2),
            ("y.", 0),
            ("yes.", 0),
            ("n.", 2),
            ("r.", 2),
            ("reject.", 2),
            ("allow a.", 1),
            ("2.", 1),
            ("x<r.", 2),
            ("rv.", 3),
        ] {
            let wanted = if place == 3 { KeyOutcome::Done(MenuOutcome::Later) } else { one(place) };
            assert_eq!(press(&menu, keys), wanted, "{keys}");
        }
        for later in ["later.", "l.", "^."] {
            assert_eq!(press(&menu, later), KeyOutcome::Done(MenuOutcome::Later), "{later}");
        }
        for unclear in [".", "a.", "z.", "4.", "0.", "yep."] {
            assert!(matches!(press(&menu, unclear), KeyOutcome::Say(_)), "{unclear}");
        }
    }

    #[test]
    fn a_name_cannot_pose_as_the_number_of_another_choice() {
        let choices = choices_with_names(&["2", "Reject"]);
        assert!(matches!(press(&menu(&choices), "2."), KeyOutcome::Say(_)));
        assert_eq!(press(&menu(&choices), "#2."), one(1));
    }

    #[test]
    fn several_are_taken_with_the_space_key_or_by_names() {
        let choices = choices_with_names(&["Ada", "Bob", "Eve"]);
        let menu = Menu { several: Some(vec![2]), ..menu(&choices) };
        let taken = |places: &[usize]| KeyOutcome::Done(MenuOutcome::Choices(places.to_vec()));
        assert_eq!(press(&menu, "."), KeyOutcome::Done(MenuOutcome::Default(vec![2])));
        assert_eq!(press(&menu, "v ."), taken(&[0, 2]));
        assert_eq!(press(&menu, "^^ ."), taken(&[]));
        assert_eq!(press(&menu, "bob,1."), taken(&[1, 0]));
        assert_eq!(press(&menu, "bob."), taken(&[1]));
        let none = Menu { several: Some(Vec::new()), ..menu };
        assert_eq!(press(&none, "vv."), taken(&[1]));
        assert_eq!(press(&none, "v  ."), taken(&[]));
        assert!(matches!(press(&none, "."), KeyOutcome::Say(_)), "Enter alone takes nothing");
    }

    #[test]
    fn a_default_is_marked_and_what_is_optional_may_be_left_out() {
        let choices = choices_with_names(&["Dry", "Warm"]);
        let with_default = Menu { default: Some(1), ..menu(&choices) };
        assert_eq!(press(&with_default, "."), KeyOutcome::Done(MenuOutcome::Default(vec![1])));
        assert_eq!(press(&with_default, "^v."), one(1));
        let optional = Menu { optional: true, ..menu(&choices) };
        assert_eq!(press(&optional, "."), KeyOutcome::Done(MenuOutcome::Nothing));
    }
}
