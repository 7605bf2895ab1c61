//! Senders whose runtime is gone, or stands still.

use super::*;
use crate::ledger::ScopeId;

impl Desk {
    /// Somebody comes, who sees to it that the store is told.
    fn see_to_news(&mut self) {
        let mut effects = Effects::new();
        self.news.replace_overdue(None, self.now, &mut effects);
        self.act(effects);
    }

    /// Somebody says, or waits for, something about the desk's upstream.
    fn see_to_own(&mut self) {
        let mut effects = Effects::new();
        self.news.replace_overdue(Some(&self.whom), self.now, &mut effects);
        self.act(effects);
    }

    fn goes_on(&mut self, errand: &Errand) -> bool {
        self.news.goes_on(errand, self.now)
    }

    fn lose(&mut self) {
        self.handle(Event::Lost(self.errand()));
    }
}

#[test]
fn when_a_sender_is_gone_nobody_is_told_so_and_whoever_comes_next_tells_of_all() {
    for is_said in [false, true] {
        let mut desk = Desk::new();
        desk.said(Some(pause(5)), None);
        let first = desk.sent().id;
        desk.said(Some(Pause { cause: Cause::Ban, ..pause(60) }), None);
        desk.said(None, Some(report(Some(7), Some(2))));
        desk.lose();
        assert!(desk.outcomes.is_empty() && (desk.begun, desk.hurried) == (1, 1), "those who wait are woken");
        assert!(desk.news.has_untold_pause(&desk.whom, desk.now) && matches!(desk.turn(), Next::Idle));
        if is_said {
            desk.said(None, Some(report(Some(8), Some(1))));
        } else {
            desk.see_to_news();
        }
        assert_eq!((desk.begun, desk.sent().id), (2, first), "the same message, as it may have come");
        desk.paused(5 * SECOND, true);
        assert_eq!(desk.sent_pause().waits, [60 * SECOND]);
        desk.paused(60 * SECOND, false);
        assert_eq!(desk.sent_report().quotas.len(), 1);
        desk.answer(Ok(Reply::Learned(Learned::default())));
        assert!(desk.is_idle() && desk.outcomes.values().all(|knows| *knows));
        assert_eq!(desk.outcomes.len(), usize::try_from(desk.tickets).unwrap());
    }
}

#[test]
fn where_nobody_takes_errands_over_those_that_say_nothing_any_more_are_forgotten() {
    let mut desk = Desk::new();
    let whom = |scope: u32| Whom::new("up".into(), (0, Some(ScopeId::from_bits(scope.into()))));
    for scope in 0..10_000 {
        desk.whom = whom(scope);
        desk.background(pause(if scope == 0 { 36_000 } else { 5 }));
        desk.lose();
        desk.now += SECOND / 10;
        assert!(desk.news.entries.len() < 200, "{scope}");
    }
    assert!(desk.news.has_untold_pause(&whom(0), desk.now));
}

/// Without a runtime, whoever says something would only throw the errand away.
#[test]
fn what_is_said_takes_over_from_nobody_who_may_be_late_but_whoever_has_a_runtime_does_at_once() {
    let mut desk = Desk::new();
    desk.background(pause(60));
    desk.sent();
    desk.now += 1_999 * SECOND / 1_000;
    desk.see_to_news();
    desk.see_to_own();
    desk.now += SECOND / 1_000;
    desk.background(pause(90));
    desk.see_to_news();
    assert_eq!(desk.begun, 1, "that was looked for a moment ago");
    desk.see_to_own();
    assert_eq!(desk.begun, 2);
}

#[test]
fn a_sender_that_does_not_come_round_is_replaced_and_has_no_say_any_more() {
    for is_said in [false, true] {
        let mut desk = Desk::new();
        desk.background(pause(60));
        let (first, old) = (desk.sent().id, desk.errand());
        for _ in 0..9 {
            desk.now += SECOND;
            assert!(desk.goes_on(&old));
        }
        desk.now += SECOND;
        desk.see_to_news();
        desk.background(pause(60));
        assert_eq!(desk.begun, 1, "it may be late");
        desk.now += SECOND;
        if is_said {
            desk.background(pause(60));
            desk.see_to_own();
        } else {
            desk.see_to_news();
        }
        assert_eq!(desk.begun, 2);
        assert!(!desk.goes_on(&old) && matches!(desk.turn_of(&old), Next::Idle));
        for event in
            [Event::Answered(old.clone(), Err(StoreError::late())), Event::Over(old.clone()), Event::Lost(old.clone())]
        {
            desk.handle(event);
        }
        desk.looked(60_000_000);
        assert_eq!(desk.sent().id, first, "the same message, as it may have come");
        desk.paused(49 * SECOND, true);
        if let Next::Wait(at) = desk.turn() {
            desk.now = at;
            desk.sent();
            desk.paused(60 * SECOND, false);
        }
        assert!(desk.is_idle());
        desk.now += 60 * SECOND;
        desk.background(pause(60));
        assert!(!desk.goes_on(&old) && matches!(desk.turn_of(&old), Next::Idle), "nor of what is said later");
    }
}

/// Senders are polled now and then, or never again, and the store may act when nobody hears of it.
#[test]
fn whatever_becomes_of_senders_messages_go_one_after_another_and_the_store_knows_the_longest_pause() {
    for seed in 0..300 {
        let (mut desk, mut rng) = (Desk::new(), Rng::with_seed(seed));
        let mut senders: Vec<(Errand, Option<Message>)> = Vec::new();
        let (mut until, mut known, mut last, mut begun) = (desk.now, desk.now, 0, 0);
        for step in 0..600 {
            let ends = step >= 500;
            match rng.u8(0..10) {
                0 if !ends => {
                    let wait = rng.u32(60..90);
                    until = until.max(desk.now + wait * SECOND);
                    desk.said(Some(pause(wait)), rng.bool().then(|| report(None, Some(1))));
                }
                1 if !ends => _ = desk.said(None, Some(report(None, rng.bool().then_some(2)))),
                2..5 => desk.now += rng.u32(0..800) * SECOND / 1_000,
                5 => desk.see_to_news(),
                6 if !ends => senders.pop().into_iter().for_each(|(errand, _)| desk.handle(Event::Lost(errand))),
                _ => {}
            }
            if desk.begun > begun {
                begun = desk.begun;
                senders.push((desk.errand(), None));
            }
            // One is polled: at the end it is the last.
            let at = if ends { senders.len().saturating_sub(1) } else { rng.usize(0..=senders.len()) };
            let Some((errand, message)) = senders.get_mut(at) else { continue };
            if !desk.goes_on(errand) {
                senders.remove(at);
                continue;
            }
            let errand = errand.clone();
            match message.take() {
                Some(_) if !ends && rng.bool() => desk.handle(Event::Answered(errand, Err(StoreError::late()))),
                Some(Message { body: Body::Look { .. }, .. }) => desk.looked(7),
                Some(Message { body: Body::Pause { pause, .. }, .. }) => {
                    known = known.max(desk.now + pause.waits[0]);
                    desk.paused(known - desk.now, rng.bool());
                }
                Some(_) => desk.answer(Ok(Reply::Learned(Learned::default()))),
                None => match desk.turn_of(&errand) {
                    Next::Send(sent) => {
                        assert!(sent.id.is_nobodys() || sent.id.number >= last, "seed {seed}: an older one");
                        last = last.max(sent.id.number);
                        *message = Some(*sent);
                    }
                    Next::Wait(_) => {}
                    Next::Over => desk.handle(Event::Over(errand)),
                    Next::Idle => _ = senders.remove(at),
                },
            }
        }
        assert!(desk.news.entries.is_empty(), "seed {seed}");
        assert_eq!(desk.outcomes.len(), usize::try_from(desk.tickets).unwrap(), "seed {seed}");
        assert!(known >= until, "seed {seed}");
    }
}
