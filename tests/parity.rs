//! The scripts and the pure ledger give identical answers to one random history.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use outgate::ledger::{Ask, Cause, Grant, HandBack, Hold, Home, Lesson, Log, MessageId, Report, Run, Slots};
use outgate::ledger::{Stamp, Term};
use outgate::testing::ManualClock;
use outgate::testing::RedisServer;
use outgate::{MemoryStore, RedisStore, Store, StoreError};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// Random histories.
const HISTORIES: u32 = 2_500;
const SECOND: i64 = 1_000_000;
/// Far from zero, so that every digit of a real stamp is exercised.
const EPOCH: i64 = 1_795_170_949_790_213;

#[derive(Clone, Debug)]
struct History {
    scope: Option<String>,
    /// The terms of each log.
    logs: Vec<Vec<(u32, i64)>>,
    steps: Vec<Step>,
    /// Spans are widened. Then logs stay too short to be trimmed: by which of two spans, a store on a test's clock does not know.
    widens: bool,
}

#[derive(Clone, Debug)]
enum Step {
    Ask {
        sender: u64,
        runs: Vec<(u32, Vec<u32>, Option<u64>)>,
        horizon: u64,
        insist: bool,
        mask: usize,
        ahead: u64,
        /// What its process says of the time: what it was told last, and by how much later than the clock it is at the latest.
        time: (bool, Option<i64>),
        /// Hands a slot of these logs back with it.
        back: bool,
        /// Knows of the last but so many asks of the sender.
        knows: usize,
        exact: Option<(Exact, i64)>,
    },
    /// The last ask of a sender again, or an outdated one.
    Again {
        sender: u64,
        back: u64,
    },
    /// The last hold or lesson of a sender again, or an outdated one.
    TellAgain {
        sender: u64,
        back: usize,
    },
    HandBack {
        which: usize,
        twice: bool,
    },
    HandBackNothing {
        at: i64,
    },
    /// On the scope or the whole upstream.
    Hold {
        waits: Vec<u64>,
        recovery: u64,
        all: bool,
        started: Option<i64>,
    },
    /// Of a log, for each of some terms: units remaining, microseconds until they reset.
    Learn {
        which: usize,
        reports: Vec<(u32, u64)>,
        started: Option<i64>,
        late: u64,
        refused: bool,
        all: bool,
    },
    Usage,
    Jump {
        micros: i64,
    },
    /// To the moment when a slot of before stops counting in some term, or a microsecond beside it.
    JumpToEnd {
        which: usize,
        beside: i64,
    },
}

/// What an ask sets to the microsecond: as far as the start that its process was promised before, or one beside it.
#[derive(Clone, Copy, Debug)]
enum Exact {
    Horizon,
    MaxWait,
}

fn step() -> impl Strategy<Value = Step> {
    let run = (1..12_u32, prop::collection::vec(1..6_u32, 3), prop::option::weighted(0.3, 0..400_000_u64));
    let runs = prop::collection::vec(run, 0..4);
    let exact = (prop_oneof![Just(Exact::Horizon), Just(Exact::MaxWait)], -1..2_i64);
    let exact = prop::option::weighted(0.3, exact);
    let knows = prop_oneof![8 => Just(usize::MAX), 2 => 0..3_usize];
    let ahead = prop_oneof![2 => Just(0), 1 => 0..400_000_u64];
    let time = (any::<bool>(), prop::option::weighted(0.1, -3_000_000..100_000_i64));
    prop_oneof![
        8 => (1..5_u64, runs, 0..600_000_u64, any::<[bool; 2]>(), 1..8_usize, ahead, time, knows, exact).prop_map(
            |(sender, runs, horizon, [insist, back], mask, ahead, time, knows, exact)| {
                Step::Ask { sender, runs, horizon, insist, mask, ahead, time, back, knows, exact }
            }
        ),
        1 => (1..5_u64, 0..3_u64).prop_map(|(sender, back)| Step::Again { sender, back }),
        1 => (1..3_u64, 0..3_usize).prop_map(|(sender, back)| Step::TellAgain { sender, back }),
        2 => (any::<usize>(), any::<bool>()).prop_map(|(which, twice)| Step::HandBack { which, twice }),
        1 => (-1_000_000..1_000_000_i64).prop_map(|at| Step::HandBackNothing { at }),
        1 => (prop::collection::vec(0..700_000_u64, 1..4), 0..3_000_000_u64, any::<bool>(), started())
            .prop_map(|(waits, recovery, all, started)| Step::Hold { waits, recovery, all, started }),
        2 => (any::<usize>(), reports(), started(), 0..60_000_u64, any::<[bool; 2]>()).prop_map(
            |(which, reports, started, late, [refused, all])| Step::Learn { which, reports, started, late, refused, all }
        ),
        1 => Just(Step::Usage),
        6 => prop_oneof![0..50_000_i64, 0..2_000_000_i64, -200_000..0_i64, Just(100_000_000_i64), Just(-10_000_000_i64)]
            .prop_map(|micros| Step::Jump { micros }),
        2 => (any::<usize>(), -1..2_i64).prop_map(|(which, beside)| Step::JumpToEnd { which, beside }),
    ]
}

/// Units remaining and microseconds until they reset; seldom of an upstream that knows no bounds.
fn reports() -> impl Strategy<Value = Vec<(u32, u64)>> {
    let remaining = prop_oneof![20 => 0..40_u32, 1 => Just(u32::MAX)];
    let reset = prop_oneof![20 => 0..3_000_000_u64, 1 => Just(u64::MAX)];
    prop::collection::vec((remaining, reset), 0..4)
}

/// When a call started, from now.
fn started() -> impl Strategy<Value = Option<i64>> {
    prop::option::of(-1_000_000..50_000_i64)
}

fn history() -> impl Strategy<Value = History> {
    // Short spans fill a log beyond its quota, so that it is trimmed.
    let span = prop_oneof![1_000..20_000_i64, 1_000..2_000_000_i64];
    let terms = prop::collection::vec((1..40_u32, span), 1..4);
    let logs = prop::collection::vec(terms, 1..4);
    // A long name counts up to some byte when its scope comes back after a hold on its upstream.
    let scope = prop_oneof![1 => Just(None), 4 => r"\PC{1,60}".prop_map(Some)];
    prop_oneof![
        4 => (scope.clone(), logs.clone(), prop::collection::vec(step(), 1..40), Just(false)),
        1 => (scope, logs, prop::collection::vec(step(), 1..11), Just(true)),
    ]
    .prop_map(|(scope, logs, steps, widens)| History { scope, logs, steps, widens })
}

/// A hold or a lesson, and whom it is about.
struct Telling {
    home: Home,
    id: MessageId,
    what: What,
}

enum What {
    Hold(Hold),
    Lesson(Log, Lesson),
}

impl Telling {
    fn new(step: &Step, home: &Home, id: MessageId, logs: &[Log], now: Stamp, widens: bool) -> Self {
        let at = |from_now: i64| Stamp::from_micros(now.as_micros() + from_now);
        let (all, what) = match step {
            Step::Hold { waits, recovery, all, started } => {
                let mut hold = hold(waits, *recovery);
                hold.started = started.map(at);
                (*all, What::Hold(hold))
            }
            Step::Learn { which, reports, started, late, refused, all } => {
                let log = &logs[which % logs.len()];
                let mut lesson = lesson(log, reports);
                lesson.started = started.map(at);
                lesson.late = Duration::from_micros(*late);
                (lesson.refused, lesson.memory) = (*refused && widens, Duration::from_secs(3));
                (*all, What::Lesson(log.clone(), lesson))
            }
            other => panic!("{other:?} tells nothing"),
        };
        let whom = if all { home.of_upstream() } else { None };
        Self { home: whom.unwrap_or_else(|| home.clone()), id, what }
    }

    async fn send(&self, store: &dyn Store) -> String {
        match &self.what {
            What::Hold(hold) => words(store.hold(&self.home, self.id, hold).await),
            What::Lesson(log, lesson) => words(store.learn(&self.home, self.id, log, lesson).await),
        }
    }
}

/// One history told to one store: everything it answered, in words.
async fn tell(store: &dyn Store, clock: &ManualClock, home: &Home, history: &History) -> Vec<String> {
    let logs: Vec<Log> = (0..)
        .zip(&history.logs)
        .map(|(name, terms)| {
            let terms: Vec<Term> = terms.iter().map(|&(quota, span)| Term::new(quota, span)).collect();
            Log::new(format!("log{name}"), terms)
        })
        .collect();
    let mut said = Vec::new();
    let mut number = 0;
    let (mut promised, mut newest) = (EPOCH, None);
    let mut asked: Vec<Ask> = Vec::new();
    let mut tellings: Vec<Telling> = Vec::new();
    let mut booked: Vec<(Arc<[Log]>, Slots)> = Vec::new();
    clock.set(Stamp::from_micros(EPOCH));
    for step in &history.steps {
        number += 1;
        let id = MessageId::new(number % 2 + 1, number);
        match step {
            Step::Ask { sender, runs, horizon, insist, mask, ahead, time, back, knows, exact } => {
                let chosen = logs.iter().enumerate().filter(|(index, _)| mask & (1 << index) != 0);
                let chosen: Vec<Log> = chosen.map(|(_, log)| log.clone()).collect();
                let chosen: Arc<[Log]> = if chosen.is_empty() { logs.clone().into() } else { chosen.into() };
                let runs = runs.iter().map(|wanted| run(&chosen, wanted, history.widens)).collect();
                let mut ask = Ask::new(home.clone(), *sender, number, Arc::clone(&chosen), runs);
                (ask.horizon, ask.insist) = (Duration::from_micros(*horizon), *insist);
                ask.ahead = Duration::from_micros(*ahead);
                ask.known = newest.filter(|_| time.0);
                ask.latest = time.1.map(|later| Stamp::from_micros(clock.now().as_micros() + later));
                ask.previous =
                    asked.iter().rev().filter(|of| of.sender == *sender).nth(*knows).map_or(0, |of| of.number);
                let same = |(of, _): &(Arc<[Log]>, Slots)| **of == *chosen;
                if let Some(at) = booked.iter().rposition(same).filter(|_| *back) {
                    ask.back = vec![booked.remove(at).1];
                }
                if let Some((exact, beside)) = *exact {
                    let far = u64::try_from(promised - clock.now().as_micros() + beside).unwrap_or(0);
                    let far = Duration::from_micros(far);
                    match (exact, ask.runs.first_mut()) {
                        (Exact::MaxWait, Some(run)) => run.max_wait = Some(far),
                        _ => ask.horizon = far.min(Duration::from_secs(2)),
                    }
                }
                let grant = store.book(&ask).await;
                if let Ok(grant) = &grant {
                    promised = grant.next.as_micros();
                    newest = newest.max(Some(grant.now));
                    booked.extend(slots(&ask, grant).map(|slot| (Arc::clone(&chosen), slot)));
                }
                said.push(words(grant));
                // As a line sends it again: what it said of the latest time held when it was first sent.
                ask.latest = None;
                asked.push(ask);
            }
            Step::Again { sender, back } => {
                let of_sender = asked.iter().rev().filter(|ask| ask.sender == *sender);
                if let Some(ask) = of_sender.skip(usize::try_from(*back).unwrap()).step_by(1).next() {
                    said.push(words(store.book(ask).await));
                }
            }
            Step::TellAgain { sender, back } => {
                let of_sender = tellings.iter().rev().filter(|telling| telling.id.sender == *sender);
                if let Some(telling) = { of_sender }.nth(*back) {
                    said.push(telling.send(store).await);
                }
            }
            Step::HandBack { which, twice } => {
                if booked.is_empty() {
                    continue;
                }
                let (logs, slots) = booked.swap_remove(which % booked.len());
                let message = HandBack::new(home.clone(), 9, number, logs, vec![slots]);
                for _ in 0..=usize::from(*twice) {
                    said.push(words(store.hand_back(&message).await));
                }
            }
            Step::HandBackNothing { at } => {
                let slots =
                    Slots::new(1, Stamp::from_micros(clock.now().as_micros() + at * 1_000 + 7), vec![1; logs.len()]);
                let message = HandBack::new(home.clone(), 9, number, logs.clone(), vec![slots]);
                said.push(words(store.hand_back(&message).await));
            }
            Step::Hold { .. } | Step::Learn { .. } => {
                let telling = Telling::new(step, home, id, &logs, clock.now(), history.widens);
                said.push(telling.send(store).await);
                tellings.push(telling);
            }
            Step::Usage => {}
            Step::JumpToEnd { which, beside } => {
                if let Some((logs, slots)) = booked.get(which % booked.len().max(1)) {
                    let terms = &logs[which % logs.len()].terms;
                    let end = slots.start.as_micros() + terms[which % terms.len()].span + beside;
                    clock.set(Stamp::from_micros(end.max(clock.now().as_micros() - SECOND / 5)));
                }
            }
            Step::Jump { micros } => clock.set(Stamp::from_micros(clock.now().as_micros() + micros)),
        }
        said.push(words(store.usage(home, &logs).await));
    }
    said
}

/// What an ask was granted, one slot for each caller.
fn slots(ask: &Ask, grant: &Grant) -> impl Iterator<Item = Slots> {
    let costs = ask.runs.iter().flat_map(|run| vec![Arc::clone(&run.costs); run.callers as usize]);
    let starts = grant.answers.iter().flat_map(|answer| vec![*answer; answer.callers as usize]);
    let granted = costs.zip(starts).filter(|(_, answer)| answer.granted);
    granted.map(|(costs, answer)| Slots::new(1, answer.start, costs))
}

/// Callers who want no more than the logs could ever grant at once; and hardly anything in a short history.
fn run(logs: &[Log], (callers, costs, max_wait): &(u32, Vec<u32>, Option<u64>), short: bool) -> Run {
    let most = |log: &Log| log.terms.iter().map(|term| term.quota).min().unwrap().min(if short { 2 } else { u32::MAX });
    let costs: Vec<u32> = logs.iter().zip(costs).map(|(log, &cost)| cost.min(most(log))).collect();
    let run = Run::new(if short { 1 } else { *callers }, costs);
    max_wait.map_or(run.clone(), |wait| run.max_wait(Duration::from_micros(wait)))
}

fn lesson(log: &Log, reports: &[(u32, u64)]) -> Lesson {
    let report = |(term, (remaining, reset)): (&Term, &(u32, u64))| {
        let window = Duration::from_micros(term.span.unsigned_abs() * 9 / 10);
        Report::new(*term, window, *remaining, Duration::from_micros(*reset))
    };
    let mut lesson = Lesson::default();
    lesson.reports = log.terms.iter().zip(reports).map(report).collect();
    lesson
}

fn hold(waits: &[u64], recovery: u64) -> Hold {
    let mut hold = Hold::new(Duration::ZERO);
    hold.waits = waits.iter().map(|&wait| Duration::from_micros(wait)).collect();
    hold.recovery = Duration::from_micros(recovery);
    hold.memory = Duration::from_micros(recovery / 2 * u64::try_from(waits.len()).unwrap());
    hold.cause = [Cause::Refusal, Cause::Spend, Cause::Ban][waits.len() % 3];
    hold
}

fn words(answer: Result<impl std::fmt::Debug, StoreError>) -> String {
    match answer {
        Ok(answer) => format!("{answer:?}"),
        Err(error) => format!("{:?}", error.kind()),
    }
}

#[test]
fn the_scripts_and_the_ledger_answer_alike() {
    let server = RedisServer::start().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let clock = ManualClock::new(Stamp::from_micros(EPOCH));
    let memory = MemoryStore::with_clock(clock.clone());
    let redis = runtime.block_on(RedisStore::connect(&server.url())).unwrap().with_clock(clock.clone());
    let mut runner = TestRunner::new(Config { cases: HISTORIES, failure_persistence: None, ..Config::default() });
    let homes = std::cell::Cell::new(0);
    runner
        .run(&history(), |history| {
            homes.set(homes.get() + 1);
            let home = Home::new(&format!("parity-{}", homes.get()), history.scope.as_deref());
            let expected = runtime.block_on(tell(&memory, &clock, &home, &history));
            let answered = runtime.block_on(tell(&redis, &clock, &home, &history));
            prop_assert_eq!(answered, expected);
            Ok(())
        })
        .unwrap();
    assert!(homes.get() >= HISTORIES);
}
