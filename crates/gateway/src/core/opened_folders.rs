//! The folders that principals opened on this machine over the local socket: their network requests can name these folders too.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use trilogue_domain::{Principal, PrincipalId, TenantId, lock};

/// The most folders to remember, of all principals together. The oldest is forgotten first.
const MAX_FOLDERS: usize = 256;

#[derive(Clone, Debug, Default)]
pub(crate) struct OpenedFolders(Arc<Mutex<VecDeque<OpenedFolder>>>);

#[derive(Clone, PartialEq, Eq, Debug)]
struct OpenedFolder {
    tenant: TenantId,
    principal: PrincipalId,
    path: PathBuf,
}

// === impl OpenedFolders ===

impl OpenedFolders {
    pub(crate) fn add(&self, by: &Principal, path: &Path) {
        let (tenant, principal) = (by.tenant.clone(), by.id.clone());
        let opened = OpenedFolder { tenant, principal, path: path.to_owned() };
        let mut folders = lock(&self.0);
        folders.retain(|folder| *folder != opened);
        if folders.len() >= MAX_FOLDERS {
            folders.pop_front();
        }
        folders.push_back(opened);
    }

    /// Returns the folders that a principal has opened.
    pub(crate) fn of(&self, by: &Principal) -> Vec<PathBuf> {
        let folders = lock(&self.0);
        let own = folders.iter().filter(|it| it.tenant == by.tenant && it.principal == by.id);
        own.map(|folder| folder.path.clone()).collect()
    }
}
