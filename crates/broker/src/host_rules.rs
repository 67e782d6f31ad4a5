//! The hosts of a setting.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use url::Host;

/// The most patterns of a list.
pub const MAX_PATTERNS: usize = 256;
/// The longest pattern, in bytes: the longest name, with its port.
const MAX_PATTERN_BYTES: usize = 260;
/// The pattern of everything.
const ALL_HOSTS: &str = "*";
/// Words of the setting, which would be valid names.
const NOT_HOSTS: [&str; 3] = ["ask", "none", "open"];
/// The ports of a pattern without one.
const USUAL_PORTS: [u16; 2] = [443, 80];

/// A host that an agent wants to reach. Names are in small letters, without a dot at the end, and in the form for name servers.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct HostPort {
    /// The name, or an address without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// Patterns of hosts. One that matches is enough.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct HostRules(Vec<HostPattern>);

/// A pattern of hosts: `api.example.com`, `*.example.org` for all names below, an address, each also with `:PORT` or `:*`. Without a port it means 443 and 80. `*` means all hosts and ports.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct HostPattern {
    name: NamePattern,
    ports: PortPattern,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum NamePattern {
    Any,
    Exact(String),
    /// The names that end with this, which begins with a dot.
    Below(String),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum PortPattern {
    Usual,
    One(u16),
    All,
}

/// An invalid pattern, or a list that is too long.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct InvalidPattern(String);

/// Returns a host in the form in which hosts are compared. `None` if it is invalid.
fn normalize(host: &str) -> Option<String> {
    let host = host.strip_suffix('.').unwrap_or(host);
    if let Ok(address) = host.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Some(address.to_canonical().to_string());
    }
    match Host::parse(host).ok()? {
        Host::Domain(name) => Some(name).filter(|name| name.split('.').all(is_label)),
        // Such as `0x7f.1`, which programs take for an address too.
        Host::Ipv4(address) => Some(address.to_string()),
        Host::Ipv6(address) => Some(IpAddr::V6(address).to_canonical().to_string()),
    }
}

/// Whether a part of a name has only the characters of host names: others could mislead the person who is asked.
fn is_label(label: &str) -> bool {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    !label.is_empty() && label.bytes().all(is_of_name)
}

// === impl HostPort ===

impl HostPort {
    /// Returns `None` if the host is neither a name nor an address.
    #[must_use]
    pub fn new(host: &str, port: u16) -> Option<Self> {
        Some(Self { host: normalize(host)?, port })
    }

    /// Whether the host is an address.
    #[must_use]
    pub fn is_address(&self) -> bool {
        self.host.parse::<IpAddr>().is_ok()
    }

    /// Whether another form of a host, as a client writes it, is this one.
    #[must_use]
    pub fn is_named(&self, host: &str) -> bool {
        normalize(host).is_some_and(|host| host == self.host)
    }
}

/// Writes `HOST:PORT`, an address of version 6 in brackets.
impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

// === impl HostRules ===

impl HostRules {
    /// # Errors
    /// There are more than [`MAX_PATTERNS`].
    pub fn new(patterns: Vec<HostPattern>) -> Result<Self, InvalidPattern> {
        if patterns.len() > MAX_PATTERNS {
            return Err(InvalidPattern(format!("a list has at most {MAX_PATTERNS} hosts")));
        }
        Ok(Self(patterns))
    }

    /// Returns the patterns in their order.
    pub fn patterns(&self) -> impl Iterator<Item = &HostPattern> {
        self.0.iter()
    }

    /// Returns the first pattern that matches.
    #[must_use]
    pub fn find(&self, target: &HostPort) -> Option<&HostPattern> {
        self.0.iter().find(|pattern| pattern.matches(target))
    }
}

// === impl HostPattern ===

impl HostPattern {
    fn matches(&self, target: &HostPort) -> bool {
        let is_port = match self.ports {
            PortPattern::Usual => USUAL_PORTS.contains(&target.port),
            PortPattern::One(port) => port == target.port,
            PortPattern::All => true,
        };
        is_port
            && match &self.name {
                NamePattern::Any => true,
                NamePattern::Exact(name) => *name == target.host,
                NamePattern::Below(end) => {
                    target.host.len() > end.len()
                        && target.host.ends_with(end)
                        && !target.is_address()
                }
            }
    }
}

impl FromStr for HostPattern {
    type Err = InvalidPattern;

    fn from_str(text: &str) -> Result<Self, InvalidPattern> {
        let invalid = |why: &str| {
            Err(InvalidPattern(format!("`{}` is not a host: {why}", text.escape_debug())))
        };
        if text.len() > MAX_PATTERN_BYTES {
            return Err(InvalidPattern(format!("a host has at most {MAX_PATTERN_BYTES} bytes")));
        }
        if text.contains("://") {
            return invalid("write it without a scheme, such as \"api.example.com\"");
        }
        if text.contains('/') {
            return invalid("blocks of addresses and paths are not supported; name each host");
        }
        if text == ALL_HOSTS {
            return Ok(Self { name: NamePattern::Any, ports: PortPattern::All });
        }
        if NOT_HOSTS.contains(&text) {
            return invalid(
                "it is a word for the setting `network` of an agent, alone or in its list",
            );
        }
        let is_bare_v6 = text.matches(':').count() > 1 && !text.starts_with('[');
        let (host, port) = match text.rsplit_once(':').filter(|_| !is_bare_v6) {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (text, None),
        };
        let ports = match port {
            None => PortPattern::Usual,
            Some("*") => PortPattern::All,
            Some(port) => match port.parse() {
                Ok(port) if port != 0 => PortPattern::One(port),
                _ => return invalid("a port is a number from 1 to 65535, or `*`"),
            },
        };
        let name = match host.strip_prefix("*.") {
            Some(below) => match normalize(below) {
                Some(below) if below.parse::<IpAddr>().is_err() => {
                    NamePattern::Below(format!(".{below}"))
                }
                _ => return invalid("`*.` is followed by a name"),
            },
            None => match normalize(host) {
                Some(name) => NamePattern::Exact(name),
                None if host.contains('*') => {
                    return invalid(
                        "a `*` stands for all names below one, such as \"*.example.org\"",
                    );
                }
                None => return invalid("it is neither a name nor an address"),
            },
        };
        Ok(Self { name, ports })
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            NamePattern::Any => return f.write_str(ALL_HOSTS),
            NamePattern::Exact(name) if name.contains(':') => write!(f, "[{name}]")?,
            NamePattern::Exact(name) => f.write_str(name)?,
            NamePattern::Below(end) => write!(f, "*{end}")?,
        }
        match self.ports {
            PortPattern::Usual => Ok(()),
            PortPattern::One(port) => write!(f, ":{port}"),
            PortPattern::All => f.write_str(":*"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, host: &str, port: u16) -> bool {
        let pattern: HostPattern = pattern.parse().unwrap();
        HostPort::new(host, port).is_some_and(|target| pattern.matches(&target))
    }

    #[test]
    fn a_pattern_matches_its_hosts_and_ports_in_every_form() {
        for (pattern, host, port) in [
            ("api.example.com", "API.Example.com.", 443),
            ("api.example.com", "api.example.com", 80),
            ("api.example.com:8443", "api.example.com", 8443),
            ("api.example.com:*", "api.example.com", 1),
            ("*.example.org", "a.b.example.org", 443),
            ("bücher.example", "xn--bcher-kva.example", 443),
            ("127.0.0.1:*", "0x7f.1", 5),
            ("127.0.0.1:*", "::ffff:127.0.0.1", 5),
            ("[2001:db8::1]:443", "2001:DB8:0::1", 443),
            ("2001:db8::1", "[2001:db8::1]", 443),
        ] {
            assert!(matches(pattern, host, port), "{pattern} {host}:{port}");
        }
        for (pattern, host, port) in [
            ("api.example.com", "api.example.com", 8443),
            ("api.example.com", "xapi.example.com", 443),
            ("api.example.com", "api.example.com.evil.org", 443),
            ("*.example.org", "example.org", 443),
            ("*.example.org", "evilexample.org", 443),
            ("*.example.org", "", 443),
            ("api.example.com", "api.example.com\0", 443),
        ] {
            assert!(!matches(pattern, host, port), "{pattern} {host}:{port}");
        }
    }

    #[test]
    fn a_pattern_is_written_as_it_is_read() {
        for text in ["api.example.com", "*.example.org:*", "[2001:db8::1]:443", "192.0.2.1:22", "*"]
        {
            assert_eq!(text.parse::<HostPattern>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "*:443",
            "*.",
            "a.*.example",
            "https://example.com",
            "10.0.0.0/8",
            "example.com:0",
            "example.com:x",
            "example.com:70000",
            "*.127.0.0.1",
            "a b",
            "a..b",
            "$(id);.example",
            "ask",
            "[::1",
            "user@example.com",
        ] {
            assert!(text.parse::<HostPattern>().is_err(), "{text}");
        }
        let many = vec!["a.example".parse().unwrap(); MAX_PATTERNS + 1];
        assert!(HostRules::new(many).is_err());
    }
}
