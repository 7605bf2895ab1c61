//! A permit's call in flight.

use std::ops::Deref;
use std::sync::Arc;

use crate::queue::Queue;

/// The queue that a permit was given from: its call is in flight there until this is dropped.
pub(crate) struct Given(Arc<Queue>);

impl Given {
    pub(crate) fn by(queue: Arc<Queue>) -> Self {
        queue.depart();
        Self(queue)
    }
}

impl Deref for Given {
    type Target = Arc<Queue>;

    fn deref(&self) -> &Arc<Queue> {
        &self.0
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        self.0.arrive();
    }
}
