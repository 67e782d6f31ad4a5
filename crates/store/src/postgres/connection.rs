//! Connections: their settings, the pool, and the encryption.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{
    ConfigConnectImpl, Connect, Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::{Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;
use trilogue_domain::error::{Code, Error, Result};

use super::primary_sessions::{PrimaryConnect, PrimarySessions};
use crate::options::{Durability, Options};

pub(super) type Connection = Object;

/// How many appends' transactions are under way at once: while one waits for the disk, the other is filled.
pub(super) const GROUP_WRITERS: usize = 2;
/// The longest that a look-up takes.
pub(super) const READ_TIME: Duration = Duration::from_secs(30);
/// How long a transaction may be open without a statement: a node that stands still must not keep others from taking its threads over.
const IDLE_TRANSACTION: Duration = Duration::from_secs(2);
/// The longest wait for a lock that another transaction holds.
const LOCK_WAIT: Duration = Duration::from_secs(10);
/// After this long without a word of the server, the connection is probed, and given up after as long again.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// The connections of a store.
pub(super) struct Pools {
    pub(super) pool: Pool,
    /// The one for signs of life, which look-ups must not hold up.
    pub(super) sign_pool: Pool,
    pub(super) sessions: Arc<PrimarySessions>,
}

/// What a URL says, checked.
#[derive(Debug)]
pub(super) struct Address {
    config: Config,
    tls: Tls,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Tls {
    /// Nothing is encrypted.
    Off,
    /// The server shows a certificate for its name, from the system's authorities or from those in a file.
    Verified(Option<PathBuf>),
}

// === impl Address ===

impl Address {
    /// Reads `postgres://USER:PASSWORD@HOST:PORT/DATABASE?…`. `sslmode` and `sslrootcert` are as in PostgreSQL's own programs; without `sslmode`, a connection to another machine is encrypted and verified.
    /// Errors: `invalid_request`.
    pub(super) fn parse(url: &str) -> Result<Self> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut rest, mut mode, mut authorities) = (Vec::new(), None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("sslmode", value)) => mode = Some(value.to_owned()),
                Some(("sslrootcert", value)) => authorities = Some(PathBuf::from(value)),
                _ => rest.push(pair),
            }
        }
        let plain =
            if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
        // The parser's message names a key or what is missing, never a value.
        let config: Config = plain.parse().map_err(|error: tokio_postgres::Error| {
            invalid_url_error(&super::error::explain(&error)).hint(
                "write it as postgres://USER@HOST:5432/DATABASE; percent-encode special characters",
            )
        })?;
        let is_local = is_local(&config);
        let tls = match mode.as_deref() {
            Some("disable") => Tls::Off,
            Some("verify-full") => Tls::Verified(authorities),
            None if is_local && authorities.is_none() => Tls::Off,
            None => Tls::Verified(authorities),
            Some(other) => {
                let message = format!("its sslmode '{}' is not supported", other.escape_debug());
                return Err(invalid_url_error(&message).hint("use 'verify-full' or 'disable'"));
            }
        };
        if config.get_hosts().is_empty() {
            return Err(invalid_url_error("it names no host")
                .hint("write it as postgres://USER@HOST:5432/DATABASE"));
        }
        Ok(Self { config, tls })
    }

    /// Whether what is sent to another machine is not encrypted.
    pub(super) fn is_unencrypted(&self) -> bool {
        self.tls == Tls::Off && !is_local(&self.config)
    }

    /// The address without anything secret, for people.
    pub(super) fn redacted_url(&self) -> String {
        let ports = self.config.get_ports();
        let shown = |(index, host): (usize, &Host)| {
            let port = ports.get(index).or(ports.first()).copied().unwrap_or(5432);
            match host {
                Host::Tcp(name) => format!("{name}:{port}"),
                #[cfg(unix)]
                Host::Unix(path) => format!("{}:{port}", path.display()),
            }
        };
        let hosts: Vec<_> = self.config.get_hosts().iter().enumerate().map(shown).collect();
        let database = self.config.get_dbname().or(self.config.get_user()).unwrap_or_default();
        let mut shown = format!("postgres://{}/{database}", hosts.join(","));
        let addresses: Vec<_> = self.config.get_hostaddrs().iter().map(IpAddr::to_string).collect();
        if !addresses.is_empty() {
            shown.push_str(&format!("?hostaddr={}", addresses.join(",")));
        }
        shown
    }

    /// Makes the pools. Nothing is connected yet.
    pub(super) fn into_pools(self, options: &Options) -> Result<Pools> {
        let Self { mut config, tls } = self;
        if let (Some(password), None) = (&options.password, config.get_password()) {
            config.password(password.text());
        }
        let commits = match options.durability {
            Durability::Fsync => "on",
            Durability::Buffered => "off",
        };
        let given = config.get_options().map(|given| format!("{given} ")).unwrap_or_default();
        if config.get_application_name().is_none() {
            config.application_name("trilogue");
        }
        config
            .connect_timeout(options.connect_wait)
            .keepalives_idle(KEEP_ALIVE)
            .tcp_user_timeout(KEEP_ALIVE * 2)
            // A replica that only reads is refused at once, not at the first write.
            .target_session_attrs(TargetSessionAttrs::ReadWrite)
            .options(format!(
                "{given}-c synchronous_commit={commits} -c statement_timeout={} -c lock_timeout={} -c idle_in_transaction_session_timeout={}",
                READ_TIME.as_millis(),
                LOCK_WAIT.as_millis(),
                IDLE_TRANSACTION.as_millis(),
            ));
        let encryption = match &tls {
            Tls::Off => {
                config.ssl_mode(SslMode::Disable);
                None
            }
            Tls::Verified(authorities) => {
                config.ssl_mode(SslMode::Require);
                Some(MakeRustlsConnect::new(client_config(authorities.as_ref())?))
            }
        };
        let sessions = Arc::<PrimarySessions>::default();
        let pool = |size: usize| {
            let (config, recycling) = (config.clone(), RecyclingMethod::Fast);
            let recycling = ManagerConfig { recycling_method: recycling };
            let to_host: Box<dyn Connect> = match encryption.clone() {
                None => Box::new(ConfigConnectImpl { tls: NoTls }),
                Some(tls) => Box::new(ConfigConnectImpl { tls }),
            };
            let connect = PrimaryConnect { to_host, sessions: Arc::clone(&sessions) };
            let manager = Manager::from_connect(config, connect, recycling);
            Pool::builder(manager)
                .max_size(size)
                .runtime(Runtime::Tokio1)
                .wait_timeout(Some(options.connect_wait))
                .create_timeout(Some(options.connect_wait))
                .build()
                .map_err(|error| {
                    Error::new(Code::Internal, format!("no pool of connections: {error}"))
                })
        };
        let (pool, sign_pool) = (pool(options.readers.max(1) + GROUP_WRITERS)?, pool(1)?);
        Ok(Pools { pool, sign_pool, sessions })
    }
}

pub(super) fn client_config(authorities: Option<&PathBuf>) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    match authorities {
        Some(path) => {
            let unreadable = |error: &dyn std::fmt::Display| {
                invalid_url_error(&format!(
                    "the file '{}' of its sslrootcert cannot be read: {error}",
                    path.display()
                ))
            };
            for certificate in
                CertificateDer::pem_file_iter(path).map_err(|error| unreadable(&error))?
            {
                let certificate = certificate.map_err(|error| unreadable(&error))?;
                roots.add(certificate).map_err(|error| unreadable(&error))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::new(Code::Internal, format!("no encryption: {error}")))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Whether nothing that is sent leaves this machine. A connection goes to the `hostaddr`, if there is one; the host is then only a name.
fn is_local(config: &Config) -> bool {
    config.get_hosts().iter().all(is_local_host)
        && config.get_hostaddrs().iter().all(IpAddr::is_loopback)
}

fn is_local_host(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => {
            name == "localhost"
                || name
                    .trim_matches(['[', ']'])
                    .parse()
                    .is_ok_and(|address: IpAddr| address.is_loopback())
        }
        #[cfg(unix)]
        Host::Unix(_) => true,
    }
}

fn invalid_url_error(why: &str) -> Error {
    Error::new(Code::InvalidRequest, format!("the store URL 'postgres:…' cannot be used: {why}"))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn a_url_says_where_and_how_secure() {
        let tls = |url: &str| Address::parse(url).unwrap().tls;
        assert_eq!(tls("postgres://me@localhost/db"), Tls::Off);
        assert_eq!(tls("postgres://me@127.0.0.1:1/db"), Tls::Off);
        assert_eq!(tls("postgres:///db?host=/var/run/postgresql"), Tls::Off);
        assert_eq!(tls("postgres://me@db.example.com/db"), Tls::Verified(None));
        assert_eq!(tls("postgres://me@db.example.com/db?sslmode=disable"), Tls::Off);
        assert_eq!(tls("postgres://me@localhost/db?hostaddr=127.0.0.2"), Tls::Off);
        let elsewhere = "postgres://me@localhost/db?hostaddr=192.0.2.2";
        assert_eq!(tls(elsewhere), Tls::Verified(None));
        assert_eq!(tls("postgres://me@db.example.com/db?hostaddr=127.0.0.1"), Tls::Verified(None));
        let plain = Address::parse(&format!("{elsewhere}&sslmode=disable")).unwrap();
        assert!(plain.is_unencrypted());
        let path = Some(PathBuf::from("/ca.pem"));
        assert_eq!(tls("postgresql://me@localhost/db?sslrootcert=/ca.pem"), Tls::Verified(path));
    }

    #[test]
    fn what_is_shown_holds_no_secret() {
        let address = Address::parse("postgres://me:secret@db.example.com:6543/agents").unwrap();
        assert_eq!(address.redacted_url(), "postgres://db.example.com:6543/agents");
        let address = Address::parse("postgres://me:secret@a,b:2/agents").unwrap();
        assert_eq!(address.redacted_url(), "postgres://a:5432,b:2/agents");
        let address =
            Address::parse("postgres://me:secret@localhost:1/db?hostaddr=192.0.2.2").unwrap();
        assert_eq!(address.redacted_url(), "postgres://localhost:1/db?hostaddr=192.0.2.2");
    }

    /// The address is of this machine, in a form that does not look so: as that of another machine.
    #[tokio::test]
    async fn a_connection_to_an_address_elsewhere_begins_with_encryption() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let url = format!("postgres://me:secret@localhost:{port}/db?hostaddr=::ffff:127.0.0.1");
        let options = Options::new(Arc::new(crate::record::NoOriginals));
        let pools = Address::parse(&url).unwrap().into_pools(&options).unwrap();
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 8];
            stream.read_exact(&mut request).await.unwrap();
            // No encryption here.
            stream.write_all(b"N").await.unwrap();
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).await.unwrap();
            (request, rest)
        };
        let (connected, (request, rest)) = tokio::join!(pools.pool.get(), server);
        assert!(connected.is_err());
        // The request for encryption of PostgreSQL's protocol.
        assert_eq!(request, [0, 0, 0, 8, 4, 210, 22, 47]);
        assert!(rest.is_empty(), "something was sent in clear text");
    }

    #[test]
    fn a_wrong_url_is_refused_without_its_secret() {
        for url in [
            "postgres://me:secret@localhost/db?sslmode=prefer",
            "postgres://me:secret@localhost/db?colour=red",
            "postgres://me:secret@localhost:99999/db",
            "postgres:///db",
        ] {
            let error = Address::parse(url).expect_err(url);
            assert_eq!(error.code(), Code::InvalidRequest);
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
