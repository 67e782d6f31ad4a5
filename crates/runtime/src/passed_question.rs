//! Finds the open question of a sub-agent by the id that it had in a run of its parent which has ended.

use trilogue_domain::error::Result;
use trilogue_domain::{InterruptId, Resolution, RunId, Scope};
use trilogue_store::rows::{InterruptFilter, InterruptRow, Page, RunRow};

use crate::handle::Runtime;

/// The most pages of open questions that are searched.
const MAX_PAGES: usize = 10;

/// An open question of a sub-agent that a run has asked too, and does not ask any more.
#[derive(Clone, Debug)]
pub struct PassedQuestion {
    /// The question as that run asked it.
    pub asked: InterruptRow,
    /// The same question in the sub-agent's run.
    pub open: InterruptRow,
}

// === impl Runtime ===

impl Runtime {
    /// The open questions of sub-agents that this run has asked too, and does not ask any more, oldest first. Such a question has outlived the run, and its id in the run still leads to it.
    /// Fails if the store cannot be read.
    pub async fn passed_questions(
        &self,
        scope: &Scope,
        run: &RunId,
    ) -> Result<Vec<PassedQuestion>> {
        let filter = InterruptFilter { run: Some(run.clone()), ..InterruptFilter::default() };
        let asked = self.services().store.interrupts(scope, &filter, &Page::default()).await?.rows;
        let mut found = Vec::new();
        for asked in asked.into_iter().rev() {
            if let Some(open) = self.question_behind(scope, &asked).await? {
                found.push(PassedQuestion { asked, open });
            }
        }
        Ok(found)
    }

    /// The interrupt itself if it is pending, or the question of a sub-agent that it has asked, if that is still open. Otherwise the run whose question has ended.
    pub(crate) async fn open_question(
        &self,
        scope: &Scope,
        row: InterruptRow,
    ) -> Result<Result<InterruptRow, RunId>> {
        if row.resolution.is_none() {
            return Ok(Ok(row));
        }
        Ok(self.question_behind(scope, &row).await?.ok_or(row.run_id))
    }

    /// The open question of a sub-agent that an ended run has asked last: the shown one, or the only one.
    pub(crate) async fn question_left_by(
        &self,
        scope: &Scope,
        run: &RunRow,
        shown: Option<&InterruptId>,
    ) -> Result<Option<InterruptRow>> {
        let mut left = self.passed_questions(scope, &run.id).await?;
        left.retain(|it| shown.is_none_or(|shown| it.asked.interrupt.id == *shown));
        Ok(left.pop().filter(|_| left.is_empty()).map(|it| it.open))
    }

    /// The open question of a sub-agent that this interrupt asked in a run above it. `None` unless the interrupt was withdrawn.
    /// Fails if the store cannot be read.
    async fn question_behind(
        &self,
        scope: &Scope,
        asked: &InterruptRow,
    ) -> Result<Option<InterruptRow>> {
        if !matches!(asked.resolution, Some(Resolution::Withdrawn { .. })) {
            return Ok(None);
        }
        let filter = InterruptFilter { pending: true, ..InterruptFilter::default() };
        let mut page = Page::default();
        for _ in 0..MAX_PAGES {
            let listing = self.services().store.interrupts(scope, &filter, &page).await?;
            for row in listing.rows {
                if self.was_passed_up_to(scope, &row, asked).await? {
                    return Ok(Some(row));
                }
            }
            page.after = listing.next;
            if page.after.is_none() {
                break;
            }
        }
        Ok(None)
    }

    /// Whether one of the runs above that of `open` has asked its question as `asked`.
    async fn was_passed_up_to(
        &self,
        scope: &Scope,
        open: &InterruptRow,
        asked: &InterruptRow,
    ) -> Result<bool> {
        let store = &self.services().store;
        let (mut id, mut run): (InterruptId, _) = (open.interrupt.id.clone(), open.run_id.clone());
        for _ in 0..self.services().options.max_call_depth {
            let Some(row) = store.run(scope, &run).await? else { return Ok(false) };
            let Some(parent) = row.parent else { return Ok(false) };
            id = id.passed_up(&parent.run);
            if id == asked.interrupt.id {
                return Ok(true);
            }
            run = parent.run;
        }
        Ok(false)
    }
}
