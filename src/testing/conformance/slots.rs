//! The laws of slots: given, handed back, given again.

use super::Subject;
use super::desk::{Desk, Granting, at, granted, log};
use super::law::Law;
use crate::ledger::{Run, Slots, Stamp};

/// A slot handed back can be given again.
///
/// Single and in numbers, the newest and an older one, in one log and in several.
pub async fn law_4(subject: &dyn Subject) {
    let law = Law::new(4, "a slot handed back can be given again");
    subject.clock().set(at(0));
    let mut desk = Desk::new(law, subject.store(), [log("calls", 10, 1_000_000), log("points", 30, 2_000_000)]);
    let grant = desk.book(1, Run::new(10, [1, 3])).await;
    law.equal(&grant.answers, &vec![granted(10, at(0))], "the whole quota");
    let grant = desk.book(1, Run::new(1, [1, 3])).await;
    law.equal(&grant, &Granting::new(at(0), vec![], at(2_000_000)), "nothing is left");

    desk.hand_back(1, Slots::new(1, at(0), [1, 3])).await;
    let grant = desk.book(1, Run::new(2, [1, 3])).await;
    let expected = Granting::new(at(0), vec![granted(1, at(0))], at(2_000_000));
    law.equal(&grant, &expected, "one was handed back, one is given again");

    desk.hand_back(1, Slots::new(4, at(0), [1, 3])).await;
    subject.clock().set(at(5));
    let grant = desk.book(1, Run::new(5, [1, 3])).await;
    let expected = Granting::new(at(5), vec![granted(4, at(5))], at(2_000_000));
    law.equal(&grant, &expected, "four were handed back, four are given again, to start later");

    desk.hand_back(1, Slots::new(2, at(0), [1, 3])).await;
    let grant = desk.book(1, Run::new(3, [1, 3])).await;
    let expected = Granting::new(at(5), vec![granted(2, at(5))], at(2_000_000));
    law.equal(&grant, &expected, "older slots than the newest can be given again, too");

    let mut desk = Desk::new(law, subject.store(), [log("calls", 1, 100_000)]);
    let grant = desk.book(1, Run::new(2, [1])).await;
    law.equal(&grant.answers, &vec![granted(1, at(5)), granted(1, at(100_005))], "one now, one booked");
    desk.hand_back(1, Slots::new(1, at(100_005), [1])).await;
    let grant = desk.book(2, Run::new(1, [1])).await;
    law.equal(&grant.answers, &vec![granted(1, at(100_005))], "a booked slot goes to another process");
}

/// Handing back twice, or something never given, changes nothing.
///
/// Twice in two messages: what the same message does when it comes twice is [`law_11`](super::law_11).
pub async fn law_5(subject: &dyn Subject) {
    let law = Law::new(5, "handing back twice, or something never given, changes nothing");
    subject.clock().set(at(0));
    let mut desk = Desk::new(law, subject.store(), [log("calls", 5, 1_000_000), log("points", 5, 1_000_000)]);
    for micros in [0, 10, 20] {
        subject.clock().set(at(micros));
        desk.book(1, Run::new(1, [1, 1])).await;
    }
    desk.hand_back(1, Slots::new(1, at(10), [1, 1])).await;
    let usage = desk.usage().await;
    law.equal(&desk.used().await, &vec![2, 2], "one of three was handed back");
    let never = [-1, 1, 9, 10, 11, 19, 21, 500_000, 1_000_010, -1_795_170_949_790_213];
    for stamp in never {
        desk.hand_back(1, Slots::new(3, at(stamp), [1, 1])).await;
        law.equal(&desk.usage().await, &usage, &format!("nothing starts at {stamp}"));
    }
    let mut stranger = Desk::at(law, subject.store(), desk.upstream.clone(), [log("never-asked-for", 5, 1_000_000)]);
    stranger.hand_back(7, Slots::new(1, at(20), [1])).await;
    desk.hand_back(1, Slots::new(0, at(20), [1, 1])).await;
    law.equal(&desk.usage().await, &usage, "nothing was taken out of another log, nor was none everything");

    desk.hand_back(1, Slots::new(9, at(20), [1, 1])).await;
    law.equal(&desk.used().await, &vec![1, 1], "more than was given takes what was given, and no neighbour");
    let grant = desk.book(1, Run::new(5, [1, 1])).await;
    let expected = Granting::new(at(20), vec![granted(4, at(20))], at(1_000_000));
    law.equal(&grant, &expected, "four are free, not more");
}

/// An empty log means no wait.
///
/// The whole quota at once, in one ask or in many, at whatever time, and once more when everything has been handed back or
/// has stopped counting: exactly a span later, not a microsecond before.
pub async fn law_6(subject: &dyn Subject) {
    let law = Law::new(6, "an empty log means no wait");
    for micros in [-1_700_000_000_000_000, 0, 1_000_000_000_000_000] {
        let now = |more: i64| at(micros + more);
        for (callers, cost) in [(1, 1), (12, 1), (4, 3), (1, 12)] {
            subject.clock().set(now(0));
            let mut desk = Desk::new(law, subject.store(), [log("calls", 12, 500_000), log("other", 99, 800)]);
            all_at_once(law, &mut desk, callers, cost, now(0)).await;
            desk.hand_back(1, Slots::new(callers, now(0), [cost, 1])).await;
            all_at_once(law, &mut desk, callers, cost, now(0)).await;

            subject.clock().set(now(499_999));
            let grant = desk.book(1, Run::new(1, [12, 1])).await;
            law.equal(&grant.answers, &vec![granted(1, now(500_000))], "it counts for a whole span");
            desk.hand_back(1, Slots::new(1, now(500_000), [12, 1])).await;
            law.equal(&desk.used().await, &vec![callers * cost, 0], "usage counts it for a whole span, too");
            subject.clock().set(now(500_000));
            law.equal(&desk.used().await, &vec![0, 0], "and no longer");
            all_at_once(law, &mut desk, callers, cost, now(500_000)).await;
        }
    }
    subject.clock().set(at(0));
    let mut desk = Desk::new(law, subject.store(), [log("calls", 3, 500_000)]);
    for left in (0..3).rev() {
        let grant = desk.book(left, Run::new(1, [1])).await;
        law.equal(&grant.answers, &vec![granted(1, at(0))], "each of the quota, one by one");
    }
}

async fn all_at_once(law: Law, desk: &mut Desk<'_>, callers: u32, cost: u32, now: Stamp) {
    let grant = desk.book(1, Run::new(callers, [cost, 1])).await;
    law.equal(&grant.answers, &vec![granted(callers, now)], &format!("{callers} callers of {cost}"));
}
