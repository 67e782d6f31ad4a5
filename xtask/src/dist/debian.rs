//! The Debian package.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};

use super::Package;
use super::archive::{PackageFile, tar_gz};
use super::install_tree::{self, DOC};
use super::platform::Os;
use super::program::Program;
use super::release::{DESCRIPTION, NAME, Release, SUMMARY};

const PREFIX: &str = "/usr";
/// The number of this packaging of a version.
const REVISION: u32 = 1;
const MAINTAINER: &str = "The Trilogue contributors <trilogue@localhost>";
/// The scripts that run when the package is installed and removed.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];
/// Paths of a prefix, and the paths that Debian uses instead.
const MOVED: [(&str, &str); 1] = [("share/zsh/site-functions/", "share/zsh/vendor-completions/")];
/// The libraries that a binary of Rust links, and the packages that have them.
const LIBRARIES: [(&str, &str); 5] = [
    ("libc.so.", "libc6"),
    ("libm.so.", "libc6"),
    ("ld-linux", "libc6"),
    ("libpthread.so.", "libc6"),
    ("libgcc_s.so.", "libgcc-s1"),
];

/// Makes the package; returns `None` if the platform has no Debian package.
pub(super) fn package(release: &Release) -> Result<Option<Package>> {
    if release.platform.os != Os::Linux {
        return Ok(None);
    }
    let arch = release.platform.arch.debian;
    // A pre-release comes before the release.
    let version = format!("{}-{REVISION}", release.version.replacen('-', "~", 1));

    let mut files = install_tree::files(release, PREFIX)?;
    files.push(PackageFile::new(format!("{DOC}/copyright"), copyright(release)?));
    for file in &mut files {
        for (from, to) in MOVED {
            if let Some(rest) = file.path.strip_prefix(from) {
                file.path = format!("{to}{rest}");
            }
        }
    }
    let size = files.iter().map(|file| file.contents.len().div_ceil(1024)).sum::<usize>();
    let files = files.into_iter().map(|file| file.below("./usr/")).collect();

    let control = format!(
        "Package: {NAME}\nVersion: {version}\nArchitecture: {arch}\nMaintainer: {MAINTAINER}\nInstalled-Size: {size}\nDepends: {}\nRecommends: ca-certificates\nSection: net\nPriority: optional\nDescription: {SUMMARY}\n {DESCRIPTION}\n",
        depends(&release.program)?
    );
    let mut scripts = vec![PackageFile::new("./control", control)];
    for name in SCRIPTS {
        let text = release.text(&format!("deploy/debian/{name}"))?;
        scripts.push(PackageFile::program(format!("./{name}"), text));
    }
    let bytes = ar(
        &[
            ("debian-binary", b"2.0\n"),
            ("control.tar.gz", &tar_gz(scripts, release.seconds)?),
            ("data.tar.gz", &tar_gz(files, release.seconds)?),
        ],
        release.seconds,
    );
    Ok(Some(Package { name: format!("{NAME}_{version}_{arch}.deb"), bytes }))
}

/// The packages with the libraries that the binary links, in the versions that it needs.
fn depends(program: &Program) -> Result<String> {
    let mut packages: BTreeMap<&str, Option<(u32, u32)>> = BTreeMap::new();
    for library in program.libraries.keys() {
        let known = LIBRARIES.iter().find(|(begin, _)| library.starts_with(begin));
        let Some((_, package)) = known else {
            bail!("no Debian package is known for {library}: name it in xtask/src/dist/debian.rs");
        };
        let newest = packages.entry(package).or_default();
        *newest = (*newest).max(program.needs(library));
    }
    let packages = packages.into_iter().map(|(package, version)| match version {
        Some((major, minor)) => format!("{package} (>= {major}.{minor})"),
        None => package.to_owned(),
    });
    Ok(packages.collect::<Vec<_>>().join(", "))
}

/// The licence in the form that Debian reads.
fn copyright(release: &Release) -> Result<String> {
    let licence = release.text("LICENSE")?;
    let lines = licence.trim_end().lines().map(|line| match line.trim() {
        "" => " .".to_owned(),
        _ => format!(" {line}"),
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    let (name, _) = MAINTAINER.split_once(" <").context("the maintainer's address")?;
    Ok(format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: {NAME}\nComment: {} beside this file has the licences of what is linked.\n\nFiles: *\nCopyright: {name}\nLicense: Apache-2.0\n{text}\n",
        install_tree::LICENCES
    ))
}

/// The archive around the parts of the package: a line of 60 bytes before each of them.
fn ar(parts: &[(&str, &[u8])], seconds: u64) -> Vec<u8> {
    let mut bytes = b"!<arch>\n".to_vec();
    for (name, contents) in parts {
        let size = contents.len();
        bytes.extend(format!("{name:<16}{seconds:<12}0     0     100644  {size:<10}`\n").bytes());
        bytes.extend(*contents);
        if size % 2 == 1 {
            bytes.push(b'\n');
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(libraries: &[(&str, Option<&str>)]) -> Program {
        let libraries =
            libraries.iter().map(|&(name, version)| (name.to_owned(), version.map(str::to_owned)));
        Program::linking(libraries.collect())
    }

    #[test]
    fn a_package_depends_on_what_the_binary_links() {
        let libraries = [
            ("libc.so.6", Some("GLIBC_2.34")),
            ("libm.so.6", Some("GLIBC_2.29")),
            ("ld-linux-x86-64.so.2", None),
            ("libgcc_s.so.1", Some("GCC_4.2.0")),
        ];
        assert_eq!(depends(&program(&libraries)).unwrap(), "libc6 (>= 2.34), libgcc-s1 (>= 4.2)");
        assert_eq!(depends(&program(&[])).unwrap(), "");
        let error = depends(&program(&[("libssl.so.3", None)])).unwrap_err();
        assert!(error.to_string().contains("libssl.so.3"), "{error}");
    }

    #[test]
    fn parts_of_an_archive_begin_at_even_bytes() {
        let bytes = ar(&[("odd", b"abc"), ("even", b"ab")], 1);
        assert_eq!(bytes.len(), 8 + 60 + 4 + 60 + 2);
        assert!(bytes.starts_with(
            b"!<arch>\nodd             1           0     0     100644  3         `\nabc\n"
        ));
    }
}
