//! Splits Rust source into code and string literals, well enough for rules that look at words.

/// One line of a source file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Line {
    /// Its number, from 1.
    pub(super) number: usize,
    /// The code, without comments and with string literals left empty.
    pub(super) code: String,
    /// The string literals that begin on it.
    pub(super) strings: Vec<String>,
}

/// The scanner's state.
enum State {
    Code,
    LineComment,
    /// How deep block comments are nested.
    BlockComment(usize),
    /// In a string: how many `#` end it; `None` when it is a plain one with escapes.
    Text(Option<usize>),
}

/// The lines before the file's unit tests: they stand at its end, in `mod tests`.
pub(super) fn production(text: &str) -> Vec<Line> {
    let mut lines = scan(text);
    let tests = lines.windows(2).position(|pair| {
        pair[0].code.trim() == "#[cfg(test)]"
            && pair[1].code.trim_start().starts_with("mod ")
            && pair[1].code.contains('{')
    });
    if let Some(tests) = tests {
        lines.truncate(tests);
    }
    lines
}

/// All lines.
pub(super) fn scan(text: &str) -> Vec<Line> {
    let chars: Vec<char> = text.chars().collect();
    let mut lines = vec![Line { number: 1, ..Line::default() }];
    let mut state = State::Code;
    let mut literal = String::new();
    let mut begun = 0;
    let mut at = 0;
    while let Some(&char) = chars.get(at) {
        let next = chars.get(at + 1).copied();
        if char == '\n' {
            if matches!(state, State::LineComment) {
                state = State::Code;
            }
            if matches!(state, State::Text(_)) {
                literal.push(char);
            }
            lines.push(Line { number: lines.len() + 1, ..Line::default() });
            at += 1;
            continue;
        }
        let last = lines.len() - 1;
        match &mut state {
            State::Code => match (char, next) {
                ('/', Some('/')) => state = State::LineComment,
                ('/', Some('*')) => {
                    state = State::BlockComment(1);
                    at += 1;
                }
                ('"', _) => {
                    (state, begun) = (State::Text(None), last);
                }
                ('r', Some('"' | '#')) if !follows_word(&chars, at) => {
                    let hashes = chars[at + 1..].iter().take_while(|char| **char == '#').count();
                    if chars.get(at + 1 + hashes) == Some(&'"') {
                        (state, begun) = (State::Text(Some(hashes)), last);
                        at += 1 + hashes;
                    } else {
                        lines[last].code.push(char);
                    }
                }
                ('\'', Some('\\')) => at += char_literal(&chars[at + 1..]),
                ('\'', Some(_)) if chars.get(at + 2) == Some(&'\'') => at += 2,
                _ => lines[last].code.push(char),
            },
            State::LineComment => {}
            State::BlockComment(depth) => match (char, next) {
                ('/', Some('*')) => {
                    *depth += 1;
                    at += 1;
                }
                ('*', Some('/')) => {
                    at += 1;
                    if *depth == 1 {
                        state = State::Code;
                    } else {
                        *depth -= 1;
                    }
                }
                _ => {}
            },
            State::Text(None) if char == '\\' => {
                literal.push(char);
                // What is escaped ends nothing; an escaped line end is seen as one.
                if let Some(escaped) = next.filter(|next| *next != '\n') {
                    literal.push(escaped);
                    at += 1;
                }
            }
            State::Text(hashes) => {
                let count = hashes.unwrap_or(0);
                let ends = char == '"'
                    && chars[at + 1..].iter().take(count).filter(|char| **char == '#').count()
                        == count;
                if ends {
                    lines[begun].strings.push(std::mem::take(&mut literal));
                    at += count;
                    state = State::Code;
                } else {
                    literal.push(char);
                }
            }
        }
        at += 1;
    }
    lines
}

/// Whether the character at `at` continues a word, so that its `r` begins no raw string.
fn follows_word(chars: &[char], at: usize) -> bool {
    let before = at.checked_sub(1).and_then(|at| chars.get(at));
    before.is_some_and(|char| (char.is_alphanumeric() && *char != 'b') || *char == '_')
}

/// How many characters an escaped character literal has after its opening quote.
fn char_literal(rest: &[char]) -> usize {
    let closing = rest.iter().skip(2).position(|char| *char == '\'');
    closing.map_or(0, |closing| closing + 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separates_code_comments_and_strings() {
        let text = concat!(
            "let a = \"x // no comment\"; // y \"z\"\n",
            "/* \"a\" /* b */ */ let b = r#\"raw \"quoted\" \\\"#;\n",
            "let c = '\"'; let d = '\\''; fn e<'a>() {}\n",
            "let f = \"two\nlines\";\n",
            "let g = br\"bytes\";",
        );
        let lines = scan(text);
        assert_eq!(lines[0].code, "let a = ; ");
        assert_eq!(lines[0].strings, ["x // no comment"]);
        assert_eq!(lines[1].code.trim(), "let b = ;");
        assert_eq!(lines[1].strings, ["raw \"quoted\" \\"]);
        assert_eq!(lines[2].code, "let c = ; let d = ; fn e<'a>() {}");
        assert_eq!(lines[3].strings, ["two\nlines"]);
        assert_eq!(lines[5].strings, ["bytes"]);
        assert_eq!(lines.len(), 6);
    }

    #[test]
    fn leaves_unit_tests_out() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n";
        let code: String = production(text).into_iter().map(|line| line.code).collect();
        assert_eq!(code, "fn a() {}");
    }
}
