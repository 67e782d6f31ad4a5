//! A server in this process, without tokens.

use std::net::SocketAddr;

use trilogue::config::{List, Socket};
use trilogue::{Agents, App, Listeners, Options, Report};

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    stop: tokio::sync::oneshot::Sender<()>,
    serving: tokio::task::JoinHandle<Result<Report, trilogue::Error>>,
}

// === impl Server ===

impl Server {
    pub(crate) async fn start(agents: Agents) -> Self {
        let mut options = Options::in_memory();
        options.server.listen = List(vec![SocketAddr::from(([127, 0, 0, 1], 0))]);
        options.server.no_auth = true;
        // Prevents programs of the user who runs the tests from finding this server instead of their own.
        options.server.socket = Socket::Off;
        options.server.shutdown_deadline = trilogue::config::Span::seconds(0);
        options.egress.allow = List(vec!["127.0.0.1/32".parse().unwrap()]);
        let listeners = Listeners::bind(&options.server).await.unwrap();
        let app = App::build(&options, agents, listeners).await.unwrap();
        let address = app.addresses()[0];
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let serving = tokio::spawn(app.run(async move { drop(stopped.await) }));
        Self { address, stop, serving }
    }

    pub(crate) async fn stop(self) {
        self.stop.send(()).unwrap();
        self.serving.await.unwrap().unwrap();
    }
}
