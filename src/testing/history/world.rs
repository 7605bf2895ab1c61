//! An upstream: its scopes, their logs, and what may be said of them.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use super::time::Times;
use crate::ledger::{
    Body, Boundary, Bucket, Calendar, Cause, Cold, Evidence, Log, Pause, Presence, Priority, QuotaReport, Renewal,
    Report, Run, ScopeId, ScopePresence, SeatLimit, Shape, Stamp, Term,
};

/// What logs count.
const UNITS: [&str; 3] = ["calls", "points", "tokens"];

/// Everything that the history of an upstream is about.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each says something of its own")]
pub(super) struct World {
    /// Those of one scope next to each other, the whole upstream's first.
    pub(super) logs: Vec<Log>,
    scopes: Vec<Option<ScopeId>>,
    /// How many calls may be in flight, for some of the scopes.
    seats: Vec<SeatLimit>,
    /// Refusals that nothing explains widen the spans. Then little is granted, so that no log is trimmed: by which of two
    /// spans, a store may decide for itself.
    pub(super) lowers: bool,
    /// Some queues name stricter terms than others.
    pub(super) two_releases: bool,
    /// Somebody has logs forgotten now and then.
    pub(super) resets: bool,
    /// What the logs hold can be told from the answers: no debt is more than is entered of it by all whose terms hold.
    pub(super) is_calm: bool,
}

impl World {
    pub(super) fn random(rng: &mut Rng, lowers: bool, two_releases: bool, resets: bool) -> Self {
        let mut logs = Vec::new();
        let of_all = [0, 1, 1, 2][rng.usize(0..4)];
        add_logs(rng, None, of_all, &mut logs);
        let least = usize::from(logs.is_empty());
        for _ in 0..rng.usize(least..4) {
            let (scope, count) = (ScopeId::from_bits(rng.u128(..)), rng.usize(1..3));
            add_logs(rng, Some(scope), count, &mut logs);
        }
        let mut scopes = vec![None];
        scopes.extend(logs.iter().map(|log| log.scope));
        scopes.dedup();
        let mut seats = Vec::new();
        if rng.u8(0..3) == 0 {
            let some = scopes.iter().filter(|_| rng.bool()).copied().collect::<Vec<_>>();
            seats.extend(some.into_iter().map(|scope| SeatLimit::new(scope, 1 << rng.u32(0..6))));
        }
        Self { logs, scopes, seats, lowers, two_releases, resets, is_calm: false }
    }

    /// A question for all that there is.
    pub(super) fn usage(&self) -> Body {
        Body::Usage { logs: self.logs.clone().into(), seats: self.seats.clone().into() }
    }

    /// Each log counts for long as well.
    pub(super) fn lengthen(&mut self, rng: &mut Rng) {
        for log in &mut self.logs {
            let long = Term::new(rng.u32(60..200), rng.i64(10_000_001..50_000_000));
            log.terms = log.terms.iter().copied().chain([long]).collect();
        }
    }

    /// Moves what happens by the calendar.
    pub(super) fn shift(&mut self, micros: i64) {
        self.logs = Self::shifted(&self.logs, micros);
    }

    /// Logs whose boundaries are so much later.
    pub(super) fn shifted(logs: &[Log], micros: i64) -> Vec<Log> {
        let later = |term: &Term| match term.shape {
            Shape::Calendar(calendar) => Term { shape: Shape::Calendar(calendar.later_by(micros)), ..*term },
            _ => *term,
        };
        let of_log = |log: &Log| Log { terms: log.terms.iter().map(later).collect(), ..log.clone() };
        logs.iter().map(of_log).collect()
    }

    /// The same logs, as a process names them whose calendar is another's: a little, or by half a window.
    pub(super) fn moved(rng: &mut Rng, logs: &[Log]) -> Arc<[Log]> {
        let mut moved = |term: &Term| {
            let Shape::Calendar(mut calendar) = term.shape else { return *term };
            let most = if rng.u8(0..4) == 0 { term.span } else { term.span / 16 };
            for boundary in &mut calendar.boundaries {
                let (from, length) = (boundary.from.plus(rng.i64(-most..most)), rng.i64(0..most));
                *boundary = Boundary::new(from, if rng.bool() { from } else { from.plus(length) });
            }
            calendar.boundaries.sort_unstable_by_key(|boundary| boundary.from);
            Term { shape: Shape::Calendar(calendar), ..*term }
        };
        logs.iter().map(|log| Log { terms: log.terms.iter().map(&mut moved).collect(), ..log.clone() }).collect()
    }

    /// Some logs of some scopes: those that the callers of a queue need.
    pub(super) fn some_logs(&self, rng: &mut Rng) -> Arc<[Log]> {
        let mut scopes: Vec<_> = self.scopes[1..].iter().filter(|_| rng.u8(0..3) > 0).take(2).collect();
        if rng.bool() {
            scopes.reverse();
        }
        let mut some = Vec::new();
        for scope in self.scopes[..1].iter().chain(scopes) {
            some.extend(self.logs.iter().filter(|log| log.scope == *scope && rng.u8(0..4) > 0).cloned());
        }
        if some.is_empty() { self.logs.clone().into() } else { some.into() }
    }

    /// The same logs, as a release names them that was given stricter limits: of some fewer units, and some limited by one term more.
    pub(super) fn stricter(rng: &mut Rng, logs: &[Log]) -> Arc<[Log]> {
        let of_log = |log: &Log| {
            let mut terms: Vec<Term> = log.terms.to_vec();
            for term in &mut terms {
                if rng.bool() {
                    continue;
                }
                if let Shape::Bucket(bucket) = term.shape {
                    let parts = rng.i64(1..4);
                    // By which of two spans a log is trimmed a store may decide for itself: the longest stays.
                    let parts = if term.span < log.retention() { parts } else { 1 };
                    *term = Term::bucket(Bucket::new(bucket.interval, bucket.depth / parts)).cold(term.cold);
                } else {
                    term.quota = rng.u32(1..=term.quota);
                }
            }
            if let Some(&term) = terms.last().filter(|term| term.shape == Shape::Window && rng.u8(0..3) == 0) {
                terms.push(Term::new(rng.u32(1..=term.quota), rng.i64(term.span / 2..term.span)));
            }
            Log { terms: terms.into(), ..log.clone() }
        };
        logs.iter().map(of_log).collect()
    }

    /// Some logs, or one that nothing limits but pauses, or none; and limits on calls in flight, in some worlds.
    pub(super) fn some_seats(&self, rng: &mut Rng, logs: Arc<[Log]>) -> (Arc<[Log]>, Arc<[SeatLimit]>) {
        let some: Arc<[SeatLimit]> = self.seats.iter().filter(|_| rng.u8(0..4) > 0).copied().collect();
        let Some(first) = some.first().filter(|_| rng.u8(0..3) == 0) else { return (logs, some) };
        if rng.bool() {
            return ([].into(), some);
        }
        ([Log::new("calls-in-flight", []).of(first.scope)].into(), some)
    }

    /// Half of the seats of each limit.
    pub(super) fn fewer(limits: &[SeatLimit]) -> Arc<[SeatLimit]> {
        limits.iter().map(|limit| SeatLimit::new(limit.scope, limit.seats.div_ceil(2))).collect()
    }

    /// Callers of the same charges: zero of some log, but not of all, and nowhere more than could ever start at once.
    pub(super) fn run(&self, rng: &mut Rng, logs: &[Log]) -> Run {
        let (most, callers) = if self.lowers { (3, 3) } else { (6, 10) };
        let mut charges: Vec<u32> = logs.iter().map(|log| rng.u32(0..most).min(log.largest_charge())).collect();
        if !logs.is_empty() && charges.iter().all(|&units| units == 0) {
            charges[rng.usize(..logs.len())] = 1;
        }
        let run = Run::new(rng.u32(1..callers), charges).priority(some_priority(rng));
        if rng.u8(0..3) == 0 { run.max_wait(Duration::from_micros(rng.u64(0..300_000))) } else { run }
    }

    /// Calls of before that were cold.
    pub(super) fn cold(rng: &mut Rng, logs: &[Log], now: Stamp) -> Cold {
        let last = now.plus(rng.i64(-1_300_000..50_000));
        let first = if rng.bool() { last } else { last.plus(-rng.i64(0..100_000)) };
        Cold::new(first, last, logs.iter().map(|_| rng.u32(0..20)).collect::<Vec<_>>())
    }

    /// Units that calls of before used beyond what they were charged: few, many, or more than can ever count.
    pub(super) fn debts(&self, rng: &mut Rng, logs: &[Log]) -> Vec<u32> {
        let most = match rng.u8(0..8) {
            _ if self.lowers => 3,
            0 => u32::MAX,
            1 => 3_000,
            2 | 3 => 50,
            _ => 6,
        };
        let of_log = |log: &Log| {
            let debt = rng.u32(0..most);
            if self.is_calm && self.two_releases { debt.min(log.largest_quota()) } else { debt }
        };
        logs.iter().map(of_log).collect()
    }

    fn scope(&self, rng: &mut Rng) -> Option<ScopeId> {
        self.scopes[rng.usize(..self.scopes.len())]
    }

    /// An upstream refuses.
    pub(super) fn pause(&self, rng: &mut Rng, now: Stamp) -> Body {
        let mut pause = Pause::new(Duration::ZERO);
        pause.waits = (0..rng.usize(1..4)).map(|_| Duration::from_micros(rng.u64(0..400_000))).collect();
        if rng.bool() {
            pause.recovery = Duration::from_micros(rng.u64(0..2_000_000));
        }
        pause.memory = Duration::from_micros(rng.u64(0..1_000_000));
        pause.cause = [Cause::Overload, Cause::Refusal, Cause::Spend, Cause::Ban][rng.usize(0..4)];
        pause.started = started(rng, now);
        pause.status = [0, 429, 430][rng.usize(0..3)];
        if rng.u8(0..3) == 0 {
            pause.told = Duration::from_micros(rng.u64(0..3_000_000));
        }
        let scope = self.scope(rng);
        pause.evidence = self.logs.iter().find(|log| self.lowers && log.scope == scope).map(|log| {
            let window = |term: &Term| (*term, Duration::from_micros(term.span.unsigned_abs() * 9 / 10));
            let windows = log.terms.iter().map(window).take(rng.usize(0..3)).collect();
            Box::new(Evidence { calls: rng.u32(0..3), ..Evidence::new(log.clone(), rng.u32(1..6), windows) })
        });
        Body::Pause { scope, pause }
    }

    /// Pauses end: by hand, or because a call was served that looked.
    pub(super) fn release(&self, rng: &mut Rng, now: Stamp) -> Body {
        let served = (rng.u8(0..3) > 0).then(|| now.plus(rng.i64(-200_000..400_000)));
        Body::Release { scope: self.scope(rng), served }
    }

    /// Somebody slows calls down by hand; where spans must not be widened, by nothing.
    pub(super) fn slow_down(&self, rng: &mut Rng, _: Stamp) -> Body {
        let factor = if self.lowers { rng.u32(1..1_100_000) } else { 1_000_000 };
        Body::SlowDown { scope: self.scope(rng), factor, lasting: Duration::from_micros(rng.u64(0..2_000_000)) }
    }

    /// Somebody looks whether pauses still hold.
    pub(super) fn look(&self, rng: &mut Rng, now: Stamp) -> Body {
        let since = now.plus(-rng.i64(0..8_000_000));
        Body::Look { scopes: self.scopes.iter().flatten().copied().take(rng.usize(0..4)).collect(), since }
    }

    /// A process is there, or gone.
    pub(super) fn renew(&self, rng: &mut Rng, _: Stamp) -> Body {
        let scopes = self.scopes.iter().flatten().take(rng.usize(0..4));
        let scopes = scopes.map(|&scope| ScopePresence {
            callers: rng.u32(0..9),
            oldest: Duration::from_micros(rng.u64(0..99_000_000)),
            ..ScopePresence::new(0, scope)
        });
        let presence = Presence { scopes: scopes.collect(), described: rng.u64(1..4), ..Presence::default() };
        let presence = Presence { weight: rng.u32(1..9), callers: rng.u32(0..9), ..presence };
        let lasting = Duration::from_micros(rng.u64(0..3_000_000)) * u32::from(rng.u8(0..4) > 0);
        let renewal = Renewal::new(Self::whose(rng), presence, lasting);
        Body::Renew(if rng.bool() { renewal.about(["", "100/s", "25 in flight"][rng.usize(0..3)]) } else { renewal })
    }

    /// Somebody asks who is there.
    pub(super) fn processes(_: &Self, rng: &mut Rng, _: Stamp) -> Body {
        Body::Processes { upstream: Self::whose(rng).into() }
    }

    /// Upstreams that share limits.
    fn whose(rng: &mut Rng) -> &'static str {
        if rng.u8(0..4) == 0 { "files" } else { "mail" }
    }

    /// An upstream reports how much is left: true or not.
    pub(super) fn report(&self, rng: &mut Rng, now: Stamp) -> Body {
        let log = self.logs[rng.usize(..self.logs.len())].clone();
        let quota = |term: &Term| {
            let (mut left, mut reset) = (rng.u32(0..30), Duration::from_micros(rng.u64(0..400_000)));
            // Seldom of one who knows no bounds.
            (left, reset) = if rng.u8(0..20) == 0 { (u32::MAX, reset) } else { (left, reset) };
            (left, reset) = if rng.u8(0..20) == 0 { (left, Duration::MAX) } else { (left, reset) };
            let window = Duration::from_micros(term.span.unsigned_abs() * 9 / 10);
            QuotaReport::new(*term, window, left, reset)
        };
        let mut report = Report { quotas: log.terms.iter().map(quota).collect(), ..Report::default() };
        report.quotas.truncate(rng.usize(0..4));
        (report.started, report.late) = (started(rng, now), Duration::from_micros(rng.u64(0..60_000)));
        Body::Report { log, report }
    }
}

/// Mostly a normal one.
fn some_priority(rng: &mut Rng) -> Priority {
    [Priority::High, Priority::Normal, Priority::Normal, Priority::Low][rng.usize(0..4)]
}

/// When a call started, where that is said.
fn started(rng: &mut Rng, now: Stamp) -> Option<Stamp> {
    rng.bool().then(|| now.plus(rng.i64(-1_000_000..50_000)))
}

/// A calendar window of some length, some time before the beginning.
fn calendar(rng: &mut Rng, quota: u32, span: i64) -> Term {
    let length = span * 10;
    let (guard, mut from) = (rng.i64(0..length / 4), Times::EPOCH.plus(-rng.i64(length..2 * length)));
    let boundaries = std::array::from_fn(|_| {
        let boundary = Boundary::new(from, if rng.u8(0..4) == 0 { from.plus(rng.i64(0..length / 4)) } else { from });
        from = from.plus(length);
        boundary
    });
    Term::calendar(quota, 2 * length, Calendar::new(guard, boundaries))
}

fn add_logs(rng: &mut Rng, scope: Option<ScopeId>, count: usize, logs: &mut Vec<Log>) {
    let term = |rng: &mut Rng| {
        // As many short spans as long ones, so that logs of all lengths come up.
        let longest = 1_000 << rng.u32(1..11);
        let (quota, span) = (rng.u32(1..if scope.is_none() { 50 } else { 25 }), rng.i64(1_000..longest));
        let cold = if rng.bool() { rng.i64(0..span) } else { 0 };
        if rng.u8(0..4) == 0 {
            let depth = span * rng.i64(1_000..1_500);
            return Term::bucket(Bucket::new(depth / i64::from(quota), depth)).cold(cold);
        }
        if rng.u8(0..8) == 0 {
            return calendar(rng, quota, span);
        }
        Term::new(quota, span).cold(cold)
    };
    let first = rng.usize(0..UNITS.len());
    for unit in 0..count {
        let terms: Vec<Term> = (0..rng.usize(1..4)).map(|_| term(rng)).collect();
        logs.push(Log::new(UNITS[(first + unit) % UNITS.len()], terms).of(scope));
    }
}
