//! Descriptors that the configuration names: read at the start, from files and from https addresses.
//!
//! Of an address the last copy that could be read is kept in the per-user state folder; it serves while the address does not.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, Json};
use trilogue_egress::Policy;
use url::Url;

use crate::config;
use crate::local::download::{DownloadLimits, copy_of, download, keep};

const MAX_BYTES: u64 = 1024 * 1024;
const LIMITS: DownloadLimits =
    DownloadLimits { max_bytes: MAX_BYTES, time: Duration::from_secs(20) };
/// The folder of the copies in the state folder.
const COPIES: &str = "descriptors";

/// Descriptors by the names under which their agents are served.
pub(crate) type Descriptors = HashMap<String, Json>;

#[derive(Debug)]
enum DescriptorSource {
    File(PathBuf),
    Address(Url),
}

/// The descriptors that lie in files.
pub(crate) fn of_files(options: &config::Options) -> Result<Descriptors> {
    let mut descriptors = Descriptors::new();
    for (name, source) in sources(options)? {
        if let DescriptorSource::File(path) = source {
            descriptors.insert(name.to_owned(), read_file(name, &path)?);
        }
    }
    Ok(descriptors)
}

/// Loads all descriptors, also those at addresses; `state` is the folder of their copies.
pub(crate) async fn load(
    options: &config::Options,
    policy: &Policy,
    state: Option<&Path>,
) -> Result<Descriptors> {
    let mut descriptors = of_files(options)?;
    for (name, source) in sources(options)? {
        if let DescriptorSource::Address(address) = source {
            let copy = state.map(|state| copy_of(state, COPIES, &address));
            let read = read_address(name, &address, policy, copy.as_deref()).await?;
            descriptors.insert(name.to_owned(), read);
        }
    }
    Ok(descriptors)
}

fn sources(options: &config::Options) -> Result<Vec<(&str, DescriptorSource)>> {
    let named = options.agents.iter().filter_map(|(name, agent)| {
        let text = agent.descriptor.as_deref()?;
        Some(source(name, text).map(|source| (name.as_str(), source)))
    });
    named.collect()
}

fn source(name: &str, text: &str) -> Result<DescriptorSource> {
    match Url::parse(text) {
        Ok(url) if url.scheme() == "https" && url.has_host() => Ok(DescriptorSource::Address(url)),
        Ok(url) if text.contains("://") => Err(descriptor_error(
            name,
            &format!("names an address with '{}'", url.scheme().escape_debug()),
        )
        .hint("write the path of a file, or an address that begins with https://")),
        _ => Ok(DescriptorSource::File(PathBuf::from(text))),
    }
}

fn descriptor_error(name: &str, why: &str) -> Error {
    Error::new(Code::InvalidRequest, format!("`agents.{name}.descriptor` {why}"))
}

fn read_file(name: &str, path: &Path) -> Result<Json> {
    let shown = path.display();
    let unread = |why: String| descriptor_error(name, &format!("'{shown}' cannot be read: {why}"));
    let length = std::fs::metadata(path).map_err(|error| unread(error.to_string()))?.len();
    if length > MAX_BYTES {
        return Err(unread(format!("it has {length} bytes, at most {MAX_BYTES} fit")));
    }
    let bytes = std::fs::read(path).map_err(|error| unread(error.to_string()))?;
    Json::parse(bytes).map_err(|error| unread(format!("invalid JSON: {}", error.message())))
}

async fn read_address(
    name: &str,
    address: &Url,
    policy: &Policy,
    copy: Option<&Path>,
) -> Result<Json> {
    let why = match fetch(address, policy).await {
        Ok(json) => {
            if let Some(copy) = copy
                && let Err(error) = keep(copy, json.as_bytes())
            {
                tracing::warn!(agent = name, %error, "no copy of the descriptor can be kept");
            }
            return Ok(json);
        }
        Err(why) => why,
    };
    // An address that this server must not read is not read from a copy either.
    if why.code() != Code::EgressRefused
        && let Some(copy) = copy.filter(|copy| copy.exists())
    {
        tracing::warn!(agent = name, error = %why, "the descriptor's last copy is used: its address cannot be read");
        return read_file(name, copy);
    }
    let host = address.host_str().unwrap_or_default();
    let error = descriptor_error(name, &format!("at '{host}' cannot be read: {}", why.message()));
    Err(match why.hint_text() {
        Some(hint) => error.hint(hint.to_owned()),
        None => error.hint("no copy of it is kept yet: try again, or write it into a file"),
    })
}

async fn fetch(address: &Url, policy: &Policy) -> Result<Json> {
    let bytes = download(address, policy, LIMITS).await?;
    Json::parse(bytes).map_err(|_| Error::new(Code::PeerUnavailable, "it sends invalid JSON"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(descriptor: &str) -> config::Options {
        let text = format!("[agents.echo]\nkind = \"builtin\"\ndescriptor = {descriptor:?}\n");
        config::parse(Path::new("t.toml"), &text).unwrap().options
    }

    #[test]
    fn errors_name_the_setting_and_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("echo.json");
        let text = file.display().to_string();
        let error = of_files(&options(&text)).unwrap_err().to_string();
        assert!(error.contains("`agents.echo.descriptor`") && error.contains(&text), "{error}");
        std::fs::write(&file, "{").unwrap();
        assert!(of_files(&options(&text)).unwrap_err().to_string().contains("invalid JSON"));
        std::fs::write(&file, "{\"a\":1}").unwrap();
        assert_eq!(of_files(&options(&text)).unwrap()["echo"].as_str(), "{\"a\":1}");
        let error = of_files(&options("http://example.com/d.json")).unwrap_err();
        assert!(error.hint_text().unwrap().contains("https://"), "{error:?}");
        // An address is not read here.
        assert!(of_files(&options("https://127.0.0.1:1/d.json")).unwrap().is_empty());
    }

    #[tokio::test]
    async fn an_address_that_cannot_be_read_is_served_from_its_copy_unless_it_may_not_be_read() {
        let state = tempfile::tempdir().unwrap();
        let text = "https://localhost:1/d.json";
        let load = async |policy: Policy| load(&options(text), &policy, Some(state.path())).await;
        let error = load(Policy::local()).await.unwrap_err().to_string();
        assert!(error.contains("`agents.echo.descriptor`"), "{error}");
        let copy = copy_of(state.path(), COPIES, &Url::parse(text).unwrap());
        keep(&copy, Json::empty_object().as_bytes()).unwrap();
        assert_eq!(load(Policy::local()).await.unwrap()["echo"], Json::empty_object());
        let refused = load(Policy::default()).await.unwrap_err();
        assert!(refused.hint_text().unwrap().contains("[egress] allow"), "{refused:?}");
    }
}
