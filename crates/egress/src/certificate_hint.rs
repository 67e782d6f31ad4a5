//! Why a server's certificate was refused, for people.

/// Returns what to do about a refused certificate, if the error text is about one. It names the cause. `trust_authority` says how to make the certificate of an own
/// authority known, as a clause in the imperative.
#[must_use]
pub fn certificate_hint(error: &str, trust_authority: &str) -> Option<String> {
    const OTHER_HOST: &str = "the server's certificate is for another host: use the host name that it names, and check the address";
    const EXPIRED: &str = "the server's certificate has expired, or this machine's clock is wrong: renew the certificate on the server";
    const EARLY: &str =
        "the server's certificate is not valid yet, or this machine's clock is wrong";
    let causes = [
        ("xpired", EXPIRED),
        ("not valid yet", EARLY),
        ("NotValidYet", EARLY),
        ("not valid for name", OTHER_HOST),
        ("NotValidForName", OTHER_HOST),
    ];
    if !error.contains("invalid peer certificate") {
        return None;
    }
    if let Some((_, hint)) = causes.iter().find(|(cause, _)| error.contains(cause)) {
        return Some((*hint).to_owned());
    }
    let unknown = match error.contains("UnknownIssuer") {
        true => "this machine does not know who issued the server's certificate: ",
        false => "",
    };
    Some(format!(
        "{unknown}check the address; if the certificate is from your own authority, {trust_authority}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_names_the_cause() {
        for (error, part) in [
            ("invalid peer certificate: UnknownIssuer", "does not know who issued"),
            ("invalid peer certificate: UnknownIssuer", "set SSL_CERT_FILE"),
            ("invalid peer certificate: certificate expired: verification time 3", "expired"),
            ("invalid peer certificate: Expired", "expired"),
            ("invalid peer certificate: certificate not valid yet: 3", "not valid yet"),
            ("invalid peer certificate: certificate not valid for name \"a\"", "another host"),
            ("invalid peer certificate: BadSignature", "check the address"),
        ] {
            let hint = certificate_hint(error, "set SSL_CERT_FILE").unwrap();
            assert!(hint.contains(part), "{error}");
        }
        assert_eq!(certificate_hint("connection refused", "set SSL_CERT_FILE"), None);
    }
}
