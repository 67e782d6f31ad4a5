//! Runs every example of the documentation.
//!
//! A block marked `console` is a session: lines that begin with `$ ` are commands, and the others are their output.
//! The widths of a table's columns are ignored. In expected output, `[..]` matches any text on the line and a line `...` matches any lines; no other output may be left out.
//! All blocks of a page run in order, in one home, against one demo server: either the page starts it, or the test does.
//! `$ trilogue demo` and `$ trilogue serve …` start a server, `^C` stops it.
//! A block marked `console terminal` is a person's view of a terminal of 80 columns, character by character; the text after the cue of a question is the person's input. [`screens`] is for new users: it plays whole pages on terminals, and stores the result.
//! A command continues after a line that ends with `\`, after `<<'EOF'` up to the line `EOF`, and up to the end of its quotes.
//! All commands of a page are typed into one shell: a variable that one sets is there for the next.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use crate::harness::{Home, ProgramOutput, Server, lasting_address};
use crate::screens;
use crate::shell::{Answer, Shell, ShellTerminal, is_open};
use crate::terminal::{DECISION, REASON};

#[derive(Debug)]
struct Step {
    line: usize,
    heading: String,
    command: String,
    prints: Vec<String>,
    /// Whether the block shows a terminal.
    on_terminal: bool,
}

/// Runs the sessions of one page.
struct Reader<'a> {
    page: &'a Path,
    home: &'a Home,
    shell: Shell,
    server: Option<Server>,
    /// The port of the page's own receiver.
    receiver: String,
    /// The terminal on which the page is played, and its output so far.
    screen: Option<(ShellTerminal, String)>,
}

/// The number of columns of the terminals on pages.
const PAGE_COLUMNS: usize = 80;
/// The cues at the end of the sample agents' questions.
const CUES: [&str; 2] = [DECISION, REASON];

#[test]
fn every_example_of_the_documentation_runs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages: Vec<PathBuf> = ["docs", "docs/documents"]
        .into_iter()
        .flat_map(|folder| fs::read_dir(root.join(folder)).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|it| it == "md"))
        .collect();
    pages.push(root.join("README.md"));
    pages.sort();
    let mut steps_run = 0;
    for page in pages.iter().filter(|page| page.exists()) {
        let steps = steps(&fs::read_to_string(page).unwrap());
        let home = Home::new();
        let mut reader = Reader::new(page, &home);
        if !steps.is_empty() && !steps.iter().any(|step| starts_server(&step.command)) {
            reader.server = Some(home.demo());
        }
        for step in &steps {
            reader.take(step);
        }
        steps_run += steps.len();
    }
    assert!(steps_run > 0, "there are no examples");
}

#[test]
fn what_beginners_see_on_a_terminal() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (name, path) in [("readme", "README.md"), ("getting-started", "docs/getting-started.md")] {
        let page = root.join(path);
        let steps = steps(&fs::read_to_string(&page).unwrap());
        for columns in [PAGE_COLUMNS, 120] {
            let home = Home::new();
            let mut reader = Reader::new(&page, &home);
            reader.screen = Some((ShellTerminal::new(columns), String::new()));
            if !steps.iter().any(|step| starts_server(&step.command)) {
                reader.server = Some(home.demo());
            }
            for step in &steps {
                reader.take(step);
            }
            let (_, seen) = reader.screen.take().unwrap();
            screens::check(name, columns, &seen);
        }
    }
}

/// The commands of a page in the repository.
pub(crate) fn commands(page: &str) -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
    let steps = steps(&fs::read_to_string(page).unwrap());
    steps.into_iter().map(|step| step.command).collect()
}

/// Runs the commands under a page's first heading with commands, and then those under this heading.
pub(crate) fn run_section(page: &str, heading: &str) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    let steps = steps(&fs::read_to_string(&page).unwrap());
    let first = &steps[0].heading;
    assert!(steps.iter().any(|step| step.heading == heading), "there is no section '{heading}'");
    let home = Home::new();
    let mut reader = Reader::new(&page, &home);
    for step in steps.iter().filter(|step| step.heading == *first || step.heading == heading) {
        reader.take(step);
    }
}

fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut heading = "";
    let mut inside = false;
    let mut on_terminal = false;
    let mut continues = false;
    for (line, text) in (1..).zip(page.lines()) {
        if text.starts_with("```") {
            on_terminal = text == "```console terminal";
            inside = on_terminal || text == "```console";
            continues = false;
        } else if !inside {
            heading = text.strip_prefix("## ").unwrap_or(heading);
        } else if let (true, Some(step)) = (continues, steps.last_mut()) {
            step.command.push('\n');
            step.command.push_str(text);
            continues = is_open(&step.command);
        } else if let Some(command) = text.strip_prefix("$ ") {
            continues = is_open(command);
            let (heading, command) = (heading.to_owned(), command.to_owned());
            steps.push(Step { line, heading, command, prints: Vec::new(), on_terminal });
        } else if let Some(step) = steps.last_mut() {
            step.prints.push(text.to_owned());
        } else {
            panic!("line {line}: a block begins with output");
        }
    }
    steps
}

fn starts_server(command: &str) -> bool {
    let mut words = command.split_whitespace();
    words.next() == Some("trilogue")
        && matches!(words.next(), Some("demo" | "serve"))
        && !command.contains("--check")
}

// === impl Reader ===

impl<'a> Reader<'a> {
    fn new(page: &'a Path, home: &'a Home) -> Self {
        let receiver = lasting_address().replace("127.0.0.1:", "");
        // The two official clients cannot be installed into one Python.
        let client =
            if page.ends_with("connect.md") { "connect/python" } else { "communication/python" };
        let shell = Shell::new(home, client);
        Self { page, home, shell, server: None, receiver, screen: None }
    }

    fn take(&mut self, step: &Step) {
        if starts_server(&step.command) {
            let mut arguments: Vec<_> = step.command.split_whitespace().skip(1).collect();
            arguments.extend(["--listen", "127.0.0.1:0"]);
            // If a page starts a server again, it has killed the one before.
            if let Some(server) = self.server.take() {
                server.stop(Signal::KILL);
            }
            self.server = Some(self.home.start(&arguments));
            if step.prints.iter().any(|line| line == "^C") {
                self.stop();
            }
            return;
        }
        if step.on_terminal || self.screen.is_some() {
            self.take_on_terminal(step);
            return;
        }
        let ended = self.run(&step.command);
        let printed = format!("{}{}", ended.out, ended.err);
        assert!(
            matches(&step.prints, &without_port_warnings(&printed)),
            "{}:{}: `{}` ended with {} and printed:\n{printed}\ninstead of:\n{}",
            self.page.display(),
            step.line,
            step.command,
            ended.code,
            step.prints.join("\n")
        );
        if step.prints.last().is_some_and(|line| line == "^C") {
            self.stop();
        }
    }

    /// Plays a command on the page's terminal, or on a new one.
    fn take_on_terminal(&mut self, step: &Step) {
        let command = self.here(&step.command);
        let mut screen = self.screen.take();
        let mut own = screen.is_none().then(|| ShellTerminal::new(PAGE_COLUMNS));
        let terminal = screen.as_mut().map(|(terminal, _)| terminal).or(own.as_mut()).unwrap();
        let typed = step.prints.iter().filter_map(|line| {
            let (cue, typed) =
                CUES.iter().find_map(|cue| Some((cue, line.strip_prefix(cue.trim_end())?)))?;
            Some(((*cue).to_owned(), typed.trim().to_owned()))
        });
        let mut answers: Vec<Answer> = typed.collect();
        if answers.is_empty() {
            // A page without a terminal shows a question that stays open, so the test answers `later`.
            answers.push((DECISION.to_owned(), "later".to_owned()));
        }
        let (code, written) = self.shell.run_on(&command, terminal, &answers);
        let shown = still(&terminal.display(&written));
        // A command in the background shows no output.
        let is_ours = step.command.starts_with("trilogue ") && !step.command.ends_with('&');
        if is_ours {
            let unbroken = still(&terminal.display_unbroken(&written));
            assert_eq!(shown, unbroken, "{}:{}: a line is broken", self.page.display(), step.line);
        }
        if let Some((_, seen)) = screen.as_mut().filter(|_| is_ours) {
            seen.push_str(&format!("$ {}\n{shown}", step.command));
        }
        let is_as_wide =
            screen.as_ref().is_none_or(|(terminal, _)| terminal.columns() == PAGE_COLUMNS);
        if step.on_terminal && is_as_wide {
            let wanted = still(&step.prints.join("\n"));
            let wanted: Vec<_> = wanted.lines().map(str::to_owned).collect();
            let shown: Vec<_> = shown.lines().collect();
            assert!(
                matches_by(&wanted, &shown, |wanted, line| wanted == line),
                "{}:{}: `{command}` ended with {code} and shows:\n{}\ninstead of:\n{}",
                self.page.display(),
                step.line,
                shown.join("\n"),
                wanted.join("\n"),
            );
        }
        self.screen = screen;
    }

    fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            assert!(server.stop(Signal::INT).success());
        }
    }

    /// Runs a command like the page's reader would, with the ports that are free here.
    fn run(&mut self, command: &str) -> ProgramOutput {
        let command = self.here(command);
        self.shell.run(&command)
    }

    /// Replaces the ports in a command by ports that are free here.
    fn here(&mut self, command: &str) -> String {
        let mut command = command.replace("9099", &self.receiver);
        if let Some(server) = &self.server {
            self.shell.run(&format!("export TRILOGUE_URL={}", server.url()));
            command = command
                .replace("127.0.0.1:7878", &server.address)
                .replace("127.0.0.1-7878", &server.address.replace(':', "-"));
        }
        command
    }
}

/// The printed lines without those about the usual port: another server of this machine may have it.
fn without_port_warnings(printed: &str) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut all = printed.lines();
    while let Some(line) = all.next() {
        if line.starts_with("warning: server.listen: ") && line.contains(" is in use by process ") {
            // Its hint.
            all.next();
        } else {
            lines.push(line);
        }
    }
    lines
}

/// Whether the printed lines match the expected ones completely.
fn matches(wanted: &[String], printed: &[&str]) -> bool {
    matches_by(wanted, printed, fits)
}

/// Like `matches`, but `fits` compares two lines.
fn matches_by(wanted: &[String], printed: &[&str], fits: fn(&str, &str) -> bool) -> bool {
    let Some((first, rest)) = wanted.split_first() else { return printed.is_empty() };
    match first.as_str() {
        "^C" => matches_by(rest, printed, fits),
        "..." => (0..=printed.len()).any(|skipped| matches_by(rest, &printed[skipped..], fits)),
        first => match printed.split_first() {
            Some((line, others)) => fits(first, line) && matches_by(rest, others, fits),
            None => first.is_empty() && matches_by(rest, printed, fits),
        },
    }
}

/// A screen without the parts that differ each time: ids, ages and the folder of the state.
fn still(shown: &str) -> String {
    let lines = shown.lines().map(|line| {
        if line.starts_with("image saved: ") {
            return "image saved: …".to_owned();
        }
        let line = same_age(&same_ids(&same_times(line)));
        // A longer age leaves less space for the text before it.
        match line.strip_suffix('…') {
            Some(cut) => {
                let kept = cut.chars().count().saturating_sub(4);
                format!("{}…", cut.chars().take(kept).collect::<String>().trim_end())
            }
            None => line,
        }
    });
    let lines: Vec<_> = lines.filter(|line| !line.contains("/state/trilogue/images/")).collect();
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Replaces all times in a line by one.
fn same_times(line: &str) -> String {
    const FORM: &[u8] = b"0000-00-00T00:00:00";
    let is_time = |text: &[u8]| {
        let fits = |(found, form): (&u8, &u8)| match form {
            b'0' => found.is_ascii_digit(),
            form => found == form,
        };
        text.len() == FORM.len() && text.iter().zip(FORM).all(fits)
    };
    let mut out = line.to_owned();
    let starts: Vec<_> = (0..line.len())
        .filter(|at| line.as_bytes().get(*at..at + FORM.len()).is_some_and(is_time))
        .collect();
    for at in starts.into_iter().rev() {
        let end = line[at..].find('Z').map_or(at + FORM.len(), |end| at + end + 1);
        out.replace_range(at..end, "2026-11-23T12:00:00Z");
    }
    out
}

/// Replaces all ids in a line by zeros.
fn same_ids(line: &str) -> String {
    let is_id = |word: &str| {
        let hex = |group: &str| group.bytes().all(|byte| byte.is_ascii_hexdigit());
        match word.len() {
            8 => hex(word) && word.bytes().any(|byte| byte.is_ascii_digit()),
            36 => word.split('-').count() == 5 && word.split('-').all(hex),
            _ => false,
        }
    };
    let words = line.split_inclusive(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    let words = words.map(|piece| {
        let word = piece.trim_end_matches(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
        match is_id(word) {
            true => word.replace(|c: char| c != '-', "0") + &piece[word.len()..],
            false => piece.to_owned(),
        }
    });
    words.collect()
}

/// Replaces the ages in a table's row by `just now`, and normalises the space between its columns.
fn same_age(line: &str) -> String {
    let is_heading = ["CREATED", "CHANGED", "SINCE"].iter().any(|name| line.contains(name));
    let cells: Vec<_> = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
    let is_age = |cell: &&str| *cell == "just now" || cell.ends_with(" s ago");
    if !is_heading && !cells.iter().any(is_age) {
        return line.to_owned();
    }
    let cells = cells.into_iter().map(|cell| if is_age(&cell) { "just now" } else { cell });
    cells.collect::<Vec<_>>().join("  ")
}

fn fits(wanted: &str, line: &str) -> bool {
    let (wanted, line) = (narrow(wanted), narrow(line));
    let mut pieces = wanted.split("[..]");
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    let pieces: Vec<_> = pieces.collect();
    let Some((last, middle)) = pieces.split_last() else { return rest.is_empty() };
    for piece in middle {
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    rest.ends_with(last)
}

fn narrow(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn printed_lines_are_compared_with_their_gaps() {
    let wanted = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let warned = "a\nwarning: server.listen: the address 127.0.0.1:7878 is in use by process 1 (x)\n  hint: y\nb";
    assert_eq!(without_port_warnings(warned), ["a", "b"]);
    assert!(matches(&wanted("a\n...\nz"), &["a", "b", "c", "z"]));
    assert!(matches(&wanted("id [..] of [..]!"), &["id 1 of 2!"]));
    assert!(!matches(&wanted("a"), &["a", "b"]));
    assert!(!matches(&wanted(""), &["b"]));
    assert!(!matches(&wanted("id [..] of"), &["id 1 of 2"]));
    let page =
        "x\n```console\n$ a \\\n  b\nout\n$ c <<'EOF'\n$ d\nEOF\nout\n```\n```sh\n$ d\n```\n";
    let steps = steps(page);
    assert_eq!(steps.len(), 2);
    assert_eq!((steps[1].command.as_str(), steps[1].prints.len()), ("c <<'EOF'\n$ d\nEOF", 1));
    assert_eq!((steps[0].command.as_str(), steps[0].line), ("a \\\n  b", 3));
    assert_eq!(steps[0].prints, ["out"]);
}
