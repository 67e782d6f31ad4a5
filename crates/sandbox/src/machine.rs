use std::sync::OnceLock;

use crate::{Layers, Network};

/// Returns the layers of this machine: none if this program has no stage. The first call starts a process and blocks for some milliseconds.
#[must_use]
pub fn layers_of_machine() -> Layers {
    static LAYERS: OnceLock<Layers> = OnceLock::new();
    *LAYERS.get_or_init(|| if crate::has_stage() { find() } else { Layers::NONE })
}

/// Whether the kernel of this machine restricts to which ports a program connects over TCP.
fn restricts_connections() -> bool {
    #[cfg(target_os = "linux")]
    {
        static RESTRICTS: OnceLock<bool> = OnceLock::new();
        *RESTRICTS.get_or_init(crate::files::can_restrict_connections)
    }
    #[cfg(not(target_os = "linux"))]
    false
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

// === impl Network ===

impl Network {
    /// Whether a program in these layers on this machine is kept from what it may not reach. The first call can ask the kernel.
    #[must_use]
    pub fn is_enforced_by(self, layers: Layers) -> bool {
        match self {
            Self::Open => true,
            Self::None => layers.calls || layers.namespaces,
            Self::Broker => {
                layers.namespaces || (layers.files && layers.calls && restricts_connections())
            }
        }
    }
}
