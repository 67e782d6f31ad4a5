//! Files by Landlock, and connections to the broker. Also signals and abstract sockets to programs outside of the sandbox, where the kernel can.

use std::io;
use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, PathBeneath,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};

use crate::SandboxPolicy;
use crate::access::DEVICES;
use crate::grants::around;
use crate::links;

/// The newest interface that this file was written for. An older kernel enforces the part that it knows.
const NEWEST: ABI = ABI::V7;

/// Whether this kernel restricts files.
pub(crate) fn is_available() -> bool {
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let ruleset = ruleset.handle_access(AccessFs::from_all(ABI::V1));
    ruleset.and_then(Ruleset::create).is_ok()
}

/// Whether this kernel restricts connections over TCP.
pub(crate) fn can_restrict_connections() -> bool {
    handle_connections(Ruleset::default()).and_then(Ruleset::create).is_ok()
}

/// Adds connections and listeners over TCP to what a ruleset refuses. Later additions to it are optional.
/// Errors: the kernel cannot refuse them.
fn handle_connections(ruleset: Ruleset) -> Result<Ruleset, RulesetError> {
    let ruleset = ruleset.set_compatibility(CompatLevel::HardRequirement);
    let ruleset = ruleset.handle_access(AccessNet::from_all(ABI::V4))?;
    Ok(ruleset.set_compatibility(CompatLevel::BestEffort))
}

/// Restricts this thread, and what it starts, to the paths of the policy. Missing ones are left out.
///
/// Landlock only allows: a folder of `read` in which a hidden path lies is granted by its entries. With namespaces, mounts cover the hidden paths instead.
/// Errors: the kernel cannot.
pub(crate) fn restrict(policy: &SandboxPolicy) -> io::Result<()> {
    let (read, all) = (AccessFs::from_read(NEWEST), AccessFs::from_all(NEWEST));
    let readable = match policy.layers.namespaces {
        true => policy.read.clone(),
        false => around(&policy.read, &policy.hidden),
    };
    let devices = DEVICES.iter().map(PathBuf::from);
    let writable = devices.chain([policy.temporary.clone()]).chain(policy.write.iter().cloned());
    // With namespaces, the program has a network of its own.
    let broker = policy.broker.as_ref().filter(|_| !policy.layers.namespaces);
    let handled = match broker {
        Some(_) => handle_connections(Ruleset::default()),
        None => Ok(Ruleset::default()),
    };
    let mut ruleset = handled
        .and_then(|ruleset| ruleset.handle_access(all))
        .and_then(|ruleset| ruleset.scope(Scope::from_all(NEWEST)))
        .and_then(Ruleset::create)
        .map_err(io::Error::other)?;
    if let Some(broker) = broker {
        let port = NetPort::new(broker.port, AccessNet::ConnectTcp);
        ruleset = ruleset.add_rule(port).map_err(io::Error::other)?;
    }
    let ruleset = add(ruleset, readable, read).and_then(|ruleset| add(ruleset, writable, all));
    let status = ruleset.and_then(RulesetCreated::restrict_self).map_err(io::Error::other)?;
    match status.ruleset {
        RulesetStatus::NotEnforced => Err(io::Error::other("the kernel restricts no files")),
        _ => Ok(()),
    }
}

/// Adds a rule for each path that exists.
fn add(
    mut ruleset: RulesetCreated,
    paths: impl IntoIterator<Item = PathBuf>,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    for path in paths {
        let Ok(opened) = links::open(&path) else { continue };
        let of_file = access & AccessFs::from_file(NEWEST);
        let access = if links::is_folder(&opened) { access } else { of_file };
        ruleset = ruleset.add_rule(PathBeneath::new(opened, access))?;
    }
    Ok(ruleset)
}
