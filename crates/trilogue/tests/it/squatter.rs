//! Another user's program on the port of a stopped server.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::harness::{Home, lasting_address};

const NOBODY: u32 = 65_534;
/// Accepts connections, prints their input, and responds like a server that accepts every token.
const LISTEN: &str = r#"
    $| = 1;
    $s = IO::Socket::INET->new(LocalAddr => $ARGV[0], Listen => 5, ReuseAddr => 1) or die;
    print "ready\n";
    while ($c = $s->accept) {
        sysread($c, $b, 65536); print $b;
        print $c "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-type: application/json\r\n\r\n{}";
        close $c;
    }
"#;

#[test]
#[expect(clippy::print_stderr, reason = "a test that cannot make its check says so")]
fn a_squatter_on_the_port_gets_no_saved_token() {
    if !rustix::process::geteuid().is_root() {
        // The tests of the port check need no root.
        let why = "only root can start a program of another user";
        assert!(std::env::var_os("CI").is_none(), "CI has to check this: {why}");
        eprintln!("NOT CHECKED: {why}");
        return;
    }
    let (home, address) = (Home::new(), lasting_address());
    let server = home.start(&["demo", "--listen", &address]);
    let (url, token) = (server.url(), std::fs::read_to_string(server.token_file()).unwrap());
    server.run(&["run", "echo", "x"]).expect(0);
    server.stop(Signal::INT);
    home.run(&["run", "echo", "x", "--url", &url]).complains(6, "no server answers");

    let mut command = Command::new("perl");
    command.args(["-MIO::Socket::INET", "-e", LISTEN, &address]);
    command.uid(NOBODY).gid(NOBODY).current_dir("/").stdout(Stdio::piped());
    let mut squatter = command.spawn().unwrap();
    let mut prints = BufReader::new(squatter.stdout.take().unwrap());
    let mut line = String::new();
    prints.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    for command in [&["run", "echo", "a secret"][..], &["chat", "echo"], &["agents"], &["status"]] {
        for face in ["", "/communication", "/connect"] {
            let url = format!("{url}{face}");
            let ended = home.run(&[command, &["--url", &url]].concat());
            assert!(ended.code != 0 && ended.err.contains("another user"), "{command:?} {ended:?}");
        }
    }
    // A token that the user passes is sent to the address that the user names.
    home.run(&["status", "--url", &url, "--token", "passed"]);
    squatter.kill().unwrap();
    squatter.wait().unwrap();
    let mut got = String::new();
    prints.read_to_string(&mut got).unwrap();
    assert!(!got.contains(token.trim()) && !got.contains("a secret"), "{got}");
    assert!(got.contains("passed"), "the squatter was reached: {got}");
}
