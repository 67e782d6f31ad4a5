//! The Agent Client Protocol, in both directions.
//!
//! An agent's messages are logged unchanged, as *originals*, and relayed with another session id spliced in: see [`Relay`].
//! All other events of a log become updates in [`Updates`], a fold without IO.

mod agent;
mod answer;
mod block;
mod card;
mod client_question;
mod config;
mod error;
mod extra;
mod ignored;
mod interrupt;
mod learned_card;
mod logged;
mod meta;
mod original;
mod outcome;
mod oversize;
mod permission_completion;
mod plan;
mod prompt;
mod relay;
mod step;
mod subagent;
mod subagent_view;
mod system_prompt;
mod tool_calls;
mod tool_subject;
mod updates;

pub use agent::initialize_result;
pub use answer::form_values;
pub use block::Extension;
pub(crate) use block::{is_invalid_base64, marks_invalid_base64};
pub use card::card;
pub use client_question::{
    ClientQuestion, answer_of_elicitation, answer_of_permission, answer_of_prompt, client_question,
    is_offered_choice, question_of_subagent, tool_call_of,
};
pub use config::{config_options, for_client, set_config_option, takes_boolean_options};
pub use error::{STDERR_INTRODUCTION, error_object, failure_of, session_error, with_explanation};
pub use extra::{
    extra_of_elicitation, extra_of_message, extra_of_permission, extra_of_prompt, keep_extra,
};
pub use ignored::{MAX_IGNORED_BYTES, ignored_line, is_about_line, replaced_bytes};
pub use interrupt::{
    elicitation_outcome, interrupt_of_elicitation, interrupt_of_permission, permission_outcome,
};
pub use learned_card::{learned_card, prompt_capabilities};
pub use logged::{logged_notification, logged_result, logged_update, update_original};
pub use meta::{with_members, without_meta};
pub use original::{
    LINE, NOTIFICATION, OriginalReader, PART, RESULT, UPDATE, VERSION, body_of_update, title_of,
    without_priming_title,
};
pub(crate) use original::{carried, carried_update, update_of};
pub use outcome::{is_cancelled_result, prompt_result};
pub use oversize::{is_about_size, line_too_long, oversize_notice, split_oversize};
pub use prompt::{
    Citations, HISTORY_CUT, blocks_of, blocks_of_answer, blocks_of_message, check_capabilities,
    fit, message_of_prompt, part_of_block, prompt_of_input,
};
pub use relay::{
    Gate, IdFormat, Reduction, Relay, RelayedMessage, result_without_booleans, shown_id,
    without_booleans, without_sessions, without_title,
};
pub(crate) use step::{ended_at_start, merge_update, overlay_step, thought_id};
pub use subagent::{
    InvalidDescription, SESSION_MESSAGE, SESSION_MESSAGE_CHUNK, SUBAGENT_UPDATE,
    SubagentDescription, WorkReport, has_content, message_pieces, other_message, with_content_ids,
    with_thread_ids, work_report,
};
pub use subagent_view::{
    SubagentCall, called_agent, idle_state, running_state, subagent_call_text, subagent_state,
    subagent_update, waiting_state,
};
pub use system_prompt::{system_prompt, system_prompt_in, system_prompt_metadata};
pub use tool_calls::{KnownCall, ToolCalls};
pub use tool_subject::{ToolSubject, subject, subject_of_method};
pub use updates::{Update, Updates, input_id, shown_call};

/// The key under `_meta` of blocks for the parts' members that the protocol does not have.
pub const EXTENSION: &str = "trilogue";
/// The key in a part's `extra` for this protocol's members.
const PART_EXTENSION: &str = crate::communication::EXTENSION;
const PROTOCOL: &str = "agent_client";
/// The namespace of derived UUIDs without a better one.
const NAMESPACE: uuid::Uuid = uuid::Uuid::from_u128(0x2f0d_7a64_91c3_4e0b_b7d5_6a18_3c9e_f042);

pub fn is_dialect(dialect: &str) -> bool {
    matches!(dialect, UPDATE | PART | NOTIFICATION | RESULT | LINE)
}
