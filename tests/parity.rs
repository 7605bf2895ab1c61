//! Stores give identical answers to the same random histories: what a store forgets changes no answer, and the scripts in Redis
//! say what the ledger says.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use outgate::ledger::{Body, Ledger, Message, Priority, Reply, Run, Stamp};
use outgate::store::Applying;
use outgate::store::StoreErrorKind;
use outgate::testing::ManualClock;
use outgate::testing::history::{Heard, History, plain};
use outgate::{MemoryStore, Store};
use tokio::task::JoinSet;

/// So many messages are answered alike at least.
const MESSAGES: usize = 100_000;
/// Pairs of stores that are told histories side by side.
const LANES: usize = 4;

/// A ledger for each upstream that never forgets.
#[derive(Debug)]
struct Ledgers {
    clock: ManualClock,
    ledgers: Mutex<HashMap<Arc<str>, Ledger>>,
}

impl Store for Ledgers {
    fn apply<'a>(&'a self, message: &'a Message) -> Applying<'a> {
        let mut ledgers = self.ledgers.lock().unwrap();
        let ledger = ledgers.entry(Arc::clone(&message.upstream)).or_default();
        Applying::ready(ledger.apply(self.clock.now(), message).map_err(Into::into))
    }
}

/// How far ahead of now those book who leave the rest to others.
const SLACK: Duration = Duration::from_millis(20);

/// What happened in all histories, so that none of it is left out one day.
#[derive(Debug, Default)]
struct Seen {
    messages: usize,
    granted: usize,
    put_off: usize,
    behind_others: usize,
    crowded: usize,
    of_several_scopes: usize,
    near: usize,
    below_others: usize,
    paused: usize,
    beside_cold: usize,
    short_of_seats: usize,
    to_give_seats_back: usize,
    roll_calls: usize,
    behind_debts: usize,
    lost: usize,
    told_of_losses: usize,
    entered_again: usize,
    of_others: usize,
    beside_other_terms: usize,
    outdated: usize,
    duplicates: usize,
}

impl Seen {
    fn note(&mut self, message: &Message, heard: &Heard) {
        self.messages += 1;
        match (&message.body, heard) {
            (Body::Ask(ask), Ok(Reply::Grant(grant))) => {
                let callers: u32 = ask.runs.iter().map(|run| run.callers).sum();
                let answered = grant.answered(callers);
                self.granted += usize::from(answered > 0);
                self.put_off += usize::from(answered < callers);
                self.behind_others += usize::from(grant.contenders > 0);
                self.crowded += usize::from(grant.contenders > 2);
                self.of_several_scopes += usize::from(ask.logs.iter().any(|log| log.scope != ask.logs[0].scope));
                self.near += usize::from(grant.within < ask.horizon);
                let is_below = |run: &Run| run.priority != Priority::High && grant.within <= ask.ahead.max(SLACK);
                let waits =
                    answered < callers && grant.contenders > 0 && ask.horizon > 2 * SLACK && ask.seats.is_none();
                self.below_others += usize::from(waits && ask.runs.iter().all(is_below));
                self.lost += usize::from(grant.lost);
                self.told_of_losses += usize::from(grant.loss.is_some());
                self.entered_again += usize::from(ask.again.as_ref().is_some_and(|again| !again.steps.is_empty()));
                self.paused += usize::from(grant.paused.is_some());
                self.beside_other_terms += usize::from(grant.other_term.is_some());
                if let (Some(seats), Some(told)) = (&ask.seats, grant.seats) {
                    self.short_of_seats += usize::from(!told.again.is_zero());
                    self.to_give_seats_back += usize::from(told.keep < seats.kept);
                    // Who names no log hears of lost data for the sake of its seats alone.
                    self.roll_calls += usize::from(grant.lost && ask.logs.is_empty());
                }
                self.behind_debts += usize::from(!ask.debts.is_empty() && answered < callers);
                self.beside_cold += usize::from(ask.cold.is_some() && answered < callers);
            }
            (_, Ok(Reply::Learned(learned))) => {
                self.of_others += usize::from(learned.outside > 0);
            }
            (_, Err(StoreErrorKind::Outdated)) => self.outdated += 1,
            (_, Err(StoreErrorKind::Duplicate)) => self.duplicates += 1,
            _ => {}
        }
    }
}

async fn send(store: &dyn Store, message: &Message) -> Heard {
    match store.apply(message).await {
        Err(error) if !matches!(error.kind(), StoreErrorKind::Outdated | StoreErrorKind::Duplicate) => {
            panic!("the store failed at {message:?}: {error:?}")
        }
        answer => answer.map_err(|error| error.kind()),
    }
}

/// Tells both stores, which are on the same clock, one history after another.
async fn compare(lane: u64, clock: ManualClock, one: Ledgers, other: impl Store, forgets: bool) -> Seen {
    let mut seen = Seen::default();
    for seed in (lane..).step_by(LANES) {
        if seen.messages >= MESSAGES / LANES {
            break;
        }
        let history = if seed % 7 == 2 { History::long } else { History::new };
        let history = history(format!("parity-{seed}"), seed);
        let mut history = if forgets { history.steady() } else { history };
        while let Some((now, message)) = history.next_message() {
            clock.set(now);
            let [expected, answered] = [send(&one, &message).await, send(&other, &message).await];
            seen.note(&message, &expected);
            let since = |heard: &Heard| heard.clone().map(|reply| plain(&message, reply, history.epoch()));
            assert_eq!(since(&answered), since(&expected), "seed {seed}: {message:#?}");
            history.hear(expected);
        }
        let breach = history.record().breaches().first();
        assert!(breach.is_none(), "seed {seed}: {breach:?}");
    }
    seen
}

/// Compares stores of a kind, side by side, with ledgers that never forget. What `forgets` may trim a log at another time.
async fn compare_all<S: Store>(forgets: bool, mut store: impl AsyncFnMut(ManualClock) -> S) {
    let mut lanes = JoinSet::new();
    for lane in 0..LANES {
        let clock = ManualClock::new(Stamp::from_micros(0));
        let ledgers = Ledgers { clock: clock.clone(), ledgers: Mutex::default() };
        lanes.spawn(compare(lane as u64, clock.clone(), ledgers, store(clock).await, forgets));
    }
    let all = lanes.join_all().await;
    let sum = |of: fn(&Seen) -> usize| all.iter().map(of).sum::<usize>();
    assert!(sum(|seen| seen.messages) >= MESSAGES);
    let often: [fn(&Seen) -> usize; 5] =
        [|of| of.granted, |of| of.put_off, |of| of.behind_others, |of| of.crowded, |of| of.of_several_scopes];
    let seldom: [fn(&Seen) -> usize; 15] = [
        |of| of.near,
        |of| of.below_others,
        |of| of.paused,
        |of| of.beside_cold,
        |of| of.short_of_seats,
        |of| of.to_give_seats_back,
        |of| of.roll_calls,
        |of| of.behind_debts,
        |of| of.lost,
        |of| of.told_of_losses,
        |of| of.entered_again,
        |of| of.of_others,
        |of| of.beside_other_terms,
        |of| of.outdated,
        |of| of.duplicates,
    ];
    assert!(often.into_iter().all(|of| sum(of) > MESSAGES / 20), "{all:?}");
    assert!(seldom.into_iter().all(|of| sum(of) > MESSAGES / 500), "{all:?}");
}

#[tokio::test]
async fn what_the_memory_forgets_changes_no_answer() {
    compare_all(true, async |clock: ManualClock| MemoryStore::with_clock(clock)).await;
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn the_scripts_and_the_ledger_answer_alike() {
    let server = outgate::testing::RedisServer::start().unwrap();
    let connected = async || outgate::RedisStore::connect(&server.url()).await.unwrap();
    compare_all(false, async |clock: ManualClock| connected().await.with_clock(clock)).await;
}
