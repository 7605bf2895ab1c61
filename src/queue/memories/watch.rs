//! Has queues ask now and then, as long as any remembers what counts.
//!
//! Each asks for the logs that its callers alone use. Of all others the one asks that was granted something last: a store that has lost all of
//! its data, or the last of it, tells that.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::{Memories, Remembering};
use crate::queue::Queue;
use crate::queue::resend::PATIENCE;
use crate::queue::shift::{OnShift, Shift, StandsBy};

/// One queue asks so long after another.
const APART: Duration = Duration::from_millis(200);
/// A queue that was to ask, and has not come to it for so long, leaves it to another.
const STUCK: Duration = Duration::from_secs(1);
/// One that still has no answer after so long may be the only one that has none: others try.
const GIVES_UP: Duration = Duration::from_secs(20);
/// For so long one is left out that has tried in vain; then it is the last that is to ask.
const ASIDE: Duration = Duration::from_secs(60);
/// Those that are to ask are listed so long after each other at least, and at most.
const LISTED: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];

/// Watches, if it has the shift, until nothing counts any more; and stands by while another has it.
pub(super) async fn run(
    memories: Weak<Memories>,
    shift: Arc<Shift>,
    on_shift: Option<OnShift>,
    stands_by: Option<StandsBy>,
) {
    let begin = || shift.begin(Instant::now(), Instant::now());
    shift.take_turns(on_shift, stands_by, begin, |on_shift| watch(memories.clone(), on_shift)).await;
}

/// Has one queue ask after another. Says whether nothing counts any more: else another has begun.
async fn watch(memories: Weak<Memories>, shift: OnShift) -> bool {
    let mut watch = Watch::of(memories, shift);
    while watch.shift.goes_on(Instant::now()) {
        let Some(at) = watch.look(Instant::now()) else { return true };
        if !watch.shift.sleep_until(at).await {
            return false;
        }
    }
    false
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
    /// Those that have tried in vain, until when they are left out.
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
            queue.is_driven_on(PATIENCE);
        }
        let is_tried = tries_again || queue.is_under_way();
        // One in which callers come just then has a message under way for ever.
        let is_done = !tries_again && (has_said || queue.has_heard(at));
        if !is_done && now - at < if is_tried { GIVES_UP } else { STUCK } {
            return true;
        }
        // Whoever was to drive it, in a runtime that stands still, is replaced by then.
        let aside = if is_tried { ASIDE } else { PATIENCE };
        self.aside.retain(|(of, _)| of.as_ptr() != Arc::as_ptr(&queue));
        self.aside.extend((!is_done).then(|| (Arc::downgrade(&queue), now + aside)));
        self.asked = None;
        false
    }

    /// Lists those that are to ask by now; `None` where nothing counts any more.
    fn list(&mut self, now: Instant) -> Option<()> {
        let memories = self.memories.upgrade()?;
        memories.goes_on_asking();
        let mut queues = memories.remembering(&mut self.shift, now);
        self.aside.retain(|(queue, _)| queue.strong_count() > 0);
        let until = |of: &Remembering| {
            let mut aside = self.aside.iter();
            aside.find(|(queue, _)| queue.as_ptr() == Arc::as_ptr(&of.queue)).map(|(_, until)| *until)
        };
        let is_aside = |of: &Remembering| until(of) > Some(now);
        if !queues.iter().all(is_aside) {
            queues.retain(|of| !is_aside(of));
        }
        let last = queues.iter().max_by_key(|of| of.granted_at)?;
        self.last_by = last.by;
        let last = Arc::clone(&last.queue);
        let is_last = |of: &Remembering| Arc::ptr_eq(&of.queue, &last);
        queues.retain(|of| is_last(of) || of.queue.counts_alone_for_long());
        queues.sort_by_key(|of| (!is_last(of), until(of).is_some(), of.by));
        let (due, later): (Vec<_>, Vec<_>) = queues.into_iter().partition(|of| of.by <= now);
        self.due = due.iter().map(|of| Arc::downgrade(&of.queue)).collect();
        self.next_by = later.iter().map(|of| of.by).min().unwrap_or(now);
        self.listed_at = Some(now);
        Some(())
    }
}
