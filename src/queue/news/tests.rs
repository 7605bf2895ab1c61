mod late;
mod lengthening;
mod placing;
mod releasing;
mod replacing;

use std::collections::BTreeMap;

use super::*;
use crate::config::limit::Limit;
use crate::ledger::{Cause, Learned, Looked, Paused, QuotaReport, Reply, micros};

const SECOND: Duration = Duration::from_secs(1);

/// Upstreams that say something, and a store that the test answers for.
struct Desk {
    news: News,
    now: Instant,
    whom: Whom,
    /// The errands that were begun, the last of each.
    errands: Vec<Errand>,
    numbers: u64,
    tickets: u64,
    outcomes: BTreeMap<u64, bool>,
    renamed: Vec<u64>,
    paused: Vec<(Duration, Cause)>,
    released: Vec<Instant>,
    /// Releases of which the process knows.
    releases: u64,
    begun: usize,
    hurried: usize,
    /// How many pauses the store has taken.
    taken: usize,
}

impl Desk {
    fn new() -> Self {
        let (news, now, whom) = (News::new(Rng::with_seed(7)), Instant::now(), Whom::new("up".into(), (0, None)));
        let (outcomes, renamed, paused, released) = (BTreeMap::new(), Vec::new(), Vec::new(), Vec::new());
        Self {
            news,
            now,
            whom,
            errands: Vec::new(),
            numbers: 0,
            tickets: 0,
            outcomes,
            renamed,
            paused,
            released,
            releases: 0,
            begun: 0,
            hurried: 0,
            taken: 0,
        }
    }

    fn handle(&mut self, event: Event) {
        let mut effects = Effects::new();
        self.news.handle(event, self.now, &mut effects);
        self.act(effects);
    }

    fn act(&mut self, effects: Effects) {
        for effect in effects {
            match effect {
                Effect::Pause(_, wait, reason) => self.paused.push((wait, reason.cause)),
                Effect::Took(..) => self.taken += 1,
                Effect::Release(_, until) => self.released.push(until),
                Effect::Begin(errand) => {
                    self.begun += 1;
                    self.errands.retain(|before| before.whom != errand.whom);
                    self.errands.push(errand);
                }
                Effect::Hurry => self.hurried += 1,
                Effect::Tell(ticket, outcome) => {
                    assert_eq!(self.outcomes.insert(ticket, outcome.is_ok()), None, "nobody is told twice");
                }
                Effect::Rename(sender) => self.renamed.push(sender),
            }
        }
    }

    /// A response that says something of the desk's upstream.
    fn said(&mut self, pause: Option<Pause>, report: Option<Report>) -> u64 {
        self.tickets += 1;
        let (whom, ticket) = (self.whom.clone(), Some(self.tickets));
        let pause = pause.map(|pause| (whom.clone(), pause));
        let report = report.map(|report| (Log::new("calls", [Limit::per_second(9).window_term()]), report));
        self.handle(Event::Said(Box::new(Said { whom, ticket, pause, report, releases: self.releases })));
        self.tickets
    }

    /// A refusal that nobody waits for the store to know of.
    fn background(&mut self, pause: Pause) {
        let pause = Some((self.whom.clone(), pause));
        self.handle(Event::Said(Box::new(Said {
            whom: self.whom.clone(),
            ticket: None,
            pause,
            report: None,
            releases: self.releases,
        })));
    }

    /// The errand of who tells of the desk's upstream, or told last.
    fn errand(&self) -> Errand {
        let begun = self.errands.iter().find(|errand| errand.whom == self.whom);
        begun.cloned().unwrap_or(Errand { whom: self.whom.clone(), number: 0 })
    }

    fn turn(&mut self) -> Next {
        self.turn_of(&self.errand())
    }

    fn turn_of(&mut self, errand: &Errand) -> Next {
        let (numbers, stream) = (&mut self.numbers, self.whom.stream());
        let id = || {
            *numbers += 1;
            MessageId::new(1, stream, *numbers)
        };
        self.news.turn(errand, self.now, id)
    }

    /// The message to be sent now.
    fn sent(&mut self) -> Message {
        match self.turn() {
            Next::Send(message) => *message,
            next => panic!("{next:?}"),
        }
    }

    fn sent_pause(&mut self) -> Pause {
        match self.sent().body {
            Body::Pause { pause, .. } => pause,
            body => panic!("{body:?}"),
        }
    }

    fn sent_report(&mut self) -> Report {
        match self.sent().body {
            Body::Report { report, .. } => report,
            body => panic!("{body:?}"),
        }
    }

    fn answer(&mut self, answer: Applied) {
        self.handle(Event::Answered(self.errand(), answer));
    }

    fn paused(&mut self, wait: Duration, first: bool) {
        let now = Stamp::from_micros(1_000);
        self.answer(Ok(Reply::Paused(Paused::new(now, now.plus(micros(wait)), first))));
    }

    /// The store says what time it is there, where it is asked.
    fn looked(&mut self, now: i64) {
        self.answer(Ok(Reply::Looked(Looked::new(Stamp::from_micros(now), Vec::new(), Vec::new()))));
    }

    /// The pause of the message is over before that could go.
    fn over(&mut self) {
        self.handle(Event::Over(self.errand()));
    }

    fn is_idle(&mut self) -> bool {
        matches!(self.turn(), Next::Idle) && self.news.entries.is_empty()
    }
}

fn pause(secs: u32) -> Pause {
    Pause::new(secs * SECOND)
}

/// The same, for a call of which it is known when it started.
fn of_a_call(pause: Pause) -> Pause {
    Pause { started: Some(Stamp::from_micros(5)), ..pause }
}

/// A report that a call which started at a time left so many units; of nothing where it says none.
fn report(at: Option<i64>, left: Option<u32>) -> Report {
    let report = |left| QuotaReport::new(Limit::per_second(9).window_term(), SECOND, left, SECOND);
    let reports = left.map(report).into_iter().collect();
    Report { started: at.map(Stamp::from_micros), quotas: reports, ..Report::default() }
}

#[test]
fn a_storm_of_refusals_is_one_message() {
    let mut desk = Desk::new();
    desk.said(Some(pause(5)), Some(report(None, Some(0))));
    assert_eq!(desk.sent_pause().waits, [5 * SECOND]);
    for _ in 0..99 {
        desk.said(Some(pause(5)), Some(report(None, Some(0))));
    }
    assert_eq!((desk.begun, desk.paused.len(), desk.outcomes.len()), (1, 100, 0), "this process is silent at once");
    desk.paused(5 * SECOND, true);
    assert_eq!(desk.sent_report(), report(None, Some(0)), "what all of them reported");
    desk.answer(Ok(Reply::Learned(Learned::default())));
    assert!(desk.is_idle());
    assert!(desk.outcomes.len() == 100 && desk.outcomes.values().all(|&knows| knows));
}

#[test]
fn who_waits_behind_a_message_that_the_store_does_not_take_is_told_so_too_and_the_rest_is_told_all_the_same() {
    let mut desk = Desk::new();
    desk.said(Some(of_a_call(pause(60))), Some(report(None, Some(3))));
    desk.sent();
    desk.said(Some(of_a_call(pause(90))), Some(report(None, Some(2))));
    desk.now += SECOND;
    desk.said(None, Some(report(None, Some(1))));
    desk.answer(Err(StoreError::late()));
    assert_eq!(desk.outcomes, (1..=3).map(|ticket| (ticket, false)).collect());
    desk.now += SECOND;
    assert_eq!(desk.sent_pause().waits, [58 * SECOND]);
    desk.paused(58 * SECOND, true);
    desk.looked(0);
    assert_eq!(desk.sent_report(), report(None, Some(1)));
}

#[test]
fn what_may_wait_is_told_at_once_where_nothing_is_to_wait_any_more() {
    let mut desk = Desk::new();
    desk.background(of_a_call(pause(10)));
    desk.sent();
    desk.background(of_a_call(pause(12)));
    desk.news.hurry();
    assert!(!desk.news.is_told());
    desk.paused(10 * SECOND, true);
    assert_eq!(desk.sent_pause().waits, [12 * SECOND]);
    desk.paused(12 * SECOND, false);
    assert!(desk.news.is_told() && desk.is_idle());
}

#[test]
fn pauses_behind_one_are_told_as_the_longest_and_gravest() {
    let mut desk = Desk::new();
    desk.said(Some(pause(1)), None);
    desk.sent();
    let growing = Pause { waits: vec![SECOND, 2 * SECOND, 9 * SECOND], memory: 9 * SECOND, ..pause(0) };
    desk.said(Some(Pause { started: Some(Stamp::from_micros(3)), ..growing }), None);
    desk.said(Some(Pause { cause: Cause::Ban, recovery: SECOND, ..pause(4) }), None);
    desk.paused(SECOND, true);
    let sent = desk.sent_pause();
    let expected = Pause { waits: vec![4 * SECOND, 4 * SECOND, 9 * SECOND], cause: Cause::Ban, ..pause(0) };
    assert_eq!(sent, Pause { recovery: SECOND, memory: 9 * SECOND, ..expected });
    desk.paused(4 * SECOND, false);
    assert_eq!(desk.paused.last(), Some(&(4 * SECOND, Cause::Ban)));
    assert!(desk.is_idle() && desk.outcomes.len() == 3);
}

/// By then less is left of what the upstream told, too.
#[test]
fn what_is_sent_late_says_what_is_left() {
    let mut desk = Desk::new();
    desk.said(Some(Pause { told: 600 * SECOND, ..of_a_call(pause(60)) }), None);
    assert_eq!(desk.sent_pause().told, 600 * SECOND);
    desk.answer(Err(StoreError::late()));
    desk.now += 50 * SECOND;
    let sent = desk.sent_pause();
    assert_eq!((&sent.waits[..], sent.told), (&[10 * SECOND][..], 550 * SECOND));
}

#[test]
fn a_pause_is_sent_again_until_the_store_knows_or_it_is_over() {
    for knows in [true, false] {
        let mut desk = Desk::new();
        desk.said(Some(of_a_call(pause(60))), Some(report(Some(7), Some(3))));
        let (first, begin, mut sent, mut at) = (desk.sent().id, desk.now, 1, desk.now);
        loop {
            desk.answer(Err(StoreError::late()));
            assert_eq!(desk.outcomes.get(&1), Some(&false), "who waits for it learns that it is not known");
            let Next::Wait(next) = desk.turn() else { panic!("after a while") };
            desk.now = next;
            assert!(desk.now - at <= SECOND);
            (at, sent) = (desk.now, sent + 1);
            let message = match desk.turn() {
                Next::Send(message) => message,
                Next::Over => {
                    desk.over();
                    assert!(desk.is_idle(), "what was reported with it is too old as well");
                    break;
                }
                next => panic!("{next:?}"),
            };
            assert_eq!(message.id, first, "the same message");
            let Body::Pause { pause, .. } = message.body else { panic!("a pause") };
            assert_eq!(pause.waits, [(60 * SECOND).saturating_sub(desk.now - begin)], "what is left of it");
            if knows && sent == 5 {
                desk.paused(pause.waits[0], true);
                assert_eq!(desk.sent_report().quotas.len(), 1);
                break;
            }
        }
        assert!(knows || (60..130).contains(&sent), "{sent} times");
        assert!(knows || desk.now >= begin + 65 * SECOND && desk.news.entries.is_empty());
    }
}

#[test]
fn what_a_short_pause_says_is_told_though_it_is_over_when_the_first_message_fails() {
    for fails_until in [1, 4, 9] {
        let mut desk = Desk::new();
        desk.said(Some(of_a_call(pause(1))), Some(report(Some(7), Some(3))));
        desk.sent();
        desk.now += fails_until * SECOND;
        desk.answer(Err(StoreError::late()));
        let Next::Wait(at) = desk.turn() else { panic!("it is sent again") };
        desk.now = at;
        if fails_until < 6 {
            assert_eq!(desk.sent_pause().waits, [Duration::ZERO]);
            desk.paused(Duration::ZERO, true);
        } else {
            assert!(matches!(desk.turn(), Next::Over), "it is no news any more");
            desk.over();
        }
        assert_eq!(desk.sent_report().quotas.len(), 1);
    }
}

#[test]
fn another_refusal_has_a_pause_sent_again_soon() {
    let mut desk = Desk::new();
    desk.said(Some(pause(60)), None);
    for _ in 0..9 {
        desk.now = match desk.turn() {
            Next::Wait(at) => at,
            _ => desk.now,
        };
        desk.sent();
        desk.answer(Err(StoreError::late()));
    }
    assert!(matches!(desk.turn(), Next::Wait(at) if at > desk.now + SECOND / 2));
    desk.said(Some(pause(60)), None);
    assert!(matches!(desk.turn(), Next::Wait(at) if at == desk.now + SECOND / 20));
}

#[test]
fn under_a_name_that_is_taken_the_message_is_sent_once_more() {
    let mut desk = Desk::new();
    desk.said(None, Some(report(None, Some(3))));
    for number in [1, 2] {
        assert_eq!(desk.sent().id.number, number);
        desk.answer(Err(ledger::Refused::Outdated.into()));
    }
    assert!(desk.is_idle());
    assert_eq!((desk.renamed, desk.outcomes.get(&1)), (vec![1], Some(&false)));
}

#[test]
fn one_report_is_sent_at_a_time_and_the_newest_waits() {
    let mut desk = Desk::new();
    desk.said(None, Some(report(Some(1), Some(8))));
    assert_eq!(desk.sent_report(), report(Some(1), Some(8)));
    for (at, left) in [(3, 6), (5, 4), (4, 5)] {
        desk.said(None, Some(report(Some(at), Some(left))));
    }
    desk.answer(Ok(Reply::Learned(Learned::default())));
    assert_eq!(desk.sent_report(), report(Some(5), Some(4)));
    desk.answer(Err(StoreError::late()));
    assert!(desk.is_idle(), "a report is not sent again: the next one says more");
    assert_eq!(desk.outcomes.values().filter(|&&knows| knows).count(), 1);
    assert_eq!((desk.said(None, None), desk.outcomes.get(&5)), (5, Some(&true)), "nothing is to be known");
}

#[test]
fn after_any_events_everybody_is_told_once_and_the_store_knows_the_longest_pause() {
    for seed in 0..500 {
        let (mut desk, mut rng) = (Desk::new(), Rng::with_seed(seed));
        let (mut under_way, mut until) = (None, desk.now);
        let mut known = desk.now;
        for step in 0..200 {
            let ends = step == 199;
            match rng.u8(0..10) {
                0..3 if !ends => {
                    let wait = rng.u32(1..10);
                    until = until.max(desk.now + wait * SECOND);
                    let answer = rng.bool().then(|| report(None, Some(1)));
                    desk.said(Some(pause(wait)), answer);
                }
                3..5 if !ends => _ = desk.said(None, Some(report(None, rng.bool().then_some(2)))),
                5..7 if !ends => desk.now += rng.u32(0..800) * SECOND / 1_000,
                _ => {}
            }
            loop {
                let Some(Message { body, .. }) = under_way.take() else {
                    match desk.turn() {
                        Next::Send(message) => under_way = Some(*message),
                        Next::Wait(at) if ends => desk.now = at,
                        Next::Over => desk.over(),
                        Next::Wait(_) | Next::Idle => break,
                    }
                    continue;
                };
                if !ends && rng.u8(0..4) == 0 {
                    under_way = Some(Message { id: MessageId::new(1, "!", 1), body });
                    break;
                }
                let fails = !ends && rng.u8(0..4) == 0;
                match body {
                    _ if fails => desk.answer(Err(StoreError::late())),
                    Body::Pause { pause, .. } => {
                        known = known.max(desk.now + pause.waits[0]);
                        desk.paused(known - desk.now, rng.bool());
                    }
                    Body::Look { .. } => desk.looked(7),
                    _ => desk.answer(Ok(Reply::Learned(Learned::default()))),
                }
            }
        }
        assert!(desk.is_idle() && desk.outcomes.len() == usize::try_from(desk.tickets).unwrap(), "seed {seed}");
        assert!(known >= until || until <= desk.now, "seed {seed}");
    }
}

#[test]
fn reports_of_two_logs_of_one_scope_are_told_each() {
    let mut desk = Desk::new();
    let (calls, tokens) = (desk.whom.clone(), desk.whom.clone().about(&"tokens".into()));
    let said = |whom: &Whom, unit: &str, left| {
        let log = Log::new(unit, [Limit::per_second(9).window_term()]);
        let report = Some((log, report(Some(7), Some(left))));
        Event::Said(Box::new(Said { whom: whom.clone(), ticket: None, pause: None, report, releases: 0 }))
    };
    desk.handle(said(&calls, "calls", 5));
    desk.handle(said(&tokens, "tokens", 3));
    assert_ne!(calls.stream(), tokens.stream());
    let mut told = |whom: &Whom| {
        desk.whom = whom.clone();
        match desk.sent().body {
            Body::Report { log, report } => (log.unit.to_string(), report.quotas[0].remaining),
            body => panic!("{body:?}"),
        }
    };
    assert_eq!([told(&tokens), told(&calls)], [("tokens".to_owned(), 3), ("calls".to_owned(), 5)]);
}
