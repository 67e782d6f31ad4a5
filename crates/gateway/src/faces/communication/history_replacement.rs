//! Replaces a session's history with the one in a request.

use std::borrow::Cow;
use std::sync::Arc;

use percent_encoding::percent_decode_str;
use trilogue_domain::error::Result;
use trilogue_domain::{
    CheckpointId, ClientHistory, Code, Error, Json, MessageId, Reference, RunId, ThreadId, limits,
};
use trilogue_mapping::native::escape_for_message;
use trilogue_wire::agent_communication::Session;
use uuid::Uuid;

use super::CommunicationCall;
use super::resources;

/// Distinguishes our addresses from those of other servers.
#[derive(Debug)]
struct Own {
    /// The beginnings of our addresses: a host, and the path up to the mount.
    bases: Vec<(String, String)>,
}

/// Replaces the history of the session, which is this thread, with the client's. Returns the thread's id.
/// Errors: `too_many_parts`, `invalid_input` if something does not exist, and the errors of replacing a history.
pub(super) async fn replace(
    call: &CommunicationCall,
    thread: &ThreadId,
    session: Session,
) -> Result<ThreadId> {
    if session.history.len() > limits::MAX_GIVEN_ENTRIES {
        let most = limits::MAX_GIVEN_ENTRIES;
        return Err(Error::new(
            Code::TooManyParts,
            format!("'session.history' has {} entries; {most} is the most", session.history.len()),
        ));
    }
    let own = Own::of(call);
    let mut entries = Vec::with_capacity(session.history.len());
    for address in &session.history {
        entries.push(entry(call, &own, address).await?);
    }
    let (value, state) = match session.state {
        None => (None, None),
        Some(address) => match own.path(&address).and_then(state_ids) {
            Some((thread, checkpoint)) => {
                (Some(value(call, &address, thread, checkpoint).await?), None)
            }
            None => (None, Some(Arc::from(address))),
        },
    };
    let runtime = &call.state.runtime;
    let given = ClientHistory { entries, state };
    let row = runtime.replace_history_and_state(call.principal(), thread, given, value).await?;
    Ok(row.id)
}

async fn entry(call: &CommunicationCall, own: &Own, address: &str) -> Result<Reference> {
    let elsewhere = || Reference::Address(Arc::from(address));
    let Some(path) = own.path(address).and_then(|path| path.strip_prefix("/resources/")) else {
        return Ok(elsewhere());
    };
    // A missing item is refused when the history is replaced: the error then names its index.
    Ok(match path.split_once('/') {
        Some((thread, id)) => {
            let (thread, id) = (decoded(thread), decoded(id));
            match resources::find_message(call, &thread, &id).await? {
                Some((thread, row)) => Reference::Message { thread: Some(thread), id: row.id },
                None => match (ThreadId::parse(&thread), MessageId::parse(&id)) {
                    (Ok(thread), Ok(id)) => Reference::Message { thread: Some(thread), id },
                    _ => elsewhere(),
                },
            }
        }
        None => {
            let id = decoded(path);
            match resources::find_result(call, &id).await? {
                Some(row) => Reference::Result(row.id),
                None => RunId::parse(&id).map_or_else(|_| elsewhere(), Reference::Result),
            }
        }
    })
}

async fn value(
    call: &CommunicationCall,
    address: &str,
    thread: ThreadId,
    checkpoint: CheckpointId,
) -> Result<Json> {
    let found = call.state.read.checkpoint(&call.scope(), &thread, &checkpoint).await?;
    found.and_then(|checkpoint| checkpoint.value).ok_or_else(|| {
        Error::new(
            Code::InvalidInput,
            format!("'session.state': state '{}' not found", escape_for_message(address)),
        )
    })
}

/// Returns the session and the checkpoint in the path of a state.
fn state_ids(path: &str) -> Option<(ThreadId, CheckpointId)> {
    let (session, checkpoint) = path.strip_prefix("/sessions/")?.split_once("/state/")?;
    // The address contains the thread's id unchanged.
    let session = ThreadId::parse(&decoded(session)).ok()?;
    let checkpoint = Uuid::parse_str(&decoded(checkpoint)).ok()?;
    Some((session, CheckpointId::from_uuid(checkpoint)))
}

fn decoded(text: &str) -> Cow<'_, str> {
    percent_decode_str(text).decode_utf8_lossy()
}

// === impl Own ===

impl Own {
    /// Collects the addresses by which this client, or any client, reaches the mount.
    fn of(call: &CommunicationCall) -> Self {
        let place = &call.state.place;
        Self::new([place.base_for(call), place.base.to_string()])
    }

    fn new(addresses: impl IntoIterator<Item = String>) -> Self {
        let owned = |address: String| {
            let (host, path) = host_and_path(&address)?;
            Some((host.to_owned(), path.to_owned()))
        };
        Self { bases: addresses.into_iter().filter_map(owned).collect() }
    }

    /// Returns the path below the mount if the address is ours.
    fn path<'a>(&self, address: &'a str) -> Option<&'a str> {
        let (host, path) = host_and_path(address)?;
        let below = self.bases.iter().find_map(|(known, prefix)| {
            let below = path.strip_prefix(prefix.as_str())?;
            (host.eq_ignore_ascii_case(known) && below.starts_with('/')).then_some(below)
        });
        below.filter(|path| !path.contains(['?', '#']))
    }
}

/// Returns the host, without a default port, and the rest of the address.
fn host_and_path(address: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = address.split_once("://")?;
    let port = match scheme {
        _ if scheme.eq_ignore_ascii_case("http") => ":80",
        _ if scheme.eq_ignore_ascii_case("https") => ":443",
        _ => return None,
    };
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    Some((host.strip_suffix(port).unwrap_or(host), path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Own {
        let ours = ["http://127.0.0.1:7878/communication", "https://agents.example.com/a"];
        Own::new(ours.map(str::to_owned))
    }

    #[test]
    fn addresses_of_ours_are_told_from_others_at_the_border_of_host_and_prefix() {
        for (address, path) in [
            ("http://127.0.0.1:7878/communication/resources/x", Some("/resources/x")),
            ("https://127.0.0.1:7878/communication/resources/x", Some("/resources/x")),
            ("https://Agents.example.com/a/resources/x", Some("/resources/x")),
            ("https://agents.example.com:443/a/resources/x", Some("/resources/x")),
            ("https://agents.example.com:80/a/resources/x", None),
            ("http://agents.example.com:80/a/resources/x", Some("/resources/x")),
            ("http://127.0.0.1:78789/communication/resources/x", None),
            ("http://127.0.0.1:7878/communications/resources/x", None),
            ("http://127.0.0.1:7878/resources/x", None),
            ("http://127.0.0.1:7878/Communication/resources/x", None),
            ("http://user@127.0.0.1:7878/communication/resources/x", None),
            ("http://127.0.0.1:7878.evil.example/communication/resources/x", None),
            ("http://evil.example/?http://127.0.0.1:7878/communication/resources/x", None),
            ("http://127.0.0.1:7878/communication/resources/x?y=z", None),
            ("ftp://127.0.0.1:7878/communication/resources/x", None),
        ] {
            assert_eq!(own().path(address), path, "{address}");
        }
    }

    #[test]
    fn a_state_is_named_by_two_ids() {
        let (one, two) = (Uuid::new_v4(), Uuid::new_v4());
        let ids = state_ids(&format!("/sessions/{one}/state/{}", two.simple()));
        assert_eq!(ids, Some((ThreadId::from_uuid(one), CheckpointId::from_uuid(two))));
        for other in ["/sessions/x/state/y", "/sessions/", "/resources/x", ""] {
            assert_eq!(state_ids(other), None, "{other}");
        }
    }
}
