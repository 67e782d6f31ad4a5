//! Mounts: where a protocol is served, and how strictly.

use std::fmt;
use std::str::FromStr;

use http::header;
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error};

use crate::access::schemes::Challenge;
use crate::faces::{communication, connect};
use crate::http::problem;
use crate::http::reply::Reply;
use crate::routes::Route;

/// The longest prefix of a mount, in bytes.
const MAX_PREFIX_BYTES: usize = 256;

/// A protocol that the server speaks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Protocol {
    /// The Agent Communication Protocol.
    Communication,
    /// The Agent Connect Protocol.
    Connect,
}

/// Something that a protocol's clients can ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation {
    /// The method.
    pub method: &'static str,
    /// The path behind the mount's prefix, with parameters in braces.
    pub path: &'static str,
    /// Names the operation in metrics and in the log.
    pub name: &'static str,
}

/// Where a protocol is served, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// What is spoken there.
    pub protocol: Protocol,
    /// What every path begins with: nothing for the root, else such as `/communication`, without a slash at its end.
    pub prefix: String,
    /// Whether the protocol's documents are enforced literally, on input and on what agents say.
    pub strict: bool,
    /// Whether an answer to a permission must name its interrupt.
    pub require_interrupt_id: bool,
    /// How the Agent Connect Protocol is spoken; without effect on others.
    pub connect: ConnectOptions,
}

/// How a mount speaks the Agent Connect Protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ConnectOptions {
    /// Whether the member names of the protocol's prose stand beside those of its OpenAPI document, and only what a descriptor declares is streamed.
    pub literal: bool,
    /// Whether a thread's state is kept from clients where no agent of its runs declares one.
    pub hide_undeclared_state: bool,
    /// What the body of an error is.
    pub error_body: ErrorBody,
}

/// What the body of an error is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ErrorBody {
    /// An object: code, number, description, whether trying again can help, details.
    #[default]
    Object,
    /// The description alone, as a JSON string: what version 0.2.3 of the OpenAPI document says.
    String,
}

// === impl Protocol ===

impl Protocol {
    /// Every protocol.
    pub const ALL: [Self; 2] = [Self::Communication, Self::Connect];

    /// Its name in configuration and on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Communication => "communication",
            Self::Connect => "connect",
        }
    }

    /// Everything that its clients can ask for.
    #[must_use]
    pub fn operations(self) -> Vec<Operation> {
        let operation = |route: Route| Operation {
            method: route.verb.as_str(),
            path: route.path,
            name: route.operation,
        };
        self.routes().into_iter().map(operation).collect()
    }

    /// Its part of the route table; paths without a prefix.
    pub(crate) fn routes(self) -> Vec<Route> {
        match self {
            Self::Communication => communication::routes(),
            Self::Connect => connect::routes(),
        }
    }

    /// Whether doubled slashes in a path, and one at its end, are overlooked: clients join a base address and a path as they come.
    pub(crate) fn tidies_paths(self) -> bool {
        self == Self::Connect
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
            Error::new(Code::InvalidRequest, format!("there is no protocol '{text}'"))
                .hint(format!("the protocols: {names}"))
        })
    }
}

// === impl Mount ===

impl Mount {
    /// The protocol at this prefix, in its compatible mode. `/` and nothing are the root.
    ///
    /// # Errors
    /// `invalid_request` where the prefix cannot begin a path.
    pub fn new(protocol: Protocol, prefix: &str) -> Result<Self> {
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        let malformed = || {
            let prefix = prefix.escape_debug();
            Error::new(Code::InvalidRequest, format!("'{prefix}' is no prefix of a mount"))
                .hint("write '/', or segments such as '/communication' or '/acp/v0': letters, digits, '-', '_', '.' and '~'")
        };
        if prefix.len() > MAX_PREFIX_BYTES {
            return Err(malformed());
        }
        if let Some(segments) = prefix.strip_prefix('/') {
            if !segments.split('/').all(is_segment) {
                return Err(malformed());
            }
        } else if !prefix.is_empty() {
            return Err(malformed());
        }
        Ok(Self {
            protocol,
            prefix: prefix.to_owned(),
            strict: false,
            require_interrupt_id: false,
            connect: ConnectOptions::default(),
        })
    }

    /// What follows the prefix, when the path begins with it at the border of a segment.
    pub(crate) fn rest<'a>(&self, path: &'a str) -> Option<&'a str> {
        path.strip_prefix(&self.prefix).filter(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// As it is written on the command line.
impl fmt::Display for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = if self.prefix.is_empty() { "/" } else { &self.prefix };
        write!(f, "{}={prefix}", self.protocol)
    }
}

/// The error as the protocol of this mount says it; as a problem where there is none.
pub(crate) fn respond(mount: Option<&Mount>, error: &Error, request_id: Option<&str>) -> Reply {
    match mount {
        None => problem::respond(error, request_id),
        Some(mount) => match mount.protocol {
            Protocol::Communication => communication::fault::respond(error, request_id),
            Protocol::Connect => connect::fault::respond(Some(mount), error, request_id),
        },
    }
}

/// The refusal of an agent, with what it takes instead.
pub(crate) fn challenge(reply: Reply, mount: Option<&Mount>, challenge: &Challenge) -> Reply {
    let reply =
        challenge.ways.iter().fold(reply.without(&header::WWW_AUTHENTICATE), |reply, way| {
            reply.also(header::WWW_AUTHENTICATE, way.clone())
        });
    match mount {
        Some(mount) if mount.protocol == Protocol::Connect => reply.header_text(
            header::LINK,
            &format!("<{}{}>; rel=\"authentication\"", mount.prefix, challenge.place),
        ),
        _ => reply,
    }
}

fn is_segment(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
    !text.is_empty() && text != "." && text != ".." && text.bytes().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_the_root_or_whole_segments() {
        let of = |text: &str| Mount::new(Protocol::Communication, text).map(|mount| mount.prefix);
        for (text, prefix) in [
            ("", ""),
            ("/", ""),
            ("/communication", "/communication"),
            ("/a/b-c/v0.1/", "/a/b-c/v0.1"),
        ] {
            assert_eq!(of(text).as_deref(), Ok(prefix), "{text}");
        }
        for bad in ["a", "//", "/a//b", "/a b", "/{x}", "/..", "/a/./b", "/a?b", "/%61", "/ä"] {
            assert_eq!(of(bad).map_err(|error| error.code()), Err(Code::InvalidRequest), "{bad}");
        }
    }

    #[test]
    fn a_path_lies_under_a_mount_at_the_border_of_a_segment() {
        let mount = Mount::new(Protocol::Communication, "/a/b").unwrap();
        for (path, rest) in [("/a/b", Some("")), ("/a/b/c", Some("/c")), ("/a/b/", Some("/"))] {
            assert_eq!(mount.rest(path), rest, "{path}");
        }
        for path in ["/a/bc", "/a", "/", "/x/a/b"] {
            assert_eq!(mount.rest(path), None, "{path}");
        }
        let root = Mount::new(Protocol::Communication, "/").unwrap();
        assert_eq!(root.rest("/runs"), Some("/runs"));
    }
}
