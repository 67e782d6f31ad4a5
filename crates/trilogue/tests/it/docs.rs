//! Runs every example of the documentation.
//!
//! A block marked `console` is a session: lines that begin with `$ ` are commands, the others what they print.
//! How wide the columns of a table are does not count. In what is printed, `[..]` stands for anything on the line and a line `...` for any lines; between two commands nothing may be left out in silence.
//! All blocks of a page run in order, in one home, against one demo server: the one that the page starts itself, or one that is there before.
//! `$ trilogue demo` and `$ trilogue serve …` start a server, `^C` stops it.
//! A command goes on behind a line that ends with `\`, up to the line `EOF` where it begins with one of `<<'EOF'`, and up to the end of what it quotes.
//! All commands of a page are typed into one shell: what one sets, the next has.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use crate::harness::{Ended, Home, Server, lasting_address};
use crate::shell::{Shell, is_open};

#[derive(Debug)]
struct Step {
    line: usize,
    heading: String,
    command: String,
    prints: Vec<String>,
}

/// Runs the sessions of one page.
struct Reader<'a> {
    page: &'a Path,
    home: &'a Home,
    shell: Shell,
    server: Option<Server>,
    /// The port on which a page's own receiver listens.
    receiver: String,
}

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

/// Runs the commands of a page that stand under its first heading with commands, and then those under this one.
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
    let mut continues = false;
    for (line, text) in (1..).zip(page.lines()) {
        if text.starts_with("```") {
            inside = text == "```console";
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
            steps.push(Step { line, heading, command, prints: Vec::new() });
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
        // Two official clients do not fit into one Python.
        let client =
            if page.ends_with("connect.md") { "connect/python" } else { "communication/python" };
        Self { page, home, shell: Shell::new(home, client), server: None, receiver }
    }

    fn take(&mut self, step: &Step) {
        if starts_server(&step.command) {
            let mut arguments: Vec<_> = step.command.split_whitespace().skip(1).collect();
            arguments.extend(["--listen", "127.0.0.1:0"]);
            // A page that starts a server again means that the one before was killed.
            if let Some(server) = self.server.take() {
                server.stop(Signal::KILL);
            }
            self.server = Some(self.home.start(&arguments));
            if step.prints.iter().any(|line| line == "^C") {
                self.stop();
            }
            return;
        }
        let ended = self.run(&step.command);
        let printed = format!("{}{}", ended.out, ended.err);
        assert!(
            matches(&step.prints, &printed.lines().collect::<Vec<_>>()),
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

    fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            assert!(server.stop(Signal::INT).success());
        }
    }

    /// Runs a command as the page's reader would, on the ports that are free here.
    fn run(&mut self, command: &str) -> Ended {
        let mut command = command.replace("9099", &self.receiver);
        if let Some(server) = &self.server {
            self.shell.run(&format!("export TRILOGUE_URL={}", server.url()));
            command = command
                .replace("127.0.0.1:7878", &server.address)
                .replace("127.0.0.1-7878", &server.address.replace(':', "-"));
        }
        self.shell.run(&command)
    }
}

/// Whether these lines were printed, from the first to the last.
fn matches(wanted: &[String], printed: &[&str]) -> bool {
    let Some((first, rest)) = wanted.split_first() else { return printed.is_empty() };
    match first.as_str() {
        "^C" => matches(rest, printed),
        "..." => (0..=printed.len()).any(|skipped| matches(rest, &printed[skipped..])),
        first => match printed.split_first() {
            Some((line, others)) => fits(first, line) && matches(rest, others),
            None => first.is_empty() && matches(rest, printed),
        },
    }
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
