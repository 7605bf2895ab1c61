//! When Redis loses data: workers that share a limit on calls in flight never have more of them, and calls go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use outgate::testing::RedisServer;
use outgate::{Error, Limit, RedisStore, Throttle, Upstream};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::scene::Outcome;

const SEATS: u32 = 6;
const WORKERS: usize = 3;
/// Callers of each worker.
const CALLERS: usize = 4;
/// No seat is given for 5 s: by far longer than a busy machine keeps a worker from saying again what it holds.
const LEASE: Duration = Duration::from_secs(12);
const AFTER: Duration = Duration::from_millis(1_500);

/// An upstream that counts calls in flight.
#[derive(Debug, Default)]
struct Strict {
    in_flight: AtomicU32,
    served: AtomicU32,
    refused: AtomicU32,
    most: AtomicU32,
    is_over: AtomicBool,
}

impl Strict {
    async fn call(&self) {
        let calls = self.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(calls, Ordering::SeqCst);
        let of = if calls > SEATS { &self.refused } else { &self.served };
        of.fetch_add(1, Ordering::SeqCst);
        sleep(Duration::from_millis(fastrand::u64(0..600))).await;
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn calls(throttle: Throttle, strict: Arc<Strict>) -> Result<(), Error> {
    while !strict.is_over.load(Ordering::SeqCst) {
        match throttle.acquire("up").max_wait(Duration::from_secs(1)).await {
            Ok(permit) => {
                strict.call().await;
                drop(permit);
            }
            Err(Error::StoreUnavailable { .. } | Error::Throttled { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Workers call without end, and the server loses its data twice.
async fn struck(what: &str, strike: impl Fn(&RedisServer) -> Outcome) -> Outcome {
    let (redis, strict, mut callers) = (RedisServer::start()?, Arc::new(Strict::default()), JoinSet::new());
    for _ in 0..WORKERS {
        let up = Upstream::new("up").limit(Limit::in_flight(SEATS).lease(LEASE));
        let store = RedisStore::connect(&redis.url()).await?;
        let throttle = Throttle::builder().store(store).upstream(up).build()?;
        for _ in 0..CALLERS {
            callers.spawn(calls(throttle.clone(), Arc::clone(&strict)));
        }
    }
    sleep(Duration::from_secs(1)).await;
    for _ in 0..2 {
        let before = strict.served.load(Ordering::SeqCst);
        strike(&redis)?;
        sleep(AFTER).await;
        let since = strict.served.load(Ordering::SeqCst) - before;
        println!("{what}: {since} calls in {AFTER:?} after it");
        assert!(since > 0, "{what}: calls go on");
    }
    strict.is_over.store(true, Ordering::SeqCst);
    callers.join_all().await.into_iter().collect::<Result<(), _>>()?;
    let [most, refused] = [&strict.most, &strict.refused].map(|of| of.load(Ordering::SeqCst));
    assert_eq!((most, refused), (SEATS, 0), "{what}: the most in flight, and refused");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_calls_are_in_flight_than_seats_when_all_keys_are_deleted() -> Outcome {
    let flush = |redis: &RedisServer| redis.command(&["FLUSHALL"]).map(drop).map_err(Into::into);
    struck("all keys are deleted", flush).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_calls_are_in_flight_than_seats_when_who_holds_them_alone_is_forgotten() -> Outcome {
    let evict = |redis: &RedisServer| redis.command(&["DEL", "outgate:v1:{up}:seats"]).map(drop).map_err(Into::into);
    struck("the seats alone are gone", evict).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_calls_are_in_flight_than_seats_when_a_server_starts_again_without_its_data() -> Outcome {
    struck("a restart without data", |redis| Ok(redis.restart()?)).await
}
