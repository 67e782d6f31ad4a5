//! An append-only list with cheap copies, which share their beginning.

use std::fmt;
use std::sync::Arc;

pub(super) struct SharedList<T> {
    last: Option<Arc<Node<T>>>,
    len: usize,
}

struct Node<T> {
    item: T,
    before: Option<Arc<Self>>,
}

// === impl SharedList ===

impl<T> SharedList<T> {
    pub(super) fn push(&mut self, item: T) {
        let before = self.last.take();
        self.last = Some(Arc::new(Node { item, before }));
        self.len += 1;
    }

    pub(super) fn items(&self) -> Vec<&T> {
        let mut items = Vec::with_capacity(self.len);
        let mut node = self.last.as_deref();
        while let Some(Node { item, before }) = node {
            items.push(item);
            node = before.as_deref();
        }
        items.reverse();
        items
    }
}

impl<T> Default for SharedList<T> {
    fn default() -> Self {
        Self { last: None, len: 0 }
    }
}

impl<T> Clone for SharedList<T> {
    fn clone(&self) -> Self {
        Self { last: self.last.clone(), len: self.len }
    }
}

impl<T> Drop for SharedList<T> {
    /// Drops node by node: recursive drops would need as much stack as the list is long.
    fn drop(&mut self) {
        let mut next = self.last.take();
        while let Some(node) = next {
            next = Arc::into_inner(node).and_then(|mut node| node.before.take());
        }
    }
}

impl<T> fmt::Debug for SharedList<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedList").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_share_their_beginning_and_go_their_own_way() {
        let mut one = SharedList::default();
        one.push(1);
        let mut two = one.clone();
        one.push(2);
        two.push(3);
        assert_eq!((one.items(), two.items()), (vec![&1, &2], vec![&1, &3]));
    }

    #[test]
    fn a_million_items_are_dropped_without_a_million_frames_of_stack() {
        let mut long = SharedList::default();
        (0..1_000_000).for_each(|item| long.push(item));
        let copy = long.clone();
        drop(long);
        assert_eq!(copy.items().len(), 1_000_000);
    }
}
