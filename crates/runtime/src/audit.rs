//! Audit lines: who did what, for actions that decide about access or on behalf of a person. They are log lines in one form, which `docs/audit.md` lists.

use trilogue_domain::{Principal, PrincipalId, TenantId, TokenId};

/// The target of every audit line. The log writes it at every level.
pub const AUDIT_TARGET: &str = "trilogue_audit";

/// The action. The names are stable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AuditEvent {
    AuthenticationFailed,
    RequestRefused,
    TokenCreated,
    TokenRevoked,
    AgentRefused,
    QuestionAnswered,
    RuleApplied,
    BackupMade,
    StoreRestored,
    StoreCopied,
    ThreadErased,
    RunRemoved,
    ConfigurationCreated,
    ConfigurationChanged,
    ConfigurationRemoved,
    EditorSettingsWritten,
    ThreadExported,
    ThreadHandedOver,
    DrainBegun,
    DrainEnded,
    SignedIn,
    SignedOut,
    CommandWrapped,
    SettingInForce,
}

/// Who did it.
#[derive(Clone, Copy, Debug)]
pub struct AuditActor<'a> {
    pub tenant: &'a TenantId,
    pub principal: &'a PrincipalId,
    /// The token's id; `None` for connections that need none.
    pub token: Option<&'a TokenId>,
}

/// Writes an audit line. `subject` is the object of the action; `detail` depends on the event and contains no secret.
pub fn audit(event: AuditEvent, actor: Option<AuditActor<'_>>, subject: &str, detail: &str) {
    tracing::info!(
        target: AUDIT_TARGET,
        audit = event.as_str(),
        tenant = actor.map(|actor| actor.tenant.as_str()),
        principal = actor.map(|actor| actor.principal.as_str()),
        token = actor.and_then(|actor| actor.token).map(TokenId::as_str),
        subject,
        detail,
        "audit"
    );
}

// === impl AuditEvent ===

impl AuditEvent {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AuthenticationFailed => "authentication_failed",
            Self::RequestRefused => "request_refused",
            Self::TokenCreated => "token_created",
            Self::TokenRevoked => "token_revoked",
            Self::SignedIn => "signed_in",
            Self::SignedOut => "signed_out",
            Self::AgentRefused => "agent_refused",
            Self::QuestionAnswered => "question_answered",
            Self::RuleApplied => "rule_applied",
            Self::BackupMade => "backup_made",
            Self::StoreRestored => "store_restored",
            Self::StoreCopied => "store_copied",
            Self::ThreadErased => "thread_erased",
            Self::RunRemoved => "run_removed",
            Self::ConfigurationCreated => "configuration_created",
            Self::ConfigurationChanged => "configuration_changed",
            Self::ConfigurationRemoved => "configuration_removed",
            Self::EditorSettingsWritten => "editor_settings_written",
            Self::ThreadExported => "thread_exported",
            Self::ThreadHandedOver => "thread_handed_over",
            Self::DrainBegun => "drain_begun",
            Self::DrainEnded => "drain_ended",
            Self::CommandWrapped => "command_wrapped",
            Self::SettingInForce => "setting_in_force",
        }
    }
}

// === impl AuditActor ===

impl<'a> AuditActor<'a> {
    #[must_use]
    pub fn new(principal: &'a Principal, token: Option<&'a TokenId>) -> Self {
        Self { tenant: &principal.tenant, principal: &principal.id, token }
    }
}
