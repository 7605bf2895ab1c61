//! The law of lost replies.

use std::time::Duration;

use super::Subject;
use super::desk::{Desk, at, fresh_home, granted, log};
use super::history::History;
use super::law::Law;
use crate::StoreErrorKind;
use crate::ledger::Term;
use crate::ledger::{Ask, Grant, HandBack, Hold, Home, Incident, Learned, Lesson, Report, Run, Slots};

const HISTORIES: u64 = 30;

/// The same message sent twice acts once, whatever it says, and two senders of one name are told so.
///
/// Random histories in which every message comes twice at once and again later: every answer is what it was, and nothing
/// else differs from the history in which it came once. And a message that comes after a later one of its sender does not
/// act at all, for as long as it could do harm.
pub async fn law_11(subject: &dyn Subject) {
    let law = Law::new(11, "the same message sent twice acts once, and two senders of one name are told so");
    for seed in 0..HISTORIES {
        let (store, clock) = (subject.store(), subject.clock());
        let mut history = History { law, store, clock, home: fresh_home(law), seed, shift: 0, twice: false };
        let once = history.tell(async || ()).await;
        (history.home, history.twice) = (fresh_home(law), true);
        let twice = history.tell(async || ()).await;
        law.equal(&twice.said, &once.said, &format!("seed {seed}"));
    }
    an_equal_slot_of_somebody_else_stays(law, subject).await;
    what_comes_after_a_later_message_does_not_act(law, subject).await;
    a_late_copy_takes_nobody_else_s_slot(law, subject).await;
    two_senders_of_one_name_are_told(law, subject).await;
    a_refusal_told_twice_is_one_of_a_row(law, subject).await;
    a_refusal_told_twice_widens_the_guard_once(law, subject).await;
    what_others_use_is_entered_once(law, subject).await;
}

async fn an_equal_slot_of_somebody_else_stays(law: Law, subject: &dyn Subject) {
    subject.clock().set(at(0));
    let mut desk = Desk::new(law, subject.store(), [log("calls", 9, 1_000_000)]);
    desk.book(1, Run::new(2, [1])).await;
    desk.book(2, Run::new(2, [1])).await;
    let message = desk.returning(1, vec![Slots::new(1, at(0), [1])]);
    for _ in 0..3 {
        desk.send_back(&message).await;
        law.equal(&desk.used().await, &vec![3], "one slot was handed back, in a message that comes again");
    }
    subject.clock().set(at(999_999));
    desk.send_back(&message).await;
    law.equal(&desk.used().await, &vec![3], "it is remembered for as long as a slot counts");
}

async fn what_comes_after_a_later_message_does_not_act(law: Law, subject: &dyn Subject) {
    subject.clock().set(at(0));
    let mut desk = Desk::new(law, subject.store(), [log("calls", 9, 1_000_000)]);
    let early_ask = desk.ask(1, vec![Run::new(1, [1])]);
    let early_return = desk.returning(1, vec![Slots::new(1, at(0), [1])]);
    let late_ask = desk.ask(1, vec![Run::new(2, [1])]);
    let grant = desk.send(&late_ask).await;
    law.equal(&grant, &Grant::new(at(0), vec![granted(2, at(0))], at(0)), "two slots");
    subject.clock().set(at(500));
    let outdated = Err(StoreErrorKind::Outdated);
    let answer = subject.store().book(&early_ask).await.map_err(|error| error.kind());
    law.equal(&answer, &outdated, "an ask after a later message");
    let answer = subject.store().hand_back(&early_return).await.map_err(|error| error.kind());
    law.equal(&answer, &outdated.map(drop), "a hand-back after a later message");
    law.equal(&desk.used().await, &vec![2], "neither acted");
    let again = Grant { now: at(500), ..grant };
    law.equal(&desk.send(&late_ask).await, &again, "the later message still has its answer");
    let other = desk.book(2, Run::new(1, [1]).max_wait(Duration::ZERO)).await;
    law.equal(&other.answers, &vec![granted(1, at(500))], "each sender has a stream of its own");
}

async fn a_late_copy_takes_nobody_else_s_slot(law: Law, subject: &dyn Subject) {
    subject.clock().set(at(0));
    let mut desk = Desk::new(law, subject.store(), [log("calls", 2, 100_000)]);
    desk.book(9, Run::new(2, [1])).await;
    for sender in [1, 2] {
        let grant = desk.book(sender, Run::new(1, [1])).await;
        law.equal(&grant.answers, &vec![granted(1, at(100_000))], "two equal slots");
    }
    let message = desk.returning(1, vec![Slots::new(1, at(100_000), [1])]);
    desk.send_back(&message).await;
    // Of a slot long past: by itself it need not be remembered.
    desk.hand_back(1, Slots::new(1, at(-999_000), [1])).await;
    subject.clock().set(at(150_000));
    // Outdated or acted upon already: the sender learns nothing new either way.
    let _ = subject.store().hand_back(&message).await;
    law.equal(&desk.used().await, &vec![1], "the slot of another sender, after a late copy");
}

async fn a_refusal_told_twice_is_one_of_a_row(law: Law, subject: &dyn Subject) {
    subject.clock().set(at(0));
    let ms = Duration::from_millis;
    let mut desk = Desk::new(law, subject.store(), [log("calls", 9, 1_000_000)]);
    let mut hold = Hold::new(ms(10));
    (hold.waits, hold.memory) = (vec![ms(10), ms(20), ms(40)], ms(900));
    let [early, first, second] = [desk.id(1), desk.id(1), desk.id(1)];
    // Of a stream of their own: a later ask does not make a hold outdated.
    desk.book(1, Run::new(1, [1])).await;
    for (now, wait) in [(0, 10), (4_000, 6), (15_000, 0)] {
        subject.clock().set(at(now));
        law.equal(&desk.send_hold(first, &hold).await, &Incident::new(ms(wait), true), "the answer is the same");
    }
    law.equal(&desk.usage().await[0].terms[0].next, &Duration::ZERO, "the hold is over, and no other has begun");
    for _ in 0..2 {
        law.equal(&desk.send_hold(second, &hold).await, &Incident::new(ms(20), true), "the next of the row");
    }
    for outdated in [early, first] {
        let answer = subject.store().hold(&desk.home, outdated, &hold).await.map_err(|error| error.kind());
        law.equal(&answer, &Err(StoreErrorKind::Outdated), "a hold after a later one");
    }
    let other = desk.id(2);
    law.equal(&desk.send_hold(other, &hold).await, &Incident::new(ms(20), false), "each sender has its own stream");
}

async fn a_refusal_told_twice_widens_the_guard_once(law: Law, subject: &dyn Subject) {
    subject.clock().set(at(0));
    let upstream = format!("conformance-law-11-{:016x}", fastrand::u64(..));
    for scope in [None, Some("scope")] {
        let home = Home::new(&format!("{upstream}-{}", scope.unwrap_or_default()), scope);
        let mut desk = Desk::at(law, subject.store(), home, [log("calls", 9, 1_000_000)]);
        subject.clock().set(at(0));
        let refused = Lesson { refused: true, memory: Duration::from_secs(10), ..Lesson::default() };
        let [early, first, second, silent] = [desk.id(1), desk.id(1), desk.id(1), desk.id(2)];
        desk.book(1, Run::new(1, [1])).await;
        for (id, now, widened) in [(first, 0, 50), (first, 5_000, 50), (second, 1_000_000, 90), (second, 1_000_001, 90)]
        {
            subject.clock().set(at(now));
            let learned = desk.send_lesson(id, &refused).await;
            law.equal(&learned, &Learned::new(0, widened), &format!("at {now}, {scope:?}"));
        }
        let now = desk.send_lesson(silent, &Lesson::default()).await;
        law.equal(&now.widened, &89, "nothing but what was answered has happened");
        let answer = subject.store().learn(&desk.home, early, &desk.logs[0], &refused).await;
        let answer = answer.map_err(|error| error.kind());
        law.equal(&answer, &Err(StoreErrorKind::Outdated), "a lesson after a later one");
    }
}

async fn what_others_use_is_entered_once(law: Law, subject: &dyn Subject) {
    subject.clock().set(at(0));
    let mut desk = Desk::new(law, subject.store(), [log("calls", 16, 160_000)]);
    let report = Report::new(Term::new(16, 160_000), Duration::from_millis(150), 8, Duration::from_millis(50));
    let lesson = Lesson { reports: vec![report], ..Lesson::default() };
    let id = desk.id(1);
    let learned = desk.send_lesson(id, &lesson).await;
    law.holds(learned.foreign >= 8, "eight that are not ours are missing");
    for now in [0, 30_000, 59_999, 70_000] {
        subject.clock().set(at(now));
        law.equal(&desk.send_lesson(id, &lesson).await, &learned, "the answer is the same");
    }
    let foreign = desk.usage().await[0].terms[0].foreign;
    law.equal(&foreign, &0, "a message that comes again lengthens nothing");
}

async fn two_senders_of_one_name_are_told(law: Law, subject: &dyn Subject) {
    subject.clock().set(at(0));
    let mut desk = Desk::new(law, subject.store(), [log("calls", 9, 1_000_000)]);
    let mut ask = |previous| Ask { previous, ..desk.ask(1, vec![Run::new(1, [1])]) };
    let first = ask(0);
    let [second, clone] = [ask(first.number), ask(first.number)];
    let [third, unsure] = [ask(second.number), ask(0)];
    let back = HandBack { previous: first.number, ..desk.returning(1, vec![Slots::new(1, at(0), [1])]) };
    desk.send(&first).await;
    let granted = desk.send(&second).await;
    let duplicate = Err(StoreErrorKind::Duplicate);
    let answer = subject.store().book(&clone).await.map_err(|error| error.kind());
    law.equal(&answer, &duplicate, "an ask after a message that its sender knows nothing of");
    let answer = subject.store().hand_back(&back).await.map_err(|error| error.kind());
    law.equal(&answer, &duplicate.map(drop), "a hand-back after a message that its sender knows nothing of");
    law.equal(&desk.used().await, &vec![2], "neither acted");
    law.equal(&desk.send(&second).await, &granted, "a message that comes again has its answer");
    desk.send(&third).await;
    desk.send(&unsure).await;
    law.equal(&desk.used().await, &vec![4], "who knows of the last message, or of none, goes on");
    subject.clock().set(at(61_000_000));
    let late = Ask { previous: first.number, ..desk.ask(1, vec![Run::new(1, [1])]) };
    desk.send(&late).await;
    law.equal(&desk.used().await, &vec![1], "what is forgotten is no other's");
}
