//! The members of a thread's metadata by which the thread of a sub-agent is known.

use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, Json};
use trilogue_store::rows::ThreadRow;

/// The member of a thread's metadata that says that the thread is a sub-agent's.
pub(crate) const SUBAGENT_MEMBER: &str = "trilogue.subagent";

/// The member that tells the sub-agents of a thread apart. It is derived from the agent's own id, so that a restart finds the thread again.
/// The thread's own id is not: an erased thread's id never comes back.
pub(crate) const SUBAGENT_KEY_MEMBER: &str = "trilogue.subagent_key";

/// Both members. Requests cannot set them.
pub(crate) const SUBAGENT_MEMBERS: [&str; 2] = [SUBAGENT_MEMBER, SUBAGENT_KEY_MEMBER];

/// The members that name the parent of a sub-agent's thread: its thread, its agent, and the run that started the sub-agent.
pub const PARENT_THREAD_MEMBER: &str = "parent_thread_id";
pub(crate) const PARENT_AGENT_MEMBER: &str = "parent_agent";
pub(crate) const PARENT_RUN_MEMBER: &str = "parent_run_id";

/// Whether a thread with this metadata is a sub-agent's.
#[must_use]
pub fn is_subagent(metadata: &Json) -> bool {
    // Most threads have no such member, and need not be parsed.
    metadata.as_str().contains(SUBAGENT_MEMBER)
        && metadata.to_value().get(SUBAGENT_MEMBER).is_some_and(|it| it == true)
}

/// A thread's metadata without the members that say that the thread is a sub-agent's, and whose.
#[must_use]
pub fn without_subagent(metadata: &Json) -> Json {
    if !is_subagent(metadata) {
        return metadata.clone();
    }
    let mut others = metadata.clone();
    let parent = [PARENT_THREAD_MEMBER, PARENT_AGENT_MEMBER, PARENT_RUN_MEMBER];
    for member in SUBAGENT_MEMBERS.into_iter().chain(parent) {
        others = others.with_member(member, None).unwrap_or_else(Json::empty_object);
    }
    others
}

/// Checks that a request may start a run on a thread. Fails with `thread_of_subagent`.
pub(crate) fn check_takes_requests(thread: &ThreadRow) -> Result<()> {
    if !is_subagent(&thread.metadata) {
        return Ok(());
    }
    let metadata = thread.metadata.to_value();
    let parent = metadata.get(PARENT_THREAD_MEMBER).and_then(serde_json::Value::as_str);
    let parent = parent.map_or_else(String::new, |parent| format!(": the thread '{parent}'"));
    let message = format!("the thread '{}' is a sub-agent's", thread.id);
    Err(Error::new(Code::ThreadOfSubagent, message)
        .hint(format!("only its parent gives it work{parent}")))
}
