//! Tells in a run's log what was lost on the way to its agent.

use std::collections::BTreeSet;

use trilogue_mapping::fidelity::FidelityLoss;
use trilogue_runtime::RunContext;

/// What a run's log names already: each loss at most once.
#[derive(Default, Debug)]
pub(crate) struct LossLog(BTreeSet<FidelityLoss>);

// === impl LossLog ===

impl LossLog {
    pub(crate) async fn tell(
        &mut self,
        losses: impl IntoIterator<Item = FidelityLoss>,
        context: &RunContext,
    ) {
        for loss in losses {
            if self.0.insert(loss) {
                // A run that was stopped is told by what comes next.
                drop(context.emit(loss.event(), None).await);
            }
        }
    }
}
