//! What is left to do for a queue once its lock is free.

use std::sync::Arc;
use std::task::Waker;

use tokio::time::Instant;

use super::Queue;
use super::borrowed::Back;
use super::driver::Driver;
use super::in_flight::Message;
use super::wants::Wants;
use crate::ledger::Stamp;

/// What is left to do once the lock is free.
#[derive(Default)]
pub(super) struct Outbox {
    /// Whom to wake.
    pub(super) wakers: Vec<Waker>,
    /// Whoever is awake anyhow.
    pub(super) awake: Option<u64>,
    /// Places in the lines for seats that nobody needs any more.
    pub(super) left: Wants,
    /// How many that were borrowed go back.
    pub(super) seats_back: Back,
    /// What to send.
    pub(super) send: Option<Arc<Message>>,
    /// When the driver looks again.
    pub(super) wake: Option<Instant>,
    /// There is nothing left to do: nobody drives any more.
    pub(super) idle: bool,
    /// Somebody is to look now and then whether the pause still holds.
    pub(super) looks: bool,
    pub(super) losses: Losses,
    pub(super) beside: Beside,
    /// A driver whose duty has ended.
    pub(super) former: Option<Driver>,
}

/// What other queues of the process are to know.
#[derive(Default)]
pub(super) struct Beside {
    /// It is closed, and remembers what it was granted.
    pub(super) closed_remembers: bool,
    /// It is closed, and the store knows of slots that it gave back.
    pub(super) closed_has_given_back: bool,
    /// The store knows of room that it made.
    pub(super) has_made_room: bool,
    /// It rests for long, where others may make room for it: how often they had, as far as it knows.
    pub(super) rests_since: Option<u64>,
}

/// What is known of data that the store has lost, or may lose.
#[derive(Default)]
pub(super) struct Losses {
    /// It has lost some.
    pub(super) seen: bool,
    /// It has told this queue of one that was seen then.
    pub(super) told: Option<Stamp>,
    /// The queue would say again what it was granted.
    pub(super) remembers: bool,
}

impl Outbox {
    /// Of a caller that is awake.
    pub(super) fn of(awake: u64) -> Self {
        Self { awake: Some(awake), ..Self::default() }
    }

    /// Whoever drives, in this runtime, sees to it that what was granted can be said again.
    pub(super) const fn leave_memory_to_driver(&mut self) {
        self.losses.remembers = false;
    }

    /// Wakes whoever has been told something, and sees to it that somebody looks.
    pub(super) fn wake_all(&mut self, queue: &Arc<Queue>, now: Instant) {
        self.wakers.drain(..).for_each(Waker::wake);
        (self.former, self.left) = (None, Wants::default());
        queue.give_back_seats(std::mem::take(&mut self.seats_back));
        if std::mem::take(&mut self.looks) && !queue.is_local() {
            queue.shard.looks.add(queue);
        }
        let losses = std::mem::take(&mut self.losses);
        if losses.seen {
            queue.shard.looks.lost_data(now);
        }
        if (losses.seen || losses.told.is_some()) && !queue.is_local() {
            queue.registered().attendance.lost_data(now);
        }
        if let Some(loss) = losses.told {
            queue.shard.memories.lost_data(loss);
        }
        if losses.remembers && !queue.is_local() {
            queue.shard.memories.add(queue, now);
        }
        let beside = std::mem::take(&mut self.beside);
        if beside.closed_remembers {
            queue.successors.take_over(queue, now);
        }
        if beside.closed_has_given_back {
            queue.successors.look();
        }
        if beside.has_made_room && queue.has_others_beside() {
            queue.shard.resting.look_beside(queue);
        }
        if let Some(rooms) = beside.rests_since {
            queue.shard.resting.add(queue, rooms);
        }
    }
}
