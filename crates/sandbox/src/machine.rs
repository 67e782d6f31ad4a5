use std::path::Path;
use std::sync::OnceLock;

use crate::Layers;

/// Returns the layers of this machine: none if this program has no stage. The first call starts a process and blocks for some milliseconds.
#[must_use]
pub fn layers_of_machine() -> Layers {
    static LAYERS: OnceLock<Layers> = OnceLock::new();
    *LAYERS.get_or_init(|| crate::stage_of_program().map_or(Layers::NONE, find))
}

#[cfg(target_os = "linux")]
fn find(stage: &Path) -> Layers {
    Layers {
        files: crate::files::is_available(),
        calls: crate::calls::is_available(),
        namespaces: crate::namespaces::is_available(stage),
    }
}

#[cfg(not(target_os = "linux"))]
fn find(_stage: &Path) -> Layers {
    Layers::NONE
}
