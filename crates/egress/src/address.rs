use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::cidr::Cidr;

/// Why an address is not public.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AddressClass {
    /// This machine.
    Loopback,
    /// A private network.
    Private,
    /// The shared address space of a carrier's network address translation.
    SharedCarrier,
    /// The local link, which also has cloud metadata services.
    LinkLocal,
    /// A cloud provider's metadata service outside of the local link.
    CloudMetadata,
    /// The unspecified address, or "this network".
    Unspecified,
    /// A multicast address.
    Multicast,
    /// Reserved addresses: documentation, benchmarking, protocol assignments, future use.
    Reserved,
}

use AddressClass::{
    CloudMetadata, LinkLocal, Loopback, Multicast, Private, Reserved, SharedCarrier, Unspecified,
};

/// The IPv4 blocks that are not public. The first block that contains an address decides.
const V4: &[(Cidr, AddressClass)] = &[
    (Cidr::v4(0, 0, 0, 0, 8), Unspecified),
    (Cidr::v4(10, 0, 0, 0, 8), Private),
    (Cidr::v4(100, 64, 0, 0, 10), SharedCarrier),
    (Cidr::v4(127, 0, 0, 0, 8), Loopback),
    (Cidr::v4(168, 63, 129, 16, 32), CloudMetadata),
    (Cidr::v4(169, 254, 0, 0, 16), LinkLocal),
    (Cidr::v4(172, 16, 0, 0, 12), Private),
    (Cidr::v4(192, 0, 0, 0, 24), Reserved),
    (Cidr::v4(192, 0, 2, 0, 24), Reserved),
    (Cidr::v4(192, 88, 99, 0, 24), Reserved),
    (Cidr::v4(192, 168, 0, 0, 16), Private),
    (Cidr::v4(198, 18, 0, 0, 15), Reserved),
    (Cidr::v4(198, 51, 100, 0, 24), Reserved),
    (Cidr::v4(203, 0, 113, 0, 24), Reserved),
    (Cidr::v4(224, 0, 0, 0, 4), Multicast),
    (Cidr::v4(240, 0, 0, 0, 4), Reserved),
];

/// The IPv6 blocks that are not public, except those that contain an IPv4 address.
const V6: &[(Cidr, AddressClass)] = &[
    (Cidr::v6(0, 0, 0, 8), Reserved),
    (Cidr::v6(0x100, 0, 0, 64), Reserved),
    (Cidr::v6(0x2001, 0, 0, 23), Reserved),
    (Cidr::v6(0x2001, 0xdb8, 0, 32), Reserved),
    (Cidr::v6(0x3fff, 0, 0, 20), Reserved),
    (Cidr::v6(0x5f00, 0, 0, 16), Reserved),
    (Cidr::v6(0xfc00, 0, 0, 7), Private),
    (Cidr::v6(0xfe80, 0, 0, 10), LinkLocal),
    (Cidr::v6(0xfec0, 0, 0, 10), Private),
    (Cidr::v6(0xff00, 0, 0, 8), Multicast),
];

/// The addresses at which clouds tell their machines secrets, of any class.
const METADATA: &[Cidr] = &[
    Cidr::v4(169, 254, 169, 254, 32),
    Cidr::v4(169, 254, 170, 2, 32),
    Cidr::v4(169, 254, 170, 23, 32),
    Cidr::v4(168, 63, 129, 16, 32),
    Cidr::v4(100, 100, 100, 200, 32),
    Cidr::v4(169, 254, 0, 23, 32),
    Cidr::v4(169, 254, 42, 42, 32),
    Cidr::v4(192, 0, 0, 192, 32),
];
/// The same of version 6.
const METADATA_V6: [[u16; 8]; 6] = [
    [0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe],
    [0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42],
    [0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe],
    [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254],
    [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23],
    [0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254],
];

/// Whether a cloud tells its machines secrets at this address.
pub(crate) fn is_metadata(address: IpAddr) -> bool {
    match inner(address) {
        IpAddr::V6(address) => METADATA_V6.contains(&address.segments()),
        address => METADATA.iter().any(|block| block.contains(address)),
    }
}

// === impl AddressClass ===

impl AddressClass {
    pub fn of(address: IpAddr) -> Option<Self> {
        match inner(address) {
            IpAddr::V4(address) => of_v4(address),
            IpAddr::V6(address) => of_v6(address),
        }
    }
}

/// Returns the IPv4 address that an IPv6 address leads to: mapped, NAT64 or 6to4. Otherwise returns the address itself.
pub(crate) fn inner(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address.to_canonical() else { return address.to_canonical() };
    let [a, b, c, d, e, f, g, h] = v6.segments();
    let v4 =
        |high: u16, low: u16| IpAddr::V4(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)));
    match [a, b, c, d, e, f] {
        [0x64, 0xff9b, 0, 0, 0, 0] => v4(g, h),
        [0x2002, high, low, ..] => v4(high, low),
        _ => IpAddr::V6(v6),
    }
}

fn of_v4(address: Ipv4Addr) -> Option<AddressClass> {
    let address = IpAddr::V4(address);
    V4.iter().find(|(block, _)| block.contains(address)).map(|(_, class)| *class)
}

fn of_v6(address: Ipv6Addr) -> Option<AddressClass> {
    if address == Ipv6Addr::LOCALHOST {
        return Some(Loopback);
    }
    // The deprecated IPv4-compatible form, including `::`.
    if address.segments().starts_with(&[0, 0, 0, 0, 0, 0]) {
        return Some(Unspecified);
    }
    let address = IpAddr::V6(address);
    V6.iter().find(|(block, _)| block.contains(address)).map(|(_, class)| *class)
}

impl fmt::Display for AddressClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Loopback => "loopback",
            Private => "private",
            SharedCarrier => "carrier-shared",
            LinkLocal => "link-local",
            CloudMetadata => "cloud metadata",
            Unspecified => "unspecified",
            Multicast => "multicast",
            Reserved => "reserved",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_a_private_address_is_seen() {
        let check = |text: &str, expected| {
            assert_eq!(AddressClass::of(text.parse().unwrap()), expected, "{text}");
        };
        for (text, class) in [
            ("127.0.0.1", Loopback),
            ("127.255.255.254", Loopback),
            ("::1", Loopback),
            ("::ffff:127.0.0.1", Loopback),
            ("64:ff9b::127.0.0.1", Loopback),
            ("2002:7f00:1::", Loopback),
            ("0.0.0.0", Unspecified),
            ("::", Unspecified),
            ("::10.0.0.1", Unspecified),
            ("10.1.2.3", Private),
            ("172.31.255.255", Private),
            ("192.168.0.1", Private),
            ("fd00:ec2::254", Private),
            ("fec0::1", Private),
            ("2002:a00:1::1", Private),
            ("64:ff9b::a00:1", Private),
            ("100.64.0.1", SharedCarrier),
            ("100.100.100.200", SharedCarrier),
            ("169.254.169.254", LinkLocal),
            ("::ffff:169.254.169.254", LinkLocal),
            ("fe80::1", LinkLocal),
            ("168.63.129.16", CloudMetadata),
            ("224.0.0.1", Multicast),
            ("ff02::1", Multicast),
            ("255.255.255.255", Reserved),
            ("203.0.113.1", Reserved),
            ("2001:db8::1", Reserved),
            ("2001::1", Reserved),
            ("64:ff9b:1::1", Reserved),
            ("::ffff:0:127.0.0.1", Reserved),
        ] {
            check(text, Some(class));
        }
        for text in ["1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1", "64:ff9b::101:101"] {
            check(text, None);
        }
    }
}
