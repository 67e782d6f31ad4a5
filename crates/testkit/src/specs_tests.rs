//! The tests of [`crate::specs`], in a separate file because other crates include that file in their own tests.

use std::fs;

use crate::specs::{Document, find};

#[test]
fn a_document_is_there_unavailable_or_missing() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    fs::write(file("a.json"), "{}").unwrap();
    fs::write(file("b.json.missing"), "no network\n").unwrap();
    let found = |name: &str| find(Some(folder.path()), name);
    assert_eq!(found("a.json"), Document::There(file("a.json")));
    assert_eq!(found("b.json"), Document::Unavailable("no network".to_owned()));
    assert_eq!(found("c.json"), Document::Missing(file("c.json")));
    assert!(matches!(find(None, "a.json"), Document::Unavailable(_)));
}
