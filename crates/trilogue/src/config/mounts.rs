//! Where the protocols are served.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error};
use trilogue_gateway as gateway;

use super::Options;

/// Where a protocol is served, and how.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    /// Which protocol: `communication` is the Agent Communication Protocol.
    pub protocol: Protocol,
    /// What its paths begin with, such as `/communication`; `/` for none. Not set: `/` and the protocol's name.
    #[serde(default)]
    pub prefix: Option<String>,
    /// Enforce the protocol's documents literally, on what clients send and on what agents say. Otherwise everything is accepted that the protocol's own clients and servers accept.
    #[serde(default)]
    pub strict: bool,
    /// Refuse an answer to a permission that does not name its interrupt: clients that share a token cannot answer for each other by mistake.
    #[serde(default)]
    pub require_interrupt_id: bool,
    /// Whether it is served. A protocol that has entries here and none that is enabled is not served at all.
    #[serde(default = "yes")]
    pub enabled: bool,
}

/// A protocol that can be mounted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// The Agent Communication Protocol.
    Communication,
}

fn yes() -> bool {
    true
}

// === impl Protocol ===

impl Protocol {
    const ALL: [Self; 1] = [Self::Communication];

    fn to_gateway(self) -> gateway::Protocol {
        match self {
            Self::Communication => gateway::Protocol::Communication,
        }
    }
}

// === impl Mount ===

impl Mount {
    /// The protocol where it is served by default.
    #[must_use]
    pub fn of(protocol: Protocol) -> Self {
        Self { protocol, prefix: None, strict: false, require_interrupt_id: false, enabled: true }
    }

    /// # Errors
    /// `invalid_request` where the prefix cannot begin a path.
    fn to_gateway(&self) -> Result<gateway::Mount> {
        let protocol = self.protocol.to_gateway();
        let default = || format!("/{protocol}");
        let prefix = self.prefix.clone().unwrap_or_else(default);
        Ok(gateway::Mount {
            strict: self.strict,
            require_interrupt_id: self.require_interrupt_id,
            ..gateway::Mount::new(protocol, &prefix)?
        })
    }
}

/// Reads `PROTOCOL=PREFIX`, as the command line has it.
impl FromStr for Mount {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let Some((name, prefix)) = text.split_once('=') else {
            return Err(Error::new(
                Code::InvalidRequest,
                format!("'{}' names no protocol with a prefix", text.escape_debug()),
            )
            .hint("write PROTOCOL=PREFIX, such as communication=/"));
        };
        let named: gateway::Protocol = name.parse()?;
        let protocol = Protocol::ALL.into_iter().find(|it| it.to_gateway() == named);
        let protocol = protocol.ok_or_else(|| {
            Error::new(Code::InvalidRequest, format!("the protocol '{named}' is not mounted here"))
        })?;
        let mount = Self { prefix: Some(prefix.to_owned()), ..Self::of(protocol) };
        mount.to_gateway().map(|_| mount)
    }
}

/// As the command line has it.
impl fmt::Display for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = self.protocol.to_gateway();
        match &self.prefix {
            Some(prefix) => write!(f, "{protocol}={prefix}"),
            None => write!(f, "{protocol}=/{protocol}"),
        }
    }
}

// === impl Options ===

impl Options {
    /// Serves protocols at these places instead: a protocol that is among them loses its others. Its strictness stays what its first entry says.
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
                ..mount.clone()
            }
        }));
    }

    /// The mounts that are in force: the enabled ones, and the default one of each protocol that has no entry.
    ///
    /// # Errors
    /// `invalid_request` for a prefix that is none or hides the server's own routes, `already_exists` where two mounts have one.
    pub fn mounts_in_force(&self) -> Result<Vec<gateway::Mount>> {
        let unnamed = |protocol: &Protocol| !self.mounts.iter().any(|it| it.protocol == *protocol);
        let defaults = Protocol::ALL.into_iter().filter(unnamed).map(Mount::of);
        let named = self.mounts.iter().filter(|mount| mount.enabled).cloned();
        let mounts: Result<Vec<_>> =
            named.chain(defaults).map(|mount| mount.to_gateway()).collect();
        let mounts = mounts?;
        gateway::check_mounts(&mounts)?;
        Ok(mounts)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn options(text: &str) -> Options {
        super::super::parse(Path::new("t.toml"), text).unwrap().options
    }

    fn shown(options: &Options) -> Vec<String> {
        let mounts = options.mounts_in_force().unwrap();
        mounts.iter().map(|mount| format!("{mount} {}", mount.strict)).collect()
    }

    fn refused(text: &str) -> String {
        options(text).mounts_in_force().unwrap_err().to_string()
    }

    #[test]
    fn a_protocol_is_mounted_by_its_name_unless_it_is_listed() {
        assert_eq!(shown(&options("")), ["communication=/communication false"]);
        assert_eq!(
            shown(&options("[[mounts]]\nprotocol = \"communication\"\nstrict = true\n")),
            ["communication=/communication true"]
        );
        assert_eq!(
            shown(&options(
                "[[mounts]]\nprotocol = \"communication\"\nprefix = \"/\"\n[[mounts]]\nprotocol = \"communication\"\nprefix = \"/acp/v0\"\nstrict = true\n"
            )),
            ["communication=/ false", "communication=/acp/v0 true"]
        );
        assert_eq!(
            shown(&options("[[mounts]]\nprotocol = \"communication\"\nenabled = false\n")),
            Vec::<String>::new()
        );
    }

    #[test]
    fn mounts_that_collide_are_refused_by_name() {
        let one = "[[mounts]]\nprotocol = \"communication\"\nprefix = \"/a\"\n";
        assert_eq!(
            refused(&format!("{one}{one}")),
            "the mounts communication=/a and communication=/a have one prefix"
        );
        assert!(refused(&one.replace("/a", "/api/v1/runs")).contains("the server's own routes"));
        assert!(refused(&one.replace("/a", "a b")).contains("'a b' is no prefix"));
    }

    #[test]
    fn the_command_line_moves_a_protocol_and_keeps_its_strictness() {
        let mut options = options("[[mounts]]\nprotocol = \"communication\"\nstrict = true\n");
        options.mount_instead(&["communication=/".parse().unwrap()]);
        assert_eq!(shown(&options), ["communication=/ true"]);
        for (bad, why) in [
            ("communication", "names no protocol with a prefix"),
            ("communicaton=/", "there is no protocol 'communicaton'"),
            ("communication=x", "'x' is no prefix"),
        ] {
            let error = bad.parse::<Mount>().unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
