//! Maps by the integer keys of the store.

use std::collections::HashMap;

/// A map by a key that this store made: nobody outside can choose keys that collide, so a quick hash does.
pub(super) type KeyMap<K, V> = HashMap<K, V, foldhash::fast::RandomState>;
