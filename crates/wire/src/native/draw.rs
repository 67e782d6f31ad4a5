use crate::json::record::record;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

record! {
    /// Texts to draw.
    #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    pub struct Draw {
        /// The texts: at most 100, with 256 KiB in all.
        items: Vec<Drawing>,
    }
}

/// A text to draw.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, deny_unknown_fields)]
pub enum Drawing {
    /// Markdown. HTML in it is shown as text, an image as a link.
    Markdown {
        /// The Markdown.
        markdown: String,
    },
    /// What changed between two texts, line by line.
    Difference {
        /// The text before.
        before: String,
        /// The text after.
        after: String,
    },
}

/// A text as HTML.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Drawn {
    /// HTML that holds no script, no style and nothing that a browser loads by itself.
    pub html: String,
}
