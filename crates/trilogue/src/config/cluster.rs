//! The server among others that share its store.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error};
use trilogue_store::NodeOptions;

use super::{Span, check_secret_text, secret_text};

/// The longest name of a node, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// The server among others that share a store in PostgreSQL. See [`super::Options::cluster`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Cluster {
    /// The name of this server: each that shares the store has another. Letters, digits, `_`, `-` and `.`.
    pub name: String,
    /// Where the other servers reach this one, such as `https://10.0.0.5`; `http://` is for this machine. Not set: its first listener. Required for a store in PostgreSQL if that listens at all addresses, such as `0.0.0.0`.
    pub address: Option<String>,
    /// How often the server gives a sign of life.
    pub heartbeat: Span,
    /// After this long without a sign of life, the others take over its threads. Time in which no server reaches the database does not count.
    pub dead_after: Span,
    /// How often the server looks whether others have continued a thread that a client reads here. A stream here is at most this much later than at the thread's own server.
    pub poll: Span,
    /// The NATS server by which the servers tell each other of news at once, such as `tls://nats.example.com:4222`; `nats://` is for this machine. Not set, or while it is down, they look every `poll`: nothing is lost.
    pub nats: Option<String>,
    /// The environment variable with the address of the NATS server, where it holds a password.
    pub nats_env: Option<String>,
    /// The file with the address of the NATS server, in place of `nats_env`.
    pub nats_file: Option<String>,
    /// Allows `nats://` to another machine. The network then shows the password of NATS, and when something happens. Events stay unreadable: the servers encrypt them.
    pub dangerously_plain_nats: bool,
    /// Allows an `http://` address that other machines reach. The network can then read and change requests that servers send on to this one, with their tokens, and the responses.
    pub dangerously_plain_http: bool,
}

// === impl Cluster ===

impl Cluster {
    /// What the store knows the server by; `first` is its first listener.
    ///
    /// # Errors
    /// `invalid_request` for a name, address or time that cannot be.
    pub fn to_node(&self, first: Option<&SocketAddr>) -> Result<NodeOptions> {
        self.check()?;
        let address = match (&self.address, first) {
            (Some(address), _) => address.trim_end_matches('/').to_owned(),
            (None, Some(first)) if first.ip().is_unspecified() => {
                format!("http://localhost:{}", first.port())
            }
            (None, Some(first)) => format!("http://{first}"),
            (None, None) => "http://localhost".to_owned(),
        };
        self.check_address(&address)?;
        let news = match secret_text("cluster.nats", &self.nats_env, &self.nats_file)? {
            Some(url) => Some(url),
            None => self.nats.clone(),
        };
        if let Some(url) = &news {
            self.check_encryption(url)?;
        }
        Ok(NodeOptions {
            name: self.name.clone(),
            address,
            heartbeat: self.heartbeat.0,
            dead_after: self.dead_after.0,
            poll: self.poll.0,
            news,
        })
    }

    /// Refuses a first listener from which the others cannot tell where this server is: at all addresses, each of them would find itself there.
    ///
    /// # Errors
    /// `invalid_request`.
    pub fn check_listener(&self, first: Option<&SocketAddr>) -> Result<()> {
        match first {
            Some(first) if self.address.is_none() && first.ip().is_unspecified() => {
                let message = format!(
                    "`cluster.address` is missing: the listener {first} does not say where the other servers reach this one"
                );
                let hint = "set `cluster.address` to the address of this server, such as \"https://10.0.0.5\"; a server that is alone can use its own, such as \"http://localhost:7878\"";
                Err(Error::new(Code::InvalidRequest, message).hint(hint))
            }
            _ => Ok(()),
        }
    }

    /// The host by which the other servers name this one.
    pub(crate) fn host(&self) -> Option<String> {
        let address = url::Url::parse(self.address.as_deref()?).ok()?;
        address.host_str().map(str::to_owned)
    }

    /// Refuses a connection to another machine that is not encrypted. The address may hold a password, and is not shown.
    fn check_encryption(&self, nats: &str) -> Result<()> {
        let is_safe = url::Url::parse(nats).is_ok_and(|url| {
            url.scheme() == "tls" || matches!(url.scheme(), "nats") && is_local(&url)
        });
        if is_safe || self.dangerously_plain_nats {
            return Ok(());
        }
        let message =
            "`cluster.nats`: it is on another machine, and the connection to it is not encrypted";
        Err(Error::new(Code::InvalidRequest, message).hint(
            "write it as tls://HOST:4222, or accept the risk with `cluster.dangerously_plain_nats = true`",
        ))
    }

    /// Refuses an address at which other machines would send requests with their tokens unencrypted.
    fn check_address(&self, address: &str) -> Result<()> {
        let is_safe =
            url::Url::parse(address).is_ok_and(|url| url.scheme() == "https" || is_local(&url));
        if is_safe || self.dangerously_plain_http {
            return Ok(());
        }
        let message = format!(
            "`cluster.address`: the other servers would send requests with tokens to {address}, and the connection is not encrypted"
        );
        Err(Error::new(Code::InvalidRequest, message).hint(
            "put a TLS proxy in front and write it as https://HOST, or accept the risk with `cluster.dangerously_plain_http = true`",
        ))
    }

    /// Checks the settings by themselves. Fails as [`Self::to_node`].
    pub fn check(&self) -> Result<()> {
        let wrong = |key: &str, why: String, hint: &'static str| {
            let message = format!("`cluster.{key}`: {why}");
            Err(Error::new(Code::InvalidRequest, message).hint(hint))
        };
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
        if self.name.is_empty()
            || self.name.len() > MAX_NAME_BYTES
            || !self.name.chars().all(is_plain)
        {
            let why = format!("'{}' is not a name", self.name.escape_debug());
            return wrong("name", why, "use 1 to 64 letters, digits, '_', '-' and '.'");
        }
        if let Some(address) = &self.address
            && !url::Url::parse(address).is_ok_and(|url| {
                matches!(url.scheme(), "http" | "https") && url.has_host() && url.path() == "/"
            })
        {
            let why = format!("'{}' is not the address of a server", address.escape_debug());
            return wrong("address", why, "write it such as \"https://10.0.0.5\"");
        }
        if let Some(address) = &self.address {
            self.check_address(address)?;
        }
        if let Some(nats) = &self.nats
            && !url::Url::parse(nats).is_ok_and(|url| {
                matches!(url.scheme(), "nats" | "tls") && url.has_host() && url.password().is_none()
            })
        {
            let why = "it is not the address of a NATS server without a password".to_owned();
            let hint = "write it such as \"nats://10.0.0.9:4222\"; one with a password belongs in `nats_env` or `nats_file`";
            return wrong("nats", why, hint);
        }
        if let Some(nats) = &self.nats {
            self.check_encryption(nats)?;
        }
        check_secret_text("cluster.nats", &self.nats_env, &self.nats_file)?;
        if self.heartbeat.0.is_zero() || self.poll.0.is_zero() {
            return wrong("heartbeat", "zero is not a time".to_owned(), "leave it out for 1s");
        }
        if self.dead_after.0 < self.heartbeat.0 * 3 {
            let why = "a server that is late once counts as dead".to_owned();
            return wrong("dead_after", why, "set it to at least three times `cluster.heartbeat`");
        }
        Ok(())
    }
}

/// Whether a server is on this machine.
#[must_use]
pub fn is_local(server: &url::Url) -> bool {
    match server.host() {
        // Of a scheme that the library does not know, an address is a name.
        Some(url::Host::Domain(name)) => {
            name == "localhost" || name.parse().is_ok_and(|it: IpAddr| it.is_loopback())
        }
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            name: "main".to_owned(),
            address: None,
            heartbeat: Span(Duration::from_secs(1)),
            dead_after: Span(Duration::from_secs(4)),
            poll: Span(Duration::from_secs(1)),
            nats: None,
            nats_env: None,
            nats_file: None,
            dangerously_plain_nats: false,
            dangerously_plain_http: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_found_at_its_address_or_its_first_listener() {
        let first: SocketAddr = "0.0.0.0:7878".parse().unwrap();
        let cluster = Cluster::default();
        assert_eq!(cluster.to_node(Some(&first)).unwrap().address, "http://localhost:7878");
        // Two such servers would each find themselves at the address of the other.
        let refused = cluster.check_listener(Some(&first)).unwrap_err();
        assert!(refused.message().starts_with("`cluster.address` is missing"), "{refused}");
        assert!(cluster.check_listener(Some(&"127.0.0.1:7878".parse().unwrap())).is_ok());
        let address = Some("https://10.0.0.5:7878/".to_owned());
        let cluster = Cluster { address, ..Cluster::default() };
        assert!(cluster.check_listener(Some(&first)).is_ok());
        assert_eq!(cluster.to_node(Some(&first)).unwrap().address, "https://10.0.0.5:7878");
        assert_eq!(cluster.host().as_deref(), Some("10.0.0.5"));
    }

    #[test]
    fn plain_nats_beyond_loopback_needs_a_setting() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("nats");
        for (url, is_safe) in [
            ("nats://127.0.0.1:4222", true),
            ("nats://[::1]:4222", true),
            ("nats://localhost", true),
            ("tls://nats.example.com", true),
            ("tls://me:secret@10.0.0.9:4222", true),
            ("nats://10.0.0.9:4222", false),
            ("nats://me:secret@nats.example.com", false),
            ("10.0.0.9:4222", false),
            ("nats://127.0.0.1.example.com", false),
        ] {
            std::fs::write(&file, url).unwrap();
            let nats_file = Some(file.to_str().unwrap().to_owned());
            let cluster = Cluster { nats_file, ..Cluster::default() };
            let node = cluster.to_node(None);
            assert_eq!(node.is_ok(), is_safe, "{url}");
            if let Err(error) = node {
                assert!(error.hint_text().unwrap().contains("`cluster.dangerously_plain_nats"));
                assert!(!error.to_string().contains("secret"), "{error}");
            }
            let allowed = Cluster { dangerously_plain_nats: true, ..cluster };
            assert_eq!(allowed.to_node(None).unwrap().news.as_deref(), Some(url));
        }
    }

    #[test]
    fn a_plain_address_beyond_loopback_needs_a_setting() {
        for (address, is_safe) in [
            ("http://127.0.0.1:7878", true),
            ("http://[::1]:7878", true),
            ("http://localhost:7878/", true),
            ("https://10.0.0.5", true),
            ("http://10.0.0.5:7878", false),
            ("http://node.example.com", false),
            ("http://localhost.example.com", false),
        ] {
            let cluster = Cluster { address: Some(address.to_owned()), ..Cluster::default() };
            for refused in [cluster.check().err(), cluster.to_node(None).err()] {
                assert_eq!(refused.is_none(), is_safe, "{address}");
                let hint = refused.and_then(|error| error.hint_text().map(str::to_owned));
                assert!(hint.is_none_or(|hint| hint.contains("`cluster.dangerously_plain_http")));
            }
            let allowed = Cluster { dangerously_plain_http: true, ..cluster };
            allowed.check().unwrap();
            assert!(allowed.to_node(None).unwrap().address.starts_with("http"));
        }
        // The first listener is the address if none is set.
        let first: SocketAddr = "10.0.0.5:7878".parse().unwrap();
        assert!(Cluster::default().to_node(Some(&first)).is_err());
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let usual = Cluster::default;
        for (key, cluster) in [
            ("name", Cluster { name: String::new(), ..usual() }),
            ("name", Cluster { name: "a b".to_owned(), ..usual() }),
            ("address", Cluster { address: Some("10.0.0.5:7878".to_owned()), ..usual() }),
            ("address", Cluster { address: Some("http://10.0.0.5".to_owned()), ..usual() }),
            ("address", Cluster { address: Some("http://a/path".to_owned()), ..usual() }),
            ("nats", Cluster { nats: Some("nats://me:secret@a".to_owned()), ..usual() }),
            ("nats", Cluster { nats: Some("nats://10.0.0.9".to_owned()), ..usual() }),
            ("heartbeat", Cluster { heartbeat: Span(Duration::ZERO), ..usual() }),
            ("dead_after", Cluster { dead_after: Span(Duration::from_secs(1)), ..usual() }),
        ] {
            let error = cluster.check().unwrap_err();
            assert!(error.message().starts_with(&format!("`cluster.{key}`")), "{error}");
        }
    }
}
