//! Who can reach the listeners.

use std::net::IpAddr;

use trilogue_egress::Cidr;

/// Who can reach the listeners.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Exposure {
    Loopback,
    /// Only TLS proxies. A listener beyond loopback closes connections from other addresses before it reads a request.
    BehindProxy(Proxies),
    /// Everyone, unencrypted; the operator set a `dangerously_…` option.
    DangerouslyPublic,
}

/// The proxies that end TLS in front of the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Proxies {
    pub blocks: Vec<Cidr>,
    pub loopback: bool,
}

// === impl Proxies ===

impl Proxies {
    pub fn admit(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        (self.loopback && peer.is_loopback()) || self.blocks.iter().any(|it| it.contains(peer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(loopback: bool) -> Proxies {
        let blocks = ["10.0.0.0/8", "fd00::/8"].map(|block| block.parse().unwrap()).to_vec();
        Proxies { blocks, loopback }
    }

    #[test]
    fn proxies_and_this_machine_are_let_in_and_nobody_else() {
        for (peer, open, closed) in [
            ("10.1.2.3", true, true),
            ("::ffff:10.1.2.3", true, true),
            ("fd12::1", true, true),
            ("127.0.0.2", true, false),
            ("::1", true, false),
            ("::ffff:127.0.0.1", true, false),
            ("192.168.0.1", false, false),
            ("::ffff:192.168.0.1", false, false),
            ("fe80::1", false, false),
        ] {
            let peer: IpAddr = peer.parse().unwrap();
            assert_eq!(proxies(true).admit(peer), open, "{peer}");
            assert_eq!(proxies(false).admit(peer), closed, "{peer}");
        }
    }
}
