//! Refusals of calls from before a release, and of those after it.

use super::*;
use crate::ledger::{Evidence, ScopeId};

impl Desk {
    fn of_scope() -> Self {
        Self { whom: Whom::new("up".into(), (0, Some(ScopeId::from_bits(7)))), ..Self::new() }
    }

    /// The store took nothing of what it was told.
    fn void(&mut self) {
        self.paused(Duration::ZERO, false);
    }
}

#[test]
fn a_pause_that_the_store_did_not_take_ends_here_too_but_not_what_was_said_since() {
    for since in [None, Some(5), Some(90)] {
        let mut desk = Desk::of_scope();
        desk.background(pause(60));
        desk.sent();
        desk.now += SECOND;
        let ends = desk.now + 59 * SECOND;
        if let Some(secs) = since {
            desk.background(pause(secs));
        }
        desk.paused.clear();
        desk.now += SECOND;
        desk.void();
        assert_eq!(desk.released, [ends]);
        let left = since.map(|secs| (secs - 1) * SECOND);
        assert_eq!(desk.paused, Vec::from_iter(left.map(|left| (left, Cause::Refusal))));
        if let Some(left) = left {
            assert_eq!(desk.sent_pause().waits, [left], "and the store is told");
            desk.paused(left, true);
        }
        assert!(desk.is_idle() && desk.released.len() == 1);
        assert_eq!(desk.taken, usize::from(since.is_some()));
    }
}

#[test]
fn an_answer_that_comes_when_the_pause_is_over_ends_nothing() {
    let mut desk = Desk::new();
    for secs in [0, 3] {
        desk.background(pause(secs));
        desk.sent();
        desk.now += secs * SECOND;
        desk.void();
    }
    assert!(desk.is_idle() && desk.released.is_empty());
}

#[test]
fn after_a_release_a_refusal_is_told_at_once_though_the_store_knew_of_as_long_a_pause_before() {
    for (secs, is_under_way) in [(55, false), (70, false), (55, true)] {
        let mut desk = Desk::new();
        desk.background(pause(60));
        desk.sent();
        if !is_under_way {
            desk.paused(60 * SECOND, true);
            assert!(desk.is_idle());
        }
        desk.now += SECOND;
        desk.releases += 1;
        desk.background(pause(secs));
        if is_under_way {
            // It was sent before the release, and is answered after it.
            desk.paused(59 * SECOND, true);
        }
        assert_eq!(desk.sent_pause().waits, [secs * SECOND]);
        desk.paused(secs * SECOND, true);
        desk.background(pause(secs));
        assert!(desk.is_idle(), "that is known now");
    }
}

#[test]
fn after_a_pause_that_the_store_did_not_take_nothing_is_known_of_those_before() {
    let mut desk = Desk::of_scope();
    desk.background(pause(60));
    desk.sent();
    desk.paused(60 * SECOND, true);
    desk.now += SECOND;
    desk.background(pause(3_600));
    desk.now += SECOND;
    desk.sent();
    desk.background(pause(30));
    desk.void();
    assert_eq!(desk.sent_pause().waits, [30 * SECOND], "at once");
}

/// That is what several refusals say of the limits: gathered for a second, it goes when so short a pause has just ended.
#[test]
fn what_was_refused_is_told_though_the_pause_ended_while_it_was_gathered() {
    let mut desk = Desk::of_scope();
    desk.background(pause(2));
    desk.sent();
    desk.paused(2 * SECOND, true);
    let evidence = Evidence::new(Log::new("calls", [Limit::per_second(9).window_term()]), 1, Vec::new());
    desk.background(Pause { evidence: Some(Box::new(evidence)), ..pause(1) });
    let Next::Wait(at) = desk.turn() else { panic!("it is gathered") };
    desk.now = at;
    let told = desk.sent_pause();
    assert!(told.waits == [Duration::ZERO] && told.evidence().is_some());
}

#[test]
fn of_a_pause_that_is_over_nobody_is_told_but_of_what_was_reported_with_it() {
    let mut desk = Desk::of_scope();
    desk.background(pause(10));
    desk.sent();
    // Behind the message, which has not gone yet.
    desk.said(Some(pause(10)), Some(report(Some(7), Some(5))));
    desk.now += 15 * SECOND;
    for _ in 0..2 {
        assert!(matches!(desk.turn(), Next::Over));
        desk.over();
    }
    assert_eq!(desk.sent_report().quotas.len(), 1);
}
