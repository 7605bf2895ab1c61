//! A decision in memory, beside `governor`.

use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::DefaultClock;
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::DashMapStateStore;
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use outgate::{Acquire, Error, Throttle};

use crate::page::{Page, Target};
use crate::spread::Versus;
use crate::throttles::{UP, ample, calls, scarce, scope};
use crate::turns::{Result, cell, expect, in_turns, nanos_each, runtime, together};

const SCOPES: usize = 1_000;
/// Of one thread in one round.
const CALLS: usize = 200_000;
/// How many times as many the baseline makes: a round of it must not be too short to be timed.
const TIMES: usize = 10;
const ROUNDS: usize = 5;
const THREADS: [usize; 2] = [1, 2];

type Rounds = Vec<(f64, f64)>;
type Keyed = RateLimiter<String, DashMapStateStore<String>, DefaultClock, NoOpMiddleware>;

const PROSE: &str = "Nanoseconds for each decision of one thread, with as many threads at once, on a `MemoryStore`. \
    The quota is more than any round uses up, or one call a day, where every decision is a refusal. Scopes are strings of \
    15 bytes in random order.\n\n\
    The two do not do the same. `governor` keeps 8 bytes for each key, the theoretical arrival time of GCRA: its calls may \
    come to twice the quota in a window, and it has no queue: who waits wakes, and tries again. Outgate keeps every start \
    for as long as it counts, hashes the scope's value with SHA-256, and serves whoever waits in order of arrival.";

/// Decisions with and without a scope, granted and refused, for now or waiting.
pub(crate) fn run(page: &mut Page) -> Result {
    page.section("A decision in memory, beside governor");
    page.text(PROSE);
    let bench = Bench { scopes: (0..SCOPES).map(scope).collect() };
    let mut rows = Vec::new();
    let mut row = |what: &str, threads: usize, rounds: &Rounds| {
        let Versus { ours, theirs, ratio } = Versus::of(rounds);
        rows.push(vec![what.to_owned(), threads.to_string(), cell(ours, 0), cell(theirs, 0), cell(ratio, 2)]);
        ratio
    };
    for threads in THREADS {
        let ratio = row("`try_acquire`, 1,000 scopes ÷ `check_key`", threads, &bench.keyed(threads)?);
        let what = format!("`try_acquire`, 1,000 scopes, threads: {threads} ÷ governor `check_key`");
        page.target(&what, ratio, "", Target::AtMost(6.0));
        let ratio = row("… refused ÷ refused", threads, &bench.keyed_refused(threads)?);
        page.target(&format!("{what}: refused ÷ refused"), ratio, "", Target::AtMost(6.0));
        row("`acquire`, 1,000 scopes ÷ `until_key_ready`", threads, &bench.keyed_waiting(threads)?);
        row("`try_acquire`, no scope ÷ `check`", threads, &bench.direct(threads)?);
        row("`acquire`, no scope ÷ `until_ready`", threads, &bench.direct_waiting(threads)?);
    }
    page.table(&["ours ÷ theirs", "threads", "ours, ns", "governor, ns", "ratio"], &rows);
    Ok(())
}

struct Bench {
    scopes: Vec<String>,
}

impl Bench {
    fn keyed(&self, threads: usize) -> Result<Rounds> {
        in_turns(
            ROUNDS,
            || self.ours(threads, &ample()?, 1, |throttle, scope| throttle.try_acquire(UP).scope(scope)),
            || {
                let limiter: Keyed = RateLimiter::dashmap(plenty()?);
                self.theirs(threads, |scope| limiter.check_key(scope).is_ok())
            },
        )
    }

    fn keyed_refused(&self, threads: usize) -> Result<Rounds> {
        in_turns(
            ROUNDS,
            || self.ours(threads, &scarce()?, 0, |throttle, scope| throttle.try_acquire(UP).scope(scope)),
            || {
                let quota = Quota::with_period(Duration::from_secs(86_400)).ok_or("no period")?;
                let limiter: Keyed = RateLimiter::dashmap(quota);
                let used_up = self.scopes.iter().filter(|scope| limiter.check_key(scope).is_ok()).count();
                expect(used_up, SCOPES, "granted")?;
                self.theirs(threads, |scope| limiter.check_key(scope).is_err())
            },
        )
    }

    fn keyed_waiting(&self, threads: usize) -> Result<Rounds> {
        in_turns(
            ROUNDS,
            || self.ours(threads, &ample()?, 1, |throttle, scope| throttle.acquire(UP).scope(scope)),
            || {
                let limiter: Keyed = RateLimiter::dashmap(plenty()?);
                self.theirs_waiting(threads, async |scope| limiter.until_key_ready(scope).await)
            },
        )
    }

    fn direct(&self, threads: usize) -> Result<Rounds> {
        in_turns(
            ROUNDS,
            || self.ours(threads, &ample()?, 1, |throttle, _| throttle.try_acquire(UP)),
            || {
                let limiter: DefaultDirectRateLimiter = RateLimiter::direct(plenty()?);
                self.theirs(threads, |_| limiter.check().is_ok())
            },
        )
    }

    fn direct_waiting(&self, threads: usize) -> Result<Rounds> {
        in_turns(
            ROUNDS,
            || self.ours(threads, &ample()?, 1, |throttle, _| throttle.acquire(UP)),
            || {
                let limiter: DefaultDirectRateLimiter = RateLimiter::direct(plenty()?);
                self.theirs_waiting(threads, async |_| limiter.until_ready().await)
            },
        )
    }

    /// Every scope has had its first call before the clock starts: its quota is used up where that is one.
    fn ours(
        &self,
        threads: usize,
        throttle: &Throttle,
        granted: usize,
        call: impl Fn(&Throttle, &str) -> Acquire + Sync,
    ) -> Result<f64> {
        runtime()?.block_on(async {
            for scope in &self.scopes {
                // Without a scope all but the first of them may be refused.
                let _ = call(throttle, scope).await;
            }
        });
        let mut works = Vec::new();
        for thread in 0..threads {
            let (runtime, calls, call) = (runtime()?, self.calls(thread), &call);
            works.push(move || {
                let done = runtime.block_on(async {
                    let mut done = 0;
                    for scope in &calls {
                        done += match call(throttle, scope).await {
                            Ok(_) => granted,
                            Err(Error::Throttled { .. }) => 1 - granted,
                            Err(error) => return Err(error),
                        };
                    }
                    Ok(done)
                })?;
                expect(done, CALLS, "decided as they should be")
            });
        }
        Ok(nanos_each(together(works)?, CALLS))
    }

    fn theirs(&self, threads: usize, call: impl Fn(&String) -> bool + Sync) -> Result<f64> {
        for scope in &self.scopes {
            call(scope);
        }
        let work = |thread| {
            let (calls, call) = (self.calls(thread), &call);
            move || {
                let done = std::iter::repeat_n(&calls, TIMES).flatten().filter(|scope| call(scope)).count();
                expect(done, CALLS * TIMES, "decided as they should be")
            }
        };
        Ok(nanos_each(together((0..threads).map(work).collect())?, CALLS * TIMES))
    }

    fn theirs_waiting(&self, threads: usize, call: impl AsyncFn(&String) + Sync) -> Result<f64> {
        let mut works = Vec::new();
        for thread in 0..threads {
            let (runtime, calls, call) = (runtime()?, self.calls(thread), &call);
            works.push(move || {
                runtime.block_on(async {
                    for scope in std::iter::repeat_n(&calls, TIMES).flatten() {
                        call(scope).await;
                    }
                });
                Ok(())
            });
        }
        Ok(nanos_each(together(works)?, CALLS * TIMES))
    }

    fn calls(&self, thread: usize) -> Vec<String> {
        calls(CALLS, self.scopes.len(), thread as u64)
    }
}

/// What no round uses up: one call each nanosecond. GCRA costs the same whatever the quota.
fn plenty() -> Result<Quota> {
    Ok(Quota::per_second(NonZeroU32::new(1_000_000_000).ok_or("zero")?))
}
