//! Checks before routing: the requested host, and the page that sends the request.
//!
//! Any page can make a browser send requests here, and anyone can make a name point here. The guard detects
//! both by the headers that the browser itself writes: `Host`, `Origin` and `Sec-Fetch-Site`.

use std::net::{IpAddr, SocketAddr};

use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error};
use trilogue_mapping::native::escape_for_message;

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");
/// Names of query parameters in which clients put secrets.
const SECRET_PARAMETERS: &[&str] =
    &["token", "_token", "access_token", "auth_token", "api_key", "apikey", "api-key", "x-api-key"];

#[derive(Debug)]
pub(crate) struct OriginGuard {
    hosts: Vec<String>,
    origins: Vec<String>,
    /// The path of the page that links on other sites may open, if there is a page.
    page: Option<String>,
}

/// The origin of the requesting page, if the operator allows it.
#[derive(Clone, Debug)]
pub(crate) struct AllowedOrigin(pub(crate) HeaderValue);

// === impl OriginGuard ===

impl OriginGuard {
    pub(crate) fn new(
        hosts: &[String],
        origins: &[String],
        listeners: &[SocketAddr],
        page: Option<String>,
    ) -> Self {
        let mut known: Vec<String> =
            ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned).to_vec();
        known.extend(hosts.iter().map(|host| host.to_ascii_lowercase()));
        for address in listeners.iter().map(SocketAddr::ip).filter(|ip| !ip.is_unspecified()) {
            known.push(match address {
                IpAddr::V4(address) => address.to_string(),
                IpAddr::V6(address) => format!("[{address}]"),
            });
        }
        let origins = origins.iter().map(|origin| origin.to_ascii_lowercase()).collect();
        Self { hosts: known, origins, page }
    }

    pub(crate) fn allowed_origin(&self, headers: &HeaderMap) -> Option<AllowedOrigin> {
        let mut named = headers.get_all(header::ORIGIN).iter();
        // A request with two origins is ambiguous, so neither counts.
        let (origin, None) = (named.next()?, named.next()) else { return None };
        let text = origin.to_str().ok()?;
        let is_listed = self.origins.iter().any(|known| known.eq_ignore_ascii_case(text));
        is_listed.then(|| AllowedOrigin(origin.clone()))
    }

    /// Errors: `host_not_allowed`, `origin_not_allowed`, or `invalid_request` for a secret in the address.
    pub(crate) fn check(&self, head: &Parts) -> Result<()> {
        let host = self.check_host(head)?;
        self.check_origin(head, host)?;
        check_query(head.uri.query().unwrap_or_default())
    }

    fn check_host<'a>(&self, head: &'a Parts) -> Result<&'a str> {
        let mut named = head.headers.get_all(header::HOST).iter();
        let header = named.next().map(|value| value.to_str().unwrap_or("?"));
        let authority = head.uri.authority().map(Authority::as_str);
        if named.next().is_some() {
            return Err(foreign_host("more than one host"));
        }
        let host = match (header, authority) {
            (Some(header), Some(authority)) if !header.eq_ignore_ascii_case(authority) => {
                return Err(foreign_host("two different hosts"));
            }
            (Some(host), _) | (None, Some(host)) => host,
            (None, None) => return Err(foreign_host("no host")),
        };
        if self.hosts.iter().any(|known| known.eq_ignore_ascii_case(without_port(host))) {
            return Ok(host);
        }
        Err(foreign_host(&format!("the host '{}'", escape_for_message(host))))
    }

    /// Whether a browser opens the page in its own window.
    fn is_opened(&self, head: &Parts) -> bool {
        let is_window = |it: &HeaderValue| it.as_bytes() == b"document";
        head.method == Method::GET
            && self.page.as_deref() == Some(head.uri.path())
            && head.headers.get(FETCH_DEST).is_some_and(is_window)
    }

    fn check_origin(&self, head: &Parts, host: &str) -> Result<()> {
        let headers = &head.headers;
        let mut origins = headers.get_all(header::ORIGIN).iter();
        let Some(origin) = origins.next() else {
            // Without an origin, only a token admits a request, and no browser adds a token by itself.
            let site = headers.get(FETCH_SITE).map(|value| value.as_bytes());
            return match site {
                // A link on another site opens the page. This is safe: the page alone shows no data, and no
                // browser adds a session.
                Some(b"cross-site" | b"same-site") if self.is_opened(head) => Ok(()),
                Some(b"cross-site" | b"same-site") => Err(foreign_origin("another page")),
                _ => Ok(()),
            };
        };
        let origin = origin.to_str().unwrap_or("?");
        let own = ["http://", "https://"].iter().any(|scheme| {
            origin.strip_prefix(scheme).is_some_and(|rest| rest.eq_ignore_ascii_case(host))
        });
        let listed = self.origins.iter().any(|known| known.eq_ignore_ascii_case(origin));
        if origins.next().is_none() && (own || listed) {
            return Ok(());
        }
        Err(foreign_origin(&format!("the page '{}'", escape_for_message(origin))))
    }
}

fn without_port(host: &str) -> &str {
    let end = match host.rfind(']') {
        Some(bracket) => bracket + 1,
        None => host.find(':').unwrap_or(host.len()),
    };
    match host.split_at(end) {
        (name, "") => name,
        (name, port) if port.len() > 1 && port[1..].bytes().all(|byte| byte.is_ascii_digit()) => {
            name
        }
        _ => host,
    }
}

fn check_query(query: &str) -> Result<()> {
    let secret = form_urlencoded::parse(query.as_bytes())
        .find(|(name, _)| SECRET_PARAMETERS.iter().any(|known| name.eq_ignore_ascii_case(known)));
    match secret {
        None => Ok(()),
        Some((name, _)) => Err(Error::new(
            Code::InvalidRequest,
            format!("the address holds a secret in '{name}': addresses end up in logs"),
        )
        .hint("send it in the header 'Authorization: Bearer …' or 'x-api-key: …', and make a new one: this one may be in a log")),
    }
}

fn foreign_host(what: &str) -> Error {
    Error::new(
        Code::HostNotAllowed,
        format!("the request names {what}, and this server does not answer for it"),
    )
    .hint("an operator may add the host name to `server.allowed_hosts`")
}

fn foreign_origin(what: &str) -> Error {
    Error::new(Code::OriginNotAllowed, format!("{what} may not call this server"))
        .hint("an operator may add the origin to `server.allowed_origins`")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(uri: &str, headers: &[(&str, &str)]) -> Result<(), Code> {
        let guard = OriginGuard::new(
            &["agents.example.com".to_owned()],
            &["https://inspector.example.com".to_owned()],
            &["192.0.2.7:80".parse().unwrap()],
            Some("/ui/".to_owned()),
        );
        let mut request = http::Request::get(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        guard.check(&head).map_err(|error| error.code())
    }

    #[test]
    fn dns_rebinding_foreign_host_is_refused() {
        for host in [
            "localhost",
            "LOCALHOST:7878",
            "127.0.0.1:1",
            "[::1]:7878",
            "agents.example.com",
            "192.0.2.7",
        ] {
            assert_eq!(check("/", &[("host", host)]), Ok(()), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "localhost:x",
            "localhost:",
            "127.0.0.2",
            "[::1",
            "[::1]x",
            "",
            "user@localhost",
        ] {
            assert_eq!(check("/", &[("host", host)]), Err(Code::HostNotAllowed), "{host}");
        }
        assert_eq!(check("/", &[]), Err(Code::HostNotAllowed));
        let two = [("host", "localhost"), ("host", "evil.example")];
        assert_eq!(check("/", &two), Err(Code::HostNotAllowed));
        let absolute = check("http://evil.example/", &[("host", "localhost")]);
        assert_eq!(absolute, Err(Code::HostNotAllowed));
    }

    #[test]
    fn a_foreign_page_is_refused() {
        let origin = |origin| check("/", &[("host", "localhost:7878"), ("origin", origin)]);
        for known in ["http://localhost:7878", "https://inspector.example.com"] {
            assert_eq!(origin(known), Ok(()), "{known}");
        }
        for foreign in [
            "null",
            "file://",
            "http://localhost",
            "http://localhost:3000",
            "http://evil.example",
            "https://inspector.example.com.evil.example",
            "localhost:7878",
        ] {
            assert_eq!(origin(foreign), Err(Code::OriginNotAllowed), "{foreign}");
        }
        for site in ["cross-site", "same-site"] {
            let headers = [("host", "localhost"), ("sec-fetch-site", site)];
            assert_eq!(check("/", &headers), Err(Code::OriginNotAllowed), "{site}");
        }
        assert_eq!(check("/", &[("host", "localhost"), ("sec-fetch-site", "none")]), Ok(()));
    }

    #[test]
    fn a_link_of_another_page_opens_the_inspector_and_nothing_else() {
        let linked = |uri, dest| {
            let site = ("sec-fetch-site", "cross-site");
            check(uri, &[("host", "localhost"), site, ("sec-fetch-dest", dest)])
        };
        assert_eq!(linked("/ui/", "document"), Ok(()));
        for (uri, dest) in [("/ui/", "iframe"), ("/ui/", "empty"), ("/api/v1/runs", "document")] {
            assert_eq!(linked(uri, dest), Err(Code::OriginNotAllowed), "{uri} {dest}");
        }
    }

    #[test]
    fn a_token_in_the_query_is_refused() {
        for query in ["token=x", "a=b&access_token=x", "%74oken=x", "API_KEY=x", "token"] {
            let uri = format!("/?{query}");
            assert_eq!(check(&uri, &[("host", "localhost")]), Err(Code::InvalidRequest), "{query}");
        }
        assert_eq!(check("/?limit=3&tokens=1", &[("host", "localhost")]), Ok(()));
    }
}
