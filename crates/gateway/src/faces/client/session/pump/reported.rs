//! The sub-agents that a hosted agent reports, from the events about them.

use std::sync::LazyLock;

use memchr::memmem::Finder;
use trilogue_domain::error::Result;
use trilogue_domain::event::{Event, StateEvent, Subagent};
use trilogue_domain::{Body, RunKey};
use trilogue_mapping::agent_client as mapping;
use trilogue_store::RawOriginal;

use super::children::{ChildForm, ChildStart, MAX_FOLLOWED, NewChild};
use super::folded::LastMessage;
use super::{OutgoingLines, Pump};
use crate::stream::log_reader::LogReader;

/// How many events one step of the search for sub-agents reads, newest first.
const SEARCHED_EVENTS: u64 = 1_024;
/// The most bytes of a log that are searched for sub-agents of a client that continues.
const MAX_SEARCHED_BYTES: usize = 64 * 1024 * 1024;
/// Finds the kind of an agent's update about a sub-agent.
static UPDATE_FINDER: LazyLock<Finder<'static>> =
    LazyLock::new(|| Finder::new(mapping::SUBAGENT_UPDATE));
/// How much of an update is searched for its kind, in bytes. Agents write the kind first.
const HEAD_BYTES: usize = 160;

// === impl Pump ===

impl Pump {
    /// Shows a sub-agent as its agent describes it, and follows it. `original` is the agent's own update, with the run.
    pub(super) async fn subagent_event(
        &mut self,
        event: &Event,
        original: Option<(&RawOriginal<'_>, Option<RunKey>)>,
        lines: &mut OutgoingLines,
    ) -> Result<()> {
        let Body::State(StateEvent::Subagent(subagent)) = &event.body else { return Ok(()) };
        let child = self.new_child(&subagent.thread).await?;
        if child.is_some() {
            let (root, can_cancel) = (&self.followed.root, subagent.can_cancel);
            self.connection.children.announce(&subagent.thread, root, can_cancel);
        } else if !self.followed.shown.contains(&subagent.thread) {
            return Ok(());
        }
        // A client that has the sub-agent learns its state also after its thread was erased.
        let form = match (self.renderer.shows_subagents(), original) {
            (false, _) => {
                self.push_call(subagent, lines);
                ChildForm::Folded(LastMessage::default())
            }
            (true, Some((original, run))) => {
                self.renderer.relay(original, run, lines);
                ChildForm::Reported
            }
            (true, None) => {
                let update = mapping::subagent_update(subagent);
                self.push_update(self.session.id(), update, lines);
                ChildForm::Reported
            }
        };
        let Some(child) = child else { return Ok(()) };
        self.followed.record_shown(&subagent.thread);
        if matches!(child, NewChild::New(..)) || self.renderer.is_replay {
            self.flush(lines).await;
            self.follow(child, form, ChildStart::Live(0)).await?;
        }
        Ok(())
    }

    /// Announces the sub-agents of a hosted agent to a client that continues, and follows them from now on.
    pub(super) async fn announce_subagents(&mut self) -> Result<()> {
        if !self.connection.is_hosted() {
            return Ok(());
        }
        for subagent in self.subagents_before_cursor().await? {
            let Some(child) = self.new_child(&subagent.thread).await? else { continue };
            self.followed.record_shown(&subagent.thread);
            let (root, mut lines) = (&self.followed.root, OutgoingLines::default());
            self.connection.children.announce(&subagent.thread, root, subagent.can_cancel);
            let form = if self.renderer.shows_subagents() {
                let update = mapping::subagent_update(&subagent);
                self.push_update(self.session.id(), update, &mut lines);
                ChildForm::Reported
            } else {
                // The client keeps the tool call that it has.
                let call = mapping::SubagentCall::of(&subagent, None);
                self.followed.calls.insert(subagent.thread.clone(), call);
                ChildForm::Folded(LastMessage::default())
            };
            self.send(lines).await;
            let start = self.followed.start_of(&subagent.thread);
            self.follow(child, form, start).await?;
        }
        Ok(())
    }

    /// Returns the last descriptions of the sub-agents that the log before the cursor names, from its newest part.
    async fn subagents_before_cursor(&self) -> Result<Vec<Subagent>> {
        let (read, thread) = (self.connection.read().as_ref(), self.session.thread.key);
        let (mut found, mut until, mut bytes) = (Vec::<Subagent>::new(), self.cursor, 0);
        while until > 0 && bytes < MAX_SEARCHED_BYTES && found.len() < MAX_FOLLOWED {
            let from = until.saturating_sub(SEARCHED_EVENTS);
            let mut earlier = Vec::<Subagent>::new();
            let mut log = LogReader::new(read, thread, None).after(from).until(until);
            while let Some(page) = log.next().await? {
                for frame in
                    page.frames.iter().filter(|it| UPDATE_FINDER.find(it.bytes()).is_some())
                {
                    for event in page.events_of(frame)? {
                        if let Body::State(StateEvent::Subagent(subagent)) = &event.body {
                            earlier.retain(|known| known.thread != subagent.thread);
                            earlier.push(subagent.clone());
                        }
                    }
                }
            }
            bytes += log.bytes();
            earlier.retain(|it| found.iter().all(|known| known.thread != it.thread));
            earlier.append(&mut found);
            (found, until) = (earlier, from);
        }
        Ok(found)
    }
}

/// Whether an update may be about a sub-agent.
pub(super) fn is_about_subagent(update: &[u8]) -> bool {
    let head = update.get(..HEAD_BYTES).unwrap_or(update);
    UPDATE_FINDER.find(head).is_some()
}
