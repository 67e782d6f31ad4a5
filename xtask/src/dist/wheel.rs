//! The wheel: `pip install` puts the program on the path.

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

use super::Package;
use super::archive::{PackageFile, zip};
use super::install_tree::LICENCES;
use super::release::{LICENCE, NAME, Release, SUMMARY};

/// What Cargo and Python call the kinds of pre-releases.
const PRE_RELEASES: [(&str, &str); 3] = [("alpha.", "a"), ("beta.", "b"), ("rc.", "rc")];

pub(super) fn package(release: &Release) -> Result<Package> {
    let version = version(&release.version)?;
    let platform = release.platform.wheel_tag(release.program.glibc());
    let info = format!("{NAME}-{version}.dist-info");
    let tags = platform.split('.').map(|platform| format!("Tag: py3-none-{platform}\n"));
    let wheel = format!(
        "Wheel-Version: 1.0\nGenerator: xtask ({})\nRoot-Is-Purelib: false\n{}",
        release.version,
        tags.collect::<String>()
    );
    let metadata = format!(
        "Metadata-Version: 2.4\nName: {NAME}\nVersion: {version}\nSummary: {SUMMARY}\nLicense-Expression: {LICENCE}\nLicense-File: LICENSE\nLicense-File: {LICENCES}\nDescription-Content-Type: text/markdown\n\n{}",
        release.text("README.md")?
    );
    let program = format!("{NAME}-{version}.data/scripts/{NAME}");
    let mut files = vec![
        PackageFile::program(program, release.program.bytes.clone()),
        PackageFile::new(format!("{info}/METADATA"), metadata),
        PackageFile::new(format!("{info}/WHEEL"), wheel),
        PackageFile::new(format!("{info}/licenses/LICENSE"), release.text("LICENSE")?),
        PackageFile::new(format!("{info}/licenses/{LICENCES}"), &*release.licences),
        PackageFile::new(format!("{info}/sboms/{NAME}.cdx.json"), &*release.sbom),
    ];
    files.push(record(&files, &format!("{info}/RECORD")));
    let bytes = zip(&files, release.seconds)?;
    Ok(Package { name: format!("{NAME}-{version}-py3-none-{platform}.whl"), bytes })
}

/// The list of the wheel's files, which is in the wheel too, without a checksum of itself.
fn record(files: &[PackageFile], path: &str) -> PackageFile {
    let lines = files.iter().map(|file| {
        let checksum = URL_SAFE_NO_PAD.encode(Sha256::digest(&file.contents));
        format!("{},sha256={checksum},{}\n", file.path, file.contents.len())
    });
    PackageFile::new(path, format!("{}{path},,\n", lines.collect::<String>()))
}

/// A version of Cargo as Python writes it.
fn version(version: &str) -> Result<String> {
    let Some((version, pre)) = version.split_once('-') else { return Ok(version.to_owned()) };
    let (number, kind) = PRE_RELEASES
        .iter()
        .find_map(|(ours, theirs)| Some((pre.strip_prefix(ours)?, theirs)))
        .with_context(|| {
            format!("Python has no pre-release '{pre}': expected alpha.N, beta.N or rc.N")
        })?;
    Ok(format!("{version}{kind}{number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_written_as_python_does() {
        for (ours, theirs) in
            [("1.2.3", "1.2.3"), ("1.2.3-rc.1", "1.2.3rc1"), ("2.0.0-beta.12", "2.0.0b12")]
        {
            assert_eq!(version(ours).unwrap(), theirs);
        }
        assert!(version("1.0.0-nightly").is_err());
    }
}
