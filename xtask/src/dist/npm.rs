//! The npm package: one for each platform, with the program itself and no script around it.

use anyhow::Result;
use serde_json::json;

use super::Package;
use super::archive::{PackageFile, tar_gz};
use super::install_tree::LICENCES;
use super::release::{LICENCE, NAME, Release, SUMMARY};

pub(super) fn package(release: &Release) -> Result<Package> {
    let platform = &release.platform;
    let name = format!("{NAME}-{}-{}", platform.npm_os(), platform.arch.npm);
    let program = format!("bin/{NAME}");
    let mut manifest = json!({
        "name": name,
        "version": release.version,
        "description": SUMMARY,
        "license": LICENCE,
        "bin": {NAME: program},
        "files": ["bin", LICENCES],
        "os": [platform.npm_os()],
        "cpu": [platform.arch.npm],
    });
    if release.program.glibc().is_some() {
        manifest["libc"] = json!(["glibc"]);
    }
    let files = [
        PackageFile::new("package.json", format!("{manifest:#}\n")),
        PackageFile::program(program, release.program.bytes.clone()),
        PackageFile::new("README.md", release.text("README.md")?),
        PackageFile::new("LICENSE", release.text("LICENSE")?),
        PackageFile::new(LICENCES, &*release.licences),
    ];
    let files = files.into_iter().map(|file| file.below("package/")).collect();
    let bytes = tar_gz(files, release.seconds)?;
    Ok(Package { name: format!("{name}-{}.tgz", release.version), bytes })
}
