//! What is to be thought of a delivery: whether it is genuine, whether it came before, whether it comes in its turn.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;

use http::{HeaderMap, StatusCode};
use serde_json::Value;

use super::signature::{Forged, ID, Key, Seal, TIMESTAMP};

/// The most deliveries and runs that are remembered.
const MAX_REMEMBERED: usize = 10_000;

/// Judges deliveries, one after the other.
pub(crate) struct Judge {
    keys: Vec<Key>,
    /// The ids of genuine deliveries.
    known: Recent<String>,
    /// The newest event of each run that a delivery told.
    newest: HashMap<String, u64>,
    runs: Recent<String>,
}

/// What was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Judged {
    /// The `webhook-id`; the same for each attempt.
    pub(crate) id: Option<String>,
    /// The `webhook-timestamp`, in seconds since 1970 as the sender wrote it.
    pub(crate) timestamp: Option<String>,
    /// Whether it is genuine.
    pub(crate) verdict: Verdict,
    /// Whether a delivery with this id came before.
    pub(crate) repeated: bool,
    /// Whether one that tells a later event of the same run came before.
    pub(crate) late: bool,
}

/// Whether a delivery is genuine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// The signature is right and not older than five minutes.
    Verified,
    /// There is no secret to verify it with.
    Unverified,
    /// It is not, and why.
    Refused(String),
}

/// The newest of many things.
#[derive(Debug)]
struct Recent<T> {
    set: HashSet<T>,
    order: VecDeque<T>,
}

// === impl Judge ===

impl Judge {
    /// Verifies under any of these secrets, `whsec_…` as Standard Webhooks writes them; without one nothing is verified.
    ///
    /// # Errors
    /// Which secret is none, counted from 1.
    pub(crate) fn new(secrets: &[String]) -> Result<Self, usize> {
        let key = |(number, secret): (usize, &String)| Key::parse(secret).ok_or(number);
        let keys = (1..).zip(secrets).map(key).collect::<Result<_, _>>()?;
        Ok(Self { keys, known: Recent::default(), newest: HashMap::new(), runs: Recent::default() })
    }

    /// Judges one delivery. What is not genuine is not remembered.
    pub(crate) fn judge(&mut self, headers: &HeaderMap, body: &[u8]) -> Judged {
        let text =
            |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let (id, timestamp) = (text(ID), text(TIMESTAMP));
        let verdict = self.verdict(headers, body);
        let mut judged = Judged { id, timestamp, verdict, repeated: false, late: false };
        let (true, Some(id)) = (judged.is_taken(), &judged.id) else { return judged };
        judged.repeated = !self.known.add(id.clone());
        judged.late = !judged.repeated && self.is_late(id, body);
        judged
    }

    fn verdict(&self, headers: &HeaderMap, body: &[u8]) -> Verdict {
        if self.keys.is_empty() {
            return Verdict::Unverified;
        }
        let now = jiff::Timestamp::now().as_second();
        let found = Seal::read(headers, now).and_then(|seal| {
            let signed = self.keys.iter().any(|key| key.signed(&seal, body));
            if signed { Ok(()) } else { Err(Forged::Unsigned) }
        });
        match found {
            Ok(()) => Verdict::Verified,
            Err(forged) => Verdict::Refused(forged.to_string()),
        }
    }

    /// Whether a later event of the run was told already. An id ends with the number of the event that it tells.
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

impl std::fmt::Debug for Judge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Judge").field("keys", &self.keys.len()).finish_non_exhaustive()
    }
}

// === impl Judged ===

impl Judged {
    /// Whether the sender is told that it was taken.
    pub(crate) fn is_taken(&self) -> bool {
        !matches!(self.verdict, Verdict::Refused(_))
    }

    /// The status to answer with. One that came before is taken again: the sender has not heard the answer.
    pub(crate) fn status(&self) -> StatusCode {
        if self.is_taken() { StatusCode::NO_CONTENT } else { StatusCode::UNAUTHORIZED }
    }
}

// === impl Recent ===

impl<T: Clone + Eq + Hash> Recent<T> {
    /// Adds something; `false` where it is there already.
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

    fn judge() -> Judge {
        Judge::new(&["whsec_b3RoZXI=".to_owned(), SECRET.to_owned()]).unwrap()
    }

    fn refused(headers: &HeaderMap, body: &str) -> String {
        let mut judge = judge();
        let judged = judge.judge(headers, body.as_bytes());
        assert_eq!(judged.status(), StatusCode::UNAUTHORIZED);
        assert!(judge.known.order.is_empty(), "it is not remembered");
        let Verdict::Refused(why) = judged.verdict else { panic!("{judged:?}") };
        why
    }

    #[test]
    fn a_signature_under_any_secret_is_right_and_nothing_else_is() {
        let headers = signed(SECRET, "a.1", now(), "{}");
        let judged = judge().judge(&headers, b"{}");
        assert_eq!((judged.verdict, judged.id.as_deref()), (Verdict::Verified, Some("a.1")));
        assert_eq!(refused(&headers, "{ }"), "the signature is another one");
        assert_eq!(
            refused(&signed("whsec_AAAA", "a.1", now(), "{}"), "{}"),
            "the signature is another one"
        );
        assert!(refused(&signed(SECRET, "a.1", now() - 301, "{}"), "{}").contains("minutes old"));
        assert!(refused(&signed(SECRET, "a.1", now() + 400, "{}"), "{}").contains("ahead"));
        assert_eq!(refused(&HeaderMap::new(), "{}"), "the header webhook-id is missing or no text");
        let mut other = headers;
        other.insert("webhook-id", "a.2".parse().unwrap());
        assert_eq!(refused(&other, "{}"), "the signature is another one");
        assert_eq!(Judge::new(&[SECRET.to_owned(), "whsec_*".to_owned()]).unwrap_err(), 2);
    }

    #[test]
    fn without_a_secret_everything_is_taken_and_called_unverified() {
        let judged = Judge::new(&[]).unwrap().judge(&HeaderMap::new(), b"x");
        assert_eq!(
            (judged.status(), judged.verdict),
            (StatusCode::NO_CONTENT, Verdict::Unverified)
        );
    }

    #[test]
    fn repetitions_and_latecomers_are_told() {
        let mut judge = judge();
        let mut take = |id: &str, run: &str| {
            let body = format!(r#"{{"run_id":"{run}"}}"#);
            let judged = judge.judge(&signed(SECRET, id, now(), &body), body.as_bytes());
            assert!(judged.is_taken());
            (judged.repeated, judged.late)
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
