//! Code that several faces share.

pub(super) mod answer_target;
pub(super) mod cursors;
pub(super) mod idempotency;
pub(super) mod look_up;
pub(super) mod negotiation;
pub(super) mod openapi;
pub(super) mod path;
pub(super) mod provenance;
pub(super) mod run_input;
pub(super) mod shared_documents;
pub(super) mod thread_title;
pub(super) mod turns;
