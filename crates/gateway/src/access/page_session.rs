//! Sessions of pages: a browser shows a cookie where programs show a token.
//!
//! # Invariants
//! - Only a face that says so sees a cookie at all.
//! - A cookie changes nothing without a header that no form and no link can send: what is not a plain read needs [`PAGE`].
//! - The secret of a session is in no address and in nothing that a script can read.

use std::time::Duration;

use http::request::Parts;
use http::uri::Authority;
use http::{HeaderName, HeaderValue, Method, header};
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error};

use super::authenticator::API_KEY;

/// What a page of ours sends with whatever changes something.
pub(crate) const PAGE: HeaderName = HeaderName::from_static("trilogue-page");
/// How long a link for signing in works.
pub(crate) const LINK_LIFE: Duration = Duration::from_secs(10 * 60);
/// How long a session lasts at most.
pub(crate) const SESSION_LIFE: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Where browsers send the cookie.
const COOKIE_PATH: &str = "/api/v1";

/// Puts the secret of a page's session where those of programs are, or takes the cookie away; whether it came from a cookie.
pub(crate) fn show(head: &mut Parts, takes_cookies: bool) -> bool {
    let Some(cookies) = head.headers.remove(header::COOKIE) else { return false };
    let is_read = matches!(head.method, Method::GET | Method::HEAD);
    let shows_more =
        head.headers.contains_key(header::AUTHORIZATION) || head.headers.contains_key(API_KEY);
    if !takes_cookies || shows_more || !(is_read || head.headers.contains_key(PAGE)) {
        return false;
    }
    let host = head.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let name = cookie_name(host.or(head.uri.authority().map(Authority::as_str)));
    let secret = cookies.to_str().ok().and_then(|cookies| cookie(cookies, &name));
    let value = secret.and_then(|secret| HeaderValue::try_from(format!("Bearer {secret}")).ok());
    match value {
        Some(mut value) => {
            value.set_sensitive(true);
            head.headers.insert(header::AUTHORIZATION, value);
            true
        }
        None => false,
    }
}

/// What makes a browser keep a session for this long; for no time, it forgets it.
pub(crate) fn set_cookie(
    host: Option<&str>,
    secret: &str,
    life: Duration,
    is_encrypted: bool,
) -> Result<HeaderValue> {
    let (name, seconds) = (cookie_name(host), life.as_secs());
    let secure = if is_encrypted { "; Secure" } else { "" };
    let text = format!(
        "{name}={secret}; Path={COOKIE_PATH}; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"
    );
    HeaderValue::try_from(text)
        .map_err(|_| Error::new(Code::Internal, "the cookie cannot be written"))
}

/// Cookies know no ports: servers of one host tell theirs apart by name.
fn cookie_name(host: Option<&str>) -> String {
    let port = host.and_then(|host| host.rsplit_once(':')).map(|(_, port)| port);
    match port.filter(|port| port.bytes().all(|byte| byte.is_ascii_digit())) {
        Some(port) => format!("trilogue-{port}"),
        None => "trilogue".to_owned(),
    }
}

fn cookie<'a>(cookies: &'a str, name: &str) -> Option<&'a str> {
    let pairs = cookies.split(';').filter_map(|pair| pair.trim().split_once('='));
    pairs.into_iter().find(|(known, _)| *known == name).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(method: &str, headers: &[(&str, &str)], takes_cookies: bool) -> Option<String> {
        let mut request = http::Request::builder().method(method).uri("/api/v1/runs");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (mut head, ()) = request.body(()).unwrap().into_parts();
        let is_shown = show(&mut head, takes_cookies);
        assert!(!head.headers.contains_key(header::COOKIE));
        let value = head.headers.get(header::AUTHORIZATION)?.to_str().unwrap().to_owned();
        assert_eq!(is_shown, value == "Bearer s", "{value}");
        Some(value)
    }

    #[test]
    fn a_cookie_counts_where_a_page_of_ours_shows_it() {
        let host = ("host", "localhost:7878");
        let cookie = ("cookie", "a=b; trilogue-7878=s; trilogue-1=t");
        assert_eq!(shown("GET", &[host, cookie], true).as_deref(), Some("Bearer s"));
        assert_eq!(shown("GET", &[host, cookie], false), None);
        assert_eq!(shown("POST", &[host, cookie], true), None);
        let page = ("trilogue-page", "1");
        assert_eq!(shown("POST", &[host, cookie, page], true).as_deref(), Some("Bearer s"));
        let token = ("authorization", "Bearer other");
        assert_eq!(shown("GET", &[host, cookie, token], true).as_deref(), Some("Bearer other"));
        assert_eq!(shown("GET", &[("host", "localhost:7879"), cookie], true), None);
        let plain = [("host", "example.com"), ("cookie", "trilogue=s")];
        assert_eq!(shown("GET", &plain, true).as_deref(), Some("Bearer s"));
    }
}
