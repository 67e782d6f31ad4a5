//! The files below a prefix such as `/usr/local`, which the tarball has and the Debian package too.

use anyhow::{Context, Result};

use super::Package;
use super::archive::{PackageFile, tar_gz};
use super::release::{NAME, Release};

/// The prefix that the service unit of the repository is written for.
pub(super) const UNIT_PREFIX: &str = "/usr/local";
/// Where a prefix has what explains a program.
pub(super) const DOC: &str = "share/doc/trilogue";
pub(super) const LICENCES: &str = "THIRD-PARTY-LICENSES";

/// Each shell with the place where a prefix has its completions.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/trilogue"),
    ("zsh", "share/zsh/site-functions/_trilogue"),
    ("fish", "share/fish/vendor_completions.d/trilogue.fish"),
];
/// What systemd reads, with its place.
const SYSTEMD: [(&str, &str); 2] = [
    ("deploy/trilogue.service", "lib/systemd/system/trilogue.service"),
    ("deploy/trilogue.sysusers", "lib/sysusers.d/trilogue.conf"),
];
/// How the unit begins where the package has made what the repository's one tells you to make.
const UNIT_HEAD: &str = "# The configuration is /etc/trilogue/trilogue.toml. The store, tokens and the folders of agents are below /var/lib/trilogue.";
/// Configurations to start from.
const EXAMPLES: [&str; 4] = ["trilogue.toml", "nginx.conf", "Containerfile", "container.toml"];

/// Everything that is installed below a prefix. The licence is not in it, because systems have places of their own for it.
pub(super) fn files(release: &Release, prefix: &str) -> Result<Vec<PackageFile>> {
    let mut files = vec![
        PackageFile::program(format!("bin/{NAME}"), release.program.bytes.clone()),
        PackageFile::new(format!("{DOC}/README.md"), release.text("README.md")?),
        PackageFile::new(format!("{DOC}/CHANGELOG.md"), release.text("CHANGELOG.md")?),
        PackageFile::new(format!("{DOC}/{LICENCES}"), &*release.licences),
        PackageFile::new(format!("{DOC}/{NAME}.cdx.json"), &*release.sbom),
    ];
    for (shell, path) in COMPLETIONS {
        files.push(PackageFile::new(path, release.program.output(&["completions", shell])?));
    }
    for (source, path) in SYSTEMD {
        let text = release.text(source)?;
        files.push(PackageFile::new(path, below_prefix(&text, prefix)));
    }
    for name in EXAMPLES {
        let text = release.text(&format!("deploy/{name}"))?;
        files.push(PackageFile::new(format!("{DOC}/examples/{name}"), text));
    }
    Ok(files)
}

/// The same below one folder, with the licence, to be unpacked anywhere or below a prefix.
pub(super) fn tarball(release: &Release) -> Result<Package> {
    let name = release.file_name("tar.gz");
    let folder = name.strip_suffix(".tar.gz").context("the tarball's name")?;
    let mut files = files(release, UNIT_PREFIX)?;
    files.push(PackageFile::new(format!("{DOC}/LICENSE"), release.text("LICENSE")?));
    let files = files.into_iter().map(|file| file.below(&format!("{folder}/"))).collect();
    Ok(Package { bytes: tar_gz(files, release.seconds)?, name })
}

/// A text that names our program, for a program below this prefix. What an installation by hand needs is not in it.
fn below_prefix(text: &str, prefix: &str) -> String {
    let text = text.replace(&format!("{UNIT_PREFIX}/bin/"), &format!("{prefix}/bin/"));
    match text.split_once("\n[Unit]\n") {
        Some((_, unit)) => format!("{UNIT_HEAD}\n\n[Unit]\n{unit}"),
        None => text,
    }
}
