//! Has queues ask now and then, as long as any remembers what counts.
//!
//! Each asks for the logs that its callers alone use. Of all others the one asks that was granted something last: a store that has lost all of
//! its data, or the last of it, tells that.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::{Memories, Remembering};
use crate::queue::Queue;
use crate::queue::resend::PATIENCE;
use crate::queue::shift::OnShift;

/// One queue asks so long after another.
const APART: Duration = Duration::from_millis(200);
/// A queue that was to ask, and has not come to it for so long, leaves it to another.
const STUCK: Duration = Duration::from_secs(1);
/// One that waits so long for an answer is refused alone: else the store does not answer any other either.
const GIVES_UP: Duration = Duration::from_secs(20);
/// For so long one is left out that has tried in vain.
const ASIDE: Duration = Duration::from_secs(60);
/// Those that are to ask are listed so long after each other at least, and at most.
const LISTED: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];

/// Has one queue ask after another, until nothing counts any more.
pub(super) async fn run(memories: Weak<Memories>, shift: OnShift) {
    let mut watch = Watch::of(memories, shift);
    while let Some(at) = watch.look(Instant::now()) {
        if !watch.shift.goes_on(at) {
            return;
        }
        sleep_until(at).await;
    }
}

struct Watch {
    memories: Weak<Memories>,
    shift: OnShift,
    /// Those that are to ask, in their order; when they were listed, and when they are to be listed again.
    due: VecDeque<Weak<Queue>>,
    listed_at: Option<Instant>,
    /// When the next is to ask that is not among them; and by when the one is that was granted something last.
    next_by: Instant,
    last_by: Instant,
    /// Those that are left out, and until when.
    aside: Vec<(Weak<Queue>, Instant)>,
    /// Who was to ask last, and when.
    asked: Option<(Weak<Queue>, Instant)>,
}

impl Watch {
    fn of(memories: Weak<Memories>, shift: OnShift) -> Self {
        let (next_by, due, aside) = (Instant::now(), VecDeque::new(), Vec::new());
        Self { memories, shift, due, listed_at: None, next_by, last_by: next_by, aside, asked: None }
    }

    /// Has the next queue ask. Says when to look again; `None` where nothing counts any more.
    fn look(&mut self, now: Instant) -> Option<Instant> {
        if self.waits(now) {
            return Some(now + APART);
        }
        let [least, most] = LISTED;
        let is_over = |listed: Instant| {
            let at_most = if self.due.is_empty() { listed } else { self.last_by.min(listed + most) };
            at_most.max(listed + least) <= now
        };
        if self.listed_at.is_none_or(is_over) {
            self.list(now)?;
        }
        let is_due = |queue: &Arc<Queue>| queue.asks_by(now).is_some_and(|(_, by)| by <= now);
        let mut due = std::iter::from_fn(|| self.due.pop_front()).filter_map(|queue| queue.upgrade());
        let Some(queue) = due.find(is_due) else {
            let listed_at = self.listed_at.unwrap_or(now);
            return Some(self.next_by.clamp(listed_at + least, listed_at + most));
        };
        self.asked = Some((Arc::downgrade(&queue), now));
        queue.asks_after_loss();
        Some(now + APART)
    }

    /// Whether to wait for the one that was to ask last: where the store does not answer one tries at a time.
    fn waits(&mut self, now: Instant) -> bool {
        let Some((queue, at)) = self.asked.as_ref().and_then(|(queue, at)| Some((queue.upgrade()?, *at))) else {
            return false;
        };
        let (has_said, tries_again) = (queue.has_said_again(), queue.tries_again());
        if !has_said {
            queue.is_driven_on();
        }
        let is_tried = tries_again || queue.is_under_way();
        let is_done = has_said && !tries_again;
        if !is_done && now - at < if is_tried { GIVES_UP } else { STUCK } {
            return true;
        }
        // Whoever was to drive it, in a runtime that stands still, is replaced by then.
        let aside = if is_tried { ASIDE } else { PATIENCE };
        self.aside.extend((!is_done).then(|| (Arc::downgrade(&queue), now + aside)));
        self.asked = None;
        false
    }

    /// Lists those that are to ask by now; `None` where nothing counts any more.
    fn list(&mut self, now: Instant) -> Option<()> {
        let mut queues = self.memories.upgrade()?.remembering(&mut self.shift, now);
        self.aside.retain(|(_, until)| *until > now);
        let is_aside = |of: &Remembering| self.aside.iter().any(|(queue, _)| queue.as_ptr() == Arc::as_ptr(&of.queue));
        if !queues.iter().all(is_aside) {
            queues.retain(|of| !is_aside(of));
        }
        let last = queues.iter().max_by_key(|of| of.granted_at)?;
        self.last_by = last.by;
        let last = Arc::clone(&last.queue);
        let is_last = |of: &Remembering| Arc::ptr_eq(&of.queue, &last);
        queues.retain(|of| is_last(of) || of.queue.counts_alone_for_long());
        queues.sort_by_key(|of| (!is_last(of), of.by));
        let (due, later): (Vec<_>, Vec<_>) = queues.into_iter().partition(|of| of.by <= now);
        self.due = due.iter().map(|of| Arc::downgrade(&of.queue)).collect();
        self.next_by = later.iter().map(|of| of.by).min().unwrap_or(now);
        self.listed_at = Some(now);
        Some(())
    }
}
