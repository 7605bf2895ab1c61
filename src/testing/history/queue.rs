//! A queue of one process, as the store knows it.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use super::Heard;
use super::world::World;
use crate::ledger::{
    Again, Ask, Body, Grant, Log, Message, Remembered, Reply, Run, SeatLimit, Seats, Slots, Stamp, Verdict,
};
use crate::store::StoreErrorKind;

/// Callers that need the same logs. Two queues may have one name, as those of a process and its clone have.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) sender: u64,
    pub(super) stream: Arc<str>,
    pub(super) logs: Arc<[Log]>,
    /// For how many it counts.
    pub(super) weight: u32,
    pub(super) observes: bool,
    limits: Arc<[SeatLimit]>,
    /// Seats of each that it holds.
    held: u32,
    /// Another holds them, and lends it some.
    borrows: bool,
    pub(super) previous: u64,
    pub(super) known: Option<Stamp>,
    /// A message whose answer was lost.
    pub(super) unheard: Option<Message>,
    /// Of the last answer that was remembered.
    told: Stamp,
    /// The newest entry of each log that it knows of.
    newest: Vec<Stamp>,
    /// The last loss that it was told of, and that for which it said last what it was granted.
    loss: Stamp,
    heard: Stamp,
    counted: Vec<Stamp>,
    /// What it said before that.
    stale: Vec<Stamp>,
    /// The same as the store knows it, where the answer was lost.
    pub(super) counts: Vec<Stamp>,
    nothing: Vec<Stamp>,
    /// Callers that were put off.
    waiting: Vec<Run>,
}

impl Queue {
    pub(super) fn random(rng: &mut Rng, world: &World) -> Self {
        let stream = ["", "scope", "2f/scope"][rng.usize(0..3)];
        let some = world.some_logs(rng);
        let some = if world.two_releases && rng.bool() { World::stricter(rng, &some) } else { some };
        let (logs, limits) = world.some_seats(rng, some);
        let borrows = !limits.is_empty() && !logs.is_empty() && rng.u8(0..4) == 0;
        let sender = rng.u64(1..5);
        let is_lower = world.two_releases && sender.is_multiple_of(2);
        let limits = if is_lower { World::fewer(&limits) } else { limits };
        Self {
            borrows,
            sender,
            stream: stream.into(),
            logs,
            weight: [1, 1, 2, 5][rng.usize(0..4)],
            observes: world.two_releases && rng.u8(0..4) == 0,
            limits,
            held: 0,
            previous: 0,
            known: None,
            unheard: None,
            told: Stamp::from_micros(0),
            newest: Vec::new(),
            loss: Stamp::from_micros(0),
            heard: Stamp::from_micros(0),
            counted: Vec::new(),
            stale: Vec::new(),
            counts: Vec::new(),
            nothing: Vec::new(),
            waiting: Vec::new(),
        }
    }

    /// Those who wait, or others, or nobody.
    pub(super) fn runs(&mut self, rng: &mut Rng, world: &World) -> Vec<Run> {
        if !self.waiting.is_empty() && rng.u8(0..4) > 0 {
            return self.waiting.clone();
        }
        self.waiting.clear();
        (0..rng.usize(0..4)).map(|_| world.run(rng, &self.logs)).collect()
    }

    pub(super) fn insists(&self, rng: &mut Rng) -> bool {
        rng.u8(0..8) < if self.waiting.is_empty() { 1 } else { 5 }
    }

    /// What it says of the periods that it was counted in: seldom what it was told before, or nothing.
    pub(super) fn echo(&self, rng: &mut Rng) -> &Vec<Stamp> {
        match rng.u8(0..20) {
            0 => &self.stale,
            1 => &self.nothing,
            _ => &self.counted,
        }
    }

    /// What it says that a store must hold: sometimes of what it was granted, though some of that may have been handed back; seldom
    /// of what never was.
    pub(super) fn remembers(&self, rng: &mut Rng, logs: &[Log], now: Stamp) -> Remembered {
        let number = match rng.u8(0..64) {
            0 => self.previous + rng.u64(0..3),
            1..8 => self.previous,
            _ => 0,
        };
        if rng.u8(0..32) > 0 || self.newest.len() != logs.len() {
            let told = if rng.bool() { self.told } else { now.plus(-rng.i64(0..8_000_000)) };
            return Remembered::new(number, told, []);
        }
        let newest = self.newest.iter().map(|&newest| match rng.u8(0..8) {
            0 => Stamp::from_micros(0),
            1 => now.plus(rng.i64(-1_000_000..1_500_000)),
            _ => newest,
        });
        let newest: Vec<_> = newest.collect();
        let mut remembered = Remembered::new(number, self.told, newest);
        if rng.u8(0..4) == 0 {
            let apart = remembered.newest.iter().map(|newest| if rng.bool() { *newest } else { Stamp::NEVER });
            remembered.apart = apart.collect();
            remembered.lost_at = now.plus(-rng.i64(-100_000..3_000_000));
        }
        remembered
    }

    /// What it says of a loss that it was told of: some starts, of which some may have been granted. Seldom of one that never was.
    pub(super) fn again(&self, rng: &mut Rng, logs: &[Log], now: Stamp) -> Option<Again> {
        let is_wrong = rng.u8(0..64) == 0;
        if (self.loss <= Stamp::from_micros(0) && !is_wrong) || rng.u8(0..8) == 0 {
            return None;
        }
        let seen = if is_wrong { now.plus(rng.i64(-9_000_000..1_000_000)) } else { self.loss };
        if seen <= self.heard {
            return Some(Again::new(seen, seen, Vec::new()));
        }
        let step = |rng: &mut Rng| match rng.u8(0..4) {
            0 => self.newest.first().copied().unwrap_or(now),
            1 => now.plus(rng.i64(-60_000_000..1_000_000)),
            _ => now.plus(rng.i64(-3_000_000..400_000)),
        };
        let mut starts: Vec<_> = (0..rng.usize(0..5)).map(|_| step(rng)).collect();
        starts.sort_unstable();
        let units = |rng: &mut Rng| logs.iter().map(|_| rng.u32(0..5)).collect::<Vec<_>>();
        let steps = starts.into_iter().map(|start| Slots::new(rng.u32(1..3), start, units(rng))).collect();
        Some(Again::new(self.heard, seen, steps))
    }

    /// What it says of seats: that it keeps all that it holds, or some of them; seldom that it holds others.
    pub(super) fn seats(&self, rng: &mut Rng) -> Option<Seats> {
        if self.limits.is_empty() {
            return None;
        }
        if self.borrows {
            let lent = rng.u32(0..8);
            return Some(Seats::new([]).keeping(lent, lent));
        }
        let kept = match rng.u8(0..16) {
            0 => rng.u32(0..20),
            1..6 => rng.u32(0..=self.held),
            _ => self.held,
        };
        let idle = if rng.bool() { 0 } else { rng.u32(0..=kept) };
        let lease = Duration::from_micros(rng.u64(0..10_000_000));
        Some(Seats { lease, ..Seats::new(Arc::clone(&self.limits)).keeping(kept, idle) })
    }

    /// What became of its message.
    pub(super) fn hear(&mut self, message: &Message, heard: &Heard, is_lost: bool, rng: &mut Rng) {
        if let Ok(Reply::Grant(grant)) = heard {
            self.counts.clone_from(&grant.counted);
        }
        if is_lost {
            self.unheard = Some(Message { latest: None, ..message.clone() });
            return;
        }
        match (heard, &message.body) {
            (Ok(Reply::Grant(grant)), Body::Ask(ask)) => {
                self.stale = std::mem::replace(&mut self.counted, grant.counted.clone());
                self.previous = if grant.remembered { message.id.number } else { 0 };
                self.known = self.known.max(Some(grant.now));
                self.told = if grant.remembered { grant.now } else { self.told };
                self.heard = ask.again.as_ref().map_or(self.heard, |again| self.heard.max(again.loss));
                self.loss = grant.loss.as_deref().filter(|_| rng.u8(0..4) > 0).map_or(self.loss, |(loss, _)| *loss);
                let newest = grant.answers(ask.callers()).filter(|answer| answer.verdict.is_granted());
                if let Some(newest) = newest.map(|answer| answer.start).max() {
                    self.newest = vec![newest; ask.logs.len()];
                }
                self.waiting = put_off(ask, grant);
                if let Some(seats) = &ask.seats {
                    self.held = seats.kept + granted(ask, grant).saturating_sub(seats.idle);
                }
            }
            (Err(StoreErrorKind::Outdated | StoreErrorKind::Duplicate), _) if rng.u8(0..4) > 0 => {
                (self.sender, self.previous) = (rng.u64(5..1 << 60), 0);
            }
            _ => {}
        }
    }
}

/// How many callers hold a slot.
fn granted(ask: &Ask, grant: &Grant) -> u32 {
    let granted = grant.answers(ask.callers()).filter(|answer| answer.verdict.is_granted());
    granted.map(|answer| answer.callers).sum()
}

/// The callers that wait.
fn put_off(ask: &Ask, grant: &Grant) -> Vec<Run> {
    let (mut answers, mut waiting) = (grant.answers(ask.callers()), Vec::new());
    let (mut verdict, mut left) = (Verdict::Waits, 0);
    for run in &ask.runs {
        let mut callers = 0;
        for _ in 0..run.callers {
            if left == 0 {
                (verdict, left) = answers.next().map_or((Verdict::Waits, u32::MAX), |of| (of.verdict, of.callers));
            }
            left -= 1;
            callers += u32::from(verdict == Verdict::Waits);
        }
        if callers > 0 {
            waiting.push(Run { callers, ..run.clone() });
        }
    }
    waiting
}

/// Whether the answer to a message that came again is what it was answered before: then it did not act again.
pub(super) fn is_replay(before: &Heard, heard: &Heard) -> bool {
    match (before, heard) {
        (Ok(Reply::Grant(before)), Ok(Reply::Grant(heard))) => {
            before.remembered && (&before.answers, before.next) == (&heard.answers, heard.next)
        }
        (_, heard) => heard.is_err(),
    }
}
