//! A permit's call in flight.

use std::ops::Deref;
use std::sync::Arc;

use crate::counts::Ending;
use crate::queue::Queue;

/// The queue that a permit was given from: its call is in flight there until this is dropped.
pub(crate) struct Given {
    queue: Arc<Queue>,
    /// What becomes of the call.
    pub(crate) ending: Ending,
}

impl Given {
    #[inline]
    pub(crate) fn by(queue: Arc<Queue>) -> Self {
        queue.depart();
        Self { queue, ending: Ending::default() }
    }
}

impl Deref for Given {
    type Target = Arc<Queue>;

    fn deref(&self) -> &Arc<Queue> {
        &self.queue
    }
}

impl Drop for Given {
    #[inline]
    fn drop(&mut self) {
        self.queue.arrive();
        self.queue.counts().ended(&self.ending);
    }
}
