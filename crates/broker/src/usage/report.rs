//! The objects in which providers report usage. What is missing or not a number of tokens is left out.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;

use super::TokenCounts;
use crate::access::Dialect;

/// More tokens than any request has.
const MAX_TOKENS: u64 = 1_000_000_000;

/// What was reported of a request so far. Later reports replace earlier ones: all providers count from the start of the request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Report {
    pub(super) model: Option<String>,
    pub(super) tokens: Option<TokenCounts>,
}

/// An object of any dialect: a whole response, or an event of a stream.
#[derive(Deserialize, Default)]
struct Reported<'a> {
    #[serde(borrow, default)]
    model: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "modelVersion")]
    model_version: Option<Cow<'a, str>>,
    #[serde(default)]
    usage: Option<Value>,
    #[serde(default, rename = "usageMetadata")]
    usage_metadata: Option<Value>,
    /// The message that an event of Anthropic begins.
    #[serde(borrow, default)]
    message: Option<Nested<'a>>,
    /// The response that an event of `OpenAI` completes.
    #[serde(borrow, default)]
    response: Option<Nested<'a>>,
}

#[derive(Deserialize, Default)]
struct Nested<'a> {
    #[serde(borrow, default)]
    model: Option<Cow<'a, str>>,
    #[serde(default)]
    usage: Option<Value>,
}

/// Reads the usage in an object, or in the objects of an array.
pub(super) fn read_report(dialect: Dialect, json: &[u8]) -> Vec<(Option<String>, Usage)> {
    let one = serde_json::from_slice::<Reported<'_>>(json).map(|one| vec![one]);
    // Gemini streams an array if it is not asked for events.
    let all = one.or_else(|_| serde_json::from_slice::<Vec<Reported<'_>>>(json));
    all.unwrap_or_default().into_iter().map(|one| one.read(dialect)).collect()
}

/// The counts of one report. `None`: it does not say.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Usage {
    input: Option<u64>,
    output: Option<u64>,
    cached_read: Option<u64>,
    cache_write: Option<u64>,
}

// === impl Report ===

impl Report {
    pub(super) fn add(&mut self, reports: Vec<(Option<String>, Usage)>) {
        for (model, usage) in reports {
            self.model = model.or(self.model.take());
            if usage == Usage::default() {
                continue;
            }
            let tokens = self.tokens.get_or_insert_default();
            tokens.input = usage.input.unwrap_or(tokens.input);
            tokens.output = usage.output.unwrap_or(tokens.output);
            tokens.cached_read = usage.cached_read.unwrap_or(tokens.cached_read);
            tokens.cache_write = usage.cache_write.unwrap_or(tokens.cache_write);
        }
    }
}

// === impl Reported ===

impl Reported<'_> {
    fn read(self, dialect: Dialect) -> (Option<String>, Usage) {
        let nested = match dialect {
            Dialect::Anthropic => self.message,
            Dialect::OpenAi => self.response,
            Dialect::Gemini | Dialect::Unknown => None,
        };
        let nested = nested.unwrap_or_default();
        let (model, usage) = match dialect {
            Dialect::Gemini => (self.model_version, self.usage_metadata),
            _ => (self.model.or(nested.model), self.usage.or(nested.usage)),
        };
        let usage = usage.unwrap_or_default();
        let count = |path: &str| {
            usage.pointer(path).and_then(Value::as_u64).filter(|count| *count <= MAX_TOKENS)
        };
        let usage = match dialect {
            Dialect::Anthropic => Usage {
                input: count("/input_tokens"),
                output: count("/output_tokens"),
                cached_read: count("/cache_read_input_tokens"),
                cache_write: count("/cache_creation_input_tokens"),
            },
            Dialect::OpenAi => {
                let cached = count("/prompt_tokens_details/cached_tokens")
                    .or(count("/input_tokens_details/cached_tokens"));
                let input = count("/prompt_tokens").or(count("/input_tokens"));
                Usage {
                    input: input.map(|input| input.saturating_sub(cached.unwrap_or(0))),
                    output: count("/completion_tokens").or(count("/output_tokens")),
                    cached_read: cached,
                    cache_write: None,
                }
            }
            Dialect::Gemini => {
                let cached = count("/cachedContentTokenCount");
                let input = count("/promptTokenCount").map(|prompt| {
                    prompt.saturating_sub(cached.unwrap_or(0))
                        + count("/toolUsePromptTokenCount").unwrap_or(0)
                });
                let output = count("/candidatesTokenCount");
                let thoughts = count("/thoughtsTokenCount");
                let output = output.or(thoughts.map(|_| 0));
                Usage {
                    input,
                    output: output.map(|output| output + thoughts.unwrap_or(0)),
                    cached_read: cached,
                    cache_write: None,
                }
            }
            Dialect::Unknown => Usage::default(),
        };
        (model.map(Cow::into_owned), usage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(dialect: Dialect, objects: &[&str]) -> Report {
        let mut report = Report::default();
        objects.iter().for_each(|json| report.add(read_report(dialect, json.as_bytes())));
        report
    }

    fn counts(input: u64, output: u64, cached_read: u64, cache_write: u64) -> Option<TokenCounts> {
        Some(TokenCounts { input, output, cached_read, cache_write })
    }

    #[test]
    fn each_dialect_is_read_in_one_piece_and_in_events() {
        let anthropic = report(
            Dialect::Anthropic,
            &[
                r#"{"type":"message_start","message":{"model":"m-1","usage":{"input_tokens":10,"cache_read_input_tokens":5,"cache_creation_input_tokens":2,"output_tokens":1}}}"#,
                r#"{"type":"content_block_delta","delta":{"text":"x"}}"#,
                r#"{"type":"message_delta","usage":{"output_tokens":7}}"#,
            ],
        );
        assert_eq!(anthropic.tokens, counts(10, 7, 5, 2));
        assert_eq!(anthropic.model.as_deref(), Some("m-1"));
        let chat = r#"{"model":"g","usage":{"prompt_tokens":30,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":20}}}"#;
        assert_eq!(report(Dialect::OpenAi, &[chat]).tokens, counts(10, 4, 20, 0));
        let responses = r#"{"type":"response.completed","response":{"model":"g","usage":{"input_tokens":30,"output_tokens":4,"input_tokens_details":{"cached_tokens":20}}}}"#;
        assert_eq!(report(Dialect::OpenAi, &[responses]).tokens, counts(10, 4, 20, 0));
        let gemini = r#"[{"usageMetadata":{"promptTokenCount":9}},{"modelVersion":"g","usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":3,"thoughtsTokenCount":2,"cachedContentTokenCount":4}}]"#;
        let gemini = report(Dialect::Gemini, &[gemini]);
        assert_eq!((gemini.tokens, gemini.model.as_deref()), (counts(5, 5, 4, 0), Some("g")));
    }

    #[test]
    fn what_is_no_number_of_tokens_is_left_out() {
        for usage in [
            r#"{"usage":{"prompt_tokens":-1,"completion_tokens":"7"}}"#,
            r#"{"usage":{"prompt_tokens":1e12,"completion_tokens":1.5}}"#,
            r#"{"usage":7}"#,
            r#"{"usage":null,"model":"g"}"#,
            "[DONE]",
            "",
            "[[[[",
        ] {
            assert_eq!(report(Dialect::OpenAi, &[usage]).tokens, None, "{usage}");
        }
    }
}
