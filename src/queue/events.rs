//! What happens to a queue, and what is to be done about it.

use std::sync::Arc;

use tokio::time::Instant;

use super::in_flight::{Answered, Message};
use super::settling::Correction;
use super::waiters::{Slot, Waiter};
use crate::error::{Error, StoreError};
use crate::ledger::{Reason, Stamp, Term};

/// Something that has happened.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "most are answers, each of which is moved once")]
pub(super) enum Event {
    /// A caller comes, or comes back with its ticket.
    Joined(Waiter),
    /// A caller goes.
    Left(u64),
    /// A caller has no more time.
    TimeUp(u64),
    /// A caller does not want its slot, nor the seat that came with it.
    Returned(Slot),
    /// A caller came too late for its slot, and comes back: whoever came too late with it is to come back before the next are served.
    Missed(Slot),
    /// Calls have left so many seats, or those who borrowed them want them no more.
    LeftSeats(u32),
    /// So many that were borrowed are nobody's.
    LostSeats(u32),
    /// A seat was borrowed for the next caller.
    Seated,
    /// There is none for a caller, and why; so many places are left of callers that want one now or never.
    Unseated(Error, usize),
    /// Nobody knows whether the seat of this slot is still its caller's.
    Distrusted(Slot),
    /// A call of this start and these charges probably opens a connection.
    Cold(Stamp, Arc<[u32]>),
    /// It is known what a call used.
    Settled(Correction),
    /// A call that was charged by limits of before has made room.
    MadeRoom,
    /// So has a call of another queue of this process: it is looked for then.
    MadeRoomBeside(Instant),
    /// What counted was forgotten by hand.
    Reset,
    /// Nobody sends before then.
    Paused(Instant, Reason),
    /// A pause that was to last until then has ended before, or may have.
    Released(Instant),
    /// The store has answered the message under way.
    Answered(Answered),
    /// Nobody waits for the answer any more: the message is not under way.
    Lost,
    /// This is what the process is called from now on.
    Renamed(u64),
    /// Time has passed in which this process did not run: every slot and every seat is older than it seems.
    Suspended,
    /// The store has lost data, as another queue has seen, or may have: it is asked.
    LostData,
    /// A caller that goes without the store has it tried again.
    Knocked,
    /// Nobody is served any more.
    Closed,
}

/// Something to be done.
#[derive(Debug)]
pub(super) enum Effect {
    /// Tell a caller, who is in the queue no more.
    Tell(u64, Result<Slot, Error>),
    /// Send a message, and say when it is answered. There is one at a time.
    Send(Arc<Message>),
    /// Take a turn then, at the latest.
    Wake(Instant),
    /// Look now and then whether the pause still holds.
    Look,
    /// Take another name: somebody else has this one.
    Rename(u64),
    /// Tell all queues of the upstream that the store cannot be reached, by a message that was sent first then.
    CutOff(StoreError, Instant),
    /// Tell them that it has answered.
    Answered,
    /// Note that it has lost data: nobody starts for a while.
    LostData,
    /// Note that it has told of a loss that was seen then: what other queues were granted may be missing as well.
    ToldOfLoss(Stamp),
    /// Note that it refuses this queue.
    Refused(StoreError),
    /// Tell all queues that it was reached, though it refused a message.
    Reached,
    /// Note that it does so no more.
    RefusedNoMore,
    /// Others name other limits of this log, and they hold: the strictest of them.
    OtherLimit(Arc<str>, Term),
    /// Nothing, until something happens.
    Idle,
}

pub(super) type Effects = Vec<Effect>;

/// Tells callers why they get no slot.
pub(super) fn tell(effects: &mut Effects, refused: impl IntoIterator<Item = (u64, Error)>) {
    effects.extend(refused.into_iter().map(|(ticket, error)| Effect::Tell(ticket, Err(error))));
}
