//! The platforms that packages are made for, and what each kind of package calls them.

use anyhow::{Context, Result};

/// A platform that a binary runs on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Platform {
    /// As Rust names it, such as `x86_64-unknown-linux-gnu`.
    pub(super) target: String,
    pub(super) os: Os,
    pub(super) arch: &'static Arch,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Os {
    Linux,
    MacOs,
}

/// A processor, by its names.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Arch {
    rust: &'static str,
    pub(super) debian: &'static str,
    pub(super) npm: &'static str,
    /// The last part of a wheel's tag on macOS; on Linux it is Rust's name.
    macos: &'static str,
    /// The oldest macOS that Rust builds for.
    oldest_macos: &'static str,
    /// The number of the processor in the head of an ELF file.
    pub(super) elf: u16,
}

const ARCHS: [Arch; 2] = [
    Arch {
        rust: "x86_64",
        debian: "amd64",
        npm: "x64",
        macos: "x86_64",
        oldest_macos: "10_12",
        elf: elf::abi::EM_X86_64,
    },
    Arch {
        rust: "aarch64",
        debian: "arm64",
        npm: "arm64",
        macos: "arm64",
        oldest_macos: "11_0",
        elf: elf::abi::EM_AARCH64,
    },
];

/// The oldest C library that pip knows a modern tag for. A binary that links none has it too.
const OLDEST_GLIBC: (u32, u32) = (2, 17);

// === impl Platform ===

impl Platform {
    pub(super) fn new(target: &str) -> Result<Self> {
        let unknown = || {
            format!(
                "no packages are made for '{target}': expected x86_64 or aarch64, and -unknown-linux-gnu, -unknown-linux-musl or -apple-darwin"
            )
        };
        let (arch, rest) = target.split_once('-').with_context(unknown)?;
        let arch = ARCHS.iter().find(|known| known.rust == arch).with_context(unknown)?;
        let os = match rest {
            "unknown-linux-gnu" | "unknown-linux-musl" => Some(Os::Linux),
            "apple-darwin" => Some(Os::MacOs),
            _ => None,
        };
        Ok(Self { target: target.to_owned(), os: os.with_context(unknown)?, arch })
    }

    pub(super) fn npm_os(&self) -> &'static str {
        match self.os {
            Os::Linux => "linux",
            Os::MacOs => "darwin",
        }
    }

    /// The platform in a wheel's name, for a binary that needs this version of the GNU C library.
    pub(super) fn wheel_tag(&self, glibc: Option<(u32, u32)>) -> String {
        let arch = self.arch;
        match (self.os, glibc) {
            (Os::MacOs, _) => format!("macosx_{}_{}", arch.oldest_macos, arch.macos),
            (Os::Linux, Some(version)) => {
                let (major, minor) = version.max(OLDEST_GLIBC);
                format!("manylinux_{major}_{minor}_{}", arch.rust)
            }
            // It links no C library, so it runs beside any.
            (Os::Linux, None) => {
                let (major, minor) = OLDEST_GLIBC;
                format!("manylinux_{major}_{minor}_{0}.musllinux_1_1_{0}", arch.rust)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_platform_has_the_names_that_installers_know() {
        for (target, glibc, npm, tag) in [
            ("x86_64-unknown-linux-gnu", Some((2, 34)), "linux x64", "manylinux_2_34_x86_64"),
            ("aarch64-unknown-linux-gnu", Some((2, 5)), "linux arm64", "manylinux_2_17_aarch64"),
            (
                "x86_64-unknown-linux-musl",
                None,
                "linux x64",
                "manylinux_2_17_x86_64.musllinux_1_1_x86_64",
            ),
            ("aarch64-apple-darwin", None, "darwin arm64", "macosx_11_0_arm64"),
        ] {
            let platform = Platform::new(target).unwrap();
            assert_eq!(format!("{} {}", platform.npm_os(), platform.arch.npm), npm);
            assert_eq!(platform.wheel_tag(glibc), tag);
        }
        for unknown in ["x86_64", "riscv64gc-unknown-linux-gnu", "x86_64-pc-windows-msvc"] {
            assert!(Platform::new(unknown).is_err(), "{unknown}");
        }
    }
}
