use super::ContentBlock;
use super::object::object;
use crate::json::words::words;

object! {
    /// The agent shortens its context.
    pub struct CompactionUpdate {
        /// Which time.
        compaction_id: String = "compactionId" as required;
        /// Where it stands.
        status: CompactionStatus = "status" as required;
    } may {
        /// What it keeps.
        summary: Option<Vec<ContentBlock>> = "summary" as optional_fitting;
        /// Why it failed.
        error: Option<String> = "error" as lenient;
    }
}

words! {
    /// Where a compaction stands.
    pub open enum CompactionStatus {
        /// It runs.
        InProgress = "in_progress";
        /// It is done.
        Completed = "completed";
        /// It failed.
        Failed = "failed";
        /// It was cancelled.
        Cancelled = "cancelled";
    }
}

object! {
    /// A piece of what the agent keeps of its context.
    pub struct CompactionSummaryChunk {
        /// Which time.
        compaction_id: String = "compactionId" as required;
        /// The piece.
        content: ContentBlock = "content" as required;
    } may {
    }
}
