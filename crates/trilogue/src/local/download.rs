//! Small documents at addresses that the configuration names, and copies of them in the per-user state folder.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, header};
use sha2::{Digest as _, Sha256};
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error};
use trilogue_egress::{Client, Options, Policy};
use url::Url;

use crate::local::token_file::make_private_dir;

/// The limits of one download.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DownloadLimits {
    /// The largest document, in bytes.
    pub(crate) max_bytes: u64,
    /// How long the whole exchange may take.
    pub(crate) time: Duration,
}

/// Reads a JSON document.
///
/// # Errors
/// `egress_refused` if the policy does not allow the address, otherwise `peer_unavailable`. The message follows "it" or the host's name.
pub(crate) async fn download(
    address: &Url,
    policy: &Policy,
    limits: DownloadLimits,
) -> Result<Bytes> {
    let reading = exchange(address, policy, limits);
    let late = |_| Error::new(Code::PeerUnavailable, "it does not answer in time");
    tokio::time::timeout(limits.time, reading).await.map_err(late)?
}

async fn exchange(address: &Url, policy: &Policy, limits: DownloadLimits) -> Result<Bytes> {
    let options = Options {
        total_timeout: Some(limits.time),
        max_response_bytes: limits.max_bytes,
        ..Options::default()
    };
    let client = Client::new(policy.clone(), options).map_err(|error| to_domain_error(&error))?;
    let request = Request::get(address.as_str())
        .header(header::ACCEPT, HeaderValue::from_static("application/json"))
        .body(Bytes::new())
        .map_err(|_| Error::new(Code::InvalidRequest, "the address is malformed"))?;
    let (status, _, body) = client.send(request).await.map_err(|error| to_domain_error(&error))?;
    if !status.is_success() {
        let message = format!("it answers with the status {}", status.as_u16());
        return Err(Error::new(Code::PeerUnavailable, message));
    }
    body.collect().await.map_err(|error| to_domain_error(&error))
}

fn to_domain_error(error: &trilogue_egress::Error) -> Error {
    let code = Code::from_text(error.code()).unwrap_or(Code::PeerUnavailable);
    let told = Error::new(code, error.to_string());
    match error.hint() {
        Some(hint) => told.hint(hint),
        None => told,
    }
}

/// Returns the path of the copy of an address, below a folder of the state folder. Another address never uses it.
pub(crate) fn copy_of(state: &Path, folder: &str, address: &Url) -> PathBuf {
    let hash: [u8; 32] = Sha256::digest(address.as_str()).into();
    let name: String = hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    state.join(folder).join(format!("{name}.json"))
}

/// Writes a copy, whole or not at all.
pub(crate) fn keep(copy: &Path, bytes: &[u8]) -> io::Result<()> {
    let Some(folder) = copy.parent() else { return Ok(()) };
    make_private_dir(folder)?;
    let draft = copy.with_extension(format!("{}.new", uuid::Uuid::new_v4().simple()));
    let kept = std::fs::write(&draft, bytes).and_then(|()| std::fs::rename(&draft, copy));
    if kept.is_err() {
        // The first error is the one to report.
        let _ = std::fs::remove_file(&draft);
    }
    kept
}
