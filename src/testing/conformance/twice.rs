//! The law of lost replies.

use std::time::Duration;

use super::Subject;
use super::desk::{Desk, Granting, at, granted, log};
use super::law::Law;
use super::telling::Telling;
use crate::ledger::{Message, Pause, Paused, QuotaReport, Report, Run, Slots, Term};
use crate::store::StoreErrorKind::{Duplicate, Outdated};

const HISTORIES: u64 = 30;

/// The same message sent twice acts once, whatever it says, and two senders of one name are told so.
///
/// Random histories in which every message comes twice at once and again later: every answer is what it was, and nothing
/// else differs from the history in which it came once. And a message that comes after a later one of its sender does not
/// act at all, for as long as it could do harm.
pub async fn law_11(subject: &dyn Subject) {
    let law = Law::new(11, "the same message sent twice acts once, and two senders of one name are told so");
    for seed in 0..HISTORIES {
        let telling = Telling::new(law, subject, seed);
        let once = telling.tell(async || ()).await;
        let twice = Telling { twice: true, ..telling }.tell(async || ()).await;
        law.equal(&twice, &once, &format!("seed {seed}"));
    }
    an_equal_slot_of_somebody_else_stays(law, subject).await;
    what_comes_after_a_later_message_does_not_act(law, subject).await;
    a_late_copy_takes_nobody_else_s_slot(law, subject).await;
    two_senders_of_one_name_are_told(law, subject).await;
    a_refusal_told_twice_is_one_of_a_row(law, subject).await;
    outside_use_is_entered_once(law, subject).await;
}

async fn an_equal_slot_of_somebody_else_stays(law: Law, subject: &dyn Subject) {
    subject.clock().set(at(0));
    let mut desk = Desk::new(law, subject.store(), [log("calls", 9, 1_000_000)]);
    desk.book(1, Run::new(2, [1])).await;
    desk.book(2, Run::new(2, [1])).await;
    let message = desk.returning(1, Slots::new(1, at(0), [1]));
    for _ in 0..3 {
        desk.send(&message).await;
        law.equal(&desk.used().await, &vec![3], "one slot was handed back, in a message that comes again");
    }
    subject.clock().set(at(999_999));
    desk.send(&message).await;
    law.equal(&desk.used().await, &vec![3], "it is remembered for as long as a slot counts");
}

async fn what_comes_after_a_later_message_does_not_act(law: Law, subject: &dyn Subject) {
    subject.clock().set(at(0));
    let mut desk = Desk::new(law, subject.store(), [log("calls", 9, 1_000_000)]);
    let early_ask = desk.ask(1, vec![Run::new(1, [1])]);
    let early_return = desk.returning(1, Slots::new(1, at(0), [1]));
    let late_ask = desk.ask(1, vec![Run::new(2, [1])]);
    let grant = desk.send(&late_ask).await;
    law.equal(&grant, &Granting::new(at(0), vec![granted(2, at(0))], at(0)), "two slots");
    subject.clock().set(at(500));
    law.equal(&desk.refused(&early_ask).await, &Some(Outdated), "an ask after a later message");
    law.equal(&desk.refused(&early_return).await, &Some(Outdated), "a hand-back after a later message");
    law.equal(&desk.used().await, &vec![2], "neither acted");
    let again = Granting { now: at(500), next: at(500), ..grant };
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
    let message = desk.returning(1, Slots::new(1, at(100_000), [1]));
    desk.send(&message).await;
    // Of a slot long past: by itself it need not be remembered.
    desk.hand_back(1, Slots::new(1, at(-999_000), [1])).await;
    subject.clock().set(at(150_000));
    // Outdated or acted upon already: the sender learns nothing new either way.
    desk.refused(&message).await;
    law.equal(&desk.used().await, &vec![1], "the slot of another sender, after a late copy");
}

async fn a_refusal_told_twice_is_one_of_a_row(law: Law, subject: &dyn Subject) {
    subject.clock().set(at(0));
    let ms = Duration::from_millis;
    let mut desk = Desk::new(law, subject.store(), [log("calls", 9, 1_000_000)]);
    let mut pause = Pause::new(ms(10));
    (pause.waits, pause.memory) = (vec![ms(10), ms(20), ms(40)], ms(900));
    let [early, first, second] = [(); 3].map(|()| desk.pausing(1, None, pause.clone()));
    // Of a stream of their own: a later ask does not make a pause outdated.
    desk.book(1, Run::new(1, [1])).await;
    for now in [0, 4_000, 15_000] {
        subject.clock().set(at(now));
        let paused = Paused::new(at(now), at(10_000), true);
        law.equal(&desk.paused(&first).await, &paused, "the answer is the same");
    }
    law.equal(&desk.usage().await[0].terms[0].next, &Duration::ZERO, "the pause is over, and no other has begun");
    let paused = |first| Paused::new(at(15_000), at(35_000), first);
    for _ in 0..2 {
        law.equal(&desk.paused(&second).await, &paused(true), "the next of the row");
    }
    for outdated in [early, first] {
        law.equal(&desk.refused(&outdated).await, &Some(Outdated), "a pause after a later one");
    }
    let other = desk.pausing(2, None, pause);
    law.equal(&desk.paused(&other).await, &paused(false), "each sender has its own stream");
}

async fn outside_use_is_entered_once(law: Law, subject: &dyn Subject) {
    subject.clock().set(at(0));
    let mut desk = Desk::new(law, subject.store(), [log("calls", 16, 160_000)]);
    let quota = QuotaReport::new(Term::new(16, 160_000), Duration::from_millis(150), 8, Duration::from_millis(50));
    let [early, message] = [(); 2].map(|()| desk.reporting(1, Report { quotas: vec![quota], ..Report::default() }));
    let learned = desk.learned(&message).await;
    law.holds(learned.outside >= 8, "eight that are not ours are missing");
    for now in [0, 30_000, 59_999, 70_000] {
        subject.clock().set(at(now));
        law.equal(&desk.learned(&message).await, &learned, "the answer is the same");
    }
    let outside = desk.usage().await[0].terms[0].outside;
    law.equal(&outside, &0, "a message that comes again lengthens nothing");
    law.equal(&desk.refused(&early).await, &Some(Outdated), "a report after a later one");
}

async fn two_senders_of_one_name_are_told(law: Law, subject: &dyn Subject) {
    subject.clock().set(at(0));
    let mut desk = Desk::new(law, subject.store(), [log("calls", 9, 1_000_000)]);
    let mut ask = |previous| after(previous, desk.ask(1, vec![Run::new(1, [1])]));
    let first = ask(0);
    let [second, clone] = [ask(first.id.number), ask(first.id.number)];
    let [third, unsure] = [ask(second.id.number), ask(0)];
    let back = after(first.id.number, desk.returning(1, Slots::new(1, at(0), [1])));
    desk.send(&first).await;
    let grant = desk.send(&second).await;
    let answer = desk.refused(&clone).await;
    law.equal(&answer, &Some(Duplicate), "an ask after a message that its sender knows nothing of");
    let answer = desk.refused(&back).await;
    law.equal(&answer, &Some(Duplicate), "a hand-back after a message that its sender knows nothing of");
    law.equal(&desk.used().await, &vec![2], "neither acted");
    law.equal(&desk.send(&second).await, &grant, "a message that comes again has its answer");
    desk.send(&third).await;
    desk.send(&unsure).await;
    law.equal(&desk.used().await, &vec![4], "who knows of the last message, or of none, goes on");
    subject.clock().set(at(61_000_000));
    let late = after(first.id.number, desk.ask(1, vec![Run::new(1, [1])]));
    desk.send(&late).await;
    law.equal(&desk.used().await, &vec![1], "what is forgotten is no other's");
}

/// A message of a sender that knows this one to be its last.
fn after(previous: u64, message: Message) -> Message {
    Message { id: message.id.after(previous), ..message }
}
