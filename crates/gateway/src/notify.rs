//! Notifies people that an agent waits for an answer.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use trilogue_domain::error::Result;
use trilogue_domain::port::{Clock, Deliver, Delivered, Delivery};
use trilogue_domain::{Content, DeliveryId, Interrupt, InterruptId, Scope, safe};
use trilogue_store::Read;

use crate::callback::{self, Callback, Sender, Undelivered};
use crate::core::callback_secrets::CallbackOwner;
use crate::core::ports::Ports;

const MAX_TITLE_CHARS: usize = 200;
/// Where a title can be in a question's data.
const TITLES: [&str; 4] = ["/toolCall/title", "/title", "/message", "/tool"];

/// A receiver of notifications.
#[async_trait]
pub trait Notifier: Send + Sync + fmt::Debug {
    /// Sends one notification; `id` is the same for each attempt. It takes less than a minute.
    ///
    /// # Errors
    /// [`Undelivered`], which says whether to retry.
    async fn notify(&self, id: &DeliveryId, notice: Bytes) -> Result<(), Undelivered>;
}

/// An address that receives notifications, signed like callbacks.
pub struct AddressNotifier {
    url: String,
    owner: CallbackOwner,
    sender: Sender,
    clock: Arc<dyn Clock>,
}

/// Sends a notification of each interrupt that is still pending.
#[derive(Debug)]
pub struct NoticeDelivery {
    read: Arc<dyn Read>,
    to: Arc<dyn Notifier>,
}

/// The queue's reference to an interrupt.
#[derive(Deserialize)]
struct InterruptRef {
    interrupt: String,
}

/// The notification's body. Its members are a stable interface.
#[derive(Serialize)]
struct Notice<'a> {
    r#type: &'static str,
    interrupt_id: &'a str,
    run_id: &'a str,
    thread_id: &'a str,
    agent: &'a str,
    kind: &'a str,
    title: String,
    answer: String,
}

// === impl AddressNotifier ===

impl AddressNotifier {
    /// Creates the receiver at an address, signing with this owner's key.
    #[must_use]
    pub fn new(url: String, owner: CallbackOwner, sender: Sender, ports: &Ports) -> Self {
        Self { url, owner, sender, clock: Arc::clone(&ports.clock) }
    }
}

#[async_trait]
impl Notifier for AddressNotifier {
    async fn notify(&self, id: &DeliveryId, notice: Bytes) -> Result<(), Undelivered> {
        let (url, owner) = (self.url.clone(), self.owner.clone());
        let callback = Callback { id: id.clone(), url, owner, body: notice };
        self.sender.send(&callback, self.clock.now()).await
    }
}

impl fmt::Debug for AddressNotifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An address can contain a secret.
        f.debug_struct("TellAddress").finish_non_exhaustive()
    }
}

// === impl NoticeDelivery ===

impl NoticeDelivery {
    #[must_use]
    pub fn new(ports: &Ports, to: Arc<dyn Notifier>) -> Self {
        Self { read: Arc::clone(&ports.read), to }
    }

    async fn attempt(&self, delivery: &Delivery) -> Result<(), Undelivered> {
        let reference: InterruptRef = serde_json::from_slice(delivery.reference.as_bytes())
            .map_err(|error| {
                Undelivered::permanent(format!("invalid notice reference: {error}"))
            })?;
        let interrupt = InterruptId::parse(&reference.interrupt)?;
        let scope = Scope::of_tenant(&delivery.tenant);
        let row = self.read.interrupt(&scope, &interrupt).await?;
        // If the interrupt was resolved, or erased with its thread, there is nothing to send.
        let Some(row) = row.filter(|row| row.resolution.is_none()) else { return Ok(()) };
        let notice = Notice {
            r#type: "interrupt.raised",
            interrupt_id: row.interrupt.id.as_str(),
            run_id: row.run_id.as_str(),
            thread_id: row.thread_id.as_str(),
            agent: row.agent.as_str(),
            kind: row.interrupt.kind.as_str(),
            title: title(&row.interrupt),
            answer: format!("trilogue approve {}", quoted(row.interrupt.id.as_str())),
        };
        let notice = serde_json::to_vec(&notice).map_err(|error| {
            Undelivered::permanent(format!("the notice cannot be written: {error}"))
        })?;
        let id = DeliveryId::parse(&delivery.id)?;
        self.to.notify(&id, notice.into()).await
    }
}

impl Deliver for NoticeDelivery {
    fn deliver<'a>(
        &'a self,
        delivery: &'a Delivery,
    ) -> Pin<Box<dyn Future<Output = Delivered> + Send + 'a>> {
        callback::outcome(self.attempt(delivery))
    }
}

/// Returns the question in one short line. Control characters are made visible, because the text comes from the agent.
fn title(interrupt: &Interrupt) -> String {
    let words = interrupt.prompt.iter().find_map(|part| match &part.content {
        Content::Text(text) if !text.trim().is_empty() => Some(text.to_string()),
        _ => None,
    });
    let words = words.or_else(|| {
        let payload = interrupt.payload.to_value();
        TITLES.iter().find_map(|at| payload.pointer(at).and_then(Value::as_str).map(str::to_owned))
    });
    let words = words.unwrap_or_else(|| interrupt.kind.as_str().to_owned());
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    match words.char_indices().nth(MAX_TITLE_CHARS) {
        Some((end, _)) => {
            let more = words.chars().count() - MAX_TITLE_CHARS;
            let shown = safe::visible(words.get(..end).unwrap_or_default());
            format!("{shown}… ({more} more characters)")
        }
        None => safe::visible(&words),
    }
}

/// Returns an id in a form that can be typed into a shell.
fn quoted(id: &str) -> String {
    if id.bytes().all(|it| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'_' | b'.')) {
        return id.to_owned();
    }
    format!("'{}'", id.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use trilogue_domain::{InterruptKind, Part};

    use super::*;

    #[test]
    fn a_long_title_says_how_much_is_left_out() {
        let words = format!("run {}", "x".repeat(300));
        let prompt = vec![Part::text(words.as_str())];
        let asks = Interrupt { prompt, ..Interrupt::new(InterruptKind::Permission) };
        let title = title(&asks);
        assert!(title.ends_with("x… (104 more characters)"), "{title}");
    }
}
