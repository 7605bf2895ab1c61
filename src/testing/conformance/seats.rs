//! The law of calls in flight.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use super::Subject;
use super::desk::{Desk, at, log};
use super::law::Law;
use crate::ledger::{Answer, Ask, BEYOND, Grant, Log, Remembered, Run, ScopeId, SeatLimit, Seats, Stamp, Verdict};

/// In µs.
const LEASE: i64 = 10_000_000;

/// Seats in use never exceed the limit; a lapsed lease is free; a seat is taken with its slot, only for starts within 20 ms or the
/// lead of an ask; the next goes to who has the fewest, then to who has waited longest. Where processes name different limits, the lowest
/// of those who hold seats or want some holds for all. After a loss of data that somebody remembers none
/// is given until those who hold some have had the time to say so again.
///
/// By tables; and in random histories of processes that take seats, leave them, renew them, are late, and die.
pub async fn law_17(subject: &dyn Subject) {
    let law =
        Law::new(17, "seats in use never exceed the limit, a lapsed lease is free, a seat is taken with its slot");
    a_lapsed_lease_is_free(law, subject).await;
    a_seat_comes_with_its_slot(law, subject).await;
    the_next_goes_to_who_has_the_fewest(law, subject).await;
    one_stream_of_a_process_takes_seats_and_lends_them_to_others(law, subject).await;
    none_is_given_after_a_loss_until_those_held_may_be_known_again(law, subject).await;
    for seed in 0..40 {
        seats_in_use_never_exceed_the_limit(law, subject, seed).await;
    }
}

/// Speaks for processes that share the seats of one limit.
struct SeatDesk<'a> {
    desk: Desk<'a>,
    limits: Arc<[SeatLimit]>,
}

impl<'a> SeatDesk<'a> {
    fn new(law: Law, subject: &'a dyn Subject, logs: impl Into<Arc<[Log]>>, seats: u32) -> Self {
        Self { desk: Desk::new(law, subject.store(), logs), limits: [SeatLimit::new(None, seats)].into() }
    }

    /// What a process is answered that keeps so many seats, `idle` of them unused, and has so many callers.
    async fn ask(&mut self, sender: u64, kept: u32, idle: u32, callers: u32) -> Grant {
        self.remembering(sender, kept, idle, callers, Remembered::default()).await
    }

    /// The same of one that remembers something.
    async fn remembering(&mut self, sender: u64, kept: u32, idle: u32, callers: u32, remembered: Remembered) -> Grant {
        let seats = Seats::new(Arc::clone(&self.limits)).keeping(kept, idle);
        let lease = Duration::from_micros(LEASE.unsigned_abs());
        let runs = if callers > 0 { vec![Run::new(callers, vec![1; self.desk.logs.len()])] } else { Vec::new() };
        let seats = Some(Seats { lease, ..seats });
        let change = |ask: &mut Ask| (ask.seats, ask.remembered) = (seats, remembered);
        let ask = self.desk.asking(sender, runs, change);
        self.desk.grant(&ask).await
    }

    async fn granted(&mut self, sender: u64, kept: u32, callers: u32) -> u32 {
        granted(&self.ask(sender, kept, 0, callers).await)
    }
}

fn granted(grant: &Grant) -> u32 {
    grant.answers.iter().filter(|answer| answer.verdict.is_granted()).map(|answer| answer.callers).sum()
}

fn unlimited() -> [Log; 1] {
    [Log::new("calls", [])]
}

async fn a_lapsed_lease_is_free(law: Law, subject: &dyn Subject) {
    subject.clock().set(at(0));
    let mut desk = SeatDesk::new(law, subject, unlimited(), 3);
    law.equal(&desk.granted(1, 0, 2).await, &2, "two of three");
    law.equal(&desk.granted(2, 0, 2).await, &1, "the third");
    subject.clock().set(at(LEASE - 1));
    law.equal(&desk.granted(2, 1, 0).await, &0, "it is renewed");
    law.equal(&desk.granted(3, 0, 3).await, &0, "all are leased");
    subject.clock().set(at(LEASE));
    law.equal(&desk.granted(3, 0, 3).await, &2, "those of the first are free");
    law.equal(&desk.granted(2, 0, 0).await, &0, "that of the second is given back");
    law.equal(&desk.granted(3, 2, 3).await, &1, "and taken again");
}

async fn a_seat_comes_with_its_slot(law: Law, subject: &dyn Subject) {
    subject.clock().set(at(0));
    let mut desk = SeatDesk::new(law, subject, [log("calls", 1, 100_000), log("points", 9, 100_000)], 2);
    law.equal(&desk.granted(1, 0, 2).await, &1, "the slot of the second is far away");
    subject.clock().set(at(79_999));
    let grant = desk.ask(1, 1, 0, 2).await;
    law.equal(&(granted(&grant), grant.next), &(0, at(100_000)), "more than 20 ms");
    subject.clock().set(at(80_000));
    law.equal(&desk.granted(2, 0, 1).await, &1, "a slot, and the seat that the first did not take for a later one");
    law.equal(&desk.desk.used().await, &vec![2, 2], "with its slots");
    subject.clock().set(at(200_000));
    let grant = desk.ask(1, 1, 0, 1).await;
    law.equal(&granted(&grant), &0, "a slot is free, and no seat");
    law.equal(&desk.desk.used().await, &vec![0, 0], "then no slot is taken either");
    law.equal(&granted(&desk.ask(1, 1, 1, 1).await), &1, "who brings its seat along gets the slot");
}

async fn one_stream_of_a_process_takes_seats_and_lends_them_to_others(law: Law, subject: &dyn Subject) {
    subject.clock().set(at(0));
    let mut line = SeatDesk::new(law, subject, [], 3);
    law.equal(&line.granted(1, 0, 5).await, &3, "who needs seats alone names no log");
    let seats = Arc::clone(&line.limits);
    let upstream = Arc::clone(&line.desk.upstream);
    let mut queue = Desk::at(law, subject.store(), upstream, [log("calls", 5, 1_000_000)]);
    law.equal(&queue.seats_taken(&seats).await, &vec![3], "they are shown to be taken");
    let ask = queue.asking(7, vec![Run::new(4, [1])], |ask| ask.seats = Some(Seats::new([]).keeping(2, 2)));
    law.equal(&granted(&queue.grant(&ask).await), &2, "as many get slots as there are seats lent");
    law.equal(&queue.used().await, &vec![2], "and no more");
    law.equal(&queue.seats_taken(&seats).await, &vec![3], "seats that are lent are not taken again");
    subject.clock().set(at(LEASE));
    law.equal(&queue.seats_taken(&seats).await, &vec![0], "nor held for longer than the line says");
    queue.pause(Duration::from_secs(1)).await;
    law.equal(&line.granted(1, 0, 1).await, &1, "a pause concerns no seat");
}

async fn the_next_goes_to_who_has_the_fewest(law: Law, subject: &dyn Subject) {
    subject.clock().set(at(0));
    let mut desk = SeatDesk::new(law, subject, unlimited(), 4);
    law.equal(&desk.granted(1, 0, 9).await, &4, "all of them");
    for sender in [2, 3] {
        law.equal(&desk.granted(sender, 0, 9).await, &0, "none is left");
    }
    law.equal(&desk.granted(1, 2, 9).await, &0, "two come back, and are for those who have none");
    law.equal(&desk.granted(3, 0, 9).await, &1, "one, as another has waited longer");
    law.equal(&desk.granted(2, 0, 9).await, &1, "and that is for it");
    let grant = desk.ask(1, 2, 0, 9).await;
    law.equal(&grant.seats.map(|told| told.keep), &Some(2), "who has one more than others may keep it");
    // Those who wait do not come back.
    subject.clock().set(at(2_000_000));
    desk.limits = [SeatLimit::new(None, 9)].into();
    law.equal(&desk.granted(9, 0, 9).await, &0, "four of four are taken, as those say who hold them");
    for (sender, kept) in [(1, 2), (2, 1), (3, 1)] {
        law.equal(&desk.granted(sender, kept, 0).await, &0, "until they name more");
    }
    let scope = Some(ScopeId::of(b"a"));
    desk.limits = [SeatLimit::new(scope, 1)].into();
    law.equal(&desk.granted(7, 0, 2).await, &1, "the seats of a scope are others");
    desk.limits = [SeatLimit::new(None, 9), SeatLimit::new(scope, 1)].into();
    law.equal(&desk.granted(8, 0, 2).await, &0, "and who needs both gets both or none");
    desk.limits = [SeatLimit::new(None, 9)].into();
    law.equal(&desk.granted(9, 0, 9).await, &5, "none was taken of those of all");
    let run = vec![Run::new(1, [1]).max_wait(Duration::ZERO)];
    let limits = Arc::clone(&desk.limits);
    let ask = desk.desk.asking(10, run, |ask| ask.seats = Some(Seats::new(limits)));
    let answers = desk.desk.grant(&ask).await.answers;
    let is_refused = matches!(&*answers, [Answer { callers: 1, verdict: Verdict::Refused, .. }]);
    law.holds(is_refused, "who cannot wait for one is refused");
}

/// A message that the store was told, and answered at `told`.
fn message(number: u64, told: Stamp) -> Remembered {
    Remembered::new(number, told, [])
}

async fn none_is_given_after_a_loss_until_those_held_may_be_known_again(law: Law, subject: &dyn Subject) {
    const ENDS: i64 = LEASE / 3 + 1_000_000;
    let is_closed = |grant: &Grant| (granted(grant), grant.lost);
    // A message that is gone: who comes first says so, whether it holds any or not.
    for (logs, kept) in [(unlimited().to_vec(), 2), (Vec::new(), 2), (Vec::new(), 0)] {
        subject.clock().set(at(0));
        let mut desk = SeatDesk::new(law, subject, logs, 3);
        let grant = desk.remembering(1, kept, 0, 2, message(900, at(-5_000_000))).await;
        law.equal(&is_closed(&grant), &(0, true), "data was lost");
        law.equal(&grant.seats.map(|told| told.keep), &Some(u32::MAX), "nobody would get what is given back");
        let told_again = grant.seats.map(|told| told.again);
        law.equal(&told_again, &Some(Duration::from_secs(1)), "nobody asks often for nothing");
        subject.clock().set(at(ENDS - 1));
        let left = 1.min(kept);
        let grant = desk.remembering(1, kept, left, left, message(1, at(0))).await;
        law.equal(&granted(&grant), &left, "one that is left here");
        law.equal(&is_closed(&desk.ask(2, 0, 0, 1).await), &(0, true), "for nobody");
        let grant = desk.remembering(3, 3 - kept, 0, 4, message(800, at(-5_000_000))).await;
        law.equal(&is_closed(&grant), &(0, true), "who says again what it holds is believed");
        let seats = Arc::clone(&desk.limits);
        law.equal(&desk.desk.seats_taken(&seats).await, &vec![3], "only such seats are taken");
        subject.clock().set(at(ENDS));
        law.equal(&is_closed(&desk.ask(2, 0, 0, 1).await), &(0, false), "all are known again");
        law.equal(&granted(&desk.ask(3, 0, 0, 0).await), &0, "the third gives back its own");
        law.equal(&granted(&desk.ask(2, 0, 0, 9).await), &(3 - kept), "and they are given");
    }
    // Or the seats alone are.
    subject.clock().set(at(0));
    let mut desk = SeatDesk::new(law, subject, unlimited(), 3);
    law.equal(&granted(&desk.ask(1, 0, 0, 1).await), &1, "nobody remembers anything");
    let mut number = desk.desk.number();
    law.equal(&granted(&desk.remembering(1, 1, 0, 1, message(number, at(0))).await), &1, "all is there");
    number += 1;
    subject.clock().set(at(LEASE - 1));
    law.equal(&granted(&desk.remembering(1, 3, 0, 0, message(number, at(-2))).await), &0, "its lease is over");
    law.equal(&is_closed(&desk.ask(2, 0, 0, 1).await), &(0, false), "it is believed all the same");
    law.equal(&granted(&desk.ask(1, 2, 0, 0).await), &0, "it gives one back");
    number += 3;
    let grant = desk.remembering(1, 3, 0, 1, message(number, at(LEASE - 1))).await;
    law.equal(&is_closed(&grant), &(0, true), "one that it was given");
    let mut other = desk.remembering(3, 1, 0, 1, message(1, at(LEASE - 2))).await;
    law.equal(&is_closed(&other), &(0, true), "another was told before that");
    subject.clock().set(at(LEASE - 1 + ENDS));
    other = desk.remembering(4, 0, 0, 1, message(1, at(LEASE - 2))).await;
    law.equal(&other.lost, &false, "it is the same loss");
    other = desk.remembering(5, 0, 0, 1, message(1, at(LEASE))).await;
    law.equal(&other.lost, &true, "and this another");
    // What a store may have forgotten by now is no loss.
    subject.clock().set(at(0));
    for (after, is_lost) in [(LEASE + BEYOND, false), (LEASE + BEYOND - 1, true)] {
        let mut desk = SeatDesk::new(law, subject, [], 3);
        law.equal(&desk.remembering(1, 0, 0, 1, message(9, at(-after))).await.lost, &is_lost, "by its age");
    }
}

/// What a process holds, and until when the store counts it.
#[derive(Clone, Copy, Debug, Default)]
struct Process {
    held: u32,
    lapse: i64,
}

async fn seats_in_use_never_exceed_the_limit(law: Law, subject: &dyn Subject, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let seats = rng.u32(1..12);
    let logs = if rng.bool() { unlimited() } else { [log("calls", 5, 30_000)] };
    let mut desk = SeatDesk::new(law, subject, logs, seats);
    let mut processes: HashMap<u64, Process> = HashMap::new();
    let mut now = 0;
    for step in 0..120 {
        now += if rng.u8(0..20) == 0 { rng.i64(0..LEASE) } else { rng.i64(0..60_000) };
        subject.clock().set(at(now));
        // Who is dead, or was silent for too long, holds nothing any more.
        processes.values_mut().filter(|of| of.lapse <= now).for_each(|of| of.held = 0);
        let sender = rng.u64(1..8);
        let of = processes.entry(sender).or_default();
        let kept = if rng.bool() { of.held } else { rng.u32(0..=of.held) };
        let (idle, callers) = (rng.u32(0..=kept), rng.u32(0..6));
        let grant = desk.ask(sender, kept, idle, callers).await;
        let held = kept + granted(&grant).saturating_sub(idle);
        processes.insert(sender, Process { held, lapse: now + LEASE });
        let all: u32 = processes.values().map(|of| of.held).sum();
        law.holds(all <= seats, &format!("{all} of {seats} seats are in use: seed {seed}, step {step}, {processes:?}"));
        let alone = processes.iter().all(|(of, process)| *of == sender || process.held == 0);
        let is_first = step == 0 && alone && callers > 0;
        law.holds(!is_first || granted(&grant) > 0, &format!("a free seat means no wait: seed {seed}"));
    }
}
