//! Mutexes that stay usable after a panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also after a holder has panicked. For data that is whole after every statement of its holders.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
