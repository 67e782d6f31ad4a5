use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A block of addresses, such as `10.0.0.0/8` or `fd00::/8`; a single address is a block of one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Cidr {
    network: IpAddr,
    bits: u8,
}

/// The text is not an address block.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{0}' is not an address block such as 10.0.0.0/8 or fd00::/8")]
pub struct BadCidr(String);

// === impl Cidr ===

impl Cidr {
    pub(crate) const LOOPBACK_V6: Self =
        Self { network: IpAddr::V6(Ipv6Addr::LOCALHOST), bits: 128 };

    /// Returns `true` if the block contains this address. An IPv4-mapped IPv6 address counts as the IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.network, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                u32::from(network) & mask == u32::from(address) & mask
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
                u128::from(network) & mask == u128::from(address) & mask
            }
            _ => false,
        }
    }

    /// Returns `true` if the block is larger than any single network, so that it does not identify one.
    #[must_use]
    pub fn is_wide(&self) -> bool {
        self.bits < if self.network.is_ipv4() { 8 } else { 16 }
    }

    pub(crate) const fn v4(a: u8, b: u8, c: u8, d: u8, bits: u8) -> Self {
        Self { network: IpAddr::V4(Ipv4Addr::new(a, b, c, d)), bits }
    }

    pub(crate) const fn v6(first: u16, second: u16, third: u16, bits: u8) -> Self {
        Self { network: IpAddr::V6(Ipv6Addr::new(first, second, third, 0, 0, 0, 0, 0)), bits }
    }
}

impl FromStr for Cidr {
    type Err = BadCidr;

    fn from_str(text: &str) -> Result<Self, BadCidr> {
        let bad = || BadCidr(text.to_owned());
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse().map_err(|_| bad())?)),
            None => (text, None),
        };
        let network: IpAddr = address.parse().map_err(|_| bad())?;
        let most = if network.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(most);
        if bits > most { Err(bad()) } else { Ok(Self { network, bits }) }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_hold_what_they_say() {
        let check = |block: &str, address: &str, expected: bool| {
            let block: Cidr = block.parse().unwrap();
            assert_eq!(block.contains(address.parse().unwrap()), expected, "{block} {address}");
        };
        check("10.0.0.0/8", "10.255.0.1", true);
        check("10.0.0.0/8", "11.0.0.1", false);
        check("10.0.0.0/8", "::ffff:10.0.0.1", true);
        check("0.0.0.0/0", "203.0.113.9", true);
        check("0.0.0.0/0", "::1", false);
        check("127.0.0.1", "127.0.0.1", true);
        check("127.0.0.1", "127.0.0.2", false);
        check("fd00::/8", "fdff::1", true);
        check("::/0", "fe80::1", true);
        check("::1", "::2", false);
    }

    #[test]
    fn what_is_no_block_is_refused() {
        for bad in ["", "10.0.0.0/33", "::/129", "10/8", "10.0.0.0/", "10.0.0.0/-1", "x/8"] {
            assert!(bad.parse::<Cidr>().is_err(), "{bad}");
        }
    }
}
