use serde_json::Number;

use super::object::object;

object! {
    pub struct UsageUpdate {
        /// Tokens in the context.
        used: u64 = "used";
        /// Tokens that fit into the context.
        size: u64 = "size";
    } may {
        cost: Option<Cost> = "cost";
    }

    pub struct Cost {
        amount: Number = "amount";
        /// ISO 4217, such as `USD`.
        currency: String = "currency";
    }
}
