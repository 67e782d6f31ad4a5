//! What a request with a placeholder becomes: the address at the provider, with the key in the place of the placeholder.

use http::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING};
use http::{Request, Uri};
use hyper::body::Incoming;
use percent_encoding::percent_decode_str;
use url::{Url, form_urlencoded};

use crate::access::ProviderKey;
use crate::forward::remove_hop_fields;
use crate::refusal::BrokerRefusal;

/// The path of key routes, before the name.
const PREFIX: &str = "/keys/";
const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const X_GOOG_API_KEY: HeaderName = HeaderName::from_static("x-goog-api-key");
/// The member of a query with a key.
const QUERY_KEY: &str = "key";

/// Returns the name of the key of a request.
pub(crate) fn name_of(uri: &Uri) -> Option<&str> {
    if uri.scheme().is_some() {
        return None;
    }
    let rest = uri.path().strip_prefix(PREFIX)?;
    Some(rest.split_once('/').map_or(rest, |(name, _)| name))
}

/// Whether a request has the placeholder, wherever clients put a key.
pub(crate) fn has_placeholder(request: &Request<Incoming>, key: &ProviderKey) -> bool {
    let field = |name: HeaderName| request.headers().get(name).and_then(|it| it.to_str().ok());
    let bearer = field(AUTHORIZATION).and_then(|it| it.strip_prefix("Bearer "));
    let own = field(key.header.name());
    let query = request.uri().query().unwrap_or_default();
    let in_query = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == QUERY_KEY);
    let fields = [bearer, field(X_API_KEY), field(X_GOOG_API_KEY), own];
    fields.into_iter().flatten().any(|text| key.placeholder.is(text.trim()))
        || in_query.is_some_and(|(_, text)| key.placeholder.is(&text))
}

/// Returns the address at the provider.
pub(crate) fn provider_url(key: &ProviderKey, uri: &Uri) -> Result<Url, BrokerRefusal> {
    let path = uri.path().strip_prefix(PREFIX).unwrap_or_default();
    let rest = path.strip_prefix(&key.name).unwrap_or_default();
    // Decoded, because the provider may decode before it reads the path.
    let decoded: Vec<u8> = percent_decode_str(rest).collect();
    let is_relative = |part: &[u8]| matches!(part, b"." | b"..");
    if decoded.split(|byte| matches!(byte, b'/' | b'\\')).any(is_relative)
        || decoded.contains(&b'\\')
        || rest.contains("//")
    {
        return Err(BrokerRefusal::invalid("the path of the request is not plain"));
    }
    let mut url = key.base.clone();
    let base = url.path().trim_end_matches('/').to_owned();
    url.set_path(&format!("{base}{rest}"));
    let kept: Vec<_> = uri
        .query()
        .into_iter()
        .flat_map(|query| query.split('&'))
        .filter(|member| form_urlencoded::parse(member.as_bytes()).all(|(it, _)| it != QUERY_KEY))
        .collect();
    url.set_query((!kept.is_empty()).then(|| kept.join("&")).as_deref());
    Ok(url)
}

/// Puts the key in the place of everything that could be one.
pub(crate) fn set_key(headers: &mut HeaderMap, key: &ProviderKey) -> Result<(), BrokerRefusal> {
    remove_hop_fields(headers);
    for name in [AUTHORIZATION, X_API_KEY, X_GOOG_API_KEY, HOST, TRANSFER_ENCODING] {
        headers.remove(name);
    }
    let mut value = HeaderValue::from_str(&key.header.value(key.key.reveal())).map_err(|_| {
        BrokerRefusal::of_provider(format!("the key {} is not a text for a field", key.name))
    })?;
    value.set_sensitive(true);
    headers.insert(key.header.name(), value);
    Ok(())
}
