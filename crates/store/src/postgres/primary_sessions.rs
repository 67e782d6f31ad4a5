//! The sessions of a store: to which of several servers they lead, and which of them end when another server becomes the primary.
//!
//! A server that is promoted begins a new timeline. The highest one that was seen belongs to the newest primary: sessions of lower ones are ended, and no new one begins.

use std::sync::{Arc, Mutex};

use deadpool_postgres::Connect;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, select_ok};
use tokio::task::{AbortHandle, JoinHandle};
use tokio_postgres::config::Host;
use tokio_postgres::{Client, Config, Error, SimpleQueryMessage};
use trilogue_domain::lock;

/// The number of the server's timeline, in hexadecimal digits, with which the names of its log files begin.
const TIMELINE: &str = concat!(
    "SELECT CASE WHEN NOT pg_is_in_recovery()",
    " THEN substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END"
);

/// The open sessions of a store, and the newest primary that one of them led to.
#[derive(Debug, Default)]
pub(super) struct PrimarySessions(Mutex<SessionTable>);

#[derive(Debug, Default)]
struct SessionTable {
    /// The highest timeline that was seen; zero while none is known.
    timeline: u32,
    open: Vec<OpenSession>,
    /// The lower timeline of a server that was refused last, if no other one was found since.
    refused: Option<u32>,
}

#[derive(Debug)]
struct OpenSession {
    timeline: u32,
    task: AbortHandle,
}

/// Connects to the primary: tries all hosts of an address at once, so that a server that stands still does not hide the one that has taken its place.
pub(super) struct PrimaryConnect {
    pub(super) to_host: Box<dyn Connect>,
    pub(super) sessions: Arc<PrimarySessions>,
}

type Session = (Client, JoinHandle<()>);

// === impl PrimaryConnect ===

impl Connect for PrimaryConnect {
    fn connect(&self, config: &Config) -> BoxFuture<'_, Result<Session, Error>> {
        let tries: Vec<_> =
            each_host(config).into_iter().map(|host| self.connect_to(host).boxed()).collect();
        // An address without a host is refused before.
        async move { select_ok(tries).await.map(|(session, _)| session) }.boxed()
    }
}

impl PrimaryConnect {
    async fn connect_to(&self, host: Config) -> Result<Session, Error> {
        let (client, task) = self.to_host.connect(&host).await?;
        let timeline = timeline(&client).await?;
        if !self.sessions.admit(timeline, task.abort_handle()) {
            task.abort();
            // Only the library makes its errors: this one says that the connection is closed.
            client.simple_query("").await?;
        }
        Ok((client, task))
    }
}

/// The timeline of a session's server; zero if the server does not tell it.
async fn timeline(client: &Client) -> Result<u32, Error> {
    let messages = match client.simple_query(TIMELINE).await {
        Ok(messages) => messages,
        Err(error) if error.as_db_error().is_some() => {
            tracing::debug!(%error, "the database does not tell its timeline");
            return Ok(0);
        }
        Err(error) => return Err(error),
    };
    let digits = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    Ok(digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()).unwrap_or(0))
}

/// The same configuration for each of its hosts.
fn each_host(config: &Config) -> Vec<Config> {
    let ports = config.get_ports();
    let only = |index: usize, host: &Host| {
        let mut only = Config::new();
        match host {
            Host::Tcp(name) => only.host(name),
            #[cfg(unix)]
            Host::Unix(path) => only.host_path(path),
        };
        config.get_hostaddrs().get(index).map(|address| only.hostaddr(*address));
        ports.get(index).or(ports.first()).map(|port| only.port(*port));
        config.get_user().map(|user| only.user(user));
        config.get_password().map(|password| only.password(password));
        config.get_dbname().map(|name| only.dbname(name));
        config.get_options().map(|options| only.options(options));
        config.get_application_name().map(|name| only.application_name(name));
        config.get_connect_timeout().map(|timeout| only.connect_timeout(*timeout));
        config.get_tcp_user_timeout().map(|timeout| only.tcp_user_timeout(*timeout));
        config.get_keepalives_interval().map(|interval| only.keepalives_interval(interval));
        config.get_keepalives_retries().map(|retries| only.keepalives_retries(retries));
        only.keepalives(config.get_keepalives())
            .keepalives_idle(config.get_keepalives_idle())
            .ssl_mode(config.get_ssl_mode())
            .ssl_negotiation(config.get_ssl_negotiation())
            .channel_binding(config.get_channel_binding())
            .load_balance_hosts(config.get_load_balance_hosts())
            .target_session_attrs(config.get_target_session_attrs());
        only
    };
    config.get_hosts().iter().enumerate().map(|(index, host)| only(index, host)).collect()
}

// === impl PrimarySessions ===

impl PrimarySessions {
    /// Notes a new session. `false` if its server was the primary before another one.
    fn admit(&self, timeline: u32, task: AbortHandle) -> bool {
        // One lock for check and entry: a newer primary that is found in between must end this session too.
        let mut table = lock(&self.0);
        let newest = table.timeline;
        if timeline > 0 && timeline < newest {
            if table.refused.replace(timeline).is_none() {
                tracing::error!(
                    timeline,
                    newest,
                    "a server of the database that was the primary before takes writes; it is not used"
                );
            }
            return false;
        }
        if timeline > newest {
            if newest > 0 {
                tracing::warn!(
                    timeline,
                    before = newest,
                    "another server of the database is the primary now"
                );
            }
            table.timeline = timeline;
            // A statement that the old primary does not answer must not wait for ever.
            table.open.iter().filter(|session| session.timeline > 0).for_each(OpenSession::end);
        }
        table.refused = None;
        table.open.retain(|session| !session.task.is_finished());
        table.open.push(OpenSession { timeline, task });
        true
    }

    /// Ends all: the server of one only reads now, and what the others lead to is to be found out.
    pub(super) fn end_all(&self) {
        lock(&self.0).open.drain(..).for_each(|session| session.end());
    }

    /// The timeline of the newest primary; zero while none is known.
    pub(super) fn timeline(&self) -> u32 {
        lock(&self.0).timeline
    }

    /// Why the only server that takes writes is not used.
    pub(super) fn refusal(&self) -> Option<String> {
        let table = lock(&self.0);
        let (refused, newest) = (table.refused?, table.timeline);
        Some(format!(
            "a server that was the primary before answers, with timeline {refused} instead of {newest}; stop it, or restart trilogue if you went back to it on purpose"
        ))
    }
}

// === impl OpenSession ===

impl OpenSession {
    fn end(&self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_has_the_settings_of_the_address() {
        let url = "postgres://me:secret@a:1,b:2/db?connect_timeout=3&application_name=x";
        let config: Config = url.parse().unwrap();
        let hosts = each_host(&config);
        let expected =
            ["a:1", "b:2"].map(|host| url.replace("a:1,b:2", host).parse::<Config>().unwrap());
        assert_eq!(hosts, expected);
    }

    #[tokio::test]
    async fn a_new_timeline_ends_the_sessions_of_the_old_one_and_keeps_them_out() {
        let sessions = PrimarySessions::default();
        let session = || tokio::spawn(std::future::pending::<()>());
        let (unknown, first, second) = (session(), session(), session());
        assert!(sessions.admit(0, unknown.abort_handle()));
        assert!(sessions.admit(1, first.abort_handle()));
        assert!(sessions.admit(2, second.abort_handle()));
        assert!(first.await.unwrap_err().is_cancelled());
        assert!(!sessions.admit(1, session().abort_handle()));
        assert!(sessions.refusal().is_some());
        assert!(sessions.admit(2, session().abort_handle()));
        assert!(sessions.refusal().is_none());
        assert!(!unknown.is_finished() && !second.is_finished());
        sessions.end_all();
        assert!(unknown.await.unwrap_err().is_cancelled());
        assert!(second.await.unwrap_err().is_cancelled());
    }
}
