//! Sessions of pages: a browser shows a cookie and the page a secret, where programs show a token.
//!
//! # Invariants
//! - Only a face that says so sees a cookie at all.
//! - A cookie alone is worth nothing: browsers send it to every port of a host, so a session also needs the secret in [`PAGE`], which the browser keeps for one origin.
//! - A session is not a token: [`super::authenticator::Authenticator`] takes neither in place of the other.
//! - A cookie's secret is in no address and in nothing that a script can read.

use std::time::Duration;

use http::request::Parts;
use http::uri::Authority;
use http::{HeaderName, HeaderValue, header};
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, Timestamp};
use trilogue_store::rows::TokenRow;

use super::authenticator::shows_token;
use super::secret::{hash_secret, new_secret};

/// The page's secret, which our page sends with every request. Forms and links cannot send it.
pub(crate) const PAGE: HeaderName = HeaderName::from_static("trilogue-page");
/// How long a link for signing in works.
pub(crate) const LINK_LIFE: Duration = Duration::from_secs(10 * 60);
/// How long a session lasts at most.
pub(crate) const SESSION_LIFE: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// How long after a sign-in a session may do the operations that [`require_new_sign_in`] guards.
const NEW_SIGN_IN: Duration = Duration::from_secs(10 * 60);
/// Where browsers send the cookie; with TLS everywhere, as the prefix of its name demands.
const COOKIE_PATH: &str = "/api/v1";
/// The scheme of `Authorization` for sessions inside the server and between nodes.
const SCHEME: &str = "Session";
const HOST_PREFIX: &str = "__Host-";

/// The two halves of a session's secret.
#[derive(Debug)]
pub(crate) struct SessionSecret {
    /// The half for the browser, which hides it from scripts.
    pub(crate) cookie: String,
    /// The half for the page.
    pub(crate) page: String,
}

// === impl SessionSecret ===

impl SessionSecret {
    pub(crate) fn generate() -> Result<Self> {
        Ok(Self { cookie: new_secret()?, page: new_secret()? })
    }

    /// Returns the hash that the store keeps. Neither half alone yields it.
    pub(crate) fn hash(&self) -> [u8; 32] {
        hash_secret(joined(&self.cookie, &self.page).as_bytes())
    }
}

fn joined(cookie: &str, page: &str) -> String {
    format!("{cookie}.{page}")
}

/// Writes a page's session (the cookie and the page's secret) into `Authorization`, under a separate scheme, and removes the cookies. Does nothing if a half is
/// missing or the request also shows a token.
pub(crate) fn set_authorization(head: &mut Parts, takes_cookies: bool, is_encrypted: bool) {
    let Some(cookies) = head.headers.remove(header::COOKIE) else { return };
    if !takes_cookies || shows_token(&head.headers) {
        return;
    }
    let page = head.headers.get(PAGE).and_then(|page| page.to_str().ok());
    let host = head.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let name = cookie_name(host.or(head.uri.authority().map(Authority::as_str)), is_encrypted);
    let cookie = cookies.to_str().ok().and_then(|cookies| cookie(cookies, &name));
    let (Some(cookie), Some(page)) = (cookie, page) else { return };
    let value = HeaderValue::try_from(format!("{SCHEME} {}", joined(cookie, page)));
    if let Ok(mut value) = value {
        value.set_sensitive(true);
        head.headers.insert(header::AUTHORIZATION, value);
    }
}

/// The secret of a session in the value of an `Authorization` header, or `None` if it is of another scheme.
pub(crate) fn session_secret(authorization: &[u8]) -> Option<&[u8]> {
    authorization.strip_prefix(SCHEME.as_bytes())?.strip_prefix(b" ")
}

/// Fails with `forbidden` if the page's sign-in is not recent. Guards operations that a borrowed browser must not do: read or end everything, or make
/// credentials that outlive the session.
pub(crate) fn require_new_sign_in(session: Option<&TokenRow>, now: Timestamp) -> Result<()> {
    match session {
        Some(row) if row.session_of.is_some() && row.created_at.after(NEW_SIGN_IN) < now => {
            let minutes = NEW_SIGN_IN.as_secs() / 60;
            Err(Error::new(
                Code::Forbidden,
                format!("this needs a sign-in of the last {minutes} minutes"),
            )
            .hint("sign in again with: trilogue ui"))
        }
        _ => Ok(()),
    }
}

/// Returns the header that makes a browser keep a session for this long. With no time, the browser forgets it.
pub(crate) fn set_cookie(
    host: Option<&str>,
    secret: &str,
    life: Duration,
    is_encrypted: bool,
) -> Result<HeaderValue> {
    let (name, seconds) = (cookie_name(host, is_encrypted), life.as_secs());
    let (path, secure) = if is_encrypted { ("/", "; Secure") } else { (COOKIE_PATH, "") };
    let text = format!(
        "{name}={secret}; Path={path}; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"
    );
    HeaderValue::try_from(text)
        .map_err(|_| Error::new(Code::Internal, "the cookie cannot be written"))
}

/// Browsers share cookies across the ports of a host, so servers on one host use different cookie names.
fn cookie_name(host: Option<&str>, is_encrypted: bool) -> String {
    let prefix = if is_encrypted { HOST_PREFIX } else { "" };
    let port = host.and_then(|host| host.rsplit_once(':')).map(|(_, port)| port);
    match port.filter(|port| port.bytes().all(|byte| byte.is_ascii_digit())) {
        Some(port) => format!("{prefix}trilogue-{port}"),
        None => format!("{prefix}trilogue"),
    }
}

fn cookie<'a>(cookies: &'a str, name: &str) -> Option<&'a str> {
    let pairs = cookies.split(';').filter_map(|pair| pair.trim().split_once('='));
    pairs.into_iter().find(|(known, _)| *known == name).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(
        headers: &[(&str, &str)],
        takes_cookies: bool,
        is_encrypted: bool,
    ) -> Option<String> {
        let mut request = http::Request::builder().uri("/api/v1/runs");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (mut head, ()) = request.body(()).unwrap().into_parts();
        set_authorization(&mut head, takes_cookies, is_encrypted);
        assert!(!head.headers.contains_key(header::COOKIE));
        let secret = session_secret(head.headers.get(header::AUTHORIZATION)?.as_bytes())?;
        Some(String::from_utf8(secret.to_vec()).unwrap())
    }

    #[test]
    fn a_session_needs_both_halves_at_its_own_port() {
        let host = ("host", "localhost:7878");
        let cookie = ("cookie", "a=b; trilogue-7878=s; trilogue-1=t; __Host-trilogue-7878=u");
        let page = ("trilogue-page", "p");
        let plain = |headers: &[(&str, &str)]| session(headers, true, false);
        assert_eq!(plain(&[host, cookie, page]).as_deref(), Some("s.p"));
        assert_eq!(plain(&[host, cookie]), None);
        assert_eq!(plain(&[host, page]), None);
        assert_eq!(plain(&[("host", "localhost:7879"), cookie, page]), None);
        assert_eq!(plain(&[host, cookie, page, ("authorization", "Bearer other")]), None);
        assert_eq!(session(&[host, cookie, page], false, false), None);
        assert_eq!(session(&[host, cookie, page], true, true).as_deref(), Some("u.p"));
        let bare = [("host", "example.com"), ("cookie", "trilogue=s"), page];
        assert_eq!(plain(&bare).as_deref(), Some("s.p"));
    }

    #[test]
    fn a_cookie_under_tls_is_bound_to_its_host() {
        let life = Duration::from_secs(1);
        let cookie = set_cookie(Some("a.example"), "s", life, true).unwrap();
        let expected = "__Host-trilogue=s; Path=/; Max-Age=1; HttpOnly; SameSite=Strict; Secure";
        assert_eq!(cookie.to_str().unwrap(), expected);
    }
}
