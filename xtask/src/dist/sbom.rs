//! The list of what is in the binary, as CycloneDX 1.6.

use std::fs;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use uuid::Uuid;

use super::graph::{Crate, Graph};
use super::platform::Platform;
use super::program::Program;
use super::release::{LICENCE, NAME, SUMMARY};

const VERSION: &str = "1.6";
/// The crate that has the source of SQLite in it, and where that says its version.
const SQLITE_CRATE: &str = "libsqlite3-sys";
const SQLITE_HEADER: &str = "sqlite3/sqlite3.h";

/// Writes the list. What only builds the binary is in it too, with the scope `excluded`.
pub(super) fn render(
    graph: &Graph,
    platform: &Platform,
    program: &Program,
    seconds: u64,
) -> Result<Vec<u8>> {
    let root = graph.root();
    let of_others = graph.crates().filter(|member| purl(member) != purl(root));
    let mut components: Vec<Value> = of_others.map(component).collect();
    let mut dependencies: Vec<Value> = Vec::new();
    for member in graph.crates() {
        let mut needs: Vec<String> = graph.dependencies(member).map(purl).collect();
        if member.name == SQLITE_CRATE {
            let sqlite = sqlite(member)?;
            needs.extend(sqlite["purl"].as_str().map(str::to_owned));
            dependencies.push(json!({"ref": sqlite["purl"]}));
            components.push(sqlite);
        }
        needs.sort();
        dependencies.push(json!({"ref": purl(member), "dependsOn": needs}));
    }
    let main = json!({
        "type": "application",
        "bom-ref": purl(root),
        "name": NAME,
        "version": root.version,
        "description": SUMMARY,
        "hashes": [{"alg": "SHA-256", "content": super::sha256(&program.bytes)}],
        "licenses": [{"license": {"id": LICENCE}}],
        "purl": purl(root),
    });
    let mut document = json!({
        "$schema": format!("http://cyclonedx.org/schema/bom-{VERSION}.schema.json"),
        "bomFormat": "CycloneDX",
        "specVersion": VERSION,
        "version": 1,
        "metadata": {
            "timestamp": jiff::Timestamp::from_second(seconds.try_into()?)?.to_string(),
            "lifecycles": [{"phase": "build"}],
            "tools": {"components": [{"type": "application", "name": "xtask", "version": root.version}]},
            "component": main,
            "properties": [{"name": "cdx:rustc:sbom:target:triple", "value": platform.target}],
        },
        "components": components,
        "dependencies": dependencies,
    });
    // The same list has the same number.
    let serial = Uuid::new_v5(&Uuid::NAMESPACE_OID, &serde_json::to_vec(&document)?);
    document["serialNumber"] = serial.urn().to_string().into();
    let mut bytes = serde_json::to_vec_pretty(&document)?;
    bytes.push(b'\n');
    Ok(bytes)
}

fn component(member: &Crate) -> Value {
    let mut component = json!({
        "type": "library",
        "bom-ref": purl(member),
        "name": member.name,
        "version": member.version,
        "scope": if member.is_linked { "required" } else { "excluded" },
        "purl": purl(member),
    });
    if let Some(licence) = &member.licence {
        component["licenses"] = json!([{"expression": licence}]);
    }
    if let Some(checksum) = &member.checksum {
        component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
    }
    component
}

/// SQLite is C, so the lock file does not name it. Its weaknesses are announced under this name.
fn sqlite(member: &Crate) -> Result<Value> {
    let path = member.folder.join(SQLITE_HEADER);
    let header = fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
    let version = header
        .lines()
        .find_map(|line| line.strip_prefix("#define SQLITE_VERSION "))
        .map(|version| version.trim().trim_matches('"'))
        .context("the header of SQLite does not say its version")?;
    let purl = format!("pkg:generic/sqlite@{version}");
    Ok(json!({
        "type": "library",
        "bom-ref": purl,
        "name": "sqlite",
        "version": version,
        "scope": "required",
        "licenses": [{"license": {"id": "blessing"}}],
        "cpe": format!("cpe:2.3:a:sqlite:sqlite:{version}:*:*:*:*:*:*:*"),
        "purl": purl,
    }))
}

/// The package URL of a crate.
fn purl(member: &Crate) -> String {
    format!("pkg:cargo/{}@{}", member.name, member.version.replace('+', "%2B"))
}
