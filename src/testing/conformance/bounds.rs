//! The laws of what bears on an answer, and what does not: holds do; other homes and the caller's clock do not.

use std::time::Duration;

use fastrand::Rng;

use super::Subject;
use super::desk::{Desk, at, fresh_home, granted, log};
use super::history::History;
use super::law::Law;
use crate::ledger::Term;
use crate::ledger::{Answer, Cause, Grant, Home, Report, Run, Slots};

const HISTORIES: u64 = 15;

/// A hold delays every later slot and no earlier one.
///
/// It ends to the microsecond, only ever lengthens, and lets those wait or be refused who cannot go before.
pub async fn law_7(subject: &dyn Subject) {
    const SECOND: Duration = Duration::from_secs(1);
    let law = Law::new(7, "a hold delays every later slot and no earlier one");
    subject.clock().set(at(0));
    let mut desk = Desk::new(law, subject.store(), [log("calls", 3, 100_000)]);
    let first = desk.ask(1, vec![Run::new(4, [1])]);
    let before = desk.send(&first).await;
    law.equal(&before.answers, &vec![granted(3, at(0)), granted(1, at(100_000))], "three now, one booked");

    desk.hold(SECOND).await;
    let held = |grant: Grant| Grant { held: Some((at(1_000_000), Cause::Refusal)), ..grant };
    law.equal(&desk.send(&first).await, &held(before), "slots given before stay");
    law.equal(&desk.used().await, &vec![4], "slots given before still count");
    let grant = desk.book(1, Run::new(1, [1])).await;
    law.equal(&grant, &held(Grant::new(at(0), vec![], at(1_000_000))), "the next waits until the hold is over");
    let refused = desk.book(2, Run::new(1, [1]).max_wait(Duration::from_micros(999_999))).await;
    law.equal(&refused.answers, &vec![Answer::new(1, at(1_000_000), false)], "who cannot wait so long is refused");
    let waits = desk.book(2, Run::new(1, [1]).max_wait(SECOND)).await;
    let beside_one = |grant| Grant { contenders: 1, ..grant };
    law.equal(
        &waits,
        &beside_one(held(Grant::new(at(0), vec![], at(1_000_000)))),
        "who can wait exactly so long waits",
    );
    law.equal(&desk.usage().await[0].terms[0].next, &SECOND, "usage says so, too");

    let gone = desk.ask(2, vec![]);
    desk.send(&gone).await;

    desk.hold(SECOND / 2).await;
    desk.hold(Duration::ZERO).await;
    let grant = desk.book(1, Run::new(1, [1])).await;
    law.equal(&grant.next, &at(1_000_000), "a shorter hold does not shorten it");
    subject.clock().set(at(1));
    desk.hold(SECOND).await;
    let grant = desk.book(1, Run::new(1, [1])).await;
    law.equal(&grant.next, &at(1_000_001), "a longer one lengthens it");

    subject.clock().set(at(900_000));
    let grant = desk.book(1, Run::new(3, [1])).await;
    law.equal(&grant.answers, &vec![granted(3, at(1_000_001))], "within the horizon slots are booked at its end");
    desk.hand_back(1, Slots::new(3, at(1_000_001), [1])).await;
    subject.clock().set(at(1_000_001));
    let grant = desk.book(1, Run::new(1, [1])).await;
    law.equal(&grant.answers, &vec![granted(1, at(1_000_001))], "at its end it is over");
    what_is_learned_delays(law, subject).await;
}

/// What is learned of others' use delays like a hold, for a span at the most.
async fn what_is_learned_delays(law: Law, subject: &dyn Subject) {
    subject.clock().set(at(0));
    let mut desk = Desk::new(law, subject.store(), [log("calls", 3, 100_000)]);
    let report = |remaining, reset| {
        let window = Duration::from_millis(100);
        Report::new(Term::new(3, 100_000), window, remaining, Duration::from_micros(reset))
    };
    law.equal(&desk.learn(report(3, 50_000)).await.foreign, &0, "as much is left as the log allows");
    law.equal(&desk.learn(report(9, 50_000)).await.foreign, &0, "more is ignored");
    let grant = desk.book(1, Run::new(1, [1])).await;
    law.equal(&grant.answers, &vec![granted(1, at(0))], "nothing is delayed");
    law.holds(desk.learn(report(0, 1_000_000)).await.foreign >= 2, "two that are not ours are missing");
    desk.horizon = Duration::ZERO;
    let grant = desk.book(1, Run::new(1, [1])).await;
    law.holds(grant.answers.is_empty() && grant.next > at(0), "the next waits");
    law.holds(grant.next <= at(100_000), "for a span at the most");
    subject.clock().set(at(100_000));
    let grant = desk.book(1, Run::new(1, [1])).await;
    law.equal(&grant.answers, &vec![granted(1, at(100_000))], "after a span it is over");
}

/// Homes do not affect each other.
///
/// Random histories, alone and beside neighbours of the same log names, senders and similar names who spend everything,
/// hold, and insist: not an answer differs.
pub async fn law_8(subject: &dyn Subject) {
    let law = Law::new(8, "homes do not affect each other");
    for seed in 0..HISTORIES {
        let (store, clock) = (subject.store(), subject.clock());
        let mut history = History { law, store, clock, home: fresh_home(law), seed, shift: 0, twice: false };
        let alone = history.tell(async || ()).await;
        history.home = fresh_home(law);
        let name = history.home.as_str();
        let names = [format!("{name}0"), format!("{name}/"), name[1..].to_owned(), name[..name.len() - 1].to_owned()];
        let logs = ["log0", "log1", "log2"].map(|name| log(name, 50, 100_000_000));
        let mut neighbours = names.map(|name| Desk::at(law, store, Home::new(&name, None), logs.clone()));
        let mut sender = 0;
        let beside = history
            .tell(async || {
                for desk in &mut neighbours {
                    sender += 1;
                    let mut ask = desk.ask(sender % 5, vec![Run::new(3, [7, 7, 7]), Run::new(1, [50, 50, 50])]);
                    ask.insist = true;
                    let grant = desk.send(&ask).await;
                    desk.hold(Duration::from_secs(60)).await;
                    desk.hand_back(sender % 5, Slots::new(1, grant.now, [7, 7, 7])).await;
                }
            })
            .await;
        law.equal(&beside.said, &alone.said, &format!("seed {seed}"));
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
        let (store, clock) = (subject.store(), subject.clock());
        let mut history = History { law, store, clock, home: fresh_home(law), seed, shift: 0, twice: false };
        let plain = history.tell(async || ()).await;
        let mut rng = Rng::with_seed(seed);
        history.home = fresh_home(law);
        let aged = history.tell(async || subject.age(Duration::from_millis(rng.u64(0..4_000_000))).await).await;
        law.equal(&aged.said, &plain.said, &format!("the caller's clock runs away, seed {seed}"));
        (history.home, history.shift) = (fresh_home(law), 10_000_000_000_000);
        let shifted = history.tell(async || ()).await;
        law.equal(&shifted.said, &plain.said, &format!("the store's clock stands elsewhere, seed {seed}"));
    }
}
