use serde_json::Number;

use super::object::object;

object! {
    /// How full the context is.
    pub struct UsageUpdate {
        /// How many tokens are in it.
        used: u64 = "used" as required;
        /// How many tokens fit into it.
        size: u64 = "size" as required;
    } may {
        /// What the session has cost so far.
        cost: Option<Cost> = "cost" as lenient;
    }
}

object! {
    /// An amount of money.
    pub struct Cost {
        /// How much.
        amount: Number = "amount" as required;
        /// Of what, as ISO 4217, such as `USD`.
        currency: String = "currency" as required;
    } may {
    }
}
