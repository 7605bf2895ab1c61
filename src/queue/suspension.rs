//! Whether the machine was suspended: its monotonic clock, by which timers go, stood still then, and slots that wait for their start
//! are later than they seem.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::Queue;
use super::engine::Engine;
use super::events::Event;
use super::outbox::Outbox;
use super::state::State;
use super::waiters::Slot;

/// Clocks that differ by so much more than before have not gone on together.
const APART: Duration = Duration::from_millis(100);

/// Whether time passed in which the machine did not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Suspended {
    No,
    /// The clock of the day is ahead: it was set, or the machine was suspended.
    Perhaps,
    /// So says Linux, which counts both the time since it booted and the time that it ran.
    Certainly,
}

/// What the machine's clocks showed when they were last seen to differ.
#[derive(Debug)]
pub(super) struct Clocks {
    ran: std::time::Instant,
    day: SystemTime,
    /// Since the machine booted.
    uptime: Option<Duration>,
}

impl Default for Clocks {
    fn default() -> Self {
        Self { ran: std::time::Instant::now(), day: SystemTime::now(), uptime: uptime() }
    }
}

impl Clocks {
    /// Whether the machine was suspended since this was asked last. As long as it was not two clocks are read.
    pub(super) fn look(&mut self) -> Suspended {
        // The monotonic clock is read last each time: a thread that was not run in between has not been suspended.
        let passed = self.day.elapsed();
        let ran = self.ran.elapsed();
        let is_ahead = passed.as_ref().is_ok_and(|passed| *passed > ran + APART);
        let is_behind = passed.map_or(true, |passed| passed + APART < ran);
        if !is_ahead && !is_behind {
            return Suspended::No;
        }
        let before = std::mem::take(self);
        let booted = before.uptime.zip(self.uptime).map(|(before, now)| now.saturating_sub(before));
        let ran = before.ran.elapsed();
        if booted.is_some_and(|booted| booted > ran + APART) {
            Suspended::Certainly
        } else if is_ahead {
            Suspended::Perhaps
        } else {
            Suspended::No
        }
    }

    /// As if the machine had been suspended just now, for so long.
    #[cfg(test)]
    pub(super) fn pretend_to_be_suspended(&mut self, slept: Duration) {
        self.day -= slept;
        self.uptime = self.uptime.map(|uptime| uptime.saturating_sub(slept));
    }
}

impl State {
    /// Has the engine know of it where the machine was suspended.
    pub(super) fn follow_clocks(&mut self, queue: &Queue, now: Instant, out: &mut Outbox) {
        if !self.is_awake_since(queue) {
            (self.suspensions, self.suspended_at) = (queue.shard.time.suspensions(), Some(now));
            self.act(queue, now, out, |engine, effects| engine.handle(Event::Suspended, now, effects));
        }
    }

    /// Whether a slot started before the machine was suspended.
    pub(super) fn is_of_before(&self, slot: &Slot, queue: &Queue) -> bool {
        self.suspended_at.is_some_and(|at| slot.start <= at) || !self.is_awake_since(queue)
    }

    /// Whether the machine was not suspended since the engine heard of that last. The clock of a store in memory stands still then as well.
    pub(super) fn is_awake_since(&self, queue: &Queue) -> bool {
        queue.process.memory().is_some() || queue.shard.time.suspensions() == self.suspensions
    }
}

impl Engine {
    /// Gives every slot back, and lets go of every seat that no call uses: others may have had them meanwhile.
    pub(super) fn was_suspended(&mut self, now: Instant) {
        tracing::debug!(upstream = &*self.settings.upstream, "machine was suspended, asking again");
        let slots = self.waiters.take_slots();
        self.put_back(slots, now);
        if let Some(seats) = &mut self.seats {
            seats.doubt(now);
        }
        self.put_off = None;
        self.ask_anew();
    }

    /// Whether slots that were waited for, or seats, are to be used now: they have to be as old as they seem.
    pub(super) fn relies_on_clock(&self, now: Instant) -> bool {
        self.seats.is_some() || self.waiters.first_start().is_some_and(|at| at <= now)
    }
}

/// How long ago the machine booted.
fn uptime() -> Option<Duration> {
    let words = std::fs::read_to_string("/proc/uptime").ok()?;
    Duration::try_from_secs_f64(words.split_whitespace().next()?.parse().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::config::charges::Scopes;
    use crate::config::costs::Costs;
    use crate::config::limit::Limit;
    use crate::config::plan::Registered;
    use crate::config::priority::Priority;
    use crate::config::upstream::Upstream;
    use crate::error::Error;
    use crate::ledger::Message;
    use crate::queue::process::Process;
    use crate::queue::waiters::{Waiter, Wish};
    use crate::store::{Applying, MemoryStore, Store};

    const MS: Duration = Duration::from_millis(1);
    const HOUR: Duration = Duration::from_secs(3_600);

    /// A store that is not at hand, and counts what it is asked.
    #[derive(Debug, Default)]
    struct Counted(MemoryStore, AtomicUsize);

    impl Store for Counted {
        fn apply<'a>(&'a self, message: &'a Message) -> Applying<'a> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.apply(message)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_slot_is_used_that_was_booked_before_the_machine_was_suspended() -> Result<(), Error> {
        for (is_suspended, asks) in [(false, 2), (true, 3)] {
            let store = Arc::new(Counted::default());
            let process = Arc::new(Process::new(Arc::clone(&store) as Arc<dyn Store>, 250 * MS).unwrap());
            let up = Registered::new(0, Upstream::new("up").limit(Limit::per_second(1))).unwrap();
            let queue = Arc::new(Queue::new(&process, &up, &Scopes::only(None), [].into()).unwrap());
            let slot = |ticket| {
                let (queue, joined) = (Arc::clone(&queue), Instant::now());
                let (costs, priority) = (Costs::of(&[1].into()), Priority::Normal);
                async move { queue.slot(&Waiter { ticket, costs, joined, wish: Wish::Soon, priority }, joined).await }
            };
            slot(1).await?;
            let waits = tokio::spawn(slot(2));
            tokio::time::sleep(1_020 * MS).await;
            assert!(!waits.is_finished());
            let asked = store.1.load(Ordering::Relaxed);
            if is_suspended {
                queue.shard.time.pretend_to_be_suspended(Duration::from_secs(1));
            }
            waits.await.unwrap()?;
            assert_eq!(store.1.load(Ordering::Relaxed) - asked, asks - 2, "{is_suspended}");
        }
        Ok(())
    }

    #[test]
    fn a_machine_that_runs_was_not_suspended_and_one_that_was_is_found_once() {
        let mut clocks = Clocks::default();
        assert_eq!(clocks.look(), Suspended::No);
        clocks.pretend_to_be_suspended(Duration::from_secs(1));
        let found = if clocks.uptime.is_some() { Suspended::Certainly } else { Suspended::Perhaps };
        assert_eq!([clocks.look(), clocks.look()], [found, Suspended::No]);
    }

    #[test]
    fn a_clock_of_the_day_that_is_set_ahead_may_be_a_suspension_and_one_that_is_set_back_is_none() {
        let mut clocks = Clocks::default();
        clocks.day -= HOUR;
        assert_eq!([clocks.look(), clocks.look()], [Suspended::Perhaps, Suspended::No]);
        clocks.day += HOUR;
        assert_eq!([clocks.look(), clocks.look()], [Suspended::No; 2]);
    }
}
