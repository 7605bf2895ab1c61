//! The laws of what bears on an answer, and what does not: pauses do; other scopes and the caller's clock do not.

use std::time::Duration;

use fastrand::Rng;

use super::Subject;
use super::desk::{Desk, Granting, at, fresh_upstream, granted, log};
use super::law::Law;
use super::telling::Telling;
use crate::ledger::{Answer, Cause, Pause, QuotaReport, Reason, Run, ScopeId, Slots, Term};

const HISTORIES: u64 = 15;

/// A pause delays every later slot and no earlier one.
///
/// It ends to the microsecond, only ever lengthens, and lets those wait or be refused who cannot go before.
pub async fn law_7(subject: &dyn Subject) {
    const SECOND: Duration = Duration::from_secs(1);
    let law = Law::new(7, "a pause delays every later slot and no earlier one");
    subject.clock().set(at(0));
    let mut desk = Desk::new(law, subject.store(), [log("calls", 3, 100_000)]);
    let first = desk.ask(1, vec![Run::new(4, [1])]);
    let before = desk.send(&first).await;
    law.equal(&before.answers, &vec![granted(3, at(0)), granted(1, at(100_000))], "three now, one booked");

    desk.pause(SECOND).await;
    let paused = |grant: Granting| Granting { paused: Some((at(1_000_000), Reason::new(Cause::Refusal, 0))), ..grant };
    law.equal(&desk.send(&first).await, &before, "slots given before stay");
    law.equal(&desk.used().await, &vec![4], "slots given before still count");
    let grant = desk.book(1, Run::new(1, [1])).await;
    law.equal(&grant, &paused(Granting::new(at(0), vec![], at(1_000_000))), "the next waits until the pause is over");
    let refused = desk.book(2, Run::new(1, [1]).max_wait(Duration::from_micros(999_999))).await;
    law.equal(&refused.answers, &vec![Answer::refused(1, at(1_000_000))], "who cannot wait so long is refused");
    let waits = desk.book(2, Run::new(1, [1]).max_wait(SECOND)).await;
    let beside_one = |grant| Granting { contenders: 1, ..grant };
    law.equal(
        &waits,
        &beside_one(paused(Granting::new(at(0), vec![], at(1_000_000)))),
        "who can wait exactly so long waits",
    );
    law.equal(&desk.usage().await[0].terms[0].next, &SECOND, "usage says so, too");

    let gone = desk.ask(2, vec![]);
    desk.send(&gone).await;

    desk.pause(SECOND / 2).await;
    desk.pause(Duration::ZERO).await;
    let grant = desk.book(1, Run::new(1, [1])).await;
    law.equal(&grant.next, &at(1_000_000), "a shorter pause does not shorten it");
    subject.clock().set(at(1));
    desk.pause(SECOND).await;
    let grant = desk.book(1, Run::new(1, [1])).await;
    law.equal(&grant.next, &at(1_000_001), "a longer one lengthens it");

    subject.clock().set(at(900_000));
    let grant = desk.book(1, Run::new(3, [1])).await;
    law.equal(&grant.answers, &vec![granted(3, at(1_000_001))], "within the horizon slots are booked at its end");
    desk.hand_back(1, Slots::new(3, at(1_000_001), [1])).await;
    subject.clock().set(at(1_000_001));
    let grant = desk.book(1, Run::new(1, [1])).await;
    law.equal(&grant.answers, &vec![granted(1, at(1_000_001))], "at its end it is over");
    outside_use_delays(law, subject).await;
}

/// Outside use delays like a pause: one call for a span at the most.
async fn outside_use_delays(law: Law, subject: &dyn Subject) {
    subject.clock().set(at(0));
    let mut desk = Desk::new(law, subject.store(), [log("calls", 3, 100_000)]);
    let report = |remaining, reset| {
        let window = Duration::from_millis(100);
        QuotaReport::new(Term::new(3, 100_000), window, remaining, Duration::from_micros(reset))
    };
    law.equal(&desk.report(report(3, 50_000)).await.outside, &0, "as much is left as the log allows");
    law.equal(&desk.report(report(9, 50_000)).await.outside, &0, "more is ignored");
    let grant = desk.book(1, Run::new(1, [1])).await;
    law.equal(&grant.answers, &vec![granted(1, at(0))], "nothing is delayed");
    law.holds(desk.report(report(0, 1_000_000)).await.outside >= 2, "two that are not ours are missing");
    desk.horizon = Duration::ZERO;
    let grant = desk.book(1, Run::new(1, [1])).await;
    law.holds(grant.answers.is_empty() && grant.next > at(0), "the next waits");
    law.holds(grant.next <= at(100_000), "for a span at the most");
    subject.clock().set(at(100_000));
    let grant = desk.book(1, Run::new(1, [1])).await;
    law.equal(&grant.answers, &vec![granted(1, at(100_000))], "after a span it is over");
}

/// Scopes and upstreams do not affect each other but through common logs.
///
/// Random histories, alone and beside neighbours of the same units, senders, streams and similar names, who spend everything,
/// pause, and insist: in other upstreams, and in other scopes of the same. Not an answer differs.
pub async fn law_8(subject: &dyn Subject) {
    let law = Law::new(8, "scopes and upstreams do not affect each other but through common logs");
    for seed in 0..HISTORIES {
        let telling = Telling::new(law, subject, seed);
        let alone = telling.tell(async || ()).await;
        let upstream = fresh_upstream(law);
        let units = ["calls", "points", "tokens"].map(|unit| log(unit, 50, 100_000_000));
        let of_scope = |scope: &[u8]| units.clone().map(|log| log.of(Some(ScopeId::of(scope))));
        let similar = [format!("{upstream}0"), format!("{upstream}/"), upstream[1..].to_owned()];
        let others = similar.map(|name| Desk::at(law, subject.store(), name.into(), units.clone()));
        let same = [b"a", b"b"].map(|scope| Desk::at(law, subject.store(), upstream.clone(), of_scope(scope)));
        let mut neighbours: Vec<Desk<'_>> = others.into_iter().chain(same).collect();
        let mut sender = 0;
        let beside = telling
            .tell_of(upstream, async || {
                for desk in &mut neighbours {
                    sender += 1;
                    // In another upstream one of the same name is somebody else.
                    let sender = if desk.logs[0].scope.is_none() { sender % 5 } else { 1_000 + sender % 5 };
                    let runs = vec![Run::new(3, [7, 7, 7]), Run::new(1, [50, 50, 50])];
                    let ask = desk.asking(sender, runs, |ask| ask.insist = true);
                    let grant = desk.send(&ask).await;
                    let scope = desk.logs[0].scope;
                    let pause = desk.pausing(sender, scope, Pause::new(Duration::from_secs(60)));
                    desk.paused(&pause).await;
                    desk.hand_back(sender, Slots::new(1, grant.now, [7, 7, 7])).await;
                }
            })
            .await;
        law.equal(&beside, &alone, &format!("seed {seed}"));
    }
}

/// The answer does not depend on the caller's clock.
///
/// A message says no time of its own; what could still creep in is the clock of the process that sends it. So random
/// histories are told three times: plainly; while the caller's clock runs away from the store's; and with the store's
/// clock four months away from the caller's. All answers are equal, relative to the store's clock.
pub async fn law_10(subject: &dyn Subject) {
    let law = Law::new(10, "the answer does not depend on the caller's clock");
    for seed in 0..HISTORIES {
        let telling = Telling::new(law, subject, seed);
        let plain = telling.tell(async || ()).await;
        let mut rng = Rng::with_seed(seed);
        let aged = telling.tell(async || subject.age(Duration::from_millis(rng.u64(0..4_000_000))).await).await;
        law.equal(&aged, &plain, &format!("the caller's clock runs away, seed {seed}"));
        let shifted = Telling { shift: 10_000_000_000_000, ..telling }.tell(async || ()).await;
        law.equal(&shifted, &plain, &format!("the store's clock stands elsewhere, seed {seed}"));
    }
}
