//! Why a server's certificate was refused, for people.

/// What to do about a refused certificate, if the error text is about one. It names the cause.
#[must_use]
pub fn certificate_hint(error: &str) -> Option<&'static str> {
    let causes = [
        (
            "UnknownIssuer",
            "this machine does not know who issued the server's certificate: check the address; if the certificate is from your own authority, set SSL_CERT_FILE to the file of that authority's certificate",
        ),
        (
            "xpired",
            "the server's certificate has expired, or this machine's clock is wrong: renew the certificate on the server",
        ),
        (
            "not valid yet",
            "the server's certificate is not valid yet, or this machine's clock is wrong",
        ),
        (
            "not valid for name",
            "the server's certificate is for another host: use the host name that it names, and check the address",
        ),
        (
            "NotValidForName",
            "the server's certificate is for another host: use the host name that it names, and check the address",
        ),
    ];
    if !error.contains("invalid peer certificate") {
        return None;
    }
    let known = causes.iter().find(|(cause, _)| error.contains(cause));
    Some(known.map_or("check the address; if the certificate is from your own authority, set SSL_CERT_FILE to the file of that authority's certificate", |(_, hint)| hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_names_the_cause() {
        for (error, part) in [
            ("invalid peer certificate: UnknownIssuer", "SSL_CERT_FILE"),
            ("invalid peer certificate: certificate expired: verification time 3", "expired"),
            ("invalid peer certificate: Expired", "expired"),
            ("invalid peer certificate: certificate not valid for name \"a\"", "another host"),
            ("invalid peer certificate: BadSignature", "check the address"),
        ] {
            assert!(certificate_hint(error).unwrap().contains(part), "{error}");
        }
        assert_eq!(certificate_hint("connection refused"), None);
    }
}
