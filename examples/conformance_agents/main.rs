//! The agents that the official client suites of the protocols talk to, served natively.
//!
//! ```text
//! cargo run -p trilogue-examples --example conformance_agents -- \
//!     --listen 127.0.0.1:8000 --no-auth --mount communication=/
//! cargo run -p trilogue-examples --example conformance_agents -- \
//!     --listen 127.0.0.1:8000 --no-auth --mount connect=/
//! ```
//!
//! The program lies in `target/debug/examples/` after `cargo build -p trilogue-examples --example conformance_agents`.
//! It prints `listening: http://…` when it is ready, and ends with the first SIGTERM or Ctrl-C.

mod agents;
mod connect;

use std::net::SocketAddr;

use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};
use trilogue::config::{self, Cidr, ErrorBody, List, Log, LogFormat, Mount, Protocol};
use trilogue::{App, Listeners, Options};

/// Serves the agents of the official client suites.
#[derive(Parser, Debug)]
#[command(name = "conformance_agents")]
struct Arguments {
    /// Listen here, such as 127.0.0.1:8000. May be given several times; port 0 takes any free port.
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<SocketAddr>,
    /// Serve without tokens. Only on loopback.
    #[arg(long)]
    no_auth: bool,
    /// Serve a protocol there instead of its default place, such as communication=/. May be given several times.
    #[arg(long, value_name = "PROTOCOL=PREFIX")]
    mount: Vec<Mount>,
    /// Show the member names of the Agent Connect Protocol's prose too, where it is mounted.
    #[arg(long)]
    literal: bool,
    /// Answer errors of the Agent Connect Protocol with their description alone, where it is mounted.
    #[arg(long)]
    errors_as_strings: bool,
    /// Let the server reach these private addresses, such as 127.0.0.1/32: a session's history may lie on another server, and callbacks go there.
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    allow_egress: Vec<Cidr>,
    /// Keep threads here: `memory:` or `sqlite:PATH`.
    #[arg(long, value_name = "URL", default_value = "memory:")]
    store: String,
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "who started the program waits for its address")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Arguments::parse().into_options();
    // A signal that comes during the start counts too.
    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    config::check(&options).map_err(|exposed| format!("{exposed} (hint: {})", exposed.hint))?;
    trilogue::logging::start(&options.log)?;
    let listeners = Listeners::bind(&options.server).await?;
    let app = App::build(&options, agents::all(), listeners).await?;
    for address in app.addresses() {
        println!("listening: http://{address}");
    }
    app.run(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
    .await?;
    Ok(())
}

// === impl Arguments ===

impl Arguments {
    fn into_options(self) -> Options {
        let mut options = Options::in_memory();
        options.log = Log { format: LogFormat::Text, level: "warn".to_owned() };
        options.store.url = self.store;
        options.server.no_auth = self.no_auth;
        if !self.listen.is_empty() {
            options.server.listen = List(self.listen);
        }
        options.mounts = self.mount;
        let is_connect = |mount: &&mut Mount| mount.protocol == Protocol::Connect;
        for mount in options.mounts.iter_mut().filter(is_connect) {
            mount.literal = self.literal;
            if self.errors_as_strings {
                mount.error_body = ErrorBody::String;
            }
        }
        options.egress.allow = List(self.allow_egress);
        options
    }
}
