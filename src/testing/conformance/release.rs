//! The laws of what ends a pause before its time, and of lowered quotas.

use std::time::Duration;

use super::Subject;
use super::desk::{Desk, at, granted, log};
use super::law::Law;
use crate::ledger::{Answer, Body, Bucket, Cause, Evidence, Log, Pause, Reply, Run, ScopeId, Stamp, Term, Verdict};

const SECOND: Duration = Duration::from_secs(1);

/// A release ends pauses and lowered quotas, and voids what was told before it. After a pause that is shorter than was told exactly
/// one call looks whether it still holds; if that was served, the pause is over.
pub async fn law_15(subject: &dyn Subject) {
    let law = Law::new(15, "a release ends what was imposed before it; exactly one call looks after the longest pause");
    let scope = Some(ScopeId::of(b"a"));
    let logs: [Log; 2] = [log("calls", 9, 100_000), log("calls", 9, 100_000).of(scope)];
    for released in [None, scope] {
        subject.clock().set(at(0));
        let mut desk = Desk::new(law, subject.store(), logs.clone());
        let pause = desk.pausing(1, released, Pause::new(60 * SECOND));
        desk.paused(&pause).await;
        subject.clock().set(at(1_000));
        let grant = desk.book(2, Run::new(1, [1, 1])).await;
        law.equal(&grant.next, &at(60_000_000), "everybody waits");
        release(&mut desk, released, None).await;
        let grant = desk.book(2, Run::new(1, [1, 1])).await;
        law.equal(&grant.answers, &vec![granted(1, at(1_000))], "the pause is over");
        let late = desk.pausing(1, scope, Pause { started: Some(at(999)), ..Pause::new(60 * SECOND) });
        law.equal(&desk.paused(&late).await.wait(), &Duration::ZERO, "the refused call started before the release");
        let grant = desk.book(2, Run::new(1, [1, 1])).await;
        law.equal(&grant.answers, &vec![granted(1, at(1_000))], "it pauses nobody");
        let next = desk.pausing(1, scope, Pause { started: Some(at(1_000)), ..Pause::new(SECOND) });
        law.equal(&desk.paused(&next).await.until, &at(1_001_000), "one that started after it does");
    }
    one_call_looks(law, subject).await;
    a_quota_that_is_served_ends_the_row(law, subject).await;
    overloads_are_a_row_of_their_own(law, subject).await;
    what_is_over_is_remembered(law, subject).await;
    each_that_was_released_lately_is_said(law, subject).await;
}

/// So many at once that all are: not those that were long before.
async fn each_that_was_released_lately_is_said(law: Law, subject: &dyn Subject) {
    const MANY: u32 = 300;
    let mut desk = Desk::new(law, subject.store(), [log("calls", 9, 100_000)]);
    let scopes: Vec<_> = (0..MANY).map(|scope| ScopeId::of(&scope.to_be_bytes())).collect();
    for (scope, now) in scopes.iter().zip((0..).step_by(50_000)) {
        subject.clock().set(at(now));
        release(&mut desk, Some(*scope), None).await;
    }
    let since = 50_000 * i64::from(MANY) - 4_000_000;
    let look = desk.message(7, "look", Body::Look { scopes: [].into(), since: at(since) });
    let released = desk.apply(&look).await.looked().map(|looked| looked.released).unwrap_or_default();
    let lately: Vec<_> = scopes.into_iter().skip(300 - 80).map(Some).collect();
    law.equal(&released, &lately, "those of the last seconds");
}

/// Who looks can tell a pause that is over from one that was lost.
async fn what_is_over_is_remembered(law: Law, subject: &dyn Subject) {
    let scopes = [ScopeId::of(b"a"), ScopeId::of(b"b")];
    subject.clock().set(at(0));
    let mut desk = Desk::new(law, subject.store(), [log("calls", 9, 100_000)]);
    let pause = Pause { memory: 10 * SECOND, ..Pause::new(SECOND) };
    let pause = desk.pausing(1, Some(scopes[0]), pause);
    desk.paused(&pause).await;
    for (now, of_a) in [(1, true), (2_000_000, true), (11_000_000, false)] {
        subject.clock().set(at(now));
        let look = desk.message(7, "look", Body::Look { scopes: scopes.into(), since: at(now) });
        let looked = desk.apply(&look).await.looked();
        let of_a = of_a.then_some((at(1_000_000), Cause::Refusal));
        law.equal(&looked.map(|looked| looked.paused), &Some(vec![None, of_a, None]), "what is known of pauses");
    }
}

/// Refusals are in a row until a whole one, of the shortest window, has started between, and as long has passed as was paused.
async fn a_quota_that_is_served_ends_the_row(law: Law, subject: &dyn Subject) {
    let log = || Log::new("calls", [Term::new(1_000, 60_000_000), Term::new(12, 1_000_000)]);
    // How many are served, when the call starts that is refused next, and of how many refused calls it is evidence, where its log is known.
    for (calls, refused, of, last) in [
        (11, 3_000_000, Some(1), 2),
        (12, 3_000_000, Some(1), 1),
        (11, 3_000_000, Some(0), 2),
        (12, 3_000_000, Some(0), 1),
        (12, 3_000_000, None, 2),
        (12, 1_999_999, Some(1), 2),
        (12, 1_999_999, Some(0), 2),
        (12, 12_500_000, Some(1), 1),
        (12, 12_500_001, Some(1), 2),
    ] {
        subject.clock().set(at(0));
        let mut desk = Desk::new(law, subject.store(), [log()]);
        desk.horizon = Duration::ZERO;
        let windows = log().terms.iter().map(|&term| (term, Duration::from_micros(term.span.unsigned_abs()))).collect();
        let evidence = of.map(|calls| Box::new(Evidence { calls, ..Evidence::new(log(), 1, windows) }));
        let refusal = |started| {
            let waits = vec![SECOND, 2 * SECOND];
            Pause {
                waits,
                memory: 60 * SECOND,
                started: Some(started),
                evidence: evidence.clone(),
                ..Pause::new(SECOND)
            }
        };
        desk.book(1, Run::new(1, [1])).await;
        let first = desk.pausing(1, None, refusal(at(0)));
        law.equal(&desk.paused(&first).await.until, &at(1_000_000), "the first");
        subject.clock().set(at(1_500_000));
        let grant = desk.book(1, Run::new(calls, [1])).await;
        law.equal(&grant.answers, &vec![granted(calls, at(1_500_000))], "all of them start");
        subject.clock().set(at(refused));
        let second = desk.pausing(1, None, refusal(at(refused)));
        let until = at(refused + last * 1_000_000);
        law.equal(&desk.paused(&second).await.until, &until, "the next of the row, or a first");
    }
}

/// Of the same incident or of the next.
async fn overloads_are_a_row_of_their_own(law: Law, subject: &dyn Subject) {
    use Cause::{Ban, Overload, Refusal};
    subject.clock().set(at(0));
    let mut desk = Desk::new(law, subject.store(), [log("calls", 9, 100_000)]);
    let mut now = 0;
    // How long it waits by how many came in a row, in seconds; and whether the one before lasts meanwhile.
    let (short, long) = ([1, 2, 3], [10, 20, 30]);
    for (cause, waits, is_same, wait) in [
        (Refusal, short, false, 1),
        (Refusal, short, false, 2),
        (Overload, long, false, 10),
        (Overload, long, false, 20),
        (Refusal, short, false, 3),
        (Overload, long, true, 20),
        (Ban, short, false, 3),
        (Overload, long, false, 30),
    ] {
        let began = if is_same { now - 1 } else { now };
        subject.clock().set(at(began));
        let waits = waits.map(|seconds| seconds * SECOND).to_vec();
        let pause = Pause { waits, cause, memory: 60 * SECOND, started: Some(at(began)), ..Pause::new(SECOND) };
        let pause = desk.pausing(1, None, pause);
        now = began + wait * 1_000_000;
        law.equal(&desk.paused(&pause).await.until, &at(now), "the first, or the next in a row");
    }
}

async fn one_call_looks(law: Law, subject: &dyn Subject) {
    subject.clock().set(at(0));
    let mut desk = Desk::new(law, subject.store(), [log("calls", 9, 100_000)]);
    let pause = desk.pausing(1, None, Pause { told: 60 * SECOND, ..Pause::new(10 * SECOND) });
    desk.paused(&pause).await;
    let looks = |start: Stamp| vec![Answer::new(1, start, Verdict::Looks)];
    subject.clock().set(at(9_999_999));
    let grant = desk.book(2, Run::new(5, [1])).await;
    law.equal(&grant.answers, &looks(at(10_000_000)), "one of five looks");
    law.equal(&grant.next, &at(20_000_000), "the others wait for as long again");
    subject.clock().set(at(10_000_001));
    let grant = desk.book(3, Run::new(1, [1])).await;
    law.equal(&(grant.answers, grant.next), &(vec![], at(20_000_000)), "nobody else looks");
    subject.clock().set(at(20_000_000));
    let grant = desk.book(4, Run::new(1, [1])).await;
    law.equal(&grant.answers, &looks(at(20_000_000)), "where nothing came of it, another does");
    release(&mut desk, None, Some(at(9_000_000))).await;
    let grant = desk.book(3, Run::new(1, [1])).await;
    law.equal(&grant.next, &at(30_000_000), "a call from before the first look shows nothing");
    release(&mut desk, None, Some(at(20_000_000))).await;
    let grant = desk.book(3, Run::new(2, [1])).await;
    law.equal(&grant.answers, &vec![granted(2, at(20_000_000))], "the one that looked was served");
}

async fn release(desk: &mut Desk<'_>, scope: Option<ScopeId>, served: Option<Stamp>) {
    let message = desk.message(7, "release", Body::Release { scope, served });
    desk.apply(&message).await;
}

/// A rate only ever lowers quotas, and what it leaves of them is kept as they are.
///
/// By hand, and by the evidence of what was served before a refusal; until it ends, or a release.
pub async fn law_16(subject: &dyn Subject) {
    let law = Law::new(16, "a rate only ever lowers quotas, and what it leaves of them is kept");
    subject.clock().set(at(0));
    let mut desk = Desk::new(law, subject.store(), [log("calls", 10, 1_000_000)]);
    desk.horizon = Duration::ZERO;
    let slow = desk.message(7, "hand", Body::SlowDown { scope: None, factor: 500_000, lasting: 10 * SECOND });
    law.holds(matches!(desk.apply(&slow).await, Reply::Done(_)), "it is done");
    let grant = desk.book(1, Run::new(8, [1])).await;
    law.equal(&grant.answers, &vec![granted(5, at(0))], "half of ten");
    law.equal(&grant.next, &at(1_000_000), "the next when one of these counts no more");
    subject.clock().set(at(10_000_000));
    let grant = desk.book(1, Run::new(10, [1])).await;
    law.equal(&grant.answers, &vec![granted(10, at(10_000_000))], "it has ended");

    // Four of the ten are refused.
    let window = (desk.logs[0].terms[0], Duration::from_millis(950));
    let evidence =
        |calls| Some(Box::new(Evidence { calls, ..Evidence::new(log("calls", 10, 1_000_000), calls, vec![window]) }));
    let refused = |calls| Pause { started: Some(at(10_000_000)), evidence: evidence(calls), ..Pause::new(SECOND) };
    subject.clock().set(at(10_100_000));
    let first = desk.pausing(1, None, refused(1));
    desk.paused(&first).await;
    let rate = async |desk: &Desk<'_>| desk.usage().await[0].rate;
    law.equal(&rate(&desk).await, &1_000_000, "one alone is not believed");
    let others = desk.pausing(2, None, refused(3));
    desk.paused(&others).await;
    law.equal(&rate(&desk).await, &600_000, "six of ten were served");
    subject.clock().set(at(20_000_000));
    let grant = desk.book(1, Run::new(10, [1])).await;
    law.equal(&grant.answers, &vec![granted(6, at(20_000_000))], "six at once");
    release(&mut desk, None, None).await;
    let grant = desk.book(1, Run::new(10, [1])).await;
    law.equal(&grant.answers, &vec![granted(4, at(20_000_000))], "after a release the rest of ten");
    a_bucket_recovers_once_its_rate_is_over(law, subject).await;
}

async fn a_bucket_recovers_once_its_rate_is_over(law: Law, subject: &dyn Subject) {
    // Four units, one in half a second.
    let bucket = Term::bucket(Bucket::new(500_000_000, 2_000_000_000));
    subject.clock().set(at(0));
    let mut desk = Desk::new(law, subject.store(), [Log::new("calls", [bucket])]);
    desk.horizon = Duration::ZERO;
    let slow = desk.message(7, "hand", Body::SlowDown { scope: None, factor: 1_000, lasting: 100 * SECOND });
    desk.apply(&slow).await;
    let grant = desk.book(1, Run::new(2, [1])).await;
    law.equal(&grant.answers, &vec![granted(1, at(0))], "one of four");
    law.equal(&grant.next, &at(500_000_000), "and the next after a thousand times half a second");
    let owing = desk.asking(1, Vec::new(), |ask| ask.debts = vec![6]);
    law.equal(&desk.send(&owing).await.answers, &vec![], "a debt of six");
    let grant = desk.book(1, Run::new(1, [1])).await;
    law.equal(&grant.next, &at(3_500_000_000), "takes six times as long by the same rate");
    release(&mut desk, None, None).await;
    let grant = desk.book(1, Run::new(4, [1])).await;
    law.equal(&grant.answers, &vec![], "seven units are in it");
    law.equal(&grant.next, &at(2_000_000), "of which four drain in two seconds, as if there had been no rate");
}
