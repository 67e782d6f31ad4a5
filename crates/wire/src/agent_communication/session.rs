use super::object::object;
use super::{Uuid, check};
use crate::json::member::{absent_or, defaulted, optional};
use crate::json::{Path, Violation};

object! {
    /// A conversation: references to its messages and to its state.
    pub struct Session {
        /// The id. A session that is sent without an id gets a new one.
        id: Uuid = id_or_new;
        /// The absolute http or https URLs of its messages, oldest first.
        history: Vec<String> = http_urls;
        /// An absolute http or https URL.
        state: Option<String> = http_url;
    }
}

fn id_or_new(json: Option<&str>, at: &Path<'_>) -> Result<Uuid, Violation> {
    absent_or(json, at, Uuid::generate)
}

fn http_urls(json: Option<&str>, at: &Path<'_>) -> Result<Vec<String>, Violation> {
    let urls: Vec<String> = defaulted(json, at)?;
    urls.iter().enumerate().map(|(place, url)| check::http_url(url, &at.index(place))).collect()
}

fn http_url(json: Option<&str>, at: &Path<'_>) -> Result<Option<String>, Violation> {
    let url: Option<String> = optional(json, at)?;
    url.map(|url| check::http_url(&url, at)).transpose()
}
