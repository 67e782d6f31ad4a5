//! Questions whether a process of the agent may reach a host. What was allowed before, a permission rule or a person answers them, as a request of the agent.

use std::sync::Arc;

use serde_json::json;
use trilogue_domain::{Interrupt, InterruptId, ThreadId};

use super::answer::{
    RequestAnswerer, RequestWork, chosen_option, interrupt_of_server, permission_option,
};
use super::background::OpenRequests;
use crate::agent_client::launch::Processes;
use crate::agent_client::routing::{NetworkDecision, NetworkQuestion};
use crate::network::NetworkRule;
use crate::permission::Subject;

/// The prefix of the tool that permission rules see, before the host and the port.
const TOOL_PREFIX: &str = "network:";
/// The ids of the options. Those of the protocol's kinds are their kinds.
const ONCE: &str = "allow_once";
const ALWAYS: &str = "allow_always";
const THREAD: &str = "allow_thread";
const REFUSE: &str = "reject_once";

// === impl RequestAnswerer ===

impl RequestAnswerer {
    /// Answers a question about a host that was allowed before. Returns any other question.
    pub(super) async fn answer_network_by_rule(
        &self,
        question: NetworkQuestion,
        thread: ThreadId,
    ) -> Option<NetworkQuestion> {
        let (rules, agent) = (Arc::clone(&self.launch.network.rules), self.agent.to_string());
        let (host, port) = (question.host.clone(), question.port);
        let looking =
            tokio::task::spawn_blocking(move || rules.find(&agent, Some(&thread), (&host, port)));
        let found = match looking.await {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => {
                tracing::warn!(%error, "the hosts that people have allowed cannot be read");
                None
            }
            Err(_) => None,
        };
        let Some(by) = found else { return Some(question) };
        // The process may have stopped waiting.
        drop(question.answer.send(NetworkDecision { is_allowed: true, by }));
        None
    }

    /// Answers a question in a task. Withdraws it if the process no longer waits.
    pub(super) fn answer_network(
        self: Arc<Self>,
        mut question: NetworkQuestion,
        (thread, work): (ThreadId, RequestWork),
        open: &OpenRequests,
    ) {
        let open = open.open(true);
        tokio::spawn(async move {
            let (host, port) = (question.host.clone(), question.port);
            let decision = tokio::select! {
                biased;
                () = question.answer.closed() => None,
                decision = self.decide_network((&host, port), thread, work) => decision,
            };
            if let Some(decision) = decision {
                // The process may have stopped waiting.
                drop(question.answer.send(decision));
            }
            drop(open);
        });
    }

    /// Returns `None` without an answer.
    async fn decide_network(
        &self,
        (host, port): (&str, u16),
        thread: ThreadId,
        work: RequestWork,
    ) -> Option<NetworkDecision> {
        let mut interrupt = self.network_interrupt(host, port, self.can_remember().await)?;
        let tool = format!("{TOOL_PREFIX}{}", address(host, port));
        let subject = Subject { tool: Some(&tool), ..Subject::default() };
        let context = &work.run.context;
        let rules = self.rules.of_run(context.config());
        if let Some(applied) = rules.answer(&subject, &interrupt).await {
            // This fails only if the run was stopped.
            context.emit(applied.event(), None).await.ok()?;
            let by = format!("rule:{}", applied.rule);
            return Some(NetworkDecision { is_allowed: applied.allowed, by });
        }
        let (option, by) = chosen_option(self.ask(&mut interrupt, work).await)?;
        let by = by.to_string();
        if let THREAD | ALWAYS = option.as_str() {
            let thread = (option == THREAD).then(|| thread.to_string());
            let (agent, host, by) = (self.agent.to_string(), host.to_owned(), by.clone());
            self.keep_rule(NetworkRule { agent, host, port, thread, by }).await;
        }
        let is_allowed = matches!(option.as_str(), ONCE | THREAD | ALWAYS);
        Some(NetworkDecision { is_allowed, by })
    }

    async fn keep_rule(&self, rule: NetworkRule) {
        let rules = Arc::clone(&self.launch.network.rules);
        let added = tokio::task::spawn_blocking(move || rules.add(rule)).await;
        if let Ok(Err(error)) = added {
            // The answer holds once.
            tracing::warn!(%error, "a host that a person has allowed cannot be remembered");
        }
    }

    /// Whether an answer can be kept: what was kept before can be read.
    async fn can_remember(&self) -> bool {
        let rules = Arc::clone(&self.launch.network.rules);
        let read = tokio::task::spawn_blocking(move || rules.all());
        matches!(read.await, Ok(Ok(_)))
    }

    fn network_interrupt(&self, host: &str, port: u16, can_remember: bool) -> Option<Interrupt> {
        let title = format!("May the agent reach {}?", address(host, port));
        let id = InterruptId::generate();
        let tool_call = json!({
            "toolCallId": id.as_str(), "title": title, "kind": "fetch", "status": "pending",
            "rawInput": { "host": host, "port": port },
        });
        let mut options = vec![permission_option(ONCE, ONCE, "Allow once")];
        // Threads that share a process share its connections.
        if can_remember && self.launch.processes == Processes::Thread {
            options.push(permission_option(THREAD, ALWAYS, "Allow in this thread"));
        }
        if can_remember && self.launch.network.rules.are_kept() {
            options.push(permission_option(ALWAYS, ALWAYS, "Always allow for this agent"));
        }
        options.push(permission_option(REFUSE, REFUSE, "Refuse"));
        interrupt_of_server(id, &tool_call, &options)
    }
}

/// Writes a host with its port, an address of version 6 in brackets.
fn address(host: &str, port: u16) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}
