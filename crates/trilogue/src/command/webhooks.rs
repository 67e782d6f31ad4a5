//! `trilogue webhooks`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::Value;
use tokio::sync::mpsc;
use trilogue::config::Secret;
use trilogue::local::{start, token_file};
use trilogue::server::callback_secret;
use trilogue_sdk::client::{Client, Page};
use trilogue_wire::native::{CallbackTarget, Delivery};

use super::PageArguments;
use super::server_config;
use crate::command::globals::Globals;
use crate::command::receiver::{Receiver, Verifier, json, line};
use crate::command::server_command::user_server_dir;
use crate::conversation::remote;
use crate::terminal::exit::{CliError, ExitStatus, Result};
use crate::terminal::table::TableColumn;
use crate::terminal::{print, safe};

const DEFAULT_PORT: u16 = 7879;
/// The most deliveries that are received and not yet printed.
const MAX_WAITING: usize = 16;
const MAX_REDELIVERED: usize = 100_000;

/// Receive callbacks, or list and retry those that a server could not deliver.
#[derive(Args, Debug)]
pub(crate) struct Webhooks {
    #[command(subcommand)]
    action: WebhooksAction,
}

#[derive(Subcommand, Debug)]
enum WebhooksAction {
    /// Receive callbacks on this machine, verify them and print one per line.
    ///
    /// A server only calls private addresses that its operator allows: start it with `--allow-egress 127.0.0.1`.
    Listen(Listen),
    /// List the callbacks that the server has stopped retrying.
    List(PageArguments),
    /// Deliver failed callbacks again.
    Redeliver(Redeliver),
    /// Print the secret that verifies callbacks to an address. Each address and principal has one of its own.
    Secret {
        /// The address, as a run names it in `callback` or `webhook`; its query does not count.
        #[arg(value_name = "URL")]
        target: String,
    },
}

#[derive(Args, Debug)]
struct Listen {
    /// The port to listen on at 127.0.0.1; 0 takes any free port. By default 7879.
    #[arg(long, conflicts_with = "listen")]
    port: Option<u16>,
    /// Listen on this address instead, such as 127.0.0.1:7879.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Verify with this secret, `whsec_…`, from `trilogue webhooks secret URL`; by default with those of this user's server for the listen address. May be given several times.
    #[arg(
        long,
        env = "TRILOGUE_WEBHOOK_SECRET",
        hide_env_values = true,
        value_name = "SECRET",
        value_delimiter = ','
    )]
    secret: Vec<String>,
    /// The configuration file with the server's secrets. By default the one that the running server names, otherwise the one that this user's server reads.
    #[arg(long, env = "TRILOGUE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// The address under which runs name this receiver, where it is not the listen address: for example that of a proxy.
    #[arg(long, value_name = "URL", conflicts_with = "secret")]
    public_url: Option<String>,
    /// Exit after this many deliveries.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

#[derive(Args, Debug)]
struct Redeliver {
    /// The delivery's id, from `trilogue webhooks list`.
    #[arg(required_unless_present = "all")]
    id: Option<String>,
    /// Retry all failed callbacks.
    #[arg(long, conflicts_with = "id")]
    all: bool,
}

// === impl Webhooks ===

impl Webhooks {
    pub(crate) async fn execute(&self, globals: &Globals) -> Result {
        match &self.action {
            WebhooksAction::Listen(listen) => listen.execute(globals).await,
            WebhooksAction::List(page) => list(page, globals).await,
            WebhooksAction::Redeliver(redeliver) => redeliver.execute(globals).await,
            WebhooksAction::Secret { target } => {
                let target = CallbackTarget { url: target.clone() };
                let keys = remote::open(globals)?.callback_keys(&target).await?;
                if globals.json {
                    return print::json(&keys);
                }
                for secret in &keys.secrets {
                    print::out(&format!("{}\n", safe::line(secret)))?;
                }
                Ok(())
            }
        }
    }
}

/// Returns the secrets from which this user's server derives the keys of its callbacks: those of its configuration, otherwise the one that it made. Empty if it has made none yet.
fn server_secrets(named: Option<&Path>) -> Result<Vec<Secret>> {
    let dir = user_server_dir()?;
    let record = start::running(&dir);
    let read = server_config::read(named, &dir, record.as_ref())?;
    let configured = read.map(|(options, _)| options.callbacks.secrets.0).unwrap_or_default();
    if !configured.is_empty() {
        return Ok(configured);
    }
    let state = token_file::state_dir()
        .map_err(|error| CliError::usage(format!("cannot find the state folder: {error}")))?;
    let made = callback_secret::read(&state).map_err(|error| {
        CliError::new(ExitStatus::Denied, format!("cannot use the secret: {error}"))
            .hint("make its file private with chmod 600, or pass a secret with --secret")
    })?;
    Ok(made.into_iter().collect())
}

async fn list(page: &PageArguments, globals: &Globals) -> Result {
    let deliveries = remote::open(globals)?.deliveries(&page.page()).await?;
    if globals.json {
        return print::json(&deliveries);
    }
    let columns = [
        TableColumn::text("DELIVERY"),
        TableColumn::id("RUN"),
        TableColumn::text("OF"),
        TableColumn::text("ATTEMPTS"),
        TableColumn::time("DUE"),
        TableColumn::text("ERROR"),
    ];
    let (next, none) = (deliveries.next.as_deref(), "no callback has failed");
    page.print(&deliveries.items, next, none, &columns, |delivery| {
        let reference = delivery.reference.to_value();
        let member = |name: &str| {
            let member = reference.get(name).and_then(Value::as_str).unwrap_or_default();
            safe::line(member)
        };
        vec![
            safe::line(&delivery.id),
            member("run_id"),
            member("of"),
            delivery.attempts.to_string(),
            safe::line(&delivery.due),
            safe::line(&delivery.error),
        ]
    })?;
    if page.is_table() && !deliveries.items.is_empty() {
        let elsewhere = globals.url_option();
        print::hint(&format!(
            "retry one with `trilogue webhooks redeliver DELIVERY{elsewhere}`, or all with --all"
        ));
    }
    Ok(())
}

// === impl Redeliver ===

impl Redeliver {
    async fn execute(&self, globals: &Globals) -> Result {
        let client = remote::open(globals)?;
        let ids = match &self.id {
            Some(id) => vec![id.clone()],
            None => failed_delivery_ids(&client).await?,
        };
        for id in &ids {
            client.redeliver(id).await?;
            if !globals.json {
                print::out(&format!("{}\n", safe::line(id)))?;
            }
        }
        if globals.json {
            return print::json(&serde_json::json!({ "redelivered": ids }));
        }
        if ids.is_empty() {
            print::note("no callback has failed");
        }
        Ok(())
    }
}

/// The ids of all failed callbacks, read before the first retry: a retried one leaves the list.
async fn failed_delivery_ids(client: &Client) -> Result<Vec<String>> {
    let (mut ids, mut page) = (Vec::new(), Page::default());
    loop {
        let list = client.deliveries(&page).await?;
        ids.extend(list.items.into_iter().map(|Delivery { id, .. }| id));
        match list.next {
            Some(next) if page.after.as_ref() != Some(&next) && ids.len() < MAX_REDELIVERED => {
                page.after = Some(next);
            }
            _ => return Ok(ids),
        }
    }
}

// === impl Listen ===

impl Listen {
    async fn execute(&self, globals: &Globals) -> Result {
        let own = || (Ipv4Addr::LOCALHOST, self.port.unwrap_or(DEFAULT_PORT)).into();
        let address = self.listen.unwrap_or_else(own);
        let receiver = Receiver::bind(address).await.map_err(|error| {
            CliError::new(ExitStatus::Conflict, format!("cannot listen on {address}: {error}"))
                .hint("choose another port with --port, or any free one with --port 0")
        })?;
        let mut verifier = self.verifier(receiver.address())?;
        print::note(&format!("listening on http://{}", receiver.address()));
        let (sender, mut deliveries) = mpsc::channel(MAX_WAITING);
        let serving = receiver.serve(sender);
        let taking = async {
            let mut left = self.count;
            while left != Some(0) {
                let Some(delivery) = deliveries.recv().await else { break };
                let checked = verifier.check(&delivery.headers, &delivery.path, &delivery.body);
                if globals.json {
                    print::json(&json(&checked, &delivery.path, &delivery.body))?;
                } else {
                    print::out(&line(&checked, &delivery.path, &delivery.body))?;
                }
                // A sender that has disconnected tries again.
                let _ = delivery.response.send(checked.status());
                left = left.map(|left| left - 1);
            }
            Ok(())
        };
        let taken = tokio::select! {
            () = serving => Ok(()),
            taken = taking => taken,
            _ = tokio::signal::ctrl_c() => Err(CliError::silent(ExitStatus::Interrupted)),
        };
        receiver.drain().await;
        taken
    }

    /// Makes the verifier; `address` receives the deliveries.
    fn verifier(&self, address: SocketAddr) -> Result<Verifier> {
        let secrets: Vec<_> = self.secret.iter().filter(|it| !it.is_empty()).cloned().collect();
        if secrets.is_empty() {
            let of_server = server_secrets(self.config.as_deref())?;
            if !of_server.is_empty() {
                return Ok(Verifier::of_server(of_server, self.origins(address)));
            }
            print::note("warning: without a secret nothing is verified; pass one with --secret");
        }
        Verifier::new(&secrets).map_err(|number| {
            CliError::usage(format!(
                "secret {number} is not valid: it must be base64, as in whsec_…"
            ))
            .hint("print the secret of an address with `trilogue webhooks secret URL`")
        })
    }

    /// Returns the prefixes of this receiver's addresses. A delivery's own `Host` does not count: its sender chooses it.
    fn origins(&self, address: SocketAddr) -> Vec<String> {
        if let Some(url) = &self.public_url {
            return vec![url.trim_end_matches('/').to_owned()];
        }
        let mut origins = vec![format!("http://{address}")];
        if address.ip().is_loopback() {
            origins.push(format!("http://localhost:{}", address.port()));
        }
        origins
    }
}
