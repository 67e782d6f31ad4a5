//! Work that keeps a thread busy.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Does work that takes long on this thread. A runtime with several threads moves the other tasks of this thread to another one first.
pub fn work_in_place<T>(work: impl FnOnce() -> T) -> T {
    let can_move = |handle: &Handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread;
    if Handle::try_current().is_ok_and(|handle| can_move(&handle)) {
        tokio::task::block_in_place(work)
    } else {
        work()
    }
}
