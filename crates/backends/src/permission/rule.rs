use globset::{Glob, GlobBuilder, GlobMatcher};

use super::path::Places;
use super::{Subject, Verdict};

/// The longest name of a rule, in bytes.
const MAX_NAME_BYTES: usize = 128;
/// The longest pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 1_024;

/// One rule.
#[derive(Clone, Debug)]
pub struct Rule {
    name: String,
    kinds: Option<Vec<String>>,
    tool: Option<GlobMatcher>,
    path: Option<Pattern>,
    verdict: Verdict,
}

/// A rule as it is written. What is `None` fits everything.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleText {
    /// What it is called where it decided: 1 to 128 bytes without control characters.
    pub name: String,
    /// The kinds of tools that it is about.
    pub kinds: Option<Vec<String>>,
    /// A pattern of the names of tools: `*` stands for anything.
    pub tool: Option<String>,
    /// A pattern of files: `*` stands for anything but `/`, `**` for anything. A relative one begins at the agent's folder, and fits nothing outside of it.
    pub path: Option<String>,
    /// What it decides.
    pub verdict: Verdict,
}

/// Why something written is no rule.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct NotARule {
    message: String,
}

/// A pattern of files.
#[derive(Clone, Debug)]
struct Pattern {
    matcher: GlobMatcher,
    /// Whether it begins at the agent's folder.
    is_relative: bool,
}

// === impl Rule ===

impl Rule {
    /// Compiles a rule.
    ///
    /// # Errors
    /// [`NotARule`], saying what is wrong with its name or which pattern is none.
    pub fn new(text: RuleText) -> Result<Self, NotARule> {
        let RuleText { name, kinds, tool, path, verdict } = text;
        if name.is_empty() || name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
            return Err(NotARule::new(format!(
                "a rule's name has 1 to {MAX_NAME_BYTES} bytes and no control characters"
            )));
        }
        if kinds.as_ref().is_some_and(Vec::is_empty) {
            return Err(NotARule::new(format!(
                "the rule '{name}' names no kind, so it would never fit"
            )));
        }
        let tool = tool.map(|it| compile(&name, "tool", &it, false)).transpose()?;
        let path = path
            .map(|written| {
                let matcher = compile(&name, "path", &written, true)?;
                Ok(Pattern { matcher, is_relative: !written.starts_with('/') })
            })
            .transpose()?;
        Ok(Self { name, kinds, tool, path, verdict })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Whether it depends on where the paths of a call lead.
    pub(super) fn looks(&self) -> bool {
        self.path.is_some()
    }

    /// Whether the rule is about this. What a rule asks for and the subject does not say, does not fit.
    pub(super) fn fits(&self, subject: &Subject<'_>, places: &Places) -> bool {
        self.is_about(subject)
            && self.path.as_ref().is_none_or(|path| match self.verdict {
                Verdict::Allow => places.all_fit(&path.matcher, path.is_relative),
                Verdict::Deny | Verdict::Ask => places.any_fits(&path.matcher, path.is_relative),
            })
    }

    /// The same without its paths.
    pub(super) fn is_about(&self, subject: &Subject<'_>) -> bool {
        let kind = self.kinds.as_ref().is_none_or(|kinds| {
            subject.kind.is_some_and(|kind| kinds.iter().any(|named| named == kind))
        });
        let tool = || {
            self.tool.as_ref().is_none_or(|tool| subject.tool.is_some_and(|it| tool.is_match(it)))
        };
        kind && tool()
    }
}

fn compile(rule: &str, what: &str, written: &str, of_path: bool) -> Result<GlobMatcher, NotARule> {
    let wrong =
        |why: String| NotARule::new(format!("`{what}` of the rule '{rule}' is no pattern: {why}"));
    if written.is_empty() || written.len() > MAX_PATTERN_BYTES {
        return Err(wrong(format!("it has 1 to {MAX_PATTERN_BYTES} bytes")));
    }
    if of_path && written.split('/').any(|name| matches!(name, "." | "..")) {
        return Err(wrong("`.` and `..` fit no path; write where it begins".to_owned()));
    }
    let glob: Glob = GlobBuilder::new(written)
        .literal_separator(of_path)
        .backslash_escape(true)
        .build()
        .map_err(|error| wrong(error.kind().to_string()))?;
    Ok(glob.compile_matcher())
}

// === impl NotARule ===

impl NotARule {
    pub(super) fn new(message: String) -> Self {
        Self { message }
    }
}
