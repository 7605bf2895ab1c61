//! How many callers wait for an upstream, and that they are not too many.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The callers of one process that wait for an upstream, whatever their scope.
#[derive(Debug)]
pub(crate) struct Crowd {
    waiting: AtomicUsize,
    most: usize,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(super) struct Member<'a>(&'a Crowd);

impl Crowd {
    pub(crate) const fn new(most: usize) -> Self {
        Self { waiting: AtomicUsize::new(0), most }
    }

    pub(super) const fn most(&self) -> usize {
        self.most
    }

    /// Takes a caller in, unless too many wait already.
    pub(super) fn enter(&self) -> Option<Member<'_>> {
        let member = Member(self);
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        (before < self.most).then_some(member)
    }
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_enter_as_may_wait_and_who_leaves_makes_room() {
        let crowd = Crowd::new(2);
        let (first, second) = (crowd.enter(), crowd.enter());
        assert!(first.is_some() && second.is_some() && crowd.enter().is_none());
        drop(first);
        assert!(crowd.enter().is_some());
        assert_eq!(crowd.waiting.load(Ordering::Relaxed), 1, "who was refused, and who left, counts no more");
    }
}
