//! Logs in a run what was lost on the way to its agent.

use std::collections::BTreeSet;

use trilogue_mapping::fidelity::FidelityLoss;
use trilogue_runtime::RunContext;

/// The losses that a run's log already names: each is logged at most once.
#[derive(Default, Debug)]
pub(crate) struct LossLog(BTreeSet<FidelityLoss>);

// === impl LossLog ===

impl LossLog {
    pub(crate) async fn log(
        &mut self,
        losses: impl IntoIterator<Item = FidelityLoss>,
        context: &RunContext,
    ) {
        for loss in losses {
            if self.0.insert(loss) {
                // This fails only if the run was stopped; the next call reports that.
                drop(context.emit(loss.event(), None).await);
            }
        }
    }
}
