//! What an acquire allocates when its slot is free.

use allocation_counter::measure;
use outgate::testing::RedisServer;
use outgate::{Acquire, Error, Limit, RedisStore, Throttle, Upstream};
use tokio::runtime::Runtime;

use crate::middleware::{Canned, Shape};
use crate::page::Page;
use crate::throttles::{AMPLE, UP, ample, scarce};
use crate::turns::{Result, runtime};

/// Calls that are counted; as many before them are not.
const CALLS: usize = 1_000;
const SCOPE: &str = "merchant-000042";

const PROSE: &str = "Allocations, and bytes asked for, of each acquire and all that its thread does until the permit is \
    dropped; the mean of 1,000 after as many others. A log that grows allocates now and then: hence the fractions. \
    Over Redis, what the client and its connection do is included; of the middleware, only what it adds to a client that \
    answers its requests itself.";

/// Counts by verb and store.
pub(crate) fn run(page: &mut Page) -> Result {
    page.section("Allocations");
    page.text(PROSE);
    let runtime = runtime()?;
    let mut rows = Vec::new();
    let mut row = |what: &str, [allocations, bytes]: [f64; 2]| {
        rows.push(vec![what.to_owned(), format!("{allocations:.2}"), format!("{bytes:.0}")]);
    };
    let free = ample()?;
    row("`try_acquire`", of_calls(&runtime, || free.try_acquire(UP))?);
    row("`try_acquire` with a scope", of_calls(&runtime, || free.try_acquire(UP).scope(SCOPE))?);
    row("`acquire`", of_calls(&runtime, || free.acquire(UP))?);
    row("`acquire` with a scope", of_calls(&runtime, || free.acquire(UP).scope(SCOPE))?);
    let spent = scarce()?;
    runtime.block_on(granted(1, || spent.try_acquire(UP)))?;
    row("`try_acquire`, refused", each(&runtime, async |times| refused(times, || spent.try_acquire(UP)).await)?);
    row("the middleware", of_middleware(&runtime, Shape::Plain)?);
    row("the middleware, scope by bearer token", of_middleware(&runtime, Shape::Token)?);
    row("… and headers about the quota", of_middleware(&runtime, Shape::TokenAndQuota)?);
    let server = RedisServer::start()?;
    let shared = runtime.block_on(over(&server))?;
    row("`acquire` over Redis", of_calls(&runtime, || shared.acquire(UP))?);
    page.table(&["each", "allocations", "bytes"], &rows);
    Ok(())
}

/// Of one call among many that `batch` makes.
#[expect(clippy::cast_precision_loss, reason = "far below what a float can tell apart")]
fn each(runtime: &Runtime, batch: impl AsyncFn(usize) -> Result) -> Result<[f64; 2]> {
    runtime.block_on(batch(CALLS))?;
    let mut done = Ok(());
    let counted = measure(|| done = runtime.block_on(batch(CALLS)));
    done?;
    Ok([counted.count_total, counted.bytes_total].map(|total| total as f64 / CALLS as f64))
}

fn of_calls(runtime: &Runtime, call: impl Fn() -> Acquire) -> Result<[f64; 2]> {
    each(runtime, async |times| granted(times, &call).await)
}

/// What ours adds to a client.
fn of_middleware(runtime: &Runtime, shape: Shape) -> Result<[f64; 2]> {
    let client = reqwest::Client::new();
    let of_client = |ours| {
        let canned = Canned::new(shape, ours, client.clone())?;
        each(runtime, async |times| canned.call(times).await)
    };
    let ([with, with_bytes], [without, without_bytes]) = (of_client(true)?, of_client(false)?);
    Ok([with - without, with_bytes - without_bytes])
}

async fn granted(times: usize, call: impl Fn() -> Acquire) -> Result {
    for _ in 0..times {
        drop(call().await?);
    }
    Ok(())
}

async fn refused(times: usize, call: impl Fn() -> Acquire) -> Result {
    for _ in 0..times {
        match call().await {
            Err(Error::Throttled { .. }) => {}
            Err(error) => return Err(error.into()),
            Ok(_) => return Err("a call was granted that should have been refused".into()),
        }
    }
    Ok(())
}

async fn over(server: &RedisServer) -> Result<Throttle> {
    let store = RedisStore::connect(&server.url()).await?;
    Ok(Throttle::builder().store(store).upstream(Upstream::new(UP).limit(Limit::per_second(AMPLE))).build()?)
}
