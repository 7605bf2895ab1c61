//! After a loss of data: no seat is given until those who hold some have had the time to say so again.
//!
//! `lua/roll_call.lua` says the same in Redis.

use std::time::Duration;

use crate::ledger::claims::Owner;
use crate::ledger::{Ask, LEAP, Ledger, MAX_MEMORY, MessageId, Remembered, Seats, Stamp, micros};

use super::Holders;

/// Who holds seats says so again after this part of its lease.
const RENEWED: i64 = 3;
/// And no later than this.
const LATEST_RENEWAL: i64 = 20_000_000;
/// What one message takes, that may be sent again.
const TAKES: i64 = 1_000_000;

/// Who holds seats for so long says so again after this, whether or not anybody asks.
pub(crate) fn renewed_after(lease: Duration) -> Duration {
    Duration::from_micros(renewal(micros(lease)).unsigned_abs())
}

const fn renewal(lease: i64) -> i64 {
    let part = lease / RENEWED;
    if part < LATEST_RENEWAL { part } else { LATEST_RENEWAL }
}

/// Nobody is given a seat until it ends. It is remembered for longer: what was told before it began is the same loss.
#[derive(Clone, Copy, Debug)]
pub(super) struct RollCall {
    began: Stamp,
    ends: Stamp,
    pub(super) lapse: Stamp,
}

impl RollCall {
    /// For how many more microseconds no seat is given.
    pub(super) fn left(self, now: Stamp) -> i64 {
        (self.ends.as_micros() - now.as_micros()).max(0)
    }
}

/// What an ask shows of a loss.
pub(super) struct Shown {
    /// When its sender was told last of a message that the store must remember.
    told: Stamp,
    /// The store remembers no such message.
    is_forgotten: bool,
    /// If anybody remembers it: the seats that it keeps, and must be known to hold.
    must_hold: u32,
    lease: i64,
}

impl Shown {
    pub(super) fn by(ledger: &Ledger, now: Stamp, id: &MessageId, ask: &Ask, seats: &Seats) -> Self {
        let (remembered, lease) = (&ask.remembered, micros(seats.lease));
        let Remembered { number, told, .. } = *remembered;
        let is_forgotten = ledger.still_has(now, id, remembered, ask.retention().max(lease)) == Some(false);
        let must_hold = if number > 0 && told.plus(lease) > now { seats.kept } else { 0 };
        Self { told, is_forgotten, must_hold, lease }
    }

    /// The roll call of a limit that lasts or is remembered, and whether it begins now.
    pub(super) fn roll_call(&self, now: Stamp, holders: &Holders, owner: &Owner) -> (Option<RollCall>, bool) {
        let known = holders.roll_call.filter(|known| known.lapse > now);
        let is_missing = holders.said_by(owner) < self.must_hold;
        let is_news = (self.is_forgotten || is_missing) && known.is_none_or(|known| self.told > known.began);
        if !is_news {
            return (known, false);
        }
        let ends = now.plus(renewal(self.lease) + TAKES);
        let ends = known.map_or(ends, |known| known.ends.max(ends));
        (Some(RollCall { began: now, ends, lapse: now.plus(MAX_MEMORY + LEAP) }), true)
    }
}
