use serde_json::Number;

use super::object::object;
use crate::json::words::words;

object! {
    pub struct Annotations may {
        /// Absent means every audience.
        audience: Option<Vec<Role>> = "audience" as kept;
        /// From 0 to 1.
        priority: Option<Number> = "priority" as kept;
        /// ISO 8601.
        last_modified: Option<String> = "lastModified" as kept;
    }
}

words! {
    pub enum Role {
        Assistant = "assistant";
        User = "user";
    }
}

// === impl Annotations ===

impl Annotations {
    pub fn is_for(&self, role: Role) -> bool {
        self.audience.as_ref().is_none_or(|audience| audience.contains(&role))
    }
}
