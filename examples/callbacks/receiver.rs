//! Receives signed callbacks of Trilogue.
//!
//! ```text
//! CALLBACK_SECRET=$(trilogue webhooks secret http://127.0.0.1:8800/hook) cargo run --example callback_receiver 8800
//! ```

#![expect(clippy::print_stdout, reason = "a program for a terminal")]

use std::collections::{HashSet, VecDeque};
use std::convert::Infallible;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use sha2::Sha256;
use tokio::net::TcpListener;

const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;
const MAX_AGE_SECONDS: u64 = 5 * 60;
const MAX_SIGNATURES: usize = 16;
/// The number of remembered ids: a repeated attempt has the id of the first.
const MAX_IDS: usize = 10_000;

struct Receiver {
    secrets: Vec<Hmac<Sha256>>,
    ids: Mutex<SeenIds>,
}

#[derive(Default)]
struct SeenIds {
    all: HashSet<String>,
    oldest: VecDeque<String>,
}

impl SeenIds {
    /// Adds an id. Returns whether it is new.
    fn add(&mut self, id: &str) -> bool {
        if !self.all.insert(id.to_owned()) {
            return false;
        }
        self.oldest.push_back(id.to_owned());
        if self.oldest.len() > MAX_IDS
            && let Some(oldest) = self.oldest.pop_front()
        {
            self.all.remove(&oldest);
        }
        true
    }
}

/// Reads the secrets. Two, separated by a space, are valid while the server changes its own.
fn read_secrets(text: &str) -> Result<Vec<Hmac<Sha256>>, Box<dyn Error>> {
    let read = |word: &str| -> Result<_, Box<dyn Error>> {
        let key = STANDARD.decode(word.strip_prefix("whsec_").unwrap_or(word))?;
        Ok(Hmac::new_from_slice(&key)?)
    };
    let secrets: Vec<_> = text.split_whitespace().map(read).collect::<Result<_, _>>()?;
    if secrets.is_empty() {
        return Err("set CALLBACK_SECRET to what `trilogue webhooks secret URL` prints".into());
    }
    Ok(secrets)
}

/// Returns the id of a callback that was signed with one of the secrets, at most five minutes ago; otherwise `None`.
fn genuine_id<'a>(
    secrets: &[Hmac<Sha256>],
    headers: &'a HeaderMap,
    body: &[u8],
    now: u64,
) -> Option<&'a str> {
    let header = |name| headers.get(name)?.to_str().ok();
    let id = header("webhook-id").filter(|id| !id.is_empty())?;
    let sent = header("webhook-timestamp")?;
    if now.abs_diff(sent.parse().ok()?) > MAX_AGE_SECONDS {
        return None;
    }
    let words = header("webhook-signature")?.split(' ').take(MAX_SIGNATURES);
    let signatures: Vec<_> =
        words.filter_map(|word| STANDARD.decode(word.strip_prefix("v1,")?).ok()).collect();
    let is_signed = secrets.iter().any(|secret| {
        let mut mac = secret.clone();
        // Signs the received bytes, not JSON that was parsed and written again.
        for piece in [id.as_bytes(), b".", sent.as_bytes(), b".", body] {
            mac.update(piece);
        }
        // `verify_slice` takes the same time for every wrong signature.
        signatures.iter().any(|signature| mac.clone().verify_slice(signature).is_ok())
    });
    is_signed.then_some(id)
}

impl Receiver {
    async fn receive(&self, request: Request<Incoming>) -> StatusCode {
        if request.method() != Method::POST {
            return StatusCode::METHOD_NOT_ALLOWED;
        }
        if request.body().size_hint().lower() > MAX_BODY_BYTES as u64 {
            return StatusCode::PAYLOAD_TOO_LARGE;
        }
        let (head, body) = request.into_parts();
        let Ok(body) = Limited::new(body, MAX_BODY_BYTES).collect().await else {
            return StatusCode::PAYLOAD_TOO_LARGE;
        };
        let body = body.to_bytes();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let Some(id) = genuine_id(&self.secrets, &head.headers, &body, now) else {
            return StatusCode::UNAUTHORIZED;
        };
        if self.ids.lock().unwrap_or_else(PoisonError::into_inner).add(id) {
            // Your own work belongs here. Keep it short by using a queue; otherwise the server retries.
            println!("{}", serde_json::json!({ "id": id, "body": String::from_utf8_lossy(&body) }));
        }
        StatusCode::NO_CONTENT
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let secrets = read_secrets(&std::env::var("CALLBACK_SECRET").unwrap_or_default())?;
    let receiver = Arc::new(Receiver { secrets, ids: Mutex::default() });
    let port: u16 = std::env::args().nth(1).ok_or("the port is missing")?.parse()?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    println!("listening");
    loop {
        let (stream, _) = listener.accept().await?;
        let receiver = Arc::clone(&receiver);
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let receiver = Arc::clone(&receiver);
                async move {
                    let mut response = Response::new(Empty::<Bytes>::new());
                    *response.status_mut() = receiver.receive(request).await;
                    Ok::<_, Infallible>(response)
                }
            });
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).keep_alive(false);
            // The server retries after a failed connection.
            let _ = http.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}
