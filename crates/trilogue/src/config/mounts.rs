//! The paths of the protocols.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trilogue_domain::error::Result;
use trilogue_domain::{AgentName, Code, Error};
use trilogue_gateway as gateway;

use super::Options;

/// The path and the options of a protocol.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    /// `communication` (Agent Communication Protocol), `connect` (Agent Connect Protocol) or `client` (Agent Client Protocol).
    pub protocol: Protocol,
    /// The prefix of the protocol's paths, such as `/communication`, or `/` for none. Not set: `/` and the protocol's name.
    #[serde(default)]
    pub prefix: Option<String>,
    /// `communication` only: enforce the protocol's documents also where the official clients do not keep to them, for messages of clients and of agents.
    #[serde(default)]
    pub strict: bool,
    /// `connect` only: also do what the protocol's document says where the official client cannot read it. A stream begins with its run, and clients do not see a thread's state that no descriptor declares.
    #[serde(default)]
    pub as_documented: bool,
    /// `connect` only: the body of an error. `object` has code, number, description and details. `string` is the description alone, as in version 0.2.3 of the OpenAPI document.
    #[serde(default)]
    pub error_body: ErrorBody,
    /// `client` only: the agent that clients reach at the prefix itself, for clients that append nothing to an address such as `/acp`. They reach the other agents at the prefix, `/` and the agent's name.
    #[serde(default)]
    pub agent: Option<String>,
    /// `communication` and `connect` only: refuse an answer to a permission request without its interrupt id. Clients that share a token then cannot answer each other's questions by mistake.
    #[serde(default)]
    pub require_interrupt_id: bool,
    /// Whether the server serves this entry. If a protocol has entries and none is enabled, the server does not serve it.
    #[serde(default = "default_true")]
    pub enabled: bool,
}

/// A protocol that can be mounted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// The Agent Communication Protocol.
    Communication,
    /// The Agent Connect Protocol.
    Connect,
    /// The Agent Client Protocol.
    Client,
}

/// The body of an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ErrorBody {
    /// An object.
    #[default]
    Object,
    /// The description alone.
    String,
}

fn default_true() -> bool {
    true
}

// === impl Protocol ===

impl Protocol {
    const ALL: [Self; 3] = [Self::Communication, Self::Connect, Self::Client];

    /// Its name in configuration and on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Communication => gateway::CommunicationOptions::NAME,
            Self::Connect => gateway::ConnectOptions::NAME,
            Self::Client => gateway::ClientProtocol::NAME,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Protocol {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|protocol| protocol.as_str() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::as_str).join(", ");
            let text = text.escape_debug();
            Error::new(Code::InvalidRequest, format!("unknown protocol '{text}'"))
                .hint(format!("the protocols: {names}"))
        })
    }
}

// === impl Mount ===

impl Mount {
    /// A protocol at its default path.
    #[must_use]
    pub fn of(protocol: Protocol) -> Self {
        Self {
            protocol,
            prefix: None,
            strict: false,
            as_documented: false,
            error_body: ErrorBody::Object,
            agent: None,
            require_interrupt_id: false,
            enabled: true,
        }
    }

    /// Refuses settings of another protocol.
    fn check(&self) -> Result<()> {
        let settings = [
            (self.strict, "strict", &[Protocol::Communication][..]),
            (self.as_documented, "as_documented", &[Protocol::Connect]),
            (self.error_body != ErrorBody::Object, "error_body", &[Protocol::Connect]),
            (self.agent.is_some(), "agent", &[Protocol::Client]),
            (
                self.require_interrupt_id,
                "require_interrupt_id",
                &[Protocol::Communication, Protocol::Connect],
            ),
        ];
        let foreign =
            settings.iter().find(|(is_set, _, of)| *is_set && !of.contains(&self.protocol));
        let Some((_, key, of)) = foreign else { return Ok(()) };
        let of: Vec<_> = of.iter().map(|protocol| format!("\"{protocol}\"")).collect();
        let message = format!(
            "the mount {self} has the setting `{key}`, which is for protocol = {}",
            of.join(" or ")
        );
        Err(Error::new(Code::InvalidRequest, message)
            .hint("remove it from this entry of [[mounts]]"))
    }

    /// # Errors
    /// `invalid_request` if the prefix cannot begin a path, or if a setting belongs to another protocol.
    fn to_gateway(&self, client: &gateway::ClientOptions) -> Result<gateway::Mount> {
        self.check()?;
        let prefix = self.prefix.clone().unwrap_or_else(|| format!("/{}", self.protocol));
        let require_interrupt_id = self.require_interrupt_id;
        match self.protocol {
            Protocol::Communication => {
                let strict = self.strict;
                let options = gateway::CommunicationOptions { strict, require_interrupt_id };
                gateway::Mount::new(options, &prefix)
            }
            Protocol::Connect => {
                let options = gateway::ConnectOptions {
                    as_documented: self.as_documented,
                    error_body: match self.error_body {
                        ErrorBody::Object => gateway::ErrorBody::Object,
                        ErrorBody::String => gateway::ErrorBody::String,
                    },
                    require_interrupt_id,
                };
                gateway::Mount::new(options, &prefix)
            }
            Protocol::Client => {
                let agent = self.agent.as_deref().map(AgentName::parse).transpose()?;
                let protocol = gateway::ClientProtocol::for_network(client.clone(), agent);
                gateway::Mount::new(protocol, &prefix)
            }
        }
    }

    /// What its paths begin with: nothing for the root, else such as `/communication`, without a slash at its end.
    #[must_use]
    pub fn path(&self) -> String {
        let prefix = self.prefix.clone().unwrap_or_else(|| format!("/{}", self.protocol));
        prefix.strip_suffix('/').map(str::to_owned).unwrap_or(prefix)
    }
}

/// Parses `PROTOCOL=PREFIX`, the form of the command line.
impl FromStr for Mount {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let Some((name, prefix)) = text.split_once('=') else {
            return Err(Error::new(
                Code::InvalidRequest,
                format!("invalid mount '{}': the prefix is missing", text.escape_debug()),
            )
            .hint("write PROTOCOL=PREFIX, such as communication=/"));
        };
        let mount = Self { prefix: Some(prefix.to_owned()), ..Self::of(name.parse()?) };
        mount.to_gateway(&gateway::ClientOptions::default()).map(|_| mount)
    }
}

/// Writes the form of the command line.
impl fmt::Display for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = self.protocol;
        match &self.prefix {
            Some(prefix) => write!(f, "{protocol}={prefix}"),
            None => write!(f, "{protocol}=/{protocol}"),
        }
    }
}

// === impl Options ===

impl Options {
    /// Replaces the mounts of each protocol in `mounts`. The options of the protocol's first entry stay.
    pub fn mount_instead(&mut self, mounts: &[Mount]) {
        let before = std::mem::take(&mut self.mounts);
        let replaced = |protocol| mounts.iter().any(|mount| mount.protocol == protocol);
        self.mounts.extend(before.iter().filter(|it| !replaced(it.protocol)).cloned());
        self.mounts.extend(mounts.iter().map(|mount| {
            let first = before.iter().find(|it| it.protocol == mount.protocol);
            Mount {
                strict: mount.strict || first.is_some_and(|it| it.strict),
                require_interrupt_id: mount.require_interrupt_id
                    || first.is_some_and(|it| it.require_interrupt_id),
                as_documented: mount.as_documented || first.is_some_and(|it| it.as_documented),
                error_body: first.map_or(mount.error_body, |it| it.error_body),
                agent: mount.agent.clone().or_else(|| first?.agent.clone()),
                ..mount.clone()
            }
        }));
    }

    /// Makes every mount that has the setting `strict` strict, and clients of the Agent Client Protocol.
    pub fn enforce_documents(&mut self) {
        self.set_mounts(Protocol::Communication, |mount| mount.strict = true);
        self.client.strict = true;
    }

    /// Lets every mount of the Agent Connect Protocol answer in the shapes of the protocol's document.
    pub fn connect_as_documented(&mut self) {
        self.set_mounts(Protocol::Connect, |mount| mount.as_documented = true);
    }

    /// Changes every mount of a protocol; one without an entry gets one.
    fn set_mounts(&mut self, protocol: Protocol, set: impl Fn(&mut Mount)) {
        let is_meant = |mount: &Mount| mount.protocol == protocol;
        if !self.mounts.iter().any(is_meant) {
            self.mounts.push(Mount::of(protocol));
        }
        self.mounts.iter_mut().filter(|mount| is_meant(mount)).for_each(set);
    }

    /// The active mounts: the enabled ones, and the default mount of each protocol without an entry.
    ///
    /// # Errors
    /// `invalid_request` for an invalid prefix or one that hides the server's own routes, `already_exists` if two mounts share a prefix.
    pub fn mounts_in_force(&self) -> Result<Vec<Mount>> {
        let unnamed = |protocol: &Protocol| !self.mounts.iter().any(|it| it.protocol == *protocol);
        let defaults = Protocol::ALL.into_iter().filter(unnamed).map(Mount::of);
        let named = self.mounts.iter().filter(|mount| mount.enabled).cloned();
        let mounts: Vec<_> = named.chain(defaults).collect();
        gateway::check_mounts(&to_gateway(&mounts, &self.client.to_options())?)?;
        Ok(mounts)
    }
}

/// The mounts as the gateway takes them.
pub(crate) fn to_gateway(
    mounts: &[Mount],
    client: &gateway::ClientOptions,
) -> Result<Vec<gateway::Mount>> {
    mounts.iter().map(|mount| mount.to_gateway(client)).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn options(text: &str) -> Options {
        super::super::parse(Path::new("t.toml"), text).unwrap().options
    }

    fn mount_lines(options: &Options) -> Vec<String> {
        let mounts = options.mounts_in_force().unwrap();
        mounts.iter().map(|mount| format!("{mount} {}", mount.strict)).collect()
    }

    fn refusal_text(text: &str) -> String {
        options(text).mounts_in_force().unwrap_err().to_string()
    }

    #[test]
    fn a_protocol_is_mounted_by_its_name_unless_it_is_listed() {
        let connect = "connect=/connect false";
        let client = "client=/client false";
        assert_eq!(
            mount_lines(&options("")),
            ["communication=/communication false", connect, client]
        );
        assert_eq!(
            mount_lines(&options("[[mounts]]\nprotocol = \"communication\"\nstrict = true\n")),
            ["communication=/communication true", connect, client]
        );
        assert_eq!(
            mount_lines(&options(
                "[[mounts]]\nprotocol = \"communication\"\nprefix = \"/\"\n[[mounts]]\nprotocol = \"communication\"\nprefix = \"/acp/v0\"\nstrict = true\n"
            )),
            ["communication=/ false", "communication=/acp/v0 true", connect, client]
        );
        assert_eq!(
            mount_lines(&options("[[mounts]]\nprotocol = \"communication\"\nenabled = false\n")),
            [connect, client]
        );
    }

    #[test]
    fn mounts_that_collide_are_refused_by_name() {
        let one = "[[mounts]]\nprotocol = \"communication\"\nprefix = \"/a\"\n";
        assert_eq!(
            refusal_text(&format!("{one}{one}")),
            "the mounts communication=/a and communication=/a have one prefix"
        );
        assert!(
            refusal_text(&one.replace("/a", "/api/v1/runs")).contains("the server's own routes")
        );
        assert!(refusal_text(&one.replace("/a", "a b")).contains("invalid mount prefix 'a b'"));
    }

    #[test]
    fn each_protocol_has_settings_of_its_own() {
        let connect =
            "[[mounts]]\nprotocol = \"connect\"\nas_documented = true\nerror_body = \"string\"\n";
        let mounts = options(connect).mounts_in_force().unwrap();
        let served = to_gateway(&mounts, &gateway::ClientOptions::default()).unwrap();
        let options = gateway::ConnectOptions {
            as_documented: true,
            error_body: gateway::ErrorBody::String,
            require_interrupt_id: false,
        };
        assert_eq!(format!("{:?}", served[0].protocol()), format!("{options:?}"));
        let options = gateway::CommunicationOptions::default();
        assert_eq!(format!("{:?}", served[1].protocol()), format!("{options:?}"));
        assert!(
            refusal_text(&connect.replace("connect", "communication")).contains("`as_documented`")
        );
        let client = "[[mounts]]\nprotocol = \"client\"\nprefix = \"/acp\"\nagent = \"echo\"\n";
        let mounts = self::options(client).mounts_in_force().unwrap();
        let served = to_gateway(&mounts, &gateway::ClientOptions::default()).unwrap();
        assert!(format!("{:?}", served[0].protocol()).contains("echo"));
        assert!(refusal_text(&client.replace("\"client\"", "\"connect\"")).contains("`agent`"));
        let strict = "[[mounts]]\nprotocol = \"connect\"\nstrict = true\n";
        assert_eq!(
            refusal_text(strict),
            "the mount connect=/connect has the setting `strict`, which is for protocol = \"communication\""
        );
    }

    #[test]
    fn the_command_line_makes_every_mount_strict_that_can_be() {
        let mut two = options("[[mounts]]\nprotocol = \"communication\"\nenabled = false\n");
        for options in [&mut options(""), &mut two] {
            options.enforce_documents();
            assert!(options.client.strict);
            assert!(options.mounts.iter().all(|mount| mount.strict));
            assert!(mount_lines(options).contains(&"connect=/connect false".to_owned()));
        }
        assert_eq!(mount_lines(&two), ["connect=/connect false", "client=/client false"]);
    }

    #[test]
    fn every_connect_mount_can_be_served_as_documented() {
        for text in ["", "[[mounts]]\nprotocol = \"connect\"\nprefix = \"/a\"\n"] {
            let mut options = options(text);
            options.connect_as_documented();
            let mounts = options.mounts_in_force().unwrap();
            let documented = mounts.iter().filter(|it| it.as_documented).map(|it| it.protocol);
            assert_eq!(documented.collect::<Vec<_>>(), [Protocol::Connect], "{text}");
            assert_eq!(mounts.len(), 3, "{text}");
        }
    }

    #[test]
    fn the_command_line_moves_a_protocol_and_keeps_its_strictness() {
        let mut options = options("[[mounts]]\nprotocol = \"communication\"\nstrict = true\n");
        options.mount_instead(&["communication=/".parse().unwrap()]);
        assert_eq!(
            mount_lines(&options),
            ["communication=/ true", "connect=/connect false", "client=/client false"]
        );
        options.mount_instead(&["connect=/acp".parse().unwrap()]);
        assert_eq!(
            mount_lines(&options),
            ["communication=/ true", "connect=/acp false", "client=/client false"]
        );
        for (bad, why) in [
            ("communication", "invalid mount 'communication'"),
            ("communicaton=/", "unknown protocol 'communicaton'"),
            ("communication=x", "invalid mount prefix 'x'"),
        ] {
            let error = bad.parse::<Mount>().unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
