//! The place of a message among those that are under way.

use std::future::poll_fn;
use std::task::{Poll, Waker};

use tokio::time::Instant;

use super::Outgoing;
use crate::queue::news::Errand;

/// The place of a message among those that are under way, or the wish for one.
pub(super) struct Place<'a> {
    outgoing: &'a Outgoing,
    errand: &'a Errand,
    claim: u64,
}

impl<'a> Place<'a> {
    /// Waits for one. Whoever gets a free one is woken; those that were kept where nothing is polled are found by who comes round.
    pub(super) async fn taken(outgoing: &'a Outgoing, errand: &'a Errand) -> Self {
        let claim = outgoing.lock().news.claim_place(errand);
        let place = Self { outgoing, errand, claim };
        poll_fn(|cx| {
            let mut state = outgoing.lock();
            let has_place = state.news.has_place(claim, errand, Instant::now());
            let before = if has_place { None } else { state.wakers.insert(claim, cx.waker().clone()) };
            drop(state);
            // Not while the lock is held: it may be the last of a task.
            drop(before);
            // Others may have one, as some were passed over.
            outgoing.wake_placed(errand);
            if has_place { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        place
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let waker = {
            let mut state = self.outgoing.lock();
            state.news.free_place(self.claim, self.errand);
            state.wakers.remove(&self.claim)
        };
        drop(waker);
        self.outgoing.wake_placed(self.errand);
    }
}

impl Outgoing {
    /// Wakes those that have a place by now, beside an errand.
    fn wake_placed(&self, errand: &Errand) {
        let wakers: Vec<_> = {
            let state = &mut *self.lock();
            state.news.placed(errand).filter_map(|claim| state.wakers.remove(&claim)).collect()
        };
        wakers.into_iter().for_each(Waker::wake);
    }
}
