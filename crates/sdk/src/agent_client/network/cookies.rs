//! The cookies of one connection, by which proxies find the server that has it.

use std::collections::BTreeMap;

use http::header::SET_COOKIE;
use http::{HeaderMap, HeaderValue};

/// The most cookies of a connection. Further ones are left out.
const MAX_COOKIES: usize = 64;
/// The longest cookie, in bytes. A longer one is left out.
const MAX_COOKIE_BYTES: usize = 4 * 1024;

/// Cookies by name. All requests of a connection go to one address, so their paths and domains mean nothing.
#[derive(Debug, Default)]
pub(super) struct Cookies(BTreeMap<String, String>);

// === impl Cookies ===

impl Cookies {
    /// Takes the cookies of a response.
    pub(super) fn take(&mut self, headers: &HeaderMap) {
        for value in headers.get_all(SET_COOKIE) {
            let Ok(text) = value.to_str() else { continue };
            let mut parts = text.split(';');
            let Some((name, value)) = parts.next().and_then(|pair| pair.split_once('=')) else {
                continue;
            };
            let (name, value) = (name.trim(), value.trim());
            let is_removed = parts.any(|part| {
                let part = part.trim().to_ascii_lowercase();
                part.strip_prefix("max-age=").is_some_and(|age| age == "0" || age.starts_with('-'))
            });
            if is_removed {
                self.0.remove(name);
            } else if name.len() + value.len() <= MAX_COOKIE_BYTES
                && (self.0.len() < MAX_COOKIES || self.0.contains_key(name))
            {
                self.0.insert(name.to_owned(), value.to_owned());
            }
        }
    }

    /// Returns the header field of a request; `None` without cookies.
    pub(super) fn header(&self) -> Option<HeaderValue> {
        let pairs: Vec<_> = self.0.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mut header = HeaderValue::try_from(pairs.join("; ")).ok()?;
        header.set_sensitive(true);
        (!pairs.is_empty()).then_some(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_kept_replaced_and_removed() {
        let mut cookies = Cookies::default();
        assert_eq!(cookies.header(), None);
        let mut take = |lines: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(SET_COOKIE, HeaderValue::from_static(line));
            }
            cookies.take(&headers);
            cookies.header()
        };
        let kept = take(&["node=a; Path=/; HttpOnly", "b = 2"]).unwrap();
        assert_eq!(kept, "b=2; node=a");
        assert_eq!(take(&["node=c"]).unwrap(), "b=2; node=c");
        assert_eq!(take(&["b=x; Max-Age=0", "broken"]).unwrap(), "node=c");
    }
}
