//! The bucket for large content: any store with the Amazon S3 protocol.

use std::error::Error as _;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::client::{HttpClient, HttpConnector};
use object_store::path::Path;
use object_store::{BackoffConfig, ClientOptions, ObjectStoreExt, PutPayload, RetryConfig};
use trilogue_domain::TenantId;
use trilogue_domain::content::BlobRef;
use trilogue_domain::error::{Code, Error, Result};

use super::connection::client_config;
use crate::options::{BucketOptions, Options};

/// The time limit of one request to the bucket, including its content.
const REQUEST_TIME: Duration = Duration::from_secs(60);
/// The most retries of a request, and the pauses between them.
const RETRIES: usize = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The most characters of a bucket's response that an error shows.
const MAX_SHOWN: usize = 300;

pub(super) struct Bucket {
    objects: AmazonS3,
    /// Its address, for people.
    shown: String,
    /// Content of at least this size goes there, in bytes.
    pub(super) min_bytes: u64,
}

/// Why a request to the bucket failed.
#[derive(Debug)]
pub(super) enum BucketFailure {
    /// The object or the bucket does not exist.
    Missing(String),
    /// The bucket refuses the request. Only another setting helps.
    Refused(String),
    /// The bucket cannot be reached, or does not work now.
    Unreachable(String),
}

/// The location of the bucket, as a URL gives it.
#[derive(PartialEq, Eq, Debug)]
struct BucketAddress {
    /// `None` for Amazon S3, by the region.
    endpoint: Option<String>,
    bucket: String,
}

/// Connects with the same TLS settings as the connections to the database.
#[derive(Debug)]
struct Connector {
    connect_wait: Duration,
}

/// Checks that the bucket of the options can be used: writes a small object and removes it. Does nothing without a bucket.
/// Errors: `invalid_request` if the bucket refuses, `store_unavailable` if it cannot be reached.
pub async fn check_bucket(options: &Options) -> Result<()> {
    match &options.bucket {
        Some(bucket) => Bucket::new(bucket, options)?.probe("check").await,
        None => Ok(()),
    }
}

// === impl Bucket ===

impl Bucket {
    /// A client for the bucket. Nothing is sent yet.
    /// Errors: `invalid_request`.
    pub(super) fn new(bucket: &BucketOptions, options: &Options) -> Result<Self> {
        let address = BucketAddress::parse(&bucket.url)?;
        // Without keys in the settings, they are found in the same way as by Amazon's programs.
        let mut builder = match (&bucket.key_id, &bucket.secret) {
            (Some(id), Some(secret)) => {
                AmazonS3Builder::new().with_access_key_id(id).with_secret_access_key(secret.text())
            }
            (None, None) => AmazonS3Builder::from_env(),
            _ => {
                let message = "the bucket has a key without its other half";
                return Err(Error::new(Code::InvalidRequest, message)
                    .hint("set `key_id` and the secret in [store.blobs], or none of the two"));
            }
        };
        if let Some(endpoint) = &address.endpoint {
            builder = builder
                .with_endpoint(endpoint)
                .with_virtual_hosted_style_request(false)
                .with_allow_http(endpoint.starts_with("http:"));
        }
        let retry = RetryConfig {
            backoff: BackoffConfig {
                init_backoff: FIRST_PAUSE,
                max_backoff: LONGEST_PAUSE,
                base: 2.0,
            },
            max_retries: RETRIES,
            retry_timeout: options.connect_wait * 2,
        };
        let objects = builder
            .with_region(&bucket.region)
            .with_bucket_name(&address.bucket)
            .with_retry(retry)
            .with_http_connector(Connector { connect_wait: options.connect_wait })
            .build()
            .map_err(|error| invalid_bucket_error(&explain(&error)))?;
        Ok(Self { objects, shown: bucket.url.clone(), min_bytes: bucket.min_bytes })
    }

    /// A name that no object ever had: from the store, the tenant and the content, and new for each upload. So the removal of an old object never deletes a new one.
    pub(super) fn new_name(store: &str, tenant: &TenantId, blob: &BlobRef) -> String {
        use std::fmt::Write as _;
        let mut name = String::with_capacity(120);
        for byte in blob.hash {
            let _infallible = write!(name, "{byte:02x}");
        }
        let _infallible = write!(name, "-{}-{}", blob.length, uuid::Uuid::new_v4().simple());
        String::from(Path::from_iter([store, tenant.as_str(), &name]))
    }

    pub(super) async fn put(&self, object: &str, bytes: Bytes) -> Result<(), BucketFailure> {
        let payload = PutPayload::from_bytes(bytes);
        self.objects
            .put(&path(object)?, payload)
            .await
            .map_err(|error| BucketFailure::of(&error))?;
        Ok(())
    }

    pub(super) async fn get(&self, object: &str) -> Result<Bytes, BucketFailure> {
        let found =
            self.objects.get(&path(object)?).await.map_err(|error| BucketFailure::of(&error))?;
        found.bytes().await.map_err(|error| BucketFailure::of(&error))
    }

    /// Removes an object, if it exists.
    pub(super) async fn remove(&self, object: &str) -> Result<(), BucketFailure> {
        match self.objects.delete(&path(object)?).await.map_err(|error| BucketFailure::of(&error)) {
            Err(BucketFailure::Missing(_)) => Ok(()),
            removed => removed,
        }
    }

    /// Writes a small object for `store` and removes it. Fails as [`check_bucket`].
    pub(super) async fn probe(&self, store: &str) -> Result<()> {
        let name = format!("probe-{}", uuid::Uuid::new_v4().simple());
        let object = String::from(Path::from_iter([store, &name]));
        let probe = async {
            self.put(&object, Bytes::from_static(b"trilogue")).await?;
            self.remove(&object).await
        };
        probe.await.map_err(|failure| match failure {
            BucketFailure::Unreachable(_) => self.error(failure),
            BucketFailure::Missing(why) | BucketFailure::Refused(why) => {
                let message = format!("the bucket '{}' cannot be used: {why}", self.shown);
                Error::new(Code::InvalidRequest, message)
                    .hint("check url, region and keys in [store.blobs]: the keys need the rights to put, get and delete objects")
            }
        })
    }

    /// The error of a change or look-up that needs the bucket.
    pub(super) fn error(&self, failure: BucketFailure) -> Error {
        let (what, why, hint) = match failure {
            BucketFailure::Missing(why) => (
                "does not have this content",
                why,
                "check that [store.blobs] names the bucket that the content was stored in",
            ),
            BucketFailure::Refused(why) => {
                ("refuses", why, "check the rights of the keys in [store.blobs]")
            }
            BucketFailure::Unreachable(why) => (
                "cannot be reached",
                why,
                "check that it runs and can be reached from the server; then send the request again",
            ),
        };
        Error::new(Code::StoreUnavailable, format!("the bucket '{}' {what}: {why}", self.shown))
            .hint(hint)
    }
}

/// Prints no members: the client holds the keys.
impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bucket").field("url", &self.shown).finish_non_exhaustive()
    }
}

/// The error if content is in a bucket but the settings name none.
pub(super) fn no_bucket() -> Error {
    Error::new(Code::StoreUnavailable, "this content is in a bucket, and the settings name none")
        .hint("set [store.blobs] as on the other servers of this store")
}

fn path(object: &str) -> Result<Path, BucketFailure> {
    Path::parse(object).map_err(|error| BucketFailure::Refused(error.to_string()))
}

// === impl BucketFailure ===

impl BucketFailure {
    fn of(error: &object_store::Error) -> Self {
        let why = explain(error);
        match error {
            object_store::Error::NotFound { .. } => Self::Missing(why),
            object_store::Error::PermissionDenied { .. }
            | object_store::Error::Unauthenticated { .. }
            | object_store::Error::NotSupported { .. }
            | object_store::Error::NotImplemented { .. } => Self::Refused(why),
            _ => Self::Unreachable(why),
        }
    }
}

/// The cause of a failure in one short line: the bucket's response, if there was one.
fn explain(error: &object_store::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = error.to_string();
        cause = error.source();
    }
    let element = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        Some(rest.split_once("</")?.0.to_owned())
    };
    let line = match (element("Code"), element("Message")) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        _ => text.split_whitespace().collect::<Vec<_>>().join(" "),
    };
    let mut shown: String = line.chars().take(MAX_SHOWN).collect();
    if shown.len() < line.len() {
        shown.push('…');
    }
    shown
}

// === impl BucketAddress ===

impl BucketAddress {
    fn parse(url: &str) -> Result<Self> {
        let name = |bucket: &str| {
            let is_name = !bucket.is_empty() && !bucket.contains(['/', '?', '#', '@', ':']);
            is_name.then(|| bucket.to_owned())
        };
        let parsed = match url.split_once("://") {
            Some(("s3", bucket)) => {
                name(bucket.trim_end_matches('/')).map(|bucket| Self { endpoint: None, bucket })
            }
            Some(("http" | "https", rest)) => rest
                .trim_end_matches('/')
                .split_once('/')
                .filter(|(host, _)| !host.is_empty() && !host.contains('@'))
                .and_then(|(host, bucket)| Some((host, name(bucket)?)))
                .map(|(host, bucket)| {
                    let scheme = url.split(':').next().unwrap_or_default();
                    Self { endpoint: Some(format!("{scheme}://{host}")), bucket }
                }),
            _ => None,
        };
        parsed.ok_or_else(|| invalid_bucket_error("its URL is not one of a bucket"))
    }
}

fn invalid_bucket_error(why: &str) -> Error {
    Error::new(Code::InvalidRequest, format!("the bucket of [store.blobs] cannot be used: {why}"))
        .hint("write the URL as https://HOST:PORT/BUCKET, or s3://BUCKET for Amazon's")
}

// === impl Connector ===

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        let failed = |source: Box<dyn std::error::Error + Send + Sync>| {
            object_store::Error::Generic { store: "S3", source }
        };
        let tls = client_config(None).map_err(|error| failed(error.to_string().into()))?;
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .connect_timeout(self.connect_wait)
            .timeout(REQUEST_TIME)
            .build()
            .map_err(|error| failed(error.into()))?;
        Ok(HttpClient::new(client))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_the_bucket_is() {
        let parsed = |url: &str| {
            let address = BucketAddress::parse(url).unwrap();
            (address.endpoint, address.bucket)
        };
        assert_eq!(parsed("s3://agents"), (None, "agents".to_owned()));
        let endpoint = Some("https://s3.example.com:9000".to_owned());
        assert_eq!(parsed("https://s3.example.com:9000/agents/"), (endpoint, "agents".to_owned()));
        for url in [
            "agents",
            "s3://",
            "s3://a/b",
            "https://s3.example.com",
            "https://s3.example.com/a/b",
            "https://key:secret@s3.example.com/a",
            "ftp://s3.example.com/a",
        ] {
            let error = BucketAddress::parse(url).expect_err(url);
            assert_eq!(error.code(), Code::InvalidRequest);
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn no_two_uploads_have_one_name() {
        let tenant = TenantId::parse("a.b").unwrap();
        let blob = BlobRef { hash: [7; 32], length: 5, is_text: false };
        let name = Bucket::new_name("store", &tenant, &blob);
        assert!(name.starts_with("store/a.b/0707"), "{name}");
        assert_eq!(Path::parse(&name).unwrap().as_ref(), name);
        assert_ne!(name, Bucket::new_name("store", &tenant, &blob));
    }
}
