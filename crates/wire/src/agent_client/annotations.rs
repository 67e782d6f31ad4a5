use serde_json::Number;

use super::object::object;
use crate::json::words::words;

object! {
    /// How content should be used or shown.
    #[derive(Default)]
    pub struct Annotations {
    } may {
        /// Whom it is meant for; everybody where nobody is named.
        audience: Option<Vec<Role>> = "audience" as optional_fitting;
        /// How important it is, from 0 to 1.
        priority: Option<Number> = "priority" as lenient;
        /// When it was last changed, as ISO 8601.
        last_modified: Option<String> = "lastModified" as lenient;
    }
}

words! {
    /// A side of a conversation.
    pub enum Role {
        /// The one who answers.
        Assistant = "assistant";
        /// The one who asks.
        User = "user";
    }
}

// === impl Annotations ===

impl Annotations {
    /// Whether it is meant for this side: it is where nobody is named.
    #[must_use]
    pub fn is_for(&self, role: Role) -> bool {
        self.audience.as_ref().is_none_or(|audience| audience.contains(&role))
    }
}
