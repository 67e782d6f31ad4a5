//! The inspector's page in a real browser, on a server with the binary's own page. The browser's scripts are in `foreign/inspector`.

use std::fs;
use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use trilogue_testkit::inspector_packages;

use crate::harness::{Home, Server, lasting_address};
use crate::nodes::Nodes;

/// The size limit of a picture in the repository, in bytes.
const MAX_PICTURE_BYTES: usize = 120 * 1024;

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../foreign/inspector")
}

/// An address to which nothing may connect.
struct ForbiddenAddress(TcpListener);

/// Starts a server with an agent that does what its prompts say.
fn serve(home: &Home, elsewhere: &ForbiddenAddress) -> Server {
    let address = lasting_address();
    let agent = scripts().join("agent.mjs");
    let elsewhere = elsewhere.url();
    let mut config = format!(
        "[server]\nlisten = \"{address}\"\n[store]\nurl = \"sqlite:inspector.db\"\n\
         [agents.coder]\nkind = \"agent-client\"\ncommand = [\"node\", {agent:?}, {elsewhere:?}]\n\
         env = {{ AGENT_KEY = \"a-secret-of-the-agent\" }}\n"
    );
    for name in ["echo", "greeter", "mailcomposer", "researcher"] {
        config.push_str(&format!("[agents.{name}]\nkind = \"builtin\"\n"));
    }
    home.write("trilogue.toml", &config);
    home.start(&["serve", "--config", "trilogue.toml"])
}

fn script(home: &Home, server: &Server, elsewhere: &ForbiddenAddress, name: &str) -> Command {
    let token = fs::read_to_string(server.token_file()).unwrap();
    let mut command = home.program("node");
    command
        .arg(scripts().join(format!("{name}.mjs")))
        .arg("--modules")
        .arg(inspector_packages().unwrap())
        .args(["--url", &server.url(), "--token", token.trim()])
        .args(["--elsewhere", &elsewhere.url()]);
    command
}

/// Runs every check of a script.
fn passes(name: &str) {
    passes_in(&Home::new(), name);
}

/// Runs every check of a script in a home; the script may leave files in the folder `made`.
fn passes_in(home: &Home, name: &str) {
    let elsewhere = ForbiddenAddress::listen();
    let server = serve(home, &elsewhere);
    passes_on(home, &server, &elsewhere, name);
    elsewhere.was_left_alone();
}

/// Runs every check of a script on a server.
fn passes_on(home: &Home, server: &Server, elsewhere: &ForbiddenAddress, name: &str) {
    let mut command = script(home, server, elsewhere, name);
    command.arg("--folder").arg(home.work().join("made"));
    let ended = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    let complained = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && said.contains("0 failed"), "{said}{complained}");
}

/// Runs a script that prints orders. For each one, the server is killed, the order is carried out, and the server is started again.
fn passes_with_restarts(name: &str, orders: &[&str], carry_out: impl Fn(&Home, &str)) {
    let (home, elsewhere) = (Home::new(), ForbiddenAddress::listen());
    let server = serve(&home, &elsewhere);
    let mut command = script(&home, &server, &elsewhere, name);
    let mut browser = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut replies = browser.stdin.take().unwrap();
    let lines = BufReader::new(browser.stdout.take().unwrap()).lines();
    let (mut server, mut said) = (Some(server), Vec::new());
    for line in lines.map_while(Result::ok) {
        if orders.contains(&&*line) {
            server.take().unwrap().stop(Signal::KILL);
            carry_out(&home, &line);
            server = Some(home.start(&["serve", "--config", "trilogue.toml"]));
            writeln!(replies, "started").unwrap();
        }
        said.push(line);
    }
    assert!(browser.wait().unwrap().success(), "{}", said.join("\n"));
}

#[test]
fn a_conversation_shows_everything_that_agents_send() {
    passes("chat");
}

#[test]
fn questions_are_answered_once_wherever_it_is() {
    passes("inbox");
}

#[test]
fn every_event_is_found_and_shown_in_every_form() {
    passes("timeline");
}

#[test]
fn agents_processes_and_routes_are_looked_at() {
    passes("server");
}

#[test]
fn a_run_is_made_again_by_programs() {
    passes("programs");
}

#[test]
fn a_question_on_two_pages_and_in_an_editor_is_answered_in_one() {
    passes("editor");
}

#[test]
fn servers_that_share_a_store_are_shown_with_their_threads_and_differences() {
    let (nodes, elsewhere) = (Nodes::start(), ForbiddenAddress::listen());
    passes_on(&nodes.home, nodes.first(), &elsewhere, "cluster");
    elsewhere.was_left_alone();
}

#[test]
fn nothing_hostile_does_anything() {
    passes("security");
}

#[test]
fn the_page_is_for_everybody() {
    passes("access");
}

#[test]
fn the_page_goes_on_when_the_server_comes_back() {
    passes_with_restarts("restart", &["kill"], |_, _| {});
}

#[test]
fn a_page_with_more_events_than_its_server_offers_to_reload() {
    passes_with_restarts("rewind", &["keep", "rewind"], |home, order| {
        let kept = home.work().join("kept");
        fs::create_dir_all(&kept).unwrap();
        let (from, to) = match order {
            "keep" => (home.work(), kept),
            _ => (kept, home.work()),
        };
        let is_of_store = |path: &PathBuf| path.to_string_lossy().contains("inspector.db");
        let files = |folder: &Path| {
            let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
            entries.filter(is_of_store).collect::<Vec<_>>()
        };
        for file in files(&to) {
            fs::remove_file(file).unwrap();
        }
        for file in files(&from) {
            fs::copy(&file, to.join(file.file_name().unwrap())).unwrap();
        }
    });
}

/// Every picture of the documentation can be generated, and has its generated size. `TRILOGUE_BLESS=1` writes new ones.
#[test]
fn the_pictures_of_the_documentation_can_be_made() {
    let home = Home::new();
    passes_in(&home, "pictures");
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut made = Vec::new();
    for entry in fs::read_dir(home.work().join("made")).unwrap() {
        let (path, name) =
            entry.map(|it| (it.path(), it.file_name().into_string().unwrap())).unwrap();
        let shown = docs.join("images").join(&name);
        if std::env::var_os("TRILOGUE_BLESS").is_some() {
            fs::copy(&path, &shown).unwrap();
        }
        let picture = fs::read(&shown).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(png_size(&picture), png_size(&fs::read(&path).unwrap()), "{name}");
        assert!(picture.len() <= MAX_PICTURE_BYTES, "{name} has {} bytes", picture.len());
        made.push(name);
    }
    let pages =
        ["inspector.md", "../README.md"].map(|page| fs::read_to_string(docs.join(page)).unwrap());
    let text = pages.concat();
    let named =
        text.split("images/").skip(1).filter_map(|rest| rest.split_once(')')).map(|it| it.0);
    let mut named: Vec<_> = named.map(str::to_owned).collect();
    named.sort();
    named.dedup();
    made.sort();
    assert_eq!(named, made, "the pictures that are shown, and those that are made");
}

/// The width and height in pixels, from the beginning of a PNG.
fn png_size(picture: &[u8]) -> [&[u8]; 2] {
    assert!(picture.starts_with(b"\x89PNG\r\n\x1a\n"));
    [&picture[16..20], &picture[20..24]]
}

impl ForbiddenAddress {
    fn listen() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Self(listener)
    }

    fn url(&self) -> String {
        format!("http://{}", self.0.local_addr().unwrap())
    }

    /// Asserts that nothing connected: a connection would wait in the listener's queue.
    fn was_left_alone(&self) {
        let caller = self.0.accept().map_err(|error| error.kind());
        assert!(
            matches!(caller, Err(ErrorKind::WouldBlock)),
            "the page went elsewhere: {caller:?}"
        );
    }
}

/// Checks the page's scripts against the types in their comments.
#[test]
fn the_types_of_the_page_fit() {
    let compiler = inspector_packages().unwrap().join("node_modules/typescript/bin/tsc");
    let mut check = Command::new("node");
    let ended = check.arg(compiler).arg("--project").arg(scripts()).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
}
