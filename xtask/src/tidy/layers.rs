//! The layers of the gateway: each file imports only from its own layer and those above it, and no face imports another.

use super::Finding;
use super::imports;
use super::tree::Tree;

const GATEWAY: &str = "crates/gateway/src/";
/// The layers from top to bottom, as in the table of the architecture document. `lib.rs` is in none: it re-exports.
const LAYERS: [&[&str]; 12] = [
    &["core/"],
    &["access/"],
    &["http/"],
    &["stream/"],
    &["route.rs", "face.rs"],
    &["faces/common/"],
    &["faces/"],
    &["mounts.rs"],
    &["pipeline.rs"],
    &["otlp/"],
    &["local.rs", "tcp.rs"],
    &["server.rs"],
];
/// The layer of the faces, which do not import each other.
const FACES: &str = "faces/";

/// Every import of the gateway that goes down, or from one face to another.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut files = Vec::new();
    for source in imports::of(tree) {
        if source.path.starts_with(GATEWAY) {
            files.push((source.path, source.imports));
        }
    }
    let edges = imports::edges(&files);
    let paths = || files.iter().map(|(path, _)| *path);
    let mut findings = Vec::new();
    for (path, targets) in paths().zip(edges) {
        let targets = targets.into_iter().filter_map(|target| files.get(target));
        findings.extend(targets.filter_map(|(target, _)| refusal(path, target)));
    }
    findings
}

/// Why one file may not import the other; `None` if it may.
fn refusal(from: &str, to: &str) -> Option<Finding> {
    let message = match (layer(from)?, layer(to)?) {
        (above, below) if above < below => {
            let [above, below] = [above, below].map(|layer| LAYERS[layer].join(", "));
            format!("imports {to}: {above} is above {below}, so move what both need up")
        }
        (layer, other) if layer == other && LAYERS[layer] == [FACES] && face(from) != face(to) => {
            format!("imports {to}: move what both faces need to faces/common or higher")
        }
        _ => return None,
    };
    Some(Finding::new(from, message))
}

/// The number of a file's layer: the first that names its path or a folder around it.
fn layer(path: &str) -> Option<usize> {
    let inside = path.strip_prefix(GATEWAY)?;
    LAYERS.iter().position(|layer| layer.iter().any(|place| inside.starts_with(place)))
}

/// The name of a file's face: that of its folder or, for a face of one file, its own.
fn face(path: &str) -> Option<&str> {
    let name = path.strip_prefix(GATEWAY)?.strip_prefix(FACES)?.split(['/', '.']).next()?;
    // The list of all faces may name each.
    (name != "mod").then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count_findings(from: &str, import: &str) -> usize {
        let [from, one, other, core] =
            [from, "faces/native/a.rs", "faces/client/b.rs", "core/c.rs"]
                .map(|path| format!("{GATEWAY}{path}"));
        let files = [(&*from, import), (&*one, ""), (&*other, ""), (&*core, "")];
        check(&Tree::of(&files)).len()
    }

    #[test]
    fn an_import_goes_up() {
        assert_eq!(count_findings("stream/x.rs", "use crate::core::c::Y;"), 0);
        assert_eq!(count_findings("stream/x.rs", "use crate::faces::native::a::Y;"), 1);
    }

    #[test]
    fn a_face_imports_no_other() {
        assert_eq!(count_findings("faces/native/x.rs", "use crate::faces::native::a::Y;"), 0);
        assert_eq!(count_findings("faces/native/x.rs", "use crate::faces::client::b::Y;"), 1);
        assert_eq!(count_findings("faces/common/x.rs", "use crate::faces::client::b::Y;"), 1);
        assert_eq!(count_findings("mounts.rs", "use crate::faces::client::b::Y;"), 0);
    }
}
