//! The broker of a process: asks its sessions about hosts, and reports connections there.

use std::sync::{Arc, Weak};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;
use trilogue_broker::{
    BrokerGuard, BrokerObserver, ConnectionRecord, HostPort, NetworkAnswer, RequestUsage,
};

use super::launch::Launch;
use super::routing::{NetworkQuestion, Router, SessionItem};
use crate::child::{BrokerListener, Child};
use crate::network::{connection_event, count_connection, count_usage, usage_event};

/// Who decided if no question could be asked.
const UNASKED: &str = "no question could be asked";

/// Observes the connections of a process.
#[derive(Debug)]
pub(crate) struct ProcessObserver {
    agent: Arc<str>,
    router: Weak<Router>,
}

/// Serves the connections of a process, if it has a broker, until the guard is dropped.
pub(crate) fn serve(
    agent: &Arc<str>,
    launch: &Launch,
    child: &Child,
    router: &Arc<Router>,
) -> Option<BrokerGuard> {
    let BrokerListener { listener, is_private, secret, .. } = child.take_broker_listener()?;
    let plan = &launch.network;
    let served = || -> Result<BrokerGuard, String> {
        let broker = plan.broker.as_ref().ok_or("the server has no broker")?;
        let access = plan.access(&secret, is_private)?;
        child.hide(access.keys.iter().map(|key| key.key.reveal()));
        let observer = Arc::new(ProcessObserver::new(agent, router));
        Ok(broker.serve(listener, access, observer))
    };
    served()
        .inspect_err(|error| tracing::warn!(agent = &**agent, error, "an agent has no network"))
        .ok()
}

// === impl ProcessObserver ===

impl ProcessObserver {
    pub(crate) fn new(agent: &Arc<str>, router: &Arc<Router>) -> Self {
        Self { agent: Arc::clone(agent), router: Arc::downgrade(router) }
    }

    fn put(&self, item: SessionItem) {
        // Without a session, a question is dropped, which refuses it.
        if let Some(router) = self.router.upgrade() {
            router.put_network(item);
        }
    }
}

impl BrokerObserver for ProcessObserver {
    fn ask(&self, target: &HostPort) -> BoxFuture<'static, NetworkAnswer> {
        let (answer, answered) = oneshot::channel();
        let (host, port, is_checked) = (target.host.clone(), target.port, false);
        self.put(SessionItem::Network(NetworkQuestion { host, port, is_checked, answer }));
        let unasked = || NetworkAnswer { is_allowed: false, by: UNASKED.to_owned() };
        async move {
            let decision = answered.await;
            decision.map_or_else(
                |_| unasked(),
                |decision| NetworkAnswer { is_allowed: decision.is_allowed, by: decision.by },
            )
        }
        .boxed()
    }

    fn record(&self, record: ConnectionRecord) {
        count_connection(&self.agent, &record);
        self.put(SessionItem::NetworkUse(Box::new(connection_event(&record))));
    }

    fn record_usage(&self, usage: RequestUsage) {
        count_usage(&self.agent, &usage);
        self.put(SessionItem::NetworkUse(Box::new(usage_event(&usage))));
    }
}
