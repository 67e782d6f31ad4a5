use std::sync::OnceLock;

use crate::Layers;

/// Returns the layers of this machine: none if this program has no stage. The first call starts a process and blocks for some milliseconds.
#[must_use]
pub fn layers_of_machine() -> Layers {
    static LAYERS: OnceLock<Layers> = OnceLock::new();
    *LAYERS.get_or_init(|| if crate::has_stage() { find() } else { Layers::NONE })
}

#[cfg(target_os = "linux")]
fn find() -> Layers {
    Layers {
        files: crate::files::is_available(),
        calls: crate::calls::is_available(),
        namespaces: crate::namespaces::is_available(),
        limits: false,
    }
}

#[cfg(not(target_os = "linux"))]
fn find() -> Layers {
    Layers::NONE
}
