//! The law of true costs.

use std::time::Duration;

use super::Subject;
use super::desk::{Desk, Granting, at, granted, log};
use super::law::Law;
use super::telling::Telling;
use crate::ledger::{Answer, Ask, Bucket, Log, Run, ScopeId, Slots, Term};

const HISTORIES: u64 = 60;

/// True costs count from the moment they are known.
///
/// What calls used beyond their charges delays every later call, beyond the quota if need be, and none before; what they did not use is
/// free. Random histories, in which the span of every slot that is granted holds no more than the quota, debts included. And by table.
pub async fn law_18(subject: &dyn Subject) {
    let law = Law::new(18, "true costs count from the moment they are known");
    for seed in 3 * HISTORIES..4 * HISTORIES {
        Telling::new(law, subject, seed).tell(async || ()).await;
    }
    a_debt_delays_later_calls(law, subject).await;
    a_debt_stands_behind_what_is_booked(law, subject).await;
    what_was_not_used_is_free(law, subject).await;
    units_are_entered_anew(law, subject).await;
    a_large_debt_delays_for_a_span(law, subject).await;
    a_bucket_pays_off_all_of_a_large_debt(law, subject).await;
    a_bucket_has_room_for_what_was_not_used(law, subject).await;
    a_debt_comes_once(law, subject).await;
}

fn owing(debts: impl Into<Vec<u32>>) -> impl FnOnce(&mut Ask) {
    let debts = debts.into();
    |ask| ask.debts = debts
}

async fn a_debt_delays_later_calls(law: Law, subject: &dyn Subject) {
    subject.clock().set(at(0));
    let scope = Some(ScopeId::of(b"merchant"));
    let logs = [log("calls", 10, 1_000_000), Log::new("points", [Term::new(100, 500_000)]).of(scope)];
    let mut desk = Desk::new(law, subject.store(), logs);
    desk.book(1, Run::new(8, [1, 10])).await;
    subject.clock().set(at(400_000));
    let ask = desk.asking(2, vec![Run::new(1, [1, 1])], owing([1, 30]));
    let told = desk.send(&ask).await;
    law.equal(&told.answers, &vec![], "the log of points holds 110 of 100, until its first entries count no more");
    law.equal(&told.next, &at(500_000), "then there is room, in both logs");
    law.equal(&desk.used().await, &vec![9, 110], "beyond the quota");
    subject.clock().set(at(600_000));
    let told = desk.book(2, Run::new(2, [1, 1])).await;
    law.equal(&told.answers, &vec![granted(1, at(600_000))], "one call is left of ten");
    law.equal(&told.next, &at(1_000_000), "the next has to wait until what was booked first counts no more");
    subject.clock().set(at(1_000_000));
    let told = desk.book(2, Run::new(9, [1, 0])).await;
    law.equal(&told.answers, &vec![granted(8, at(1_000_000))], "two of ten still count: the debt and one call");
    law.equal(&told.next, &at(1_400_000), "until the debt does not");
}

async fn a_debt_stands_behind_what_is_booked(law: Law, subject: &dyn Subject) {
    subject.clock().set(at(0));
    let mut desk = Desk::new(law, subject.store(), [log("calls", 2, 200_000)]);
    let told = desk.book(1, Run::new(3, [1])).await;
    law.equal(&told.answers, &vec![granted(2, at(0)), granted(1, at(200_000))], "one is booked ahead");
    let debt = desk.asking(1, vec![], owing([1]));
    desk.send(&debt).await;
    subject.clock().set(at(200_000));
    law.equal(&desk.used().await, &vec![2], "the debt counts from the slot that was booked last");
    subject.clock().set(at(399_999));
    let told = desk.book(1, Run::new(1, [1])).await;
    law.equal(&told.answers, &vec![granted(1, at(400_000))], "as long as that");
}

async fn what_was_not_used_is_free(law: Law, subject: &dyn Subject) {
    subject.clock().set(at(0));
    let mut desk = Desk::new(law, subject.store(), [log("tokens", 100, 1_000_000)]);
    desk.book(1, Run::new(2, [50])).await;
    subject.clock().set(at(300_000));
    let full = desk.book(2, Run::new(1, [30])).await;
    law.equal(&full.next, &at(1_000_000), "nothing is left");
    let ask = desk.asking(1, vec![Run::new(1, [30])], |ask| ask.back = vec![Slots::new(1, at(0), [35])]);
    let told = desk.send(&ask).await;
    law.equal(&told.answers, &vec![granted(1, at(300_000))], "35 of 50 were not used");
    law.equal(&desk.used().await, &vec![95], "the rest still counts");
    desk.hand_back(1, Slots::new(1, at(0), [15])).await;
    law.equal(&desk.used().await, &vec![80], "and can go back, too");
}

async fn units_are_entered_anew(law: Law, subject: &dyn Subject) {
    subject.clock().set(at(0));
    let mut desk = Desk::new(law, subject.store(), [log("tokens", 100, 1_000_000)]);
    desk.book(1, Run::new(1, [60])).await;
    subject.clock().set(at(900_000));
    let ended = desk.asking(1, vec![], |ask| (ask.back, ask.debts) = (vec![Slots::new(1, at(0), [60])], vec![40]));
    desk.send(&ended).await;
    subject.clock().set(at(1_899_999));
    law.equal(&desk.used().await, &vec![40], "it counts from its end on");
    subject.clock().set(at(1_900_000));
    law.equal(&desk.used().await, &vec![0], "for a span");
}

async fn a_large_debt_delays_for_a_span(law: Law, subject: &dyn Subject) {
    for debt in [21, 2_500, 70_000, u32::MAX] {
        subject.clock().set(at(0));
        let two = Log::new("tokens", [Term::new(20, 1_000_000), Term::new(5, 50_000)]);
        let mut desk = Desk::new(law, subject.store(), [two]);
        let ask = desk.asking(1, vec![Run::new(1, [1])], owing([debt]));
        let told = desk.send(&ask).await;
        law.equal(&told, &Granting::new(at(0), vec![], at(1_000_000)), &format!("a debt of {debt}"));
        subject.clock().set(at(1_000_000));
        let told = desk.book(1, Run::new(5, [1])).await;
        law.equal(&told.answers, &vec![granted(5, at(1_000_000))], &format!("a span later nothing of {debt} is left"));
    }
    subject.clock().set(at(0));
    let mut desk = Desk::new(law, subject.store(), [log("tokens", 20_000, 1_000_000)]);
    let ask = desk.asking(1, vec![], owing([7_003]));
    desk.send(&ask).await;
    let told = desk.book(1, Run::new(1, [12_997]).max_wait(Duration::ZERO)).await;
    law.equal(&told.answers, &vec![granted(1, at(0))], "it is no more than it is");
    law.equal(&desk.used().await, &vec![20_000], "nor less");
}

async fn a_bucket_pays_off_all_of_a_large_debt(law: Law, subject: &dyn Subject) {
    let bucket = |units: i64| Term::bucket(Bucket::new(100_000_000, units * 100_000_000));
    for (debt, next) in [(5, 100_000), (6, 200_000), (40, 3_600_000), (72_000, 7_199_600_000)] {
        subject.clock().set(at(0));
        let mut desk = Desk::new(law, subject.store(), [Log::new("tokens", [Term::new(9, 300_000), bucket(5)])]);
        desk.horizon = Duration::ZERO;
        let ask = desk.asking(1, vec![Run::new(1, [1])], owing([debt]));
        let told = desk.send(&ask).await;
        law.equal(&told.next, &at(next.max(if debt > 8 { 300_000 } else { 0 })), &format!("a debt of {debt} of five"));
        subject.clock().set(at(next - 1));
        let told = desk.book(1, Run::new(1, [2]).max_wait(Duration::ZERO)).await;
        law.equal(
            &told.answers,
            &vec![Answer::refused(1, at(next + 100_000))],
            &format!("until all of {debt} is paid off"),
        );
    }
}

/// Calls of many units each, so that most slots have many newer ones.
async fn a_bucket_has_room_for_what_was_not_used(law: Law, subject: &dyn Subject) {
    let bucket = Term::bucket(Bucket::new(6_000_000, 60_000_000_000));
    let mut desk = Desk::new(law, subject.store(), [Log::new("tokens", [bucket])]);
    desk.horizon = Duration::ZERO;
    let starts = [0, 1_000, 2_000, 3_000, 4_000, 5_000].map(at);
    for start in starts {
        subject.clock().set(start);
        let told = desk.book(1, Run::new(1, [1_500])).await;
        law.equal(&told.answers, &vec![granted(1, start)], "9,000 of 10,000");
    }
    for start in starts {
        desk.hand_back(1, Slots::new(1, start, [1_400])).await;
    }
    subject.clock().set(at(6_000));
    let told = desk.book(1, Run::new(1, [9_400])).await;
    law.equal(&told.answers, &vec![granted(1, at(6_000))], "beside the 600 that were used");
    let told = desk.book(1, Run::new(1, [2])).await;
    law.equal(&told.answers, &vec![], "of which one has drained");
}

async fn a_debt_comes_once(law: Law, subject: &dyn Subject) {
    subject.clock().set(at(0));
    let mut desk = Desk::new(law, subject.store(), [log("calls", 9, 1_000_000)]);
    let ask = desk.asking(1, vec![], owing([3]));
    for now in [0, 1, 999_999] {
        subject.clock().set(at(now));
        desk.send(&ask).await;
        law.equal(&desk.used().await, &vec![3], "in a message that comes again");
    }
}
