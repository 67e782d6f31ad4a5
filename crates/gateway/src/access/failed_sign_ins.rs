//! Counts failed sign-ins per address: unknown tokens, and invalid codes of sign-in links.
//!
//! Beyond the limit, a further failure gets 429 instead of 401. A valid credential is always admitted: behind a proxy, many clients share one address, and no
//! client may lock the others out.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::Duration;

use trilogue_domain::{Code, Error, Timestamp, lock};

/// The time span in which the failures of one address are counted together.
const WINDOW: Duration = Duration::from_secs(60);
/// The most addresses that are counted at once. Beyond that, the address with the oldest span is forgotten.
const MAX_ADDRESSES: usize = 4_096;
/// The leading bytes of an IPv6 address that name a network: one client can use all addresses of its network.
const NETWORK_BYTES: usize = 8;

#[derive(Debug)]
pub(crate) struct FailedSignIns {
    /// The most failures of one address in [`WINDOW`] that still get 401.
    max: u32,
    addresses: Mutex<HashMap<IpAddr, AddressFailures>>,
}

#[derive(Clone, Copy, Debug)]
struct AddressFailures {
    begun: Timestamp,
    count: u32,
}

// === impl FailedSignIns ===

impl FailedSignIns {
    pub(crate) fn new(max: u32) -> Self {
        Self { max, addresses: Mutex::default() }
    }

    /// Counts a failure. Returns how long to wait if there are too many.
    pub(crate) fn add(&self, address: IpAddr, now: Timestamp) -> Option<Duration> {
        let address = network(address);
        let mut addresses = lock(&self.addresses);
        if !addresses.contains_key(&address) && addresses.len() >= MAX_ADDRESSES {
            addresses.retain(|_, failures| !failures.is_over(now));
            if addresses.len() >= MAX_ADDRESSES {
                let oldest = addresses.iter().min_by_key(|(_, failures)| failures.begun);
                let oldest = oldest.map(|(address, _)| *address);
                oldest.and_then(|oldest| addresses.remove(&oldest));
            }
        }
        let failures = addresses.entry(address).or_insert(AddressFailures { begun: now, count: 0 });
        if failures.is_over(now) {
            *failures = AddressFailures { begun: now, count: 0 };
        }
        failures.count = failures.count.saturating_add(1);
        (failures.count > self.max).then(|| now.until(failures.begun.after(WINDOW)))
    }
}

// === impl AddressFailures ===

impl AddressFailures {
    /// Also over if the clock was set back.
    fn is_over(&self, now: Timestamp) -> bool {
        now < self.begun || self.begun.after(WINDOW) <= now
    }
}

/// Returns the error that replaces a further failure.
pub(crate) fn too_many(wait: Duration) -> Error {
    let seconds = seconds(wait);
    Error::new(Code::Overloaded, "too many sign-ins have failed from this address").hint(format!(
        "check the token or the link, and try again in {seconds} seconds; a valid token is let in at once"
    ))
}

/// Rounds a wait to whole seconds, at least one.
pub(crate) fn seconds(wait: Duration) -> u64 {
    wait.as_secs_f64().ceil().max(1.0) as u64
}

/// Returns the part of an address that identifies a client.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let mut bytes = address.octets();
            bytes.iter_mut().skip(NETWORK_BYTES).for_each(|byte| *byte = 0);
            IpAddr::V6(bytes.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    #[test]
    fn failures_of_one_address_are_limited_for_a_while_and_others_are_not_affected() {
        let failed = FailedSignIns::new(2);
        let add = |address: &str, now| failed.add(address.parse().unwrap(), at(now));
        assert_eq!(add("192.0.2.1", 0), None);
        assert_eq!(add("192.0.2.1", 10), None);
        assert_eq!(add("192.0.2.1", 20), Some(Duration::from_secs(40)));
        assert_eq!(add("::ffff:192.0.2.1", 59), Some(Duration::from_secs(1)), "the same address");
        assert_eq!(add("192.0.2.2", 59), None);
        assert_eq!(add("192.0.2.1", 60), None, "a new time begins");
        assert_eq!(add("2001:db8::1", 60), None);
        assert_eq!(add("2001:db8::2", 60), None);
        assert!(add("2001:db8::ffff:3", 60).is_some(), "the same network");
        assert_eq!(add("2001:db8:0:1::1", 60), None);
    }

    #[test]
    fn a_clock_that_is_set_back_locks_nobody_out() {
        let failed = FailedSignIns::new(1);
        let address = IpAddr::from([192, 0, 2, 1]);
        failed.add(address, at(1_000));
        assert!(failed.add(address, at(1_000)).is_some());
        assert_eq!(failed.add(address, at(10)), None);
    }

    #[test]
    fn the_memory_for_addresses_is_bounded() {
        let failed = FailedSignIns::new(1);
        for number in 0..MAX_ADDRESSES as u32 + 10 {
            failed.add(IpAddr::from(number.to_be_bytes()), at(i64::from(number) / 1_000));
        }
        assert_eq!(lock(&failed.addresses).len(), MAX_ADDRESSES);
        let newest = IpAddr::from((MAX_ADDRESSES as u32 + 9).to_be_bytes());
        assert!(failed.add(newest, at(5)).is_some(), "the newest are kept");
        failed.add(IpAddr::from([203, 0, 113, 1]), at(500));
        assert_eq!(lock(&failed.addresses).len(), 1, "those that are over go first");
    }
}
