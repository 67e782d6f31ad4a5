//! Text without control characters.

/// Text without what a terminal would act upon: escape sequences, control characters, and characters that turn the direction of text.
pub(super) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(character) = rest.next() {
        match character {
            '\u{1b}' => match rest.next() {
                // A control sequence ends with a letter or one of `@[\]^_{|}~` and a backtick.
                Some('[') => drop(rest.by_ref().find(|one| matches!(one, '\u{40}'..='\u{7e}'))),
                // An operating system's command ends with a bell, or an escape and a backslash.
                Some(']') => {
                    while let Some(one) = rest.next() {
                        if one == '\u{7}' || (one == '\u{1b}' && rest.next_if_eq(&'\\').is_some()) {
                            break;
                        }
                    }
                }
                _ => {}
            },
            '\n' | '\t' => out.push(character),
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {}
            _ if character.is_control() => {}
            _ => out.push(character),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_act_upon_is_left_out() {
        let text =
            "a\u{1b}[31mred\u{1b}[0m\u{1b}]0;title\u{7}b\u{1b}]8;;x\u{1b}\\c\r\n\td\u{202e}e\u{0}";
        assert_eq!(plain(text), "aredbc\n\tde");
        assert_eq!(plain("\u{1b}"), "");
        assert_eq!(plain("x\u{1b}[31"), "x");
    }
}
