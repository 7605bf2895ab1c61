//! Many scopes in one process: what each keeps in memory, and what they cost a call.

use std::num::NonZeroU32;
use std::time::Instant;

use allocation_counter::measure;
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use outgate::{Limit, Throttle, Upstream};

use crate::page::{Page, Target};
use crate::spread::{Spread, Versus};
use crate::throttles::{UP, calls, scope, throttle};
use crate::turns::{Result, cell, in_turns, nanos_each, runtime};

const MANY: usize = 100_000;
const FEW: usize = 10;
/// Of one round.
const CALLS: usize = 100_000;
const ROUNDS: usize = 5;

const PROSE: &str = "The limit is so many calls an hour that nothing is forgotten meanwhile. Bytes are those that were \
    asked of the allocator and not given back after one call in each of the scopes, all callers gone, divided by the \
    scopes; nanoseconds are those of a `try_acquire`, or a `check_key`, in scopes at random. What many scopes cost more is \
    memory that is no longer in a cache of the processor: the less a call does otherwise, the greater its ratio.";

/// Bytes for each idle scope, and the time of a call beside that with few scopes.
pub(crate) fn run(page: &mut Page) -> Result {
    page.section("100,000 scopes in one process");
    page.text(PROSE);
    let ours = Spread::of((0..ROUNDS).map(|_| ours_each()).collect::<Result<_>>()?);
    page.target("bytes for each idle scope of 100,000", ours, " bytes", Target::AtMost(400.0));
    let theirs = Spread::of((0..ROUNDS).map(|_| theirs_each()).collect::<Result<_>>()?);

    let (many, few) = (Known::new(MANY)?, Known::new(FEW)?);
    let of_ours = Versus::of(&in_turns(ROUNDS, || many.ours(), || few.ours())?);
    let of_theirs = Versus::of(&in_turns(ROUNDS, || many.theirs(), || few.theirs())?);
    page.target("time of a call with 100,000 scopes ÷ with 10", of_ours.ratio, "", Target::AtMost(1.5));
    let row = |name: &str, bytes: Spread, times: Versus| {
        let [many, few] = [times.ours, times.theirs].map(|nanos| cell(nanos, 0));
        vec![name.to_owned(), cell(bytes, 0), many, few, cell(times.ratio, 2)]
    };
    let rows = [row("Outgate", ours, of_ours), row("governor", theirs, of_theirs)];
    page.table(&["", "bytes for each scope", "100,000 scopes, ns", "10 scopes, ns", "ratio"], &rows);
    Ok(())
}

fn ours_each() -> Result<f64> {
    let throttle = throttle(Upstream::new(UP).limit(Limit::per_hour(5_000)))?;
    let (scopes, runtime) = (names(MANY), runtime()?);
    let mut called = Ok(());
    let counted = measure(|| called = runtime.block_on(call_each(&throttle, &scopes)));
    called?;
    Ok(of_each(counted.bytes_current))
}

/// Of governor, which keeps the key as well.
fn theirs_each() -> Result<f64> {
    let (limiter, scopes) = (hourly()?, names(MANY));
    let mut refused = 0;
    let counted = measure(|| refused = scopes.iter().filter(|scope| limiter.check_key(scope).is_err()).count());
    if refused > 0 { Err("governor refused a first call".into()) } else { Ok(of_each(counted.bytes_current)) }
}

fn hourly() -> Result<DefaultKeyedRateLimiter<String>> {
    Ok(RateLimiter::keyed(Quota::per_hour(NonZeroU32::new(5_000).ok_or("zero")?)))
}

#[expect(clippy::cast_precision_loss, reason = "far below what a float can tell apart")]
fn of_each(bytes: i64) -> f64 {
    bytes as f64 / MANY as f64
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(scope).collect()
}

async fn call_each(throttle: &Throttle, scopes: &[String]) -> Result {
    for scope in scopes {
        drop(throttle.try_acquire(UP).scope(scope).await?);
    }
    Ok(())
}

/// Limiters that know so many scopes, and calls in them.
struct Known {
    throttle: Throttle,
    limiter: DefaultKeyedRateLimiter<String>,
    calls: Vec<String>,
}

impl Known {
    /// A million calls an hour, as all may be in a few scopes.
    fn new(scopes: usize) -> Result<Self> {
        let throttle = throttle(Upstream::new(UP).limit(Limit::per_hour(1_000_000)))?;
        let limiter = RateLimiter::keyed(Quota::per_second(NonZeroU32::new(1_000_000_000).ok_or("zero")?));
        let names = names(scopes);
        runtime()?.block_on(call_each(&throttle, &names))?;
        for name in &names {
            limiter.check_key(name).map_err(|_| "governor refused a first call")?;
        }
        Ok(Self { throttle, limiter, calls: calls(CALLS, scopes, 1) })
    }

    fn ours(&self) -> Result<f64> {
        let runtime = runtime()?;
        let begin = Instant::now();
        runtime.block_on(call_each(&self.throttle, &self.calls))?;
        Ok(nanos_each(begin.elapsed(), CALLS))
    }

    fn theirs(&self) -> Result<f64> {
        let begin = Instant::now();
        let refused = self.calls.iter().filter(|scope| self.limiter.check_key(scope).is_err()).count();
        let nanos = nanos_each(begin.elapsed(), CALLS);
        if refused > 0 { Err("governor refused a call".into()) } else { Ok(nanos) }
    }
}
