//! How long a file may be.

use super::Finding;
use super::tree::Tree;

/// Lines above which a file should be split.
const SOFT: usize = 500;
/// Lines above which a file must be split.
const HARD: usize = 800;
/// Files that may be longer, and why.
const ALLOWED: &[(&str, &str)] = &[];

/// Every Rust file that is too long.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        let lines = file.text.lines().count();
        let allowed = ALLOWED.iter().any(|(path, _)| *path == file.path);
        if lines > HARD && !allowed {
            let message = format!("{lines} lines, at most {HARD}: split it by noun or method");
            findings.push(Finding::new(&*file.path, message));
        } else if lines > SOFT && !allowed {
            let message = format!("{lines} lines, aim at {SOFT} or fewer");
            findings.push(Finding::warning(&*file.path, message));
        }
    }
    for (path, _) in ALLOWED {
        if tree.get(path).is_none() {
            findings.push(Finding::new(*path, "is allowed to be long, but the file was not found"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_are_warned_of_and_then_refused() {
        let fatal = |lines: usize| {
            let tree = Tree::of(&[("crates/x/src/a.rs", &"\n".repeat(lines))]);
            check(&tree).into_iter().map(|finding| finding.fatal).collect::<Vec<_>>()
        };
        assert_eq!(fatal(SOFT), Vec::<bool>::new());
        assert_eq!(fatal(SOFT + 1), [false]);
        assert_eq!(fatal(HARD + 1), [true]);
    }
}
