//! Tickets with which pages open WebSockets: a browser sends no token with such a request.
//!
//! A page gets a ticket with its token, and names it as a subprotocol. A ticket opens one connection, in the name of the token, from the page's origin.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use http::{HeaderMap, header};
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, Timestamp, lock};

use super::authenticator::Caller;
use super::secret::{hash_secret, new_secret};

/// How long a ticket can be used.
pub(crate) const TICKET_LIFE: Duration = Duration::from_secs(30);
/// The most unused tickets.
const MAX_TICKETS: usize = 1_024;
/// The most unused tickets of one principal.
const MAX_TICKETS_PER_PRINCIPAL: usize = 32;
/// What the subprotocol of a ticket begins with.
const PREFIX: &str = "trilogue.ticket.";

/// The unused tickets, by the hash of their secret.
#[derive(Debug, Default)]
pub(crate) struct Tickets(Mutex<HashMap<[u8; 32], OpenTicket>>);

#[derive(Debug)]
struct OpenTicket {
    caller: Caller,
    origin: String,
    expires_at: Timestamp,
}

// === impl Tickets ===

impl Tickets {
    /// Makes a ticket. Returns its subprotocol, and when it expires. Errors: `overloaded`.
    pub(crate) fn issue(
        &self,
        caller: Caller,
        origin: String,
        now: Timestamp,
    ) -> Result<(String, Timestamp)> {
        let (secret, expires_at) = (new_secret()?, now.after(TICKET_LIFE));
        let mut tickets = lock(&self.0);
        tickets.retain(|_, ticket| ticket.is_valid(now));
        let by = |ticket: &&OpenTicket| {
            let (own, other) = (&caller.principal, &ticket.caller.principal);
            own.tenant == other.tenant && own.id == other.id
        };
        let of_principal = tickets.values().filter(by).count();
        if tickets.len() >= MAX_TICKETS || of_principal >= MAX_TICKETS_PER_PRINCIPAL {
            return Err(Error::new(Code::Overloaded, "too many tickets are unused")
                .hint("get a ticket only when its WebSocket opens, and try again in 30 seconds"));
        }
        tickets.insert(hash_secret(secret.as_bytes()), OpenTicket { caller, origin, expires_at });
        Ok((format!("{PREFIX}{secret}"), expires_at))
    }

    /// Returns the caller whose ticket a request names. The ticket is used then, also if it is refused. Errors: `unauthenticated`.
    pub(crate) fn take(&self, headers: &HeaderMap, now: Timestamp) -> Result<Caller> {
        let secret = shown_ticket(headers).and_then(|protocol| protocol.strip_prefix(PREFIX));
        let ticket =
            secret.and_then(|secret| lock(&self.0).remove(&hash_secret(secret.as_bytes())));
        let origin = only_origin(headers);
        let ticket = ticket.filter(|it| it.is_valid(now) && origin == Some(it.origin.as_str()));
        ticket.map(|ticket| ticket.caller).ok_or_else(refused_ticket)
    }
}

// === impl OpenTicket ===

impl OpenTicket {
    /// Also invalid if the clock was set back.
    fn is_valid(&self, now: Timestamp) -> bool {
        now < self.expires_at && self.expires_at <= now.after(TICKET_LIFE)
    }
}

/// Returns the subprotocol of the ticket that a request for a WebSocket names.
pub(crate) fn shown_ticket(headers: &HeaderMap) -> Option<&str> {
    let values = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    let entries = values.filter_map(|value| value.to_str().ok()).flat_map(|it| it.split(','));
    entries.map(str::trim).find(|entry| entry.starts_with(PREFIX))
}

/// Returns the origin of the page that sends a request, if it names exactly one.
pub(crate) fn only_origin(headers: &HeaderMap) -> Option<&str> {
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let (origin, None) = (origins.next()?, origins.next()) else { return None };
    origin.to_str().ok().filter(|origin| *origin != "null")
}

pub(crate) fn refused_ticket() -> Error {
    Error::new(
        Code::Unauthenticated,
        "the ticket is not known, was used, has expired or is for another origin",
    )
    .hint("get a ticket for each WebSocket, and use it within 30 seconds from the same page")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::HeaderValue;
    use trilogue_domain::{Principal, PrincipalId, Rights, TenantId};

    use super::*;

    const PAGE: &str = "https://app.example.com";

    fn caller(name: &str) -> Caller {
        let principal = Principal {
            tenant: TenantId::parse("t").unwrap(),
            id: PrincipalId::parse(name).unwrap(),
            rights: Rights::all(),
            own: false,
        };
        Caller::of_test(&Arc::new(principal))
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    fn headers(protocols: &str, origin: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let value = |text: &str| HeaderValue::from_str(text).unwrap();
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, value(protocols));
        headers.insert(header::ORIGIN, value(origin));
        headers
    }

    #[test]
    fn a_ticket_works_once_for_half_a_minute_and_from_one_origin() {
        let tickets = Tickets::default();
        let issue = || tickets.issue(caller("ada"), PAGE.to_owned(), at(0)).unwrap().0;
        let take = |ticket: &str, origin: &str, now| {
            tickets.take(&headers(&format!("acp, {ticket}"), origin), at(now)).is_ok()
        };
        let ticket = issue();
        assert!(take(&ticket, PAGE, 29));
        assert!(!take(&ticket, PAGE, 29), "it is used");
        assert!(!take(&issue(), PAGE, 30), "it has expired");
        let ticket = issue();
        assert!(!take(&ticket, "https://other.example.com", 1));
        assert!(!take(&ticket, PAGE, 1), "a refused use counts too");
        assert!(!take("trilogue.ticket.tril_guessed", PAGE, 1));
    }

    #[test]
    fn unused_tickets_are_bounded_for_each_principal_and_all_together() {
        let tickets = Tickets::default();
        let issue = |name: &str, now| tickets.issue(caller(name), PAGE.to_owned(), at(now)).is_ok();
        let of_one = (0..2 * MAX_TICKETS_PER_PRINCIPAL).filter(|_| issue("ada", 0)).count();
        assert_eq!(of_one, MAX_TICKETS_PER_PRINCIPAL);
        let others = (0..2 * MAX_TICKETS).filter(|number| issue(&format!("p{number}"), 0)).count();
        assert_eq!(of_one + others, MAX_TICKETS);
        assert!(issue("ada", 30), "they have expired");
    }
}
