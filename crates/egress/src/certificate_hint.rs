//! Why a server's certificate was refused, for people.

use std::path::Path;

/// The variable that names a file of certificates, which replaces those of the system.
const CERTIFICATE_FILE: &str = "SSL_CERT_FILE";

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
    if let Some(unusable) = unusable_certificates() {
        return Some(format!("{unusable}: correct the path"));
    }
    let unknown = match error.contains("UnknownIssuer") {
        true => "this machine does not know who issued the server's certificate: ",
        false => "",
    };
    Some(format!(
        "{unknown}check the address; if the certificate is from your own authority, {trust_authority}"
    ))
}

/// Returns why the file of certificates that the environment names is not in use. `None` if it is, or if none is named.
pub(crate) fn unusable_certificates() -> Option<String> {
    let file = std::env::var_os(CERTIFICATE_FILE).filter(|file| !file.is_empty())?;
    unusable_file(Path::new(&file))
}

fn unusable_file(file: &Path) -> Option<String> {
    let why = match std::fs::read(file) {
        Ok(text) if memchr::memmem::find(&text, b"-----BEGIN ").is_some() => return None,
        Ok(_) => "which has no certificate in PEM form".to_owned(),
        Err(error) => format!("which cannot be read: {error}"),
    };
    Some(format!("{CERTIFICATE_FILE} names '{}', {why}", file.display()))
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

    #[test]
    fn a_file_without_certificates_is_named() {
        let missing = unusable_file(Path::new("/nowhere/ca.pem")).unwrap();
        assert!(missing.starts_with("SSL_CERT_FILE names '/nowhere/ca.pem'"), "{missing}");
        assert!(missing.contains("cannot be read"), "{missing}");
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        assert!(unusable_file(&manifest).unwrap().contains("no certificate"));
    }
}
