use crate::json::record::record;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

record! {
    /// Texts to render.
    pub strict struct Draw {
        /// The texts: at most 100, with at most 256 KiB in total.
        items: Vec<Drawing>,
    }
}

/// A text to render.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, deny_unknown_fields)]
pub enum Drawing {
    /// Markdown. HTML in it is shown as text, and an image as a link.
    Markdown {
        /// The Markdown.
        markdown: String,
    },
    /// The difference between two texts, line by line.
    Difference {
        /// The old text.
        before: String,
        /// The new text.
        after: String,
    },
}

record! {
    /// A rendered text.
    pub struct Drawn {
        /// HTML without scripts, styles, and resources that a browser loads by itself.
        html: String,
    }
}
