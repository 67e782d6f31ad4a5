//! Breaks lines of our own between words, so that no terminal breaks them inside of one.

use unicode_width::UnicodeWidthStr as _;

/// The narrowest terminal for which lines are broken, in columns.
const MIN_COLUMNS: usize = 20;
/// The indent of each further row of a line, in addition to the line's own indent.
const INDENT: &str = "  ";

/// Breaks each line that is longer than `columns`. A command in backticks stays on one row if it fits, so that a person can copy it.
pub(crate) fn fold(text: &str, columns: Option<usize>) -> String {
    let Some(columns) = columns.filter(|columns| *columns >= MIN_COLUMNS) else {
        return text.to_owned();
    };
    text.split('\n').map(|line| fold_line(line, columns)).collect::<Vec<_>>().join("\n")
}

fn fold_line(line: &str, columns: usize) -> String {
    if width(line) <= columns {
        return line.to_owned();
    }
    let begin: String = line.chars().take_while(|char| *char == ' ').collect();
    let indent = format!("{begin}{INDENT}");
    let mut folded = begin.clone();
    let (mut used, mut is_first) = (begin.len(), true);
    for piece in pieces(line.trim_start_matches(' '), columns - indent.len().min(columns)) {
        let gap = usize::from(!is_first);
        if !is_first && used + gap + width(piece) > columns {
            folded.push('\n');
            folded.push_str(&indent);
            used = indent.len();
        } else if !is_first {
            folded.push(' ');
            used += gap;
        }
        folded.push_str(piece);
        used += width(piece);
        is_first = false;
    }
    folded
}

/// Splits a line into words; a command in backticks counts as one word if it takes at most `columns` columns.
fn pieces(line: &str, columns: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = line;
    while !rest.is_empty() {
        let mut end = rest.find(' ').unwrap_or(rest.len());
        let quotes = rest.get(..end).unwrap_or_default().matches('`').count();
        if quotes % 2 == 1 {
            let closing = rest.get(end..).and_then(|tail| tail.find('`')).map(|at| end + at + 1);
            let whole = closing.map(|at| {
                rest.get(at..).and_then(|tail| tail.find(' ')).map_or(rest.len(), |more| at + more)
            });
            let fits = |end: &usize| rest.get(..*end).is_some_and(|it| width(it) <= columns);
            end = whole.filter(fits).unwrap_or(end);
        }
        let (piece, tail) = rest.split_at(end);
        pieces.push(piece);
        rest = tail.strip_prefix(' ').unwrap_or(tail);
    }
    pieces
}

/// How many columns a text takes, without its styles.
fn width(text: &str) -> usize {
    anstream::adapter::strip_str(text).to_string().width()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words_and_commands_stay_whole() {
        let text = "hint: start it with `trilogue demo --throwaway`, or use it";
        assert_eq!(
            fold(text, Some(40)),
            "hint: start it with\n  `trilogue demo --throwaway`, or use it"
        );
        assert_eq!(fold(text, None), text);
        assert_eq!(fold(text, Some(5)), text);
        assert_eq!(fold("a\n  b c", Some(40)), "a\n  b c");
        let long = format!("see {} now", "x".repeat(50));
        assert_eq!(fold(&long, Some(40)), format!("see\n  {}\n  now", "x".repeat(50)));
    }

    #[test]
    fn a_command_that_is_longer_than_a_row_breaks_at_its_words() {
        let folded = fold("`one two three four five six seven eight`", Some(20));
        assert!(folded.lines().all(|line| line.len() <= 20), "{folded}");
    }

    #[test]
    fn styles_take_no_room() {
        let styled = format!("\u{1b}[1m{}\u{1b}[0m {}", "a".repeat(10), "b".repeat(9));
        assert_eq!(fold(&styled, Some(20)), styled);
    }
}
