//! The law of lost data.

use super::Subject;
use super::desk::{Desk, at, granted, log};
use super::law::Law;
use crate::ledger::{Ask, BEYOND, Log, Remembered, Run, Stamp, Term};

const SPAN: i64 = 300_000;
/// The most that is booked ahead.
const HORIZON: i64 = 250_000;

/// Where a store does not hold what an ask says that it must, nobody starts until all that may be missing counts no more.
///
/// A log that nobody remembers costs no wait.
pub async fn law_20(subject: &dyn Subject) {
    let law = Law::new(20, "nobody starts until all that may be missing counts no more");
    what_is_held_costs_no_wait(law, subject).await;
    what_is_missing_delays_everybody_by_a_span(law, subject).await;
    only_short_windows_are_waited_for(law, subject).await;
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
        let log = Log::new("calls", [Term::new(500, 3_600_000_000), Term::new(5, SPAN)]);
        let mut desk = Desk::new(law, subject.store(), [log]);
        let ask = desk.asking(1, vec![Run::new(1, [1])], remembering(number, at(-1), newest));
        let told = desk.send(&ask).await;
        let expected = (vec![], at(HORIZON + SPAN));
        law.equal(&(told.answers, told.next), &expected, &format!("{what} is missing of a log with two windows"));
    }
}
