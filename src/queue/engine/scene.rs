//! An engine before a store whose clock the test moves.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use fastrand::Rng;
use tokio::time::Instant;

use super::Engine;
use crate::config::costs::Costs;
use crate::config::plan::Spans;
use crate::error::StoreError;
use crate::ledger::{Log, Refused, SeatLimit, Stamp, Term};
use crate::queue::bounds::Exchange;
use crate::queue::calendars::Calendars;
use crate::queue::events::{Effects, Event};
use crate::queue::in_flight::{Answered, Header, Message, Reply};
use crate::queue::log_time::LogTime;
use crate::queue::seats::SeatRules;
use crate::queue::settings::Settings;
use crate::store::clock::ManualClock;
use crate::store::{MemoryStore, WithoutStore};

/// What the store's clock shows when the own shows nothing, in microseconds.
const BEGAN: i64 = 5_000_000_000;

/// A store, the time, and nothing else that happens.
pub(super) struct World {
    pub(super) store: MemoryStore,
    clock: ManualClock,
    pub(super) epoch: Instant,
    pub(super) now: Instant,
}

impl World {
    pub(super) fn new() -> Self {
        let (clock, epoch) = (ManualClock::new(Stamp::from_micros(BEGAN)), Instant::now());
        Self { store: MemoryStore::with_clock(clock.clone()), clock, epoch, now: epoch }
    }

    /// Moves both clocks.
    pub(super) fn pass_to(&mut self, now: Instant) {
        let passed = i64::try_from(now.saturating_duration_since(self.now).as_micros()).unwrap();
        self.now = self.now.max(now);
        self.step(passed);
    }

    /// Moves the store's alone.
    pub(super) fn step(&self, micros: i64) {
        self.clock.set(Stamp::from_micros(self.clock.now().as_micros() + micros));
    }

    /// What the store's clock shows.
    pub(super) fn stamp(&self) -> Stamp {
        self.clock.now()
    }

    pub(super) fn at(&self, ms: u64) -> Instant {
        self.epoch + Duration::from_millis(ms)
    }

    pub(super) fn millis(&self, at: Instant) -> u128 {
        at.saturating_duration_since(self.epoch).as_millis()
    }
}

/// A queue of one process, and what its rim would keep.
pub(super) struct Process {
    pub(super) engine: Engine,
    pub(super) time: LogTime,
    numbers: u64,
}

impl Process {
    /// In a world where so many may start within so long.
    pub(super) fn new(world: &World, sender: u64, quota: u32, span: Duration) -> Self {
        let term = Term::new(quota, i64::try_from(span.as_micros()).unwrap());
        let settings = settings(Log::new("calls", [term]), None);
        Self::of(world, sender, Settings { promote_low_after: Some(Duration::from_millis(300)), ..settings })
    }

    /// The same, with slots that are late after so long.
    pub(super) fn hasty(world: &World, quota: u32, span: Duration, stale_after: Duration) -> Self {
        let term = Term::new(quota, i64::try_from(span.as_micros()).unwrap());
        Self::of(world, 7, Settings { stale_after, ..settings(Log::new("calls", [term]), None) })
    }

    fn of(world: &World, sender: u64, settings: Settings) -> Self {
        let engine = Engine::new(Arc::new(settings), sender, Rng::with_seed(sender));
        Self { engine, time: LogTime::since(world.epoch), numbers: 0 }
    }

    /// In a world where so many calls may be in flight; and 20 may start within 300 ms, if there is a quota.
    pub(super) fn seated(world: &World, sender: u64, seats: u32, lease: Duration, has_quota: bool) -> Self {
        let terms = if has_quota { vec![Term::new(20, 300_000)] } else { Vec::new() };
        let seats = Some(SeatRules { limits: [SeatLimit::new(None, seats)].into(), lease });
        Self::of(world, sender, settings(Log::new("calls", terms), seats))
    }

    pub(super) fn handle(&mut self, event: Event, now: Instant) -> Effects {
        let mut effects = Effects::new();
        self.engine.handle(event, now, &mut effects);
        effects
    }

    pub(super) fn turn(&mut self, now: Instant) -> Effects {
        let (numbers, mut effects) = (&mut self.numbers, Effects::new());
        let outlook = self.time.outlook(self.engine.settings.stale_after, now);
        let header = || {
            *numbers += 1;
            Header { number: *numbers, outlook }
        };
        self.engine.turn(now, header, &mut effects);
        effects
    }

    /// The answer to a message that left at `sent`.
    pub(super) fn read(&self, reply: Reply, sent: Instant, arrived: Instant) -> Answered {
        Answered::new(reply, Exchange { sent, arrived }, &self.time, &self.engine.settings)
    }
}

/// Those of a queue before one log, whose slots are late after 24 ms.
fn settings(log: Log, seats: Option<SeatRules>) -> Settings {
    Settings {
        spans: Spans::default(),
        upstream: "up".into(),
        ledger: "up".into(),
        key: (0, None),
        stream: "".into(),
        logs: [log].into(),
        seats,
        borrows: false,
        calendars: Calendars::default(),
        stale_after: Duration::from_millis(24),
        horizon: Duration::from_millis(250),
        promote_low_after: None,
        without_store: WithoutStore::Wait,
        warn_after: None,
        counts: crate::counts::Counts::default(),
        weight: 1,
        observes: false,
    }
}

/// What the store makes of a message now.
pub(super) fn reply(world: &World, message: &Message) -> Reply {
    match pin!(message.send(&world.store)).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(reply) => reply,
        Poll::Pending => unreachable!("memory is at hand"),
    }
}

pub(super) fn outdated() -> Reply {
    Err(Refused::Outdated.into())
}

pub(super) fn lost() -> Reply {
    Err(StoreError::late())
}

/// What a call of so many units takes of each log.
pub(super) fn costs(units: u32) -> Costs {
    Costs::of(&[units].into())
}
