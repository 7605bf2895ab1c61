//! The laws of what is granted: no span too full, all or none, nothing beyond the horizon.

use super::Subject;
use super::desk::{Desk, Granting, at, granted, log};
use super::law::Law;
use super::telling::Telling;
use crate::ledger::{Log, Run, ScopeId, Slots, Term};

const HISTORIES: u64 = 60;

/// No half-open interval of a term's span ever holds more than its quota.
///
/// Random histories; every start that was granted and not handed back is judged under every term of its log.
pub async fn law_1(subject: &dyn Subject) {
    let law = Law::new(1, "no half-open interval of a term's span ever holds more than its quota");
    for seed in 0..HISTORIES {
        Telling::new(law, subject, seed).tell(async || ()).await;
    }
}

/// Charges on several logs: all or none, with one common start.
///
/// In random histories each log holds just what was granted in it, and by every term from the common start on. And by table: a
/// call starts when the slowest of its logs allows it, in all of them; what is handed back goes out of all.
pub async fn law_12(subject: &dyn Subject) {
    let law = Law::new(12, "charges on several logs: all or none, with one common start");
    for seed in HISTORIES..2 * HISTORIES {
        Telling::new(law, subject, seed).tell(async || ()).await;
    }
    the_slowest_log_decides(law, subject).await;
    a_log_that_few_share_does_not_push_one_that_many_share(law, subject).await;
}

fn merchant(name: &str, quota: u32, span: i64) -> Log {
    Log::new("calls", [Term::new(quota, span)]).of(Some(ScopeId::of(name.as_bytes())))
}

async fn the_slowest_log_decides(law: Law, subject: &dyn Subject) {
    subject.clock().set(at(0));
    let logs =
        [log("calls", 9, 100_000), log("points", 4, 50_000), merchant("a", 2, 100_000), merchant("b", 9, 80_000)];
    let mut desk = Desk::new(law, subject.store(), logs);
    let grant = desk.book(1, Run::new(2, [1, 2, 1, 3])).await;
    law.equal(&grant.answers, &vec![granted(2, at(0))], "there is room in all");
    law.equal(&desk.used().await, &vec![2, 4, 2, 6], "all are charged");
    let grant = desk.book(2, Run::new(1, [1, 2, 0, 0])).await;
    law.equal(&grant.answers, &vec![granted(1, at(50_000))], "who takes nothing of a log does not wait for it");
    law.equal(&desk.used().await, &vec![3, 6, 2, 6], "and is charged nothing there");
    subject.clock().set(at(90_000));
    let grant = desk.book(1, Run::new(1, [1, 2, 1, 9])).await;
    law.equal(&grant.answers, &vec![granted(1, at(100_000))], "the slowest log decides");
    law.equal(&desk.used().await, &vec![4, 4, 3, 9], "one start in all: it counts everywhere");
    subject.clock().set(at(160_000));
    law.equal(&desk.used().await, &vec![1, 0, 1, 9], "from the common start on");
    desk.hand_back(1, Slots::new(1, at(100_000), [1, 2, 1, 9])).await;
    law.equal(&desk.used().await, &vec![0, 0, 0, 0], "handed back, it is out of all");
}

async fn a_log_that_few_share_does_not_push_one_that_many_share(law: Law, subject: &dyn Subject) {
    subject.clock().set(at(0));
    let upstream = super::desk::fresh_upstream(law);
    let common = log("calls", 9, 1_000_000);
    let desk =
        |name: &str| Desk::at(law, subject.store(), upstream.clone(), [common.clone(), merchant(name, 1, 100_000)]);
    let (mut full, mut other) = (desk("a"), desk("b"));
    let grant = full.book(1, Run::new(2, [1, 1])).await;
    law.equal(&grant, &Granting::new(at(0), vec![granted(1, at(0))], at(100_000)), "the second waits for its own log");
    let grant = other.book(2, Run::new(1, [1, 1])).await;
    law.equal(&grant.answers, &vec![granted(1, at(0))], "and pushes nobody in the common one");
    subject.clock().set(at(79_999));
    law.equal(&full.book(1, Run::new(1, [1, 1])).await.answers, &Vec::new(), "it waits until shortly before");
    subject.clock().set(at(80_000));
    let grant = full.book(1, Run::new(1, [1, 1])).await;
    law.equal(&grant.answers, &vec![granted(1, at(100_000))], "and is booked 20 ms ahead");
}

/// No stamp lies beyond the horizon.
///
/// Nor beyond that of whoever of the same scope asks furthest ahead. Random histories; and to the microsecond.
pub async fn law_14(subject: &dyn Subject) {
    let law = Law::new(14, "no stamp lies beyond the horizon");
    for seed in 2 * HISTORIES..3 * HISTORIES {
        Telling::new(law, subject, seed).tell(async || ()).await;
    }
    for (horizon, ahead, starts) in [(99_999, 0, 1), (100_000, 0, 2), (50_000, 49_999, 1), (50_000, 50_000, 2)] {
        subject.clock().set(at(0));
        let mut desk = Desk::new(law, subject.store(), [log("calls", 1, 100_000)]);
        desk.book(1, Run::new(1, [1])).await;
        let ask = desk.asking(2, vec![Run::new(1, [1])], |ask| {
            ask.horizon = std::time::Duration::from_micros(horizon);
            ask.ahead = std::time::Duration::from_micros(ahead);
        });
        desk.send(&ask).await;
        law.equal(&desk.used().await, &vec![starts], &format!("{horizon} µs, {ahead} µs ahead"));
    }
}
