//! The files of the page.

use std::borrow::Cow;

/// A file of the page.
#[derive(Clone, Copy, Debug)]
pub struct File {
    /// The name below the page's folder, with `/` between segments.
    pub name: &'static str,
    pub plain: &'static [u8],
    /// The compressed file.
    pub gzip: &'static [u8],
}

include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// The document that a browser loads first. It names its files below [`edition`], and is the same on every server.
const DOCUMENT: &str = "index.html";
/// The placeholder in the document for the path of the page's files.
const ASSETS: &str = "{assets}";
/// The placeholder in the document for links to all modules, so that a browser does not find them one import after the other.
const MODULES: &str = "{modules}";

/// Returns the name of this edition of all files. It changes with every file, so that browsers may keep the files for ever.
#[must_use]
pub fn edition() -> &'static str {
    EDITION
}

/// Returns a file of this edition. The document is not one of them.
#[must_use]
pub fn find(name: &str) -> Option<&'static File> {
    FILES.iter().find(|file| file.name == name && name != DOCUMENT)
}

/// Returns the document for a page whose files are below this path.
#[must_use]
pub fn document(assets: &str) -> String {
    let file = FILES.iter().find(|file| file.name == DOCUMENT);
    let text = file.map_or(Cow::Borrowed(""), |it| String::from_utf8_lossy(it.plain));
    let modules = FILES.iter().filter(|file| file.name.ends_with(".js"));
    let link =
        |file: &File| format!("<link rel=\"modulepreload\" href=\"{ASSETS}/{}\">", file.name);
    let links: String = modules.map(link).collect();
    text.replace(MODULES, &links).replace(ASSETS, assets)
}

// === impl File ===

impl File {
    /// Returns the media type; `None` for a file that browsers do not request.
    #[must_use]
    pub fn content_type(&self) -> Option<&'static str> {
        let (_, ending) = self.name.rsplit_once('.')?;
        Some(match ending {
            "css" => "text/css; charset=utf-8",
            "js" => "text/javascript; charset=utf-8",
            "svg" => "image/svg+xml",
            "webmanifest" => "application/manifest+json",
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_but_the_document_can_be_asked_for() {
        for file in FILES.iter().filter(|it| it.name != DOCUMENT) {
            assert!(file.content_type().is_some(), "{}", file.name);
            assert_eq!(find(file.name).map(|it| it.plain), Some(file.plain));
        }
        assert!(find(DOCUMENT).is_none());
        assert!(find("../lib.rs").is_none());
    }

    #[test]
    fn the_document_names_its_files_where_they_are() {
        let document = document("/x/assets/1");
        assert!(document.contains("\"/x/assets/1/main.js\""), "{document}");
        assert!(
            document.contains("modulepreload\" href=\"/x/assets/1/base/dom.js\""),
            "{document}"
        );
        assert!(!document.contains(ASSETS) && !document.contains(MODULES));
    }

    /// The page must stay small on its way to the browser.
    #[test]
    fn the_compressed_scripts_stay_below_90_kib() {
        let scripts = FILES.iter().filter(|file| file.name.ends_with(".js"));
        let bytes: usize = scripts.map(|file| file.gzip.len()).sum();
        assert!(bytes < 90 * 1024, "{bytes} bytes");
    }
}
