//! The agents that the official client suites of the Agent Communication Protocol talk to, served natively.
//!
//! ```text
//! cargo run -p trilogue-examples --example conformance_agents -- \
//!     --listen 127.0.0.1:8000 --no-auth --mount communication=/
//! ```
//!
//! The program lies in `target/debug/examples/` after `cargo build -p trilogue-examples --example conformance_agents`.
//! It prints `listening: http://…` when it is ready, and ends with the first SIGTERM or Ctrl-C.

mod agents;

use std::net::SocketAddr;

use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};
use trilogue::config::{self, Cidr, List, Log, LogFormat, Mount};
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
    /// Let the server read from these private addresses, such as 127.0.0.1/32: a session's history may lie on another server.
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
        options.egress.allow = List(self.allow_egress);
        options
    }
}
