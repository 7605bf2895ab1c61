//! The law of clocks that step.

use std::time::Duration;

use super::Subject;
use super::desk::{Desk, Granting, at, granted, log};
use super::law::Law;
use crate::ledger::{Boundary, Calendar, Log, Message, Run, Slots, Term};

/// Log time is never earlier than what a message knows of it, and no later than a message says that it is at the latest, however
/// the store's clock steps; what is known counts more.
pub async fn law_13(subject: &dyn Subject) {
    let law = Law::new(13, "log time is as messages know it, however the clock steps");
    steps_back_are_made_up_for(law, subject).await;
    leaps_ahead_are_taken_back(law, subject).await;
    who_names_calendar_windows_is_told_what_the_clock_shows(law, subject).await;
}

async fn steps_back_are_made_up_for(law: Law, subject: &dyn Subject) {
    for step in [-50_000, -200_000, -10_000_000, -3_600_000_000] {
        subject.clock().set(at(0));
        let mut desk = Desk::new(law, subject.store(), [log("calls", 3, 1_000_000)]);
        let before = desk.book(1, Run::new(2, [1])).await;
        subject.clock().set(at(step));
        let ask = Message { known: Some(before.now), ..desk.ask(2, vec![Run::new(2, [1])]) };
        let grant = Granting::new(at(0), vec![granted(1, at(0))], at(1_000_000));
        law.equal(&desk.send(&ask).await, &grant, "time goes on from where it was");
        subject.clock().set(at(step + 400_000));
        law.equal(&desk.used().await, &vec![3], "who knows of nothing is told the same time");
        let grant = desk.book(3, Run::new(1, [1]).max_wait(Duration::ZERO)).await;
        law.equal(&grant.now, &at(400_000), "from then on without being told again");
    }
}

async fn leaps_ahead_are_taken_back(law: Law, subject: &dyn Subject) {
    subject.clock().set(at(0));
    let mut desk = Desk::new(law, subject.store(), [log("calls", 2, 1_000_000)]);
    let before = desk.book(1, Run::new(2, [1])).await;
    subject.clock().set(at(10_100_000));
    let leapt = desk.book(1, Run::new(1, [1])).await;
    law.equal(&leapt.now, &at(10_100_000), "a store cannot tell a leap from time that has passed");
    let back = vec![Slots::new(1, at(10_100_000), [1])];
    let ask = desk.asking(1, vec![Run::new(1, [1])], |ask| ask.back = back);
    let ask = Message { known: Some(before.now), latest: Some(at(100_000)), ..ask };
    let grant = Granting::new(at(100_000), vec![], at(1_000_000));
    law.equal(&desk.send(&ask).await, &grant, "it is told, and takes the leap back");
    subject.clock().set(at(11_000_000));
    let grant = desk.book(2, Run::new(1, [1])).await;
    law.equal(&grant.answers, &vec![granted(1, at(1_000_000))], "and time goes on from there");
    let ask = Message { known: Some(at(5_000_000)), latest: Some(at(4_000_000)), ..desk.ask(1, vec![]) };
    law.equal(&desk.send(&ask).await.now, &at(5_000_000), "what is known counts more than what is the latest");
}

async fn who_names_calendar_windows_is_told_what_the_clock_shows(law: Law, subject: &dyn Subject) {
    const SECOND: i64 = 1_000_000;
    // Two units a second, by the clock that shows so many.
    let named = |clock: i64| {
        let begins = [-1, 0, 1, 2].map(|seconds| at((clock + seconds) * SECOND));
        let calendar = Calendar::new(10_000, begins.map(|begins| Boundary::new(begins, begins)));
        [Log::new("calls", [Term::calendar(2, 2 * SECOND, calendar)])]
    };
    subject.clock().set(at(SECOND / 2));
    let mut desk = Desk::new(law, subject.store(), named(0));
    law.equal(&desk.grant_of(1, 1, None).await, &(1, 0), "it shows log time");
    // By three windows and a half.
    subject.clock().set(at(-3 * SECOND));
    let known = Some(at(SECOND / 2));
    law.equal(&desk.grant_of(1, 1, known).await, &(0, 3_500_000), "none of these boundaries is near");
    desk.logs = named(-3).into();
    law.equal(
        &desk.grant_of(1, 3, known).await,
        &(1, 3_500_000),
        "around what it shows now they are: the first counts",
    );
    law.equal(&desk.grant_of(1, 3, known).await, &(0, 3_500_000), "two in this window");
    subject.clock().set(at(-2 * SECOND + 10_000));
    desk.logs = named(-2).into();
    law.equal(&desk.grant_of(1, 3, None).await, &(2, 3_500_000), "and two in the next, all of whom start now");
    desk.logs = [log("calls", 9, SECOND)].into();
    law.equal(&desk.grant_of(2, 1, None).await.1, &0, "of others it is not told");
}
