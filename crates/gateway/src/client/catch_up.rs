//! What of a session's log was there before a client asked for it.

use trilogue_domain::error::Result;
use trilogue_domain::{RunId, RunStatus, limits};
use trilogue_mapping::agent_client as mapping;
use trilogue_store::Range;
use trilogue_store::rows::{InterruptFilter, Page, RunFilter};
use trilogue_wire::jsonrpc::Id;

use super::link::{Answer, Lines};
use super::opened::Opened;
use super::pump::{Pump, READ_BYTES};
use super::question;
use super::question::Asked;
use super::session::{CLIENT, scope_of};
use super::show::Show;

/// Where a pump begins, and what it does when the client has what was there before.
#[derive(Debug)]
pub(super) struct Start {
    /// The number of the last event that the client has.
    pub(super) from: u64,
    /// The number of the last event that was there when the client asked.
    pub(super) until: u64,
    /// Whether the client is told what it said itself.
    pub(super) is_replay: bool,
    /// Whether the client knows what was asked before.
    pub(super) knows_questions: bool,
    /// The request that is answered then.
    pub(super) request: Option<(Id<'static>, Opening)>,
}

/// What a request that opens a session is answered with.
#[derive(Debug)]
pub(super) enum Opening {
    /// This.
    Known(Answer),
    /// What the log says of the agent's own session.
    FromLog,
}

// === impl Pump ===

impl Pump {
    pub(super) async fn start(&mut self, start: Start) -> Result<()> {
        self.show = Show::new(&self.session.thread.id, self.link.id_format(), &self.client);
        self.opened = Opened::default();
        self.results.clear();
        self.cursor = start.from;
        let reads_log = matches!(&start.request, Some((_, Opening::FromLog)));
        if start.from > 0 {
            self.fold_open_runs().await?;
            if reads_log {
                self.look_for_opened().await?;
            }
        }
        self.show.is_replay = start.is_replay;
        self.is_started = true;
        let is_there = self.cursor >= start.until;
        self.catching_up = Some(start);
        if is_there {
            let mut lines = Lines::default();
            self.caught_up(&mut lines).await?;
            self.send(lines).await;
        }
        Ok(())
    }

    /// Brings the fold to where the pump begins: what an open run has said so far decides how it goes on.
    async fn fold_open_runs(&mut self) -> Result<()> {
        let filter = RunFilter {
            thread: Some(self.session.thread.id.clone()),
            statuses: vec![RunStatus::Running, RunStatus::Interrupted, RunStatus::Cancelling],
            ..RunFilter::default()
        };
        let scope = scope_of(&self.session.thread);
        let runs = self.link.shared.read().runs(&scope, &filter, &Page::default()).await?.rows;
        for run in runs.iter().rev() {
            let mut after = 0;
            loop {
                let range = Range { run: Some(run.key), after, max_bytes: READ_BYTES };
                let frames = self.link.shared.read().frames(&self.session.thread, range).await?;
                let Some(last) = frames.last().map(|frame| frame.last_run()) else { break };
                for frame in &frames {
                    let events = frame.events()?;
                    let told = events
                        .iter()
                        .filter(|event| event.number <= self.cursor && event.run_number > after);
                    told.for_each(|event| self.show.pass(event, Some(run.id.as_str())));
                }
                if last <= after {
                    break;
                }
                after = last;
            }
            self.names.insert(run.key, run.id.clone());
        }
        Ok(())
    }

    /// Looks through the log for what is known of the agent's own session.
    async fn look_for_opened(&mut self) -> Result<()> {
        let mut after = 0;
        while after < self.cursor {
            let range = Range { run: None, after, max_bytes: 4 * READ_BYTES };
            let frames = self.link.shared.read().frames(&self.session.thread, range).await?;
            let Some(last) = frames.last().map(|frame| frame.last()) else { break };
            for frame in &frames {
                for event in frame.events()? {
                    self.opened.push(event);
                }
            }
            after = last;
        }
        Ok(())
    }

    /// The client has what was there before it asked.
    pub(super) async fn caught_up(&mut self, lines: &mut Lines) -> Result<()> {
        let Some(start) = self.catching_up.take() else { return Ok(()) };
        self.show.is_replay = false;
        if let Some((request, opening)) = start.request {
            let answer = match opening {
                Opening::Known(answer) => answer,
                Opening::FromLog => self.opened.answer(&self.link, &self.session).await,
            };
            self.link.write_answer(lines, &request, &answer);
        }
        let filter = InterruptFilter {
            thread: Some(self.session.thread.id.clone()),
            pending: true,
            ..InterruptFilter::default()
        };
        let scope = scope_of(&self.session.thread);
        let page = Page { limit: limits::MAX_PAGE_ROWS, ..Page::default() };
        let pending = self.link.shared.read().interrupts(&scope, &filter, &page).await?.rows;
        for row in pending.into_iter().rev() {
            let asking = mapping::asking(&row.interrupt, self.session.id(), &self.client);
            if !start.knows_questions
                && let mapping::Asking::Text(text) = &asking
            {
                self.show.question(&row.interrupt, text, lines);
            }
            if question::ask(&self.link, &row.interrupt, asking, lines) == Asked::AsText {
                self.session.state().asked = Some(row.interrupt);
            }
        }
        Ok(())
    }

    /// Whether this client prompted a run on a connection that has broken since.
    pub(super) async fn was_prompted_before(&self, run: &RunId) -> Result<bool> {
        if self.catching_up.is_none() || self.show.is_replay {
            return Ok(false);
        }
        let Some(client) = &self.link.client else { return Ok(false) };
        let scope = scope_of(&self.session.thread);
        let found = self.link.shared.read().run(&scope, run).await?;
        let metadata = found.map(|run| run.metadata.to_value());
        Ok(metadata.is_some_and(|it| it.get(CLIENT).is_some_and(|it| it == client.as_str())))
    }
}

// === impl Start ===

impl Start {
    /// Begins behind this number, with nothing to answer.
    pub(super) const fn live(from: u64, until: u64) -> Self {
        Self { from, until, is_replay: false, knows_questions: true, request: None }
    }
}
