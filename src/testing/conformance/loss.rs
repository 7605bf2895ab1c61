//! The law of lost data.

use std::time::Duration;

use super::Subject;
use super::desk::{Desk, at, granted, log};
use super::law::Law;
use crate::ledger::{Again, Answer, Ask, BEYOND, Log, Remembered, Run, Slots, Stamp, Term};

const SPAN: i64 = 300_000;
/// The most that is booked ahead.
const HORIZON: i64 = 250_000;

/// Where a store does not hold what an ask says that it must, nobody starts until all that may be missing has left its window.
///
/// A log that nobody remembers costs no wait.
pub async fn law_20(subject: &dyn Subject) {
    let law = Law::new(20, "nobody starts until all that may be missing counts no more");
    what_is_held_costs_no_wait(law, subject).await;
    what_is_missing_delays_everybody_by_a_span(law, subject).await;
    only_short_windows_are_waited_for(law, subject).await;
    what_counts_for_long_is_entered_again(law, subject).await;
}

fn remembering(number: u64, told: Stamp, newest: impl Into<Vec<Stamp>>) -> impl FnOnce(&mut Ask) {
    let remembered = Remembered::new(number, told, newest);
    |ask| ask.remembered = remembered
}

async fn what_is_held_costs_no_wait(law: Law, subject: &dyn Subject) {
    subject.clock().set(at(0));
    let mut desk = Desk::new(law, subject.store(), [log("calls", 5, SPAN)]);
    let first = desk.asking(1, vec![Run::new(2, [1])], |_| ());
    law.equal(&desk.send(&first).await.answers, &vec![granted(2, at(0))], "nobody remembers anything");
    subject.clock().set(at(100_000));
    let ask = desk.asking(1, vec![Run::new(1, [1])], remembering(first.id.number, at(0), [at(0)]));
    law.equal(&desk.send(&ask).await.answers, &vec![granted(1, at(100_000))], "all is there");
    subject.clock().set(at(200_000));
    let ask = desk.asking(2, vec![Run::new(1, [1])], remembering(0, at(0), [at(50_000)]));
    law.equal(&desk.send(&ask).await.answers, &vec![granted(1, at(200_000))], "later entries are there");
    subject.clock().set(at(600_000));
    let ask = desk.asking(2, vec![Run::new(1, [1])], remembering(0, at(0), [at(300_000)]));
    law.equal(&desk.send(&ask).await.answers, &vec![granted(1, at(600_000))], "it counts no more");
    subject.clock().set(at(7_000_000));
    let ask = desk.asking(3, vec![Run::new(1, [1])], remembering(1, at(7_000_000 - SPAN - BEYOND), []));
    law.equal(&desk.send(&ask).await.answers, &vec![granted(1, at(7_000_000))], "it may be forgotten by now");
}

async fn what_is_missing_delays_everybody_by_a_span(law: Law, subject: &dyn Subject) {
    for (what, number, newest) in [("a message", 1, vec![]), ("an entry", 0, vec![at(-1)])] {
        subject.clock().set(at(0));
        let mut desk = Desk::new(law, subject.store(), [log("calls", 5, SPAN)]);
        desk.book(3, Run::new(1, [1])).await;
        let newest = newest.into_iter().map(|stamp: Stamp| stamp.plus(100_001)).collect::<Vec<_>>();
        subject.clock().set(at(100_000));
        let until = at(100_000 + HORIZON + SPAN);
        let ask = desk.asking(1, vec![Run::new(1, [1])], remembering(number, at(50_000), newest.clone()));
        let told = desk.send(&ask).await;
        law.equal(&(told.answers, told.next), &(vec![], until), &format!("{what} is missing"));
        subject.clock().set(at(200_000));
        let told = desk.book(2, Run::new(1, [1])).await;
        law.equal(&(told.answers, told.next), &(vec![], until), &format!("{what} is missing, and others wait"));
        let ask = desk.asking(4, vec![Run::new(1, [1])], remembering(number, at(60_000), newest));
        law.equal(&desk.send(&ask).await.next, &until, "the same loss makes nobody wait for longer");
        subject.clock().set(until);
        let told = desk.book(2, Run::new(1, [1])).await;
        law.equal(&told.answers, &vec![granted(1, until)], "then calls go on");
    }
}

async fn only_short_windows_are_waited_for(law: Law, subject: &dyn Subject) {
    for (what, number, newest) in [("a message", 1, vec![]), ("an entry", 0, vec![at(-1)])] {
        subject.clock().set(at(0));
        let log = Log::new("calls", [Term::new(500, 3_600_000_000), Term::new(5, 30 * SPAN)]);
        let mut desk = Desk::new(law, subject.store(), [log]);
        let ask = desk.asking(1, vec![Run::new(1, [1])], remembering(number, at(-1), newest));
        let told = desk.send(&ask).await;
        let expected = (vec![], at(HORIZON + 30 * SPAN));
        law.equal(&(told.answers, told.next), &expected, &format!("{what} is missing of a log with two windows"));
    }
}

/// Two processes were granted three and two of five an hour.
async fn what_counts_for_long_is_entered_again(law: Law, subject: &dyn Subject) {
    const HOUR: i64 = 3_600_000_000;
    const SETTLED: i64 = 6_000_000;
    subject.clock().set(at(0));
    let mut desk = Desk::new(law, subject.store(), [log("calls", 5, HOUR)]);
    let ask = desk.asking(1, Vec::new(), remembering(1, at(-1), [at(50_000)]));
    let told = desk.grant(&ask).await;
    law.equal(&(told.lost, told.loss), &(true, Some(Box::new((at(0), 0)))), "who finds it is told");
    subject.clock().set(at(1_000));
    let ask = desk.asking(2, vec![Run::new(1, [1]).max_wait(Duration::ZERO)], remembering(0, at(0), []));
    let told = desk.grant(&ask).await;
    let refused = vec![Answer::refused(1, at(SETTLED))];
    law.equal(&(told.answers, told.loss), &(refused, Some(Box::new((at(0), 0)))), "others are told, and nobody starts");

    let again = |heard, steps: Vec<Slots>| {
        move |ask: &mut Ask| {
            ask.remembered = Remembered::new(0, at(0), [at(50_000)]);
            ask.again = Some(Again::new(heard, at(0), steps));
        }
    };
    let steps = vec![Slots::new(1, at(-HOUR), [9]), Slots::new(1, at(-1_000_000), [1]), Slots::new(1, at(50_000), [1])];
    let ask = desk.asking(1, Vec::new(), again(Stamp::from_micros(0), steps));
    for _ in 0..2 {
        let told = desk.grant(&ask).await;
        law.equal(&(told.loss, told.remembered), &(None, true), "it says what it was granted, and acts once");
    }
    let back = vec![Slots::new(1, at(50_000), [1])];
    let ask = desk.asking(2, Vec::new(), |ask| ask.back = back);
    law.equal(&desk.grant(&ask).await.loss, &Some(Box::new((at(0), 0))), "who has not is told so");
    subject.clock().set(at(SETTLED));
    let ask = desk.asking(1, vec![Run::new(4, [1])], again(at(0), Vec::new()));
    let told = desk.grant(&ask).await;
    law.equal(&told.answers, &vec![granted(3, at(SETTLED))], "what is left, and nothing of others is handed back");
    law.equal(&(told.next, told.loss), &(at(HOUR - 1_000_000), None), "a call from before the loss counts as ever");

    subject.clock().set(at(SETTLED + 1_000));
    let late = again(Stamp::from_micros(0), vec![Slots::new(1, at(-2_000_000), [1])]);
    let ask = desk.asking(3, Vec::new(), late);
    desk.grant(&ask).await;
    let ask = desk.asking(1, vec![Run::new(1, [1])], again(at(0), Vec::new()));
    let told = desk.grant(&ask).await;
    law.equal(&told.next, &at(HOUR - 1_000_000), "late, and beyond the quota");
}
