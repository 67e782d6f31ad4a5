use super::Json;
use crate::json::record::record;

record! {
    /// The address of callbacks.
    pub strict struct CallbackTarget {
        /// The URL, as in the run's request. The query is ignored.
        url: String,
    }

    /// The keys that verify callbacks to one address for one principal.
    pub struct CallbackKeys {
        /// Secrets in the form `whsec_…` of Standard Webhooks. Two while the server's secrets are rotated.
        secrets: Vec<String>,
    }

    /// A callback delivery that failed for good.
    pub struct Delivery {
        /// The id of the delivery.
        id: String,
        /// The number of attempts.
        attempts: u32,
        /// The last error.
        error: String,
        /// When the delivery was due.
        due: String,
        /// The content and the target of the delivery.
        reference: Json,
    }
}
