use std::collections::HashMap;

/// A map by a key that the store or the operator made. A fast hash is safe: no client can choose colliding keys.
pub(super) type KeyMap<K, V> = HashMap<K, V, foldhash::fast::RandomState>;
