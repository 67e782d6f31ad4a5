use serde::Deserialize;

use super::super::{Session, Uuid, check};
use super::given::Given;
use super::leaf::{List, Object, Text};
use super::{At, Read, Violation};

/// A session as it was sent.
#[derive(Debug, Deserialize)]
pub struct Draft {
    #[serde(default)]
    id: Given<Text>,
    #[serde(default)]
    history: Given<List<Text>>,
    #[serde(default)]
    state: Given<Text>,
}

// === impl Session ===

impl Read for Session {
    type Draft = Object<Draft>;
    fn finish(Object(draft): Object<Draft>, at: &At<'_>) -> Result<Self, Violation> {
        let id = at.key("id");
        let id = match draft.id.unless_absent(&id)? {
            Some(Text(text)) => Uuid::parse_at(&text, &id)?,
            None => Uuid::generate(),
        };
        let history = at.key("history");
        let entries = draft.history.unless_absent(&history)?.map_or_else(Vec::new, |list| list.0);
        let entries = entries
            .into_iter()
            .enumerate()
            .map(|(place, Text(url))| check::http_url(&url, &history.index(place)))
            .collect::<Result<_, _>>()?;
        let state = draft.state.optional();
        let state = state.map(|Text(url)| check::http_url(&url, &at.key("state"))).transpose()?;
        Ok(Self { id, history: entries, state })
    }
}
