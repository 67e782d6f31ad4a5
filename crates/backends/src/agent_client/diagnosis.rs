//! What helps to understand an agent's failure: the end of its standard error, and variables that it may want.

use trilogue_domain::{Failure, Json};
use trilogue_mapping::agent_client::{STDERR_INTRODUCTION, explained};
use trilogue_runtime::CallError;
use trilogue_wire::agent_client::splice;

use super::failure::{AgentFailure, domain_json, error_object};

/// The variables by which agents commonly get their credentials.
const WELL_KNOWN: [&str; 16] = [
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "AZURE_OPENAI_API_KEY",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CODEX_API_KEY",
    "DASHSCOPE_API_KEY",
    "DEEPSEEK_API_KEY",
    "GEMINI_API_KEY",
    "GITHUB_TOKEN",
    "GOOGLE_API_KEY",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GROQ_API_KEY",
    "MISTRAL_API_KEY",
    "OPENAI_API_KEY",
    "OPENROUTER_API_KEY",
    "XAI_API_KEY",
];
/// The words of a failure for want of credentials.
const CREDENTIAL_WORDS: [&str; 5] =
    ["api key", "api_key", "credential", "unauthorized", "not logged in"];

#[derive(Clone, Debug)]
pub(super) struct Diagnosis {
    /// What the agent wrote to its standard error during a call that it refused; else empty.
    stderr: String,
    hint: Option<String>,
}

// === impl Diagnosis ===

impl Diagnosis {
    /// Of a failure of an agent whose child has these variables. `stderr` is what it wrote meanwhile.
    pub(super) fn of(failure: &AgentFailure, env: &[(String, String)], stderr: String) -> Self {
        let stderr = if failure.is_refusal() { stderr } else { String::new() };
        let text = format!("{}\n{stderr}", failure.clone().into_failure().message);
        let is_missing = |name: &str| {
            std::env::var_os(name).is_some() && !env.iter().any(|(known, _)| known == name)
        };
        let missing = missing_variables(&text, failure.is_authentication_required(), is_missing);
        let hint = (!missing.is_empty()).then(|| {
            format!(
                "the server has {}, which the agent does not get; add it to `inherit` of the agent",
                missing.join(" and ")
            )
        });
        Self { stderr, hint }
    }

    /// The details keep both, so that a client of the agent's own protocol gets them too.
    pub(super) fn explain_failure(self, mut failure: Failure) -> Failure {
        let mut set = |name: &str, text: &str| {
            let details = failure.data.as_ref().map_or("{}", |data| data.as_str());
            let details = splice::set_text(details, &[name], text);
            failure.data = details.and_then(|it| Json::parse(it).ok()).or(failure.data.take());
        };
        if let Some(hint) = &self.hint {
            set("hint", hint);
        }
        if !self.stderr.is_empty() && !failure.message.contains(&self.stderr) {
            set("stderr", &self.stderr);
            failure.message = format!("{}{STDERR_INTRODUCTION}{}", failure.message, self.stderr);
        }
        failure.bounded()
    }

    pub(super) fn explain_call(self, error: CallError) -> CallError {
        let error = explained(error_object(error), &self.stderr, self.hint.as_deref());
        let data = error.data.as_ref().and_then(domain_json);
        CallError { data, ..CallError::new(error.code.0, error.message) }
    }
}

/// The variables that the server has and the agent does not, among those that its failure may be about.
fn missing_variables(
    text: &str,
    needs_login: bool,
    is_missing: impl Fn(&str) -> bool,
) -> Vec<&'static str> {
    let missing: Vec<_> = WELL_KNOWN.iter().copied().filter(|name| is_missing(name)).collect();
    let named: Vec<_> = missing.iter().copied().filter(|name| text.contains(name)).collect();
    if !named.is_empty() {
        return named;
    }
    let lower = text.to_lowercase();
    if needs_login || CREDENTIAL_WORDS.iter().any(|word| lower.contains(word)) {
        return missing;
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_that_the_agent_may_want_is_named_if_only_the_server_has_it() {
        let is_missing = |name: &str| matches!(name, "OPENAI_API_KEY" | "XAI_API_KEY");
        let of = |text, needs_login| missing_variables(text, needs_login, is_missing);
        assert_eq!(of("set OPENAI_API_KEY first", false), ["OPENAI_API_KEY"]);
        assert_eq!(of("invalid API key", false), ["OPENAI_API_KEY", "XAI_API_KEY"]);
        assert_eq!(of("Authentication required", true), ["OPENAI_API_KEY", "XAI_API_KEY"]);
        assert!(of("the disk is full", false).is_empty());
        assert!(missing_variables("set OPENAI_API_KEY first", true, |_| false).is_empty());
    }
}
