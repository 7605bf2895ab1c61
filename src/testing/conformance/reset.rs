//! The law of what is forgotten by hand.

use std::sync::Arc;
use std::time::Duration;

use super::Subject;
use super::desk::{Desk, at, granted, log};
use super::law::Law;
use crate::ledger::{Body, Log, Message, Pause, QuotaReport, Remembered, Reply, Run, ScopeId, Slots};

const SPAN: i64 = 300_000;

/// What counted in the logs that a reset names is not counted any more, nor what was learned of them; all else stays, and nothing is lost.
pub async fn law_21(subject: &dyn Subject) {
    let law = Law::new(21, "what a reset names counts no more, all else stays, and nothing is taken for lost");
    for scope in [None, Some(ScopeId::of(b"a"))] {
        what_is_named_counts_no_more(law, subject, scope).await;
        what_is_remembered_is_not_lost(law, subject, scope).await;
        what_was_learned_is_forgotten(law, subject, scope).await;
    }
}

fn reset(desk: &mut Desk<'_>, scope: Option<ScopeId>, units: &[&str]) -> Message {
    let units = units.iter().map(|&unit| Arc::from(unit)).collect();
    desk.message(7, "reset", Body::Reset { scope, units })
}

async fn what_is_named_counts_no_more(law: Law, subject: &dyn Subject, scope: Option<ScopeId>) {
    subject.clock().set(at(0));
    let other = if scope.is_none() { Some(ScopeId::of(b"b")) } else { None };
    let mut logs: Vec<Log> =
        vec![log("calls", 2, SPAN).of(scope), log("points", 2, SPAN).of(scope), log("calls", 2, SPAN).of(other)];
    logs.sort_by_key(|log| log.scope);
    let place = |unit: &str, scope| logs.iter().position(|log| log.name() == (unit, scope)).unwrap_or(0);
    let (named, mut left) = (place("calls", scope), vec![2; 3]);
    let mut desk = Desk::new(law, subject.store(), logs.clone());
    desk.book(1, Run::new(2, [1, 1, 1])).await;
    let message = reset(&mut desk, scope, &["calls", "nothing"]);
    subject.clock().set(at(1_000));
    law.holds(matches!(desk.apply(&message).await, Reply::Done(_)), "it is done");
    left[named] = 0;
    law.equal(&desk.used().await, &left, "the one log is empty, and no other");

    let mut alone = Desk::at(law, subject.store(), Arc::clone(&desk.upstream), [logs[named].clone()]);
    law.equal(&alone.book(2, Run::new(2, [1])).await.answers, &vec![granted(2, at(1_000))], "as much as is allowed");
    law.holds(matches!(desk.apply(&message).await, Reply::Done(_)), "a message that comes again");
    left[named] = 2;
    law.equal(&desk.used().await, &left, "has acted once");
    desk.hand_back(1, Slots::new(2, at(0), (0..3).map(|at| u32::from(at == named)).collect::<Vec<_>>())).await;
    law.equal(&desk.used().await, &left, "what is forgotten is nobody's to hand back");
    law.equal(&alone.book(2, Run::new(1, [1])).await.next, &at(1_000 + SPAN), "and the law holds again");
}

async fn what_is_remembered_is_not_lost(law: Law, subject: &dyn Subject, scope: Option<ScopeId>) {
    subject.clock().set(at(0));
    let mut desk = Desk::new(law, subject.store(), [log("calls", 2, SPAN).of(scope)]);
    let first = desk.ask(1, vec![Run::new(2, [1])]);
    desk.send(&first).await;
    subject.clock().set(at(100_000));
    let ahead = desk.book(3, Run::new(2, [1])).await;
    law.equal(&ahead.answers, &vec![granted(2, at(SPAN))], "booked ahead");
    let message = reset(&mut desk, scope, &["calls"]);
    desk.apply(&message).await;
    subject.clock().set(at(110_000));
    for (sender, newest) in [(1, at(0)), (3, at(SPAN))] {
        let remembered = Remembered::new(0, at(50_000), [newest]);
        let ask = desk.asking(sender, vec![Run::new(1, [1])], |ask| ask.remembered = remembered);
        let told = desk.send(&ask).await;
        law.equal(&told.answers, &vec![granted(1, at(110_000))], "nobody waits for what is forgotten");
    }
    let remembered = Remembered::new(0, at(400_000), [at(400_000)]);
    subject.clock().set(at(420_000));
    let ask = desk.asking(1, vec![Run::new(1, [1])], |ask| ask.remembered = remembered);
    law.holds(desk.grant(&ask).await.lost, "what is missing of later is lost");
}

async fn what_was_learned_is_forgotten(law: Law, subject: &dyn Subject, scope: Option<ScopeId>) {
    subject.clock().set(at(0));
    let mut desk = Desk::new(law, subject.store(), [log("calls", 2, SPAN).of(scope)]);
    let quota = QuotaReport::new(desk.logs[0].terms[0], Duration::from_millis(280), 0, Duration::from_millis(200));
    desk.report(quota).await;
    let owing = desk.asking(1, vec![], |ask| ask.debts = vec![900]);
    desk.send(&owing).await;
    let slow = Body::SlowDown { scope, factor: 500_000, lasting: Duration::from_secs(9) };
    let slow = desk.message(7, "hand", slow);
    desk.apply(&slow).await;
    desk.pause(Duration::from_millis(50)).await;
    let message = reset(&mut desk, scope, &["calls"]);
    desk.apply(&message).await;
    let pause = desk.pausing(1, scope, Pause::new(Duration::from_millis(1)));
    let paused = desk.paused(&pause).await;
    law.equal(&paused.until, &at(50_000), "a pause stays");
    subject.clock().set(at(250_000));
    let told = desk.book(1, Run::new(2, [1])).await;
    law.equal(
        &told.answers,
        &vec![granted(1, at(250_000))],
        "so does what somebody slows down by hand, and nothing else",
    );
}
