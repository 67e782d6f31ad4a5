use super::ContentBlock;
use super::object::object;
use crate::json::words::words;

object! {
    pub struct CompactionUpdate {
        compaction_id: String = "compactionId";
        status: CompactionStatus = "status";
    } may {
        summary: Option<Vec<ContentBlock>> = "summary" as optional_fitting;
        error: Option<String> = "error";
    }
}

words! {
    pub open enum CompactionStatus {
        InProgress = "in_progress";
        Completed = "completed";
        Failed = "failed";
        Cancelled = "cancelled";
    }
}

object! {
    pub struct CompactionSummaryChunk {
        compaction_id: String = "compactionId";
        content: ContentBlock = "content";
    }
}
