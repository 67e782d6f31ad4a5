//! Turns files and addresses into parts of a message.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::string::FromUtf8Error;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
pub(crate) use trilogue::config::is_local;
use trilogue_domain::limits;
use trilogue_sdk::content_type;
use trilogue_wire::native::{ContentEncoding, InputMessage, InputPart, Json, RunInput};
use url::Url;

use crate::terminal::exit::{CliError, Result};

/// Makes a message of this text and these attachments. If `mentions` is set, files that the text names as `@path` are attached too, each once.
pub(crate) fn message(text: String, mentions: bool, attached: &[String]) -> Result<RunInput> {
    let mentioned = if mentions { mentioned_files(&text) } else { Vec::new() };
    if attached.is_empty() && mentioned.is_empty() {
        return Ok(RunInput::Text(text));
    }
    let mut parts = vec![InputPart::text(text)];
    let mut files: Vec<PathBuf> = Vec::new();
    for (place, source) in attached.iter().chain(&mentioned).enumerate() {
        let file = file(source).and_then(|path| path.canonicalize().ok());
        // A mention does not attach a file twice.
        if place >= attached.len() && file.as_ref().is_some_and(|file| files.contains(file)) {
            continue;
        }
        files.extend(file);
        parts.push(part(source)?);
    }
    Ok(RunInput::Messages(vec![InputMessage { parts, ..InputMessage::default() }]))
}

/// Returns the existing files that a text mentions: `@` at the beginning of a word, then a path, in quotes if it has spaces.
fn mentioned_files(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut before = ' ';
    for (place, c) in text.char_indices() {
        let begins = before.is_whitespace() || matches!(before, '(' | '[' | '{' | '"' | '\'');
        before = c;
        if c != '@' || !begins {
            continue;
        }
        let rest = text.get(place + 1..).unwrap_or_default();
        let named = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').map(|(path, _)| path),
            None => rest.split(char::is_whitespace).next().and_then(file_in),
        };
        let path = named.filter(|path| Path::new(path).is_file());
        if let Some(path) = path.filter(|path| !found.iter().any(|known| known == path)) {
            found.push(path.to_owned());
        }
    }
    found
}

/// The longest file name that a word begins with: punctuation may follow it.
fn file_in(word: &str) -> Option<&str> {
    let mut path = word;
    loop {
        if Path::new(path).is_file() {
            return Some(path);
        }
        let shorter =
            path.strip_suffix(['.', ',', ';', ':', '!', '?', ')', ']', '}', '"', '\''])?;
        path = shorter;
    }
}

pub(crate) fn forget_paths(input: &mut RunInput) {
    if let RunInput::Messages(messages) = input {
        for part in messages.iter_mut().flat_map(|message| &mut message.parts) {
            part.extra = None;
        }
    }
}

/// The block of the Agent Client Protocol for a file, with its address and without its content. The backend adds the content, or turns the block into a link, as the agent wants it.
fn file_block(path: &Path, content_type: &str) -> Option<Json> {
    let uri = Url::from_file_path(std::path::absolute(path).ok()?).ok()?;
    let uri = uri.as_str();
    let block = match content_type::media(content_type) {
        Some("image") => json!({ "type": "image", "mimeType": content_type, "uri": uri }),
        Some("audio") => json!({ "type": "audio", "mimeType": content_type }),
        _ => {
            let resource = json!({ "uri": uri, "mimeType": content_type });
            json!({ "type": "resource", "resource": resource })
        }
    };
    let extension = json!({ "protocol": "agent_client", "block": block });
    Some(Json::from_value(&json!({ "x_trilogue": extension })))
}

/// The part for `--attach`: an address is passed on; a file becomes an artifact of its name, as text or in base64. Its name and its first bytes tell its content type.
pub(crate) fn part(source: &str) -> Result<InputPart> {
    if let Some(address) = address(source) {
        let content_type = content_type::of_name(address.path());
        return Ok(InputPart {
            content_type: Some(content_type.unwrap_or(content_type::BYTES).to_owned()),
            content_url: Some(source.to_owned()),
            ..InputPart::default()
        });
    }
    let path = &*file(source).unwrap_or_else(|| Cow::Borrowed(Path::new(source)));
    let unreadable =
        |error: std::io::Error| CliError::usage(format!("cannot read {source}: {error}"));
    let length = std::fs::metadata(path).map_err(unreadable)?.len();
    if length > limits::MAX_BLOB_BYTES as u64 {
        return Err(CliError::usage(format!(
            "{source} has {length} bytes; an attachment can have at most {}",
            limits::MAX_BLOB_BYTES
        ))
        .hint("pass its web address instead, if it has one"));
    }
    let bytes = std::fs::read(path).map_err(unreadable)?;
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    let content_type = content_type::of_file(path, &bytes);
    let text = match content_type::is_text(content_type) {
        true => String::from_utf8(bytes).map_err(FromUtf8Error::into_bytes),
        false => Err(bytes),
    };
    let (content, content_encoding) = match text {
        Ok(text) => (text, None),
        Err(bytes) => (STANDARD.encode(bytes), Some(ContentEncoding::Base64)),
    };
    Ok(InputPart {
        extra: file_block(path, content_type),
        content_type: Some(content_type.to_owned()),
        content: Some(content),
        content_encoding,
        name,
        ..InputPart::default()
    })
}

/// Returns a web address, or `None` if the source names a file.
fn address(source: &str) -> Option<Url> {
    let address = Url::parse(source).ok()?;
    matches!(address.scheme(), "http" | "https").then_some(address)
}

/// The file that a path or a local address names; `None` for any other address.
fn file(source: &str) -> Option<Cow<'_, Path>> {
    match Url::parse(source) {
        Ok(address) if address.scheme() == "file" => address.to_file_path().ok().map(Cow::Owned),
        _ => address(source).is_none().then(|| Cow::Borrowed(Path::new(source))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, bytes: &[u8]) -> InputPart {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        part(path.to_str().unwrap()).unwrap()
    }

    #[test]
    fn text_is_inline_and_an_artifact_of_its_name() {
        let text = file("note.md", "grüße".as_bytes());
        assert_eq!(text.content.as_deref(), Some("grüße"));
        assert_eq!((text.content_encoding, text.content_url), (None, None));
        assert_eq!(text.content_type.as_deref(), Some("text/markdown"));
        assert_eq!(text.name.as_deref(), Some("note.md"));
        let empty = file("empty", b"");
        assert_eq!(empty.content.as_deref(), Some(""));
    }

    #[test]
    fn binary_files_are_base64() {
        let bytes = file("x.PNG", &[0xff, 0xd8]);
        assert_eq!(bytes.content.as_deref(), Some("/9g="));
        assert_eq!(bytes.content_encoding, Some(ContentEncoding::Base64));
        assert_eq!(bytes.content_type.as_deref(), Some("image/png"));
        assert_eq!((bytes.name.as_deref(), bytes.content_url), (Some("x.PNG"), None));
    }

    #[test]
    fn a_file_has_its_path_and_its_kind_of_block() {
        let block = |name: &str, bytes: &[u8]| {
            let extra = file(name, bytes).extra.unwrap().to_value()["x_trilogue"].take();
            assert_eq!(extra["protocol"], "agent_client");
            extra["block"].clone()
        };
        let text = block("a b.md", b"words");
        assert_eq!(text["type"], "resource");
        assert_eq!(text["resource"]["mimeType"], "text/markdown");
        let uri = text["resource"]["uri"].as_str().unwrap();
        assert!(uri.starts_with("file:///") && uri.ends_with("/a%20b.md"), "{uri}");
        let image = block("a.png", b"\xff");
        assert_eq!((&image["type"], &image["mimeType"]), (&json!("image"), &json!("image/png")));
        assert!(image["uri"].as_str().unwrap().ends_with("/a.png"));
        assert_eq!(block("a.wav", b"\xff"), json!({ "type": "audio", "mimeType": "audio/wav" }));
        // Bytes that happen to be characters make no text of it.
        let sound = file("b.wav", b"RIFF\0\0\0\0WAVEfmt ");
        assert_eq!(sound.content_encoding, Some(ContentEncoding::Base64));
        assert_eq!(block("c", b"GIF89a\x01\0\x01\0")["mimeType"], "image/gif");
        // SVG is text, and no image for an agent.
        assert_eq!(block("a.svg", b"<svg/>")["type"], "resource");

        let (folder, mut input) = (tempfile::tempdir().unwrap(), RunInput::Text(String::new()));
        forget_paths(&mut input);
        let path = folder.path().join("x").to_str().unwrap().to_owned();
        std::fs::write(&path, "x").unwrap();
        input = message("hi".to_owned(), false, &[path]).unwrap();
        forget_paths(&mut input);
        let RunInput::Messages(messages) = input else { unreachable!() };
        assert!(messages[0].parts.iter().all(|part| part.extra.is_none()));
    }

    #[test]
    fn only_existing_files_are_mentioned() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let (plain, spaced) = (path("notes.md"), path("two words"));
        for file in [&plain, &spaced] {
            std::fs::write(file, "x").unwrap();
        }
        let text = format!(
            "see @{plain}, (@{plain}) and @\"{spaced}\"; not me@{plain} nor @/nonexistent nor @{}",
            folder.path().display()
        );
        assert_eq!(mentioned_files(&text), [plain.clone(), spaced]);
        let with = message(format!("see @{plain}"), true, &[]).unwrap();
        assert!(matches!(with, RunInput::Messages(messages) if messages[0].parts.len() == 2));
        let parts = |text: String, attached: &[String]| match message(text, true, attached).unwrap()
        {
            RunInput::Messages(messages) => messages[0].parts.len(),
            other => panic!("{other:?}"),
        };
        let other = format!("{}/./notes.md", folder.path().display());
        assert_eq!(parts(format!("see @{plain} and @{other}"), &[]), 2);
        assert_eq!(parts(format!("see @{other}"), std::slice::from_ref(&plain)), 2);
        let without = message(format!("see @{plain}"), false, &[]).unwrap();
        assert!(matches!(without, RunInput::Text(_)));
    }

    #[test]
    fn only_loopback_servers_are_local() {
        for here in ["http://127.0.0.1:7878", "http://localhost:1", "http://[::1]:1/x"] {
            assert!(is_local(&here.parse().unwrap()), "{here}");
        }
        for elsewhere in ["https://example.com", "http://10.0.0.1", "http://localhost.example.com"]
        {
            assert!(!is_local(&elsewhere.parse().unwrap()), "{elsewhere}");
        }
    }

    #[test]
    fn an_address_is_passed_on_unchanged() {
        for (source, kind) in [
            ("https://example.com/a.pdf?x=1.png", "application/pdf"),
            ("http://example.com/#a.md", "application/octet-stream"),
            ("HTTPS://EXAMPLE.com/b/C.JPG", "image/jpeg"),
            ("https://example.com", "application/octet-stream"),
            ("https://example.com/a.unheard-of", "application/octet-stream"),
        ] {
            let address = part(source).unwrap();
            assert_eq!(address.content_url.as_deref(), Some(source));
            assert_eq!(address.content_type.as_deref(), Some(kind), "{source}");
            assert_eq!((address.content, address.name), (None, None));
        }
    }

    #[test]
    fn content_types_come_from_the_name_or_the_content() {
        for (name, bytes, kind) in [
            ("a.csv", b"a,b".as_slice(), "text/csv"),
            ("a.b.json", b"{}", "application/json"),
            ("script.js", b"1", "text/javascript"),
            ("README", b"words", "text/plain"),
            ("notes?.txt", b"words", "text/plain"),
            ("core", b"\xff\x00", "application/octet-stream"),
            (".md", b"words", "text/plain"),
        ] {
            assert_eq!(file(name, bytes).content_type.as_deref(), Some(kind), "{name}");
        }
    }

    #[test]
    fn a_local_file_address_names_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("two words.md");
        std::fs::write(&path, "words").unwrap();
        let address = Url::from_file_path(&path).unwrap();
        for source in [address.to_string(), address.as_str().replace("file://", "file://localhost")]
        {
            let part = part(&source).unwrap();
            let told = (part.content.as_deref(), part.name.as_deref(), part.content_url);
            assert_eq!(told, (Some("words"), Some("two words.md"), None), "{source}");
        }
    }

    #[test]
    fn an_unreadable_file_is_a_usage_error() {
        let elsewhere = ["ftp://example.com/a", "file://elsewhere.example.com/etc/hosts"];
        for source in
            ["/nonexistent/file", "file:///nonexistent/file", "/"].iter().chain(&elsewhere)
        {
            assert_eq!(
                part(source).unwrap_err().exit,
                crate::terminal::exit::ExitStatus::Usage,
                "{source}"
            );
        }
    }
}
