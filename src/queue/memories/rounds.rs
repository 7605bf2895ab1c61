//! After a loss: has all queues ask.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Memories;
use crate::ledger::Stamp;
use crate::queue::Queue;
use crate::queue::shift::OnShift;

/// How many queues ask at once, how often it is looked whether they have said all, and for how long they are waited for.
const AT_ONCE: usize = 64;
const LOOKS: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(1);
/// From the begin of one round to the begin of the next. Each scope has its own time at which its loss was seen, mostly in the first round.
const ROUND: Duration = Duration::from_secs(3);

/// For so long those are asked again that have not come to it: whoever drives them may stand still.
const GIVES_UP: Duration = Duration::from_secs(20);

/// Has all queues ask, until all have since the last loss, or another has begun.
pub(super) async fn run(memories: Arc<Memories>, mut shift: OnShift) {
    while let Some((seen, queues)) = memories.to_ask(&mut shift) {
        let next = Instant::now() + ROUND;
        if !ask_in_rounds(&memories, &mut shift, seen, queues).await {
            return;
        }
        memories.has_asked(seen);
        if !shift.sleep_until(next.max(Instant::now())).await {
            return;
        }
    }
}

/// Has these ask until each has said what there is to say, or more was lost. Says whether nobody else has begun.
async fn ask_in_rounds(memories: &Memories, shift: &mut OnShift, seen: Stamp, mut queues: Vec<Weak<Queue>>) -> bool {
    let begin = Instant::now();
    loop {
        let next = Instant::now() + ROUND;
        for some in queues.chunks(AT_ONCE) {
            let end = Instant::now() + PATIENCE;
            if !shift.goes_on(end) {
                return false;
            }
            ask(some, end).await;
        }
        queues.retain(|queue| queue.upgrade().is_some_and(|queue| !queue.has_said_again()));
        if queues.is_empty() || begin.elapsed() >= GIVES_UP || memories.has_lost_more(seen) {
            return true;
        }
        if !shift.sleep_until(next).await {
            return false;
        }
    }
}

/// Lets a few queues ask, and waits until they have said what there is to say, or the store does not answer.
async fn ask(queues: &[Weak<Queue>], end: Instant) {
    let queues: Vec<_> = queues.iter().filter_map(Weak::upgrade).filter(|queue| queue.remembers()).collect();
    queues.iter().for_each(Queue::asks_after_loss);
    while Instant::now() < end && !queues.iter().all(|queue| queue.has_said_again()) {
        sleep(LOOKS).await;
    }
}
