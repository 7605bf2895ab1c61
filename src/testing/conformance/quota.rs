//! The laws of what is granted: no span too full, all or none, nothing beyond the horizon.

use std::time::Duration;

use super::Subject;
use super::desk::{Desk, Granting, at, fresh_upstream, granted, log};
use super::law::Law;
use super::telling::Telling;
use crate::ledger::{Boundary, Calendar, Log, Run, ScopeId, Slots, Term};

const HISTORIES: u64 = 60;

/// No half-open interval of a term's span ever holds more than its quota.
///
/// Random histories; every start that was granted and not handed back is judged under every term of its log. And by table: where
/// processes name different boundaries for a calendar window, none starts from before the earlier to after the later; and where they name
/// different terms for a log those of all hold, once who names the stricter has had to wait, and as long as both ask.
pub async fn law_1(subject: &dyn Subject) {
    let law = Law::new(1, "no half-open interval of a term's span ever holds more than its quota");
    for seed in 0..HISTORIES {
        Telling::new(law, subject, seed).tell(async || ()).await;
    }
    it_is_quiet_between_boundaries_that_differ(law, subject).await;
    where_processes_name_different_terms_those_of_all_hold(law, subject).await;
    calendar_windows_that_differ_hold_window_after_window(law, subject).await;
    where_it_is_past_all_boundaries_that_are_named_nothing_is_booked(law, subject).await;
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

async fn it_is_quiet_between_boundaries_that_differ(law: Law, subject: &dyn Subject) {
    // Two units a window of a second, with a guard of 10 ms; the other's windows begin 200 ms later.
    let named = |later: i64| {
        let boundaries = [-1, 0, 1, 2].map(|second| at(later + second * 1_000_000));
        let calendar = Calendar::new(10_000, boundaries.map(|boundary| Boundary::new(boundary, boundary)));
        [Log::new("calls", [Term::calendar(2, 1_100_000, calendar)])]
    };
    for [first, second] in [[0, 200_000], [200_000, 0]] {
        let upstream = fresh_upstream(law);
        let desk = |logs| {
            let mut desk = Desk::at(law, subject.store(), upstream.clone(), logs);
            desk.horizon = Duration::ZERO;
            desk
        };
        subject.clock().set(at(500_000));
        let (mut one, mut other) = (desk(named(first)), desk(named(second)));
        for (desk, of) in [(&mut one, 1), (&mut other, 2)] {
            law.equal(&desk.book(of, Run::new(1, [1])).await.answers, &vec![granted(1, at(500_000))], "one is left");
        }
        for (now, next) in [(600_000, 1_210_000), (990_000, 1_210_000), (1_209_999, 1_210_000)] {
            subject.clock().set(at(now));
            for (desk, of) in [(&mut one, 1), (&mut other, 2)] {
                law.equal(&desk.used().await, &vec![2], "what started before the earlier counts until after the later");
                law.equal(&desk.book(of, Run::new(1, [1])).await.next, &at(next), "for whoever asks");
            }
        }
        subject.clock().set(at(1_210_000));
        for (desk, of) in [(&mut one, 1), (&mut other, 2)] {
            law.equal(
                &desk.book(of, Run::new(1, [1])).await.answers,
                &vec![granted(1, at(1_210_000))],
                "then all are back",
            );
        }
    }
}

async fn where_processes_name_different_terms_those_of_all_hold(law: Law, subject: &dyn Subject) {
    let upstream = fresh_upstream(law);
    let desk = |quota| {
        let mut desk = Desk::at(law, subject.store(), upstream.clone(), [log("calls", quota, 1_000_000)]);
        desk.horizon = Duration::from_millis(10);
        desk
    };
    subject.clock().set(at(0));
    let (mut lax, mut strict) = (desk(10), desk(2));
    let sum = |granting: &super::desk::Granting| granting.answers.iter().map(|answer| answer.callers).sum::<u32>();
    let first = lax.book(1, Run::new(9, [1])).await;
    law.equal(&sum(&first), &9, "nobody knows of the stricter yet");
    law.equal(&strict.book(2, Run::new(9, [1])).await.next, &at(1_000_000), "it waits");
    for second in 1..9 {
        subject.clock().set(at(second * 1_000_000));
        let one = sum(&lax.book(1, Run::new(9, [1])).await);
        let other = sum(&strict.book(2, Run::new(9, [1])).await);
        law.equal(&(one + other), &2, "the stricter quota is that of both");
        subject.clock().set(at(second * 1_000_000 + 500_000));
        let told = [lax.book(1, Run::new(9, [1])).await, strict.book(2, Run::new(9, [1])).await];
        law.equal(&told.map(|told| told.next), &[at((second + 1) * 1_000_000); 2], "whoever asks");
    }
    subject.clock().set(at(12_000_000));
    law.equal(&sum(&lax.book(1, Run::new(9, [1])).await), &9, "once nobody names the stricter any more");
}

async fn calendar_windows_that_differ_hold_window_after_window(law: Law, subject: &dyn Subject) {
    const MINUTE: i64 = 60_000_000;
    // So many units a minute, as processes name them in the minute after so many.
    let named = |quota, minute: i64| {
        let begins = [-1, 0, 1, 2].map(|minutes| at((minute + minutes) * MINUTE));
        let calendar = Calendar::new(1_000_000, begins.map(|begins| Boundary::new(begins, begins)));
        [Log::new("calls", [Term::calendar(quota, 2 * MINUTE, calendar)])]
    };
    let upstream = fresh_upstream(law);
    let desk = |quota| Desk::at(law, subject.store(), upstream.clone(), named(quota, 0));
    let (mut lax, mut strict) = (desk(10), desk(4));
    let sum = |granting: &Granting| granting.answers.iter().map(|answer| answer.callers).sum::<u32>();
    subject.clock().set(at(MINUTE / 12));
    law.equal(&sum(&lax.book(1, Run::new(9, [1])).await), &9, "nobody knows of the stricter yet");
    for minute in 0..6 {
        let mut granted = 0;
        for second in [10, 30, 50] {
            subject.clock().set(at(minute * MINUTE + second * 1_000_000));
            for (desk, of, quota) in [(&mut strict, 2, 4), (&mut lax, 1, 10)] {
                desk.logs = named(quota, minute).into();
                granted += sum(&desk.book(of, Run::new(3, [1])).await);
            }
        }
        law.equal(&granted, &if minute == 0 { 0 } else { 4 }, "the stricter quota is that of both, in each window");
    }
}

async fn where_it_is_past_all_boundaries_that_are_named_nothing_is_booked(law: Law, subject: &dyn Subject) {
    const SECOND: i64 = 1_000_000;
    let named = [-1, 0, 1, 2].map(|second| Boundary::new(at(second * SECOND), at(second * SECOND)));
    let by_calendar = Log::new("calls", [Term::calendar(2, 2 * SECOND, Calendar::new(10_000, named))]);
    let mut desk = Desk::new(law, subject.store(), [by_calendar, log("tokens", 9, SECOND)]);
    // Who is far from the store books further ahead than it is told to ask again.
    desk.horizon = Duration::from_secs(9);
    for now in [-SECOND - 1, 2 * SECOND - 10_000] {
        subject.clock().set(at(now));
        let told = desk.book(1, Run::new(5, [1, 0])).await;
        let nothing = (Vec::new(), at(now + 2 * SECOND));
        law.equal(&(told.answers, told.next), &nothing, "whose window is counted is not known");
        let told = desk.book(1, Run::new(5, [0, 1])).await;
        law.equal(&told.answers, &vec![granted(5, at(now))], "which is nothing to who takes none of its units");
    }
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
