//! `trilogue ui`.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use clap::Args;
use trilogue::local::token_file;

use crate::command::globals::Globals;
use crate::conversation::remote;
use crate::terminal::exit::{CliError, Result};
use crate::terminal::print;

/// Where a browser reads the link. The command line of a browser can be read by every user of the machine, and this file by its owner only.
const LINK_FILE: &str = "sign-in.html";
/// The longest key of a browser, in bytes.
const MAX_KEY_BYTES: usize = 64;

/// Open the inspector in the browser: chats, questions, threads, agents and what they did.
///
/// The link signs the browser in with the rights of your token. It works once, within ten minutes. The page asks before it signs in, unless it has asked for the link itself.
#[derive(Args, Debug)]
pub(crate) struct Ui {
    /// Print the link, and do not open it.
    #[arg(long)]
    no_open: bool,

    /// The key that the page shows before a sign-in: that browser then signs in without a question.
    #[arg(long, value_name = "KEY", value_parser = browser_key)]
    browser: Option<String>,
}

// === impl Ui ===

impl Ui {
    pub(crate) async fn execute(&self, globals: &Globals) -> Result {
        let mut link = remote::open(globals)?.create_sign_in_link().await?;
        if let (Some(key), true) = (&self.browser, link.url.contains('#')) {
            link.url = format!("{}&browser={key}", link.url);
        }
        if globals.json {
            return print::json(&link);
        }
        print::out(&format!("{}\n", link.url))?;
        if self.no_open || !print::is_terminal() {
            return Ok(());
        }
        let file = write_link(&link.url).map_err(|error| {
            CliError::failure(format!("cannot write the link for the browser: {error}"))
                .hint("open the printed link, or use `trilogue ui --no-open`")
        })?;
        if open::that_detached(&file).is_err() {
            print::hint("no browser was found: open the link in one that reaches this address");
        }
        Ok(())
    }
}

fn browser_key(text: &str) -> Result<String, String> {
    let is_key =
        (1..=MAX_KEY_BYTES).contains(&text.len()) && text.bytes().all(|it| it.is_ascii_hexdigit());
    is_key.then(|| text.to_owned()).ok_or_else(|| "copy it from the sign-in page".to_owned())
}

/// A page that leads to the link, readable for this user only.
fn write_link(url: &str) -> io::Result<PathBuf> {
    let folder = token_file::state_dir()?;
    std::fs::create_dir_all(&folder)?;
    let file = folder.join(LINK_FILE);
    let url = url.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;");
    // A file that others made is not written to.
    match std::fs::remove_file(&file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut page = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file)?;
    write!(
        page,
        "<!doctype html><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"0;url={url}\"><title>Trilogue</title><a href=\"{url}\">Open the inspector</a>"
    )?;
    Ok(file)
}
