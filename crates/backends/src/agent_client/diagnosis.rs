//! Hints that explain an agent's failure: the end of its standard error, and variables that it may need.

use trilogue_domain::{Failure, Json};
use trilogue_mapping::agent_client::{STDERR_INTRODUCTION, with_explanation};
use trilogue_runtime::CallError;
use trilogue_wire::agent_client::splice;

use super::failure::{AgentFailure, domain_json, error_object};
use crate::child::{Layers, SERVER_PREFIX, sandbox_hint};

/// The most variables that a hint names.
const MAX_NAMED: usize = 8;
/// The words of a failure because of missing credentials.
const CREDENTIAL_WORDS: [&str; 5] =
    ["api key", "api_key", "credential", "unauthorized", "not logged in"];

#[derive(Clone, Debug)]
pub(super) struct Diagnosis {
    /// The agent's standard error during a call that it refused. Otherwise empty.
    stderr: String,
    hint: Option<String>,
}

// === impl Diagnosis ===

impl Diagnosis {
    /// Explains a failure of an agent whose child has these variables and layers, and which may need the variables of `wanted`. `stderr` is its output during the call.
    pub(super) fn of(
        failure: &AgentFailure,
        (env, layers): (&[(String, String)], Layers),
        wanted: &[String],
        stderr: String,
    ) -> Self {
        let stderr = if failure.is_refusal() { stderr } else { String::new() };
        let text = format!("{}\n{stderr}", failure.clone().into_failure().message);
        let is_missing = |name: &str| {
            std::env::var_os(name).is_some_and(|value| !value.is_empty())
                && !name.starts_with(SERVER_PREFIX)
                && !env.iter().any(|(known, _)| known == name)
        };
        let needs_login = failure.is_authentication_required();
        let missing = missing_variables(&text, needs_login, wanted, is_missing);
        let hint = (!missing.is_empty()).then(|| {
            format!(
                "the server has {}, which the agent does not get; add it to `inherit` of the agent",
                missing.join(" and ")
            )
        });
        Self { stderr, hint: hint.or_else(|| sandbox_hint(layers, &text).map(str::to_owned)) }
    }

    /// The details keep both, so that a client of the agent's own protocol gets them too.
    pub(super) fn explain_failure(self, mut failure: Failure) -> Failure {
        let own_hint = failure.data.as_ref().and_then(|data| hint_of(data.as_str()));
        let mut set = |name: &str, text: &str| {
            let details = failure.data.as_ref().map_or("{}", |data| data.as_str());
            let details = splice::set_text(details, &[name], text);
            failure.data = details.and_then(|it| Json::parse(it).ok()).or(failure.data.take());
        };
        if let Some(hint) = &self.hint {
            set("hint", &joined(own_hint, hint));
        }
        if !self.stderr.is_empty() && !failure.message.contains(&self.stderr) {
            set("stderr", &self.stderr);
            failure.message = format!("{}{STDERR_INTRODUCTION}{}", failure.message, self.stderr);
        }
        failure.bounded()
    }

    pub(super) fn explain_call(self, mut error: CallError) -> CallError {
        if let (Some(data), Some(hint)) = (&error.data, &self.hint)
            && let Some(own) = hint_of(data.as_str())
        {
            let data = splice::set_text(data.as_str(), &["hint"], &joined(Some(own), hint));
            error.data = data.and_then(|data| Json::parse(data).ok()).or(error.data);
        }
        let error = with_explanation(error_object(error), &self.stderr, self.hint.as_deref());
        let data = error.data.as_ref().and_then(domain_json);
        CallError { data, ..CallError::new(error.code.0, error.message) }
    }
}

fn hint_of(data: &str) -> Option<String> {
    splice::get_text(data, &["hint"]).map(Into::into)
}

/// Both hints joined: how to sign in is still right if a variable is missing.
fn joined(own: Option<String>, hint: &str) -> String {
    match own {
        Some(own) => format!("{own}; or {hint}"),
        None => hint.to_owned(),
    }
}

/// The variables that the server has and the agent does not: those that the failure names; otherwise, if credentials are missing, those that this agent uses.
fn missing_variables(
    text: &str,
    needs_login: bool,
    wanted: &[String],
    is_missing: impl Fn(&str) -> bool,
) -> Vec<String> {
    let is_part = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    let words = text.split(|c| !is_part(c)).filter(|word| word.contains('_'));
    let mut named: Vec<String> = Vec::new();
    for word in words.filter(|word| is_missing(word)) {
        if !named.iter().any(|it| it == word) && named.len() < MAX_NAMED {
            named.push(word.to_owned());
        }
    }
    let lower = text.to_lowercase();
    let is_wanted = needs_login || CREDENTIAL_WORDS.iter().any(|word| lower.contains(word));
    if !named.is_empty() || !is_wanted {
        return named;
    }
    wanted.iter().filter(|name| is_missing(name)).take(MAX_NAMED).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_that_the_agent_may_want_is_named_if_only_the_server_has_it() {
        let is_missing = |name: &str| {
            matches!(name, "OPENAI_API_KEY" | "XAI_API_KEY" | "GEMINI_API_KEY" | "OWN_TOKEN_1")
        };
        let wanted = ["OPENAI_API_KEY", "CODEX_API_KEY", "XAI_API_KEY"].map(str::to_owned);
        let of = |text, needs_login| missing_variables(text, needs_login, &wanted, is_missing);
        assert_eq!(of("set OPENAI_API_KEY first", false), ["OPENAI_API_KEY"]);
        assert_eq!(of("set OWN_TOKEN_1, or OWN_TOKEN_1_FILE", false), ["OWN_TOKEN_1"]);
        assert_eq!(of("invalid API key", false), ["OPENAI_API_KEY", "XAI_API_KEY"]);
        assert_eq!(of("Authentication required", true), ["OPENAI_API_KEY", "XAI_API_KEY"]);
        assert!(of("the disk is full", false).is_empty());
        assert!(missing_variables("sign in", true, &[], is_missing).is_empty());
        assert!(missing_variables("set OPENAI_API_KEY first", true, &wanted, |_| false).is_empty());
    }

    #[test]
    fn a_hint_stands_beside_how_to_sign_in() {
        let both = joined(Some("sign in with X".to_owned()), "the server has Y");
        assert_eq!(both, "sign in with X; or the server has Y");
    }
}
