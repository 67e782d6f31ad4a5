use trilogue_domain as domain;
use trilogue_domain::interrupt;
use trilogue_domain::{Answer, ThreadId};
use trilogue_wire::native::{
    AnswerGiven, Effect, Interrupt, PermissionOption, Resolution, ResolutionKind, Survives,
};

use super::json;
use super::message::parts;

/// Converts an interrupt, without the run that raised it.
pub fn question(interrupt: &domain::Interrupt, thread: &ThreadId) -> Interrupt {
    let options = interrupt.options.iter().map(|option| PermissionOption {
        id: option.id.clone(),
        name: option.name.clone(),
        effect: match option.effect {
            interrupt::Effect::Allow => Effect::Allow,
            interrupt::Effect::Reject => Effect::Reject,
        },
        always: option.always,
    });
    let patience_ms = |patience: std::time::Duration| u64::try_from(patience.as_millis()).ok();
    Interrupt {
        id: interrupt.id.as_str().to_owned(),
        run_id: None,
        thread_id: None,
        agent: None,
        raised_at: None,
        kind: interrupt.kind.as_str().to_owned(),
        prompt: parts(&interrupt.prompt, thread),
        payload: json(&interrupt.payload),
        options: options.collect(),
        schema: interrupt.schema.as_ref().map(json),
        survives: match interrupt.survives {
            domain::Survives::Process => Survives::Process,
            domain::Survives::Restart => Survives::Restart,
        },
        patience_ms: interrupt.patience.and_then(patience_ms),
        resolution: None,
        resolved_at: None,
    }
}

pub fn resolution(resolution: &domain::Resolution, thread: &ThreadId) -> Resolution {
    let plain = |kind| Resolution {
        kind,
        by: None,
        answer: None,
        digest: None,
        option: None,
        reason: None,
    };
    match resolution {
        domain::Resolution::Answered { by, answer, digest, extra: _ } => Resolution {
            by: Some(by.as_str().to_owned()),
            answer: Some(answer_given(answer, thread)),
            digest: Some(digest.clone()),
            ..plain(ResolutionKind::Answered)
        },
        domain::Resolution::TimedOut { option } => {
            Resolution { option: option.clone(), ..plain(ResolutionKind::TimedOut) }
        }
        domain::Resolution::Cancelled => plain(ResolutionKind::Cancelled),
        domain::Resolution::Withdrawn { reason } => Resolution {
            reason: Some(reason.as_str().to_owned()),
            ..plain(ResolutionKind::Withdrawn)
        },
    }
}

/// Converts an answer for display. An answer that is not stored yet can have the same form.
pub fn answer_given(answer: &Answer, thread: &ThreadId) -> AnswerGiven {
    match answer {
        Answer::Option(option) => {
            AnswerGiven { option: Some(option.clone()), ..AnswerGiven::default() }
        }
        Answer::Json(value) => AnswerGiven { value: Some(json(value)), ..AnswerGiven::default() },
        Answer::Message(said) => {
            AnswerGiven { message: Some(parts(said, thread)), ..AnswerGiven::default() }
        }
    }
}
