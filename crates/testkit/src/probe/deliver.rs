//! Callbacks of the probe: sends each due callback, signed, to the address in its reference, with the product's own sender.

use std::pin::Pin;
use std::sync::Arc;

use trilogue_domain::DeliveryId;
use trilogue_domain::port::{Clock, Deliver, Delivered, Delivery};
use trilogue_gateway::CallbackOwner;
use trilogue_gateway::callback::{Callback, Sender};

/// Sends callbacks to the `url` of their reference; the reference is the body.
#[derive(Debug)]
pub struct ProbeDeliver {
    sender: Sender,
    clock: Arc<dyn Clock>,
}

// === impl ProbeDeliver ===

impl ProbeDeliver {
    pub fn new(sender: Sender, clock: Arc<dyn Clock>) -> Self {
        Self { sender, clock }
    }

    async fn send(&self, delivery: &Delivery) -> Delivered {
        let reference = delivery.reference.to_value();
        let url = reference.get("url").and_then(serde_json::Value::as_str);
        let (Some(url), Ok(id)) = (url, DeliveryId::parse(&delivery.id)) else {
            return Delivered::Refused { error: "the callback names no address".to_owned() };
        };
        let (url, body) = (url.to_owned(), delivery.reference.as_bytes().clone());
        let owner = CallbackOwner {
            tenant: delivery.tenant.clone(),
            principal: delivery.principal.clone(),
        };
        let callback = Callback { id, url, owner, body };
        match self.sender.send(&callback, self.clock.now()).await {
            Ok(()) => Delivered::Accepted,
            Err(undelivered) => undelivered.into(),
        }
    }
}

impl Deliver for ProbeDeliver {
    fn deliver<'a>(
        &'a self,
        delivery: &'a Delivery,
    ) -> Pin<Box<dyn Future<Output = Delivered> + Send + 'a>> {
        Box::pin(self.send(delivery))
    }
}
