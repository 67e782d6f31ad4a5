//! The external ports of the tests: a library of addresses, and a checker of rules.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use trilogue_domain::event::{InterruptEvent, MessageEvent};
use trilogue_domain::port::{CheckOutput, Fetch, Fetched};
use trilogue_domain::{Body, Code, Content, Error, Json, Message, Part, Role, Timestamp};

#[derive(Debug, Default)]
pub struct Library {
    messages: Mutex<HashMap<String, Message>>,
    states: Mutex<HashMap<String, Json>>,
    pub asked: Mutex<Vec<String>>,
    reading: AtomicUsize,
    pub at_once: AtomicUsize,
}

/// Knows the rules `plain`: every part is plain text.
#[derive(Debug)]
pub struct PlainText;

// === impl Library ===

impl Library {
    pub fn put(&self, address: &str, text: impl Into<std::sync::Arc<str>>) {
        let message = Message {
            completed_at: None,
            ..Message::new(Role::User, vec![Part::text(text)], Some(Timestamp::from_micros(1)))
        };
        self.messages.lock().unwrap().insert(address.to_owned(), message);
    }

    pub fn put_state(&self, address: &str, state: &'static str) {
        self.states.lock().unwrap().insert(address.to_owned(), Json::parse(state).unwrap());
    }

    /// Takes longer the earlier the request came, so that answers arrive out of order.
    async fn read<T: Clone>(
        &self,
        shelf: &Mutex<HashMap<String, T>>,
        address: &str,
    ) -> Result<T, Error> {
        let place = {
            let mut asked = self.asked.lock().unwrap();
            asked.push(address.to_owned());
            asked.len()
        };
        let reading = self.reading.fetch_add(1, Ordering::SeqCst) + 1;
        self.at_once.fetch_max(reading, Ordering::SeqCst);
        for _ in 0..100_usize.saturating_sub(place) {
            tokio::task::yield_now().await;
        }
        self.reading.fetch_sub(1, Ordering::SeqCst);
        let found = shelf.lock().unwrap().get(address).cloned();
        found.ok_or_else(|| Error::new(Code::PeerUnavailable, format!("nothing at {address}")))
    }
}

impl Fetch for Library {
    fn message<'a>(&'a self, address: &'a str) -> Fetched<'a, Message> {
        Box::pin(self.read(&self.messages, address))
    }

    fn state<'a>(&'a self, address: &'a str) -> Fetched<'a, Json> {
        Box::pin(self.read(&self.states, address))
    }
}

// === impl PlainText ===

impl CheckOutput for PlainText {
    fn check(&self, rules: &str, body: &Body) -> Result<(), Error> {
        assert_eq!(rules, "plain");
        let parts = match body {
            Body::Message(MessageEvent::Part { part, .. }) => std::slice::from_ref(part),
            Body::Interrupt(InterruptEvent::Raised(interrupt)) => &interrupt.prompt[..],
            _ => &[],
        };
        for part in parts {
            if &*part.content_type != "text/plain" || !matches!(part.content, Content::Text(_)) {
                let why = format!("the part's type is '{}'", part.content_type);
                return Err(Error::new(Code::OutputInvalid, why));
            }
        }
        Ok(())
    }
}
