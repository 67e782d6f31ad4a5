//! Checks the hosts and origins that a server accepts: an entry that matches nothing, or seems to match everything, is a mistake.

use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error};
use url::Url;

use super::Server;

/// Checks `allowed_hosts` and `allowed_origins`.
///
/// # Errors
/// `invalid_request`, naming the entry and the form that is valid.
pub(crate) fn check_hosts_and_origins(server: &Server) -> Result<()> {
    for host in &server.allowed_hosts.0 {
        if !is_host(host) {
            return Err(invalid_entry_error("allowed_hosts", host, "a host name").hint(
                "write each name in full, with or without a port, such as \"host.example.com\": patterns are not supported",
            ));
        }
    }
    for origin in &server.allowed_origins.0 {
        let parsed = Url::parse(origin).ok().filter(|url| !origin.contains('*') && is_web(url));
        let Some(url) = parsed else {
            return Err(invalid_entry_error("allowed_origins", origin, "an origin").hint(
                "write scheme, host and port without a path, such as \"https://app.example.com\": patterns are not supported",
            ));
        };
        // Browsers write origins in one form, and it is compared as a text.
        let written = url.origin().ascii_serialization();
        if !written.eq_ignore_ascii_case(origin) {
            return Err(invalid_entry_error(
                "allowed_origins",
                origin,
                "an origin as browsers write it",
            )
            .hint(format!("write \"{written}\"")));
        }
    }
    Ok(())
}

fn is_host(text: &str) -> bool {
    let meaningless = |byte: char| matches!(byte, '*' | '/' | '?' | '#' | '@' | '\\');
    if text.contains(meaningless) || text.contains(char::is_whitespace) {
        return false;
    }
    Url::parse(&format!("http://{text}")).is_ok_and(|url| url.has_host())
}

fn is_web(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https") && url.has_host()
}

fn invalid_entry_error(key: &str, entry: &str, what: &str) -> Error {
    let entry = entry.escape_debug();
    Error::new(
        Code::InvalidRequest,
        format!("`server.{key}` has an entry that is not {what}: '{entry}'"),
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn check(key: &str, entry: &str) -> Result<()> {
        let text = format!("[server]\n{key} = {entry:?}\n");
        check_hosts_and_origins(
            &super::super::parse(Path::new("t.toml"), &text).unwrap().options.server,
        )
    }

    #[test]
    fn hosts_and_origins_that_mean_nothing_are_refused() {
        for host in ["host.example.com", "localhost:7878", "[2001:db8::1]", "10.0.0.1"] {
            check("allowed_hosts", host).unwrap();
        }
        for host in ["*", "*.example.com", "", "https://example.com", "example.com/", "a b", "x@y"]
        {
            let error = check("allowed_hosts", host).unwrap_err();
            assert!(error.to_string().contains("`server.allowed_hosts`"), "{error}");
            assert!(
                error.hint_text().is_some_and(|hint| hint.contains("patterns are not")),
                "{host}"
            );
        }
        for origin in ["https://app.example.com", "http://localhost:3000", "HTTPS://App.example"] {
            check("allowed_origins", origin).unwrap();
        }
        for (origin, hint) in [
            ("*", "patterns are not"),
            ("null", "patterns are not"),
            ("https://*.example.com", "patterns are not"),
            ("https://app.example.com/", "\"https://app.example.com\""),
            ("https://app.example.com/x", "\"https://app.example.com\""),
            ("https://app.example.com:443", "\"https://app.example.com\""),
            ("file:///x", "patterns are not"),
        ] {
            let error = check("allowed_origins", origin).unwrap_err();
            assert!(error.hint_text().is_some_and(|it| it.contains(hint)), "{origin} {error:?}");
        }
    }
}
