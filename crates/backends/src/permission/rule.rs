use globset::{Glob, GlobBuilder, GlobMatcher};
use trilogue_domain::RuleOrigin;

use super::path::CallPaths;
use super::{Subject, Verdict};

const MAX_NAME_BYTES: usize = 128;
const MAX_PATTERN_BYTES: usize = 1_024;
/// The kind of tools that run commands.
const EXECUTE: &str = "execute";

#[derive(Clone, Debug)]
pub struct Rule {
    name: String,
    kinds: Option<Vec<String>>,
    tool: Option<GlobMatcher>,
    path: Option<Pattern>,
    verdict: Verdict,
    origin: RuleOrigin,
}

/// A rule as it is written. `None` matches everything.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleText {
    /// Its name in the log: 1 to 128 bytes without control characters.
    pub name: String,
    /// The kinds of tools that it matches.
    pub kinds: Option<Vec<String>>,
    /// A pattern for tool names: `*` matches anything.
    pub tool: Option<String>,
    /// A pattern for files: `*` matches anything except `/`, `**` matches anything. A relative one begins at the agent's working directory and matches nothing outside.
    pub path: Option<String>,
    pub verdict: Verdict,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct InvalidRule {
    message: String,
}

#[derive(Clone, Debug)]
struct Pattern {
    matcher: GlobMatcher,
    /// Whether it begins at the agent's working directory.
    is_relative: bool,
}

// === impl Rule ===

impl Rule {
    /// Compiles a rule of the settings.
    /// Errors: [`InvalidRule`], which names the wrong part.
    pub fn new(text: RuleText) -> Result<Self, InvalidRule> {
        let RuleText { name, kinds, tool, path, verdict } = text;
        if name.is_empty() || name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
            return Err(InvalidRule::new(format!(
                "a rule's name has 1 to {MAX_NAME_BYTES} bytes and no control characters"
            )));
        }
        if kinds.as_ref().is_some_and(Vec::is_empty) {
            return Err(InvalidRule::new(format!(
                "the rule '{name}' has an empty list of kinds, so it would never match"
            )));
        }
        let tool = tool.map(|it| compile(&name, "tool", &it, false)).transpose()?;
        let path = path
            .map(|written| {
                let matcher = compile(&name, "path", &written, true)?;
                Ok(Pattern { matcher, is_relative: !written.starts_with('/') })
            })
            .transpose()?;
        Ok(Self { name, kinds, tool, path, verdict, origin: RuleOrigin::Settings })
    }

    /// The same rule, marked as a rule of a run.
    pub(super) fn of_run(self) -> Self {
        Self { origin: RuleOrigin::Run, ..self }
    }

    pub(crate) fn origin(&self) -> RuleOrigin {
        self.origin
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Whether it depends on the paths of a call.
    pub(super) fn has_path(&self) -> bool {
        self.path.is_some()
    }

    /// Whether the rule matches. A member of the rule that the subject leaves out does not match.
    pub(super) fn matches(&self, subject: &Subject<'_>, paths: &CallPaths) -> bool {
        self.matches_tool(subject)
            && self.path.as_ref().is_none_or(|path| match self.verdict {
                Verdict::Allow => {
                    !subject.runs_command && paths.all_match(&path.matcher, path.is_relative)
                }
                Verdict::Deny | Verdict::Ask => paths.any_matches(&path.matcher, path.is_relative),
            })
    }

    /// Whether it matches, apart from the paths.
    pub(super) fn matches_tool(&self, subject: &Subject<'_>) -> bool {
        let kind = self.kinds.as_ref().is_none_or(|kinds| self.matches_kind(kinds, subject));
        let tool = || {
            self.tool.as_ref().is_none_or(|tool| subject.tool.is_some_and(|it| tool.is_match(it)))
        };
        kind && tool()
    }

    /// The agent names the kind. A command counts as a command under any kind.
    fn matches_kind(&self, kinds: &[String], subject: &Subject<'_>) -> bool {
        let names = |kind: &str| kinds.iter().any(|named| named == kind);
        let is_named = subject.kind.is_some_and(names);
        match self.verdict {
            Verdict::Allow => is_named && (!subject.runs_command || names(EXECUTE)),
            Verdict::Deny | Verdict::Ask => is_named || (subject.runs_command && names(EXECUTE)),
        }
    }
}

fn compile(
    rule: &str,
    what: &str,
    written: &str,
    of_path: bool,
) -> Result<GlobMatcher, InvalidRule> {
    let wrong = |why: String| {
        InvalidRule::new(format!("`{what}` of the rule '{rule}' is not a pattern: {why}"))
    };
    if written.is_empty() || written.len() > MAX_PATTERN_BYTES {
        return Err(wrong(format!("it has 1 to {MAX_PATTERN_BYTES} bytes")));
    }
    if of_path && written.split('/').any(|name| matches!(name, "." | "..")) {
        return Err(wrong("`.` and `..` match no path; write the full path".to_owned()));
    }
    let glob: Glob = GlobBuilder::new(written)
        .literal_separator(of_path)
        .backslash_escape(true)
        .build()
        .map_err(|error| wrong(error.kind().to_string()))?;
    Ok(glob.compile_matcher())
}

// === impl InvalidRule ===

impl InvalidRule {
    pub(super) fn new(message: String) -> Self {
        Self { message }
    }
}
