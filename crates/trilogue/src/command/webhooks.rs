//! `trilogue webhooks`.

use std::net::{Ipv4Addr, SocketAddr};

use clap::{Args, Subcommand};
use serde_json::Value;
use tokio::sync::mpsc;
use trilogue::{callback_secret, token_file};
use trilogue_sdk::client::{Client, Page};
use trilogue_wire::native::Delivery;

use super::PageArguments;
use crate::arguments::Globals;
use crate::exit::{Exit, Result, Stop};
use crate::receiver::{Judge, Receiver, json, line};
use crate::remote;
use crate::terminal::{print, safe};

/// The port that is listened on where nobody names another.
const DEFAULT_PORT: u16 = 7879;
/// The most deliveries that are read and not yet printed.
const MAX_WAITING: usize = 16;
/// The most deliveries that `--all` tries again.
const MAX_REDELIVERED: usize = 100_000;

/// Receive callbacks on this machine, and look after those that a server could not deliver.
#[derive(Args, Debug)]
pub(crate) struct Webhooks {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Take callbacks on this machine, verify them and print one on each line.
    ///
    /// A server calls private addresses only where its operator allows it: start it with `--allow-egress 127.0.0.1`.
    Listen(Listen),
    /// List the callbacks that the server gave up.
    List(PageArguments),
    /// Have callbacks delivered again that the server gave up.
    Redeliver(Redeliver),
    /// Print the secret that the server of this user signs callbacks with.
    Secret,
}

#[derive(Args, Debug)]
struct Listen {
    /// The port to listen on, on 127.0.0.1; 0 takes any free port. By default 7879.
    #[arg(long, conflicts_with = "listen")]
    port: Option<u16>,
    /// Listen on this address instead, such as 127.0.0.1:7879.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Verify under this secret, `whsec_…`; by default the one that the server of this user signs with. May be given several times.
    #[arg(
        long,
        env = "TRILOGUE_WEBHOOK_SECRET",
        hide_env_values = true,
        value_name = "SECRET",
        value_delimiter = ','
    )]
    secret: Vec<String>,
    /// Leave after this many deliveries.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

#[derive(Args, Debug)]
struct Redeliver {
    /// The delivery, as `trilogue webhooks list` names it.
    #[arg(required_unless_present = "all")]
    id: Option<String>,
    /// All that the server gave up.
    #[arg(long, conflicts_with = "id")]
    all: bool,
}

// === impl Webhooks ===

impl Webhooks {
    pub(crate) async fn execute(&self, globals: &Globals) -> Result {
        match &self.action {
            Action::Listen(listen) => listen.execute(globals).await,
            Action::List(page) => list(page, globals).await,
            Action::Redeliver(redeliver) => redeliver.execute(globals).await,
            Action::Secret => match secret()? {
                Some(secret) => print::out(&format!("{}\n", safe::line(&secret))),
                None => Err(Stop::new(
                    Exit::NotFound,
                    "no server of this user has signed callbacks yet",
                )
                .hint(
                    "start one with `trilogue demo`; it makes a secret where none is configured",
                )),
            },
        }
    }
}

/// The secret that the server of this user signs with; `None` where there is none yet.
fn secret() -> Result<Option<String>> {
    let state = token_file::state_dir()
        .map_err(|error| Stop::usage(format!("there is no state folder: {error}")))?;
    let secret = callback_secret::read(&state).map_err(|error| {
        Stop::new(Exit::Denied, format!("the secret cannot be used: {error}"))
            .hint("make its file private with chmod 600, or give a secret with --secret")
    })?;
    Ok(secret.map(|secret| secret.reveal()))
}

async fn list(page: &PageArguments, globals: &Globals) -> Result {
    let deliveries = remote::open(globals)?.deliveries(&page.page()).await?;
    if globals.json {
        return print::json(&deliveries);
    }
    let heading = ["DELIVERY", "RUN", "OF", "ATTEMPTS", "DUE", "ERROR"];
    page.print(&deliveries.items, deliveries.next.as_deref(), &heading, |delivery| {
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
    if page.quiet {
        return Ok(());
    }
    if deliveries.items.is_empty() {
        print::note("no callback was given up");
    } else {
        let elsewhere = globals.elsewhere();
        print::hint(&format!(
            "try one again with `trilogue webhooks redeliver DELIVERY{elsewhere}`, or --all"
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
            None => given_up(&client).await?,
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
            print::note("no callback was given up");
        }
        Ok(())
    }
}

/// The ids of everything that was given up. They are read first: one that is tried again leaves the list.
async fn given_up(client: &Client) -> Result<Vec<String>> {
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
        let mut judge = self.judge()?;
        let own = || (Ipv4Addr::LOCALHOST, self.port.unwrap_or(DEFAULT_PORT)).into();
        let address = self.listen.unwrap_or_else(own);
        let receiver = Receiver::bind(address).await.map_err(|error| {
            Stop::new(Exit::Conflict, format!("{address} cannot be listened on: {error}"))
                .hint("choose another with --port, or any free one with --port 0")
        })?;
        print::note(&format!("listening on http://{}", receiver.address()));
        let (sender, mut deliveries) = mpsc::channel(MAX_WAITING);
        let serving = receiver.serve(sender);
        let taking = async {
            let mut left = self.count;
            while left != Some(0) {
                let Some(delivery) = deliveries.recv().await else { break };
                let judged = judge.judge(&delivery.headers, &delivery.body);
                if globals.json {
                    print::json(&json(&judged, &delivery.path, &delivery.body))?;
                } else {
                    print::out(&line(&judged, &delivery.path, &delivery.body))?;
                }
                // A sender that has left is one that will come again.
                let _ = delivery.answer.send(judged.status());
                left = left.map(|left| left - 1);
            }
            Ok(())
        };
        let taken = tokio::select! {
            () = serving => Ok(()),
            taken = taking => taken,
            _ = tokio::signal::ctrl_c() => Err(Stop::silent(Exit::Interrupted)),
        };
        receiver.drain().await;
        taken
    }

    fn judge(&self) -> Result<Judge> {
        let mut secrets: Vec<_> = self.secret.iter().filter(|it| !it.is_empty()).cloned().collect();
        if secrets.is_empty() {
            secrets.extend(secret()?);
        }
        if secrets.is_empty() {
            print::note(
                "warning: there is no secret, so nothing is verified; give one with --secret",
            );
        }
        Judge::new(&secrets).map_err(|number| {
            Stop::usage(format!("secret {number} is none: it must be base64, as in whsec_…"))
                .hint("see the one of this user's server with `trilogue webhooks secret`")
        })
    }
}
