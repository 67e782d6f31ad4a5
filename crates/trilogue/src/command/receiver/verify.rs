//! Verifies deliveries: whether one is genuine, repeated, or out of order.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;

use http::{HeaderMap, StatusCode};
use serde_json::Value;
use trilogue::config::Secret;
use trilogue::server::callback_secret;

use super::signature::{ID, Key, SignedHeaders, TIMESTAMP, VerifyError};

/// The most deliveries and runs that are remembered.
const MAX_REMEMBERED: usize = 10_000;

/// Verifies deliveries in the order in which they come.
pub(crate) struct Verifier {
    keys: KeySource,
    /// The ids of genuine deliveries.
    seen: Recent<String>,
    /// The newest event of each run that was delivered.
    newest: HashMap<String, u64>,
    runs: Recent<String>,
}

/// What deliveries are verified with.
enum KeySource {
    /// These keys; without any, nothing is verified.
    Fixed(Vec<Key>),
    /// The keys of the owner of a server with these secrets, for the addresses that begin with these origins.
    Server(Vec<Secret>, Vec<String>),
}

/// A delivery's headers, and the results of its checks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CheckedDelivery {
    /// The `webhook-id`; the same for each attempt.
    pub(crate) id: Option<String>,
    /// The `webhook-timestamp`, in seconds since 1970 as the sender wrote it.
    pub(crate) timestamp: Option<String>,
    pub(crate) verdict: Verdict,
    /// Whether a delivery with this id came before.
    pub(crate) repeated: bool,
    /// Whether a later event of the same run came before.
    pub(crate) late: bool,
}

/// Whether a delivery is genuine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// The signature is valid and at most five minutes old.
    Verified,
    /// The secret to verify with is missing.
    Unverified,
    /// It is not genuine, and why.
    Refused(String),
}

/// The newest entries of a set.
#[derive(Debug)]
struct Recent<T> {
    set: HashSet<T>,
    order: VecDeque<T>,
}

// === impl Verifier ===

impl Verifier {
    /// Verifies with any of these secrets, `whsec_…` as in Standard Webhooks. Without a secret nothing is verified.
    ///
    /// # Errors
    /// The number of the invalid secret, counted from 1.
    pub(crate) fn new(secrets: &[String]) -> Result<Self, usize> {
        let key = |(number, secret): (usize, &String)| Key::parse(secret).ok_or(number);
        let keys = (1..).zip(secrets).map(key).collect::<Result<_, _>>()?;
        Ok(Self::with(KeySource::Fixed(keys)))
    }

    /// Verifies deliveries that a server with these secrets signs for its owner, at addresses that begin with one of
    /// these.
    pub(crate) fn of_server(secrets: Vec<Secret>, origins: Vec<String>) -> Self {
        Self::with(KeySource::Server(secrets, origins))
    }

    fn with(keys: KeySource) -> Self {
        Self { keys, seen: Recent::default(), newest: HashMap::new(), runs: Recent::default() }
    }

    /// Verifies one delivery. One that is not genuine is not remembered.
    pub(crate) fn check(
        &mut self,
        headers: &HeaderMap,
        path: &str,
        body: &[u8],
    ) -> CheckedDelivery {
        let text =
            |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let (id, timestamp) = (text(ID), text(TIMESTAMP));
        let verdict = self.verdict(headers, path, body);
        let mut checked = CheckedDelivery { id, timestamp, verdict, repeated: false, late: false };
        let (true, Some(id)) = (checked.is_accepted(), &checked.id) else { return checked };
        checked.repeated = !self.seen.add(id.clone());
        checked.late = !checked.repeated && self.is_late(id, body);
        checked
    }

    fn verdict(&self, headers: &HeaderMap, path: &str, body: &[u8]) -> Verdict {
        let derived: Vec<Key>;
        let keys = match &self.keys {
            KeySource::Fixed(keys) if keys.is_empty() => return Verdict::Unverified,
            KeySource::Fixed(keys) => keys,
            KeySource::Server(secrets, origins) => {
                let urls = origins.iter().map(|origin| format!("{origin}{path}"));
                let keys = |url: String| {
                    let keys = move |secret| {
                        callback_secret::keys_of_owner(secret, &url).unwrap_or_default()
                    };
                    secrets.iter().flat_map(keys)
                };
                let all = urls.flat_map(keys);
                derived = all.filter_map(|key| Key::new(&key)).collect();
                &derived
            }
        };
        let now = jiff::Timestamp::now().as_second();
        let verified = SignedHeaders::read(headers, now).and_then(|signed| {
            let is_valid = keys.iter().any(|key| key.verifies(&signed, body));
            if is_valid { Ok(()) } else { Err(VerifyError::Signature) }
        });
        match verified {
            Ok(()) => Verdict::Verified,
            Err(error) => Verdict::Refused(error.to_string()),
        }
    }

    /// Whether a later event of the run came before. A delivery's id ends with its event's number.
    fn is_late(&mut self, id: &str, body: &[u8]) -> bool {
        let number = id.rsplit_once('.').and_then(|(_, number)| number.parse::<u64>().ok());
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let run = body.get("run_id").and_then(Value::as_str);
        let (Some(number), Some(run)) = (number, run) else { return false };
        if let Some(newest) = self.newest.get_mut(run) {
            let late = number < *newest;
            *newest = number.max(*newest);
            return late;
        }
        self.runs.add(run.to_owned());
        self.newest.insert(run.to_owned(), number);
        if self.newest.len() > MAX_REMEMBERED {
            let runs = &self.runs;
            self.newest.retain(|run, _| runs.set.contains(run));
        }
        false
    }
}

impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Verifier").finish_non_exhaustive()
    }
}

// === impl CheckedDelivery ===

impl CheckedDelivery {
    pub(crate) fn is_accepted(&self) -> bool {
        !matches!(self.verdict, Verdict::Refused(_))
    }

    /// The response's status. A repeated delivery is accepted again: the sender did not receive the response.
    pub(crate) fn status(&self) -> StatusCode {
        if self.is_accepted() { StatusCode::NO_CONTENT } else { StatusCode::UNAUTHORIZED }
    }
}

// === impl Recent ===

impl<T: Clone + Eq + Hash> Recent<T> {
    /// Adds an entry; returns `false` if it exists already.
    fn add(&mut self, new: T) -> bool {
        if !self.set.insert(new.clone()) {
            return false;
        }
        self.order.push_back(new);
        if self.order.len() > MAX_REMEMBERED
            && let Some(old) = self.order.pop_front()
        {
            self.set.remove(&old);
        }
        true
    }
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self { set: HashSet::new(), order: VecDeque::new() }
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use http::HeaderValue;

    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    fn now() -> i64 {
        jiff::Timestamp::now().as_second()
    }

    fn signed(secret: &str, id: &str, at: i64, body: &str) -> HeaderMap {
        let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
        let signature = trilogue_gateway::callback::sign(&key, id, at, body.as_bytes());
        let mut headers = HeaderMap::new();
        headers.insert("webhook-id", id.parse().unwrap());
        headers.insert("webhook-timestamp", HeaderValue::from(at));
        headers.insert("webhook-signature", format!("v1,AAAA {signature}").parse().unwrap());
        headers
    }

    fn verifier() -> Verifier {
        Verifier::new(&["whsec_b3RoZXI=".to_owned(), SECRET.to_owned()]).unwrap()
    }

    fn refusal_text(headers: &HeaderMap, body: &str) -> String {
        let mut verifier = verifier();
        let checked = verifier.check(headers, "/", body.as_bytes());
        assert_eq!(checked.status(), StatusCode::UNAUTHORIZED);
        assert!(verifier.seen.order.is_empty(), "a forged delivery is not remembered");
        let Verdict::Refused(why) = checked.verdict else { panic!("{checked:?}") };
        why
    }

    #[test]
    fn a_signature_with_any_of_the_secrets_is_valid() {
        let headers = signed(SECRET, "a.1", now(), "{}");
        let checked = verifier().check(&headers, "/", b"{}");
        assert_eq!((checked.verdict, checked.id.as_deref()), (Verdict::Verified, Some("a.1")));
        assert_eq!(refusal_text(&headers, "{ }"), "the signature does not match");
        assert_eq!(
            refusal_text(&signed("whsec_AAAA", "a.1", now(), "{}"), "{}"),
            "the signature does not match"
        );
        assert!(
            refusal_text(&signed(SECRET, "a.1", now() - 301, "{}"), "{}").contains("minutes old")
        );
        assert!(refusal_text(&signed(SECRET, "a.1", now() + 400, "{}"), "{}").contains("ahead"));
        assert_eq!(
            refusal_text(&HeaderMap::new(), "{}"),
            "the header webhook-id is missing or not text"
        );
        let mut other = headers;
        other.insert("webhook-id", "a.2".parse().unwrap());
        assert_eq!(refusal_text(&other, "{}"), "the signature does not match");
        assert_eq!(Verifier::new(&[SECRET.to_owned(), "whsec_*".to_owned()]).unwrap_err(), 2);
    }

    #[test]
    fn without_a_secret_deliveries_are_unverified() {
        let checked = Verifier::new(&[]).unwrap().check(&HeaderMap::new(), "/", b"x");
        assert_eq!(
            (checked.status(), checked.verdict),
            (StatusCode::NO_CONTENT, Verdict::Unverified)
        );
    }

    #[test]
    fn repeated_and_late_deliveries_are_marked() {
        let mut verifier = verifier();
        let mut take = |id: &str, run: &str| {
            let body = format!(r#"{{"run_id":"{run}"}}"#);
            let checked = verifier.check(&signed(SECRET, id, now(), &body), "/", body.as_bytes());
            assert!(checked.is_accepted());
            (checked.repeated, checked.late)
        };
        assert_eq!(take("r.4", "r"), (false, false));
        assert_eq!(take("r.4", "r"), (true, false));
        assert_eq!(take("r.9", "r"), (false, false));
        assert_eq!(take("s.2", "s"), (false, false));
        assert_eq!(take("r.7", "r"), (false, true));
        assert_eq!(take("r.values", "r"), (false, false));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut recent = Recent::default();
        for number in 0..=MAX_REMEMBERED {
            assert!(recent.add(number));
        }
        assert_eq!((recent.set.len(), recent.order.len()), (MAX_REMEMBERED, MAX_REMEMBERED));
        assert!(recent.add(0), "the oldest is forgotten");
        assert!(!recent.add(MAX_REMEMBERED));
    }
}
