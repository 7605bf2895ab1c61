//! Law 1 while connections fail all the time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use outgate::testing::{FlakyProxy, Mode, RedisServer, Reply, oracle};
use outgate::{Limit, RedisStore, Throttle, Upstream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use crate::scene::{LOG, Outcome};

const QUOTA: u32 = 50;
const WINDOW: Duration = Duration::from_secs(1);
const GUARD: Duration = Duration::from_millis(50);
/// A process knows the store's clock to an eighth of the guard: by so much a call may go before its slot starts, and the guard
/// pays for it.
const EARLY: i64 = 6_250;
const SPAN: i64 = 1_050_000;
const TIME: Duration = Duration::from_secs(5);

/// Another limit of a long window, so that the log keeps all that ever started.
fn upstream() -> Upstream {
    Upstream::new("up")
        .limit(Limit::new(QUOTA, WINDOW).guard(GUARD))
        .limit(Limit::new(100_000, Duration::from_secs(600)).guard(GUARD))
}

fn micros_now() -> Result<i64, Box<dyn std::error::Error + Send + Sync>> {
    Ok(i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros())?)
}

async fn misbehave(proxy: FlakyProxy, seed: u64, end: Instant) -> FlakyProxy {
    let mut random = fastrand::Rng::with_seed(seed);
    while Instant::now() < end {
        let mode = match random.u8(0..8) {
            0..2 => Mode::Pass,
            2 => Mode::Delay(Duration::from_millis(random.u64(0..60))),
            3 => Mode::SwallowReplies,
            4..6 => Mode::CutBeforeReply(random.usize(1..4)),
            6 => Mode::Refuse,
            _ => Mode::Blackhole,
        };
        proxy.set(mode);
        sleep(Duration::from_millis(random.u64(1..250))).await;
        if random.bool() {
            proxy.cut();
        }
    }
    proxy.set(Mode::Pass);
    proxy
}

/// Calls until the end, one in four of them given up or handed back: when each call that was made went.
async fn calls(
    throttle: Throttle,
    seed: u64,
    end: Instant,
) -> Result<Vec<i64>, Box<dyn std::error::Error + Send + Sync>> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut made = Vec::new();
    while Instant::now() < end {
        let patience = if random.u8(0..8) == 0 { Duration::from_millis(random.u64(1..100)) } else { TIME };
        let acquire = async { throttle.acquire("up").max_wait(Duration::from_secs(2)).await };
        if let Ok(Ok(permit)) = timeout_at(end.min(Instant::now() + patience), acquire).await {
            if random.u8(0..8) == 0 {
                permit.hand_back();
            } else {
                made.push(micros_now()?);
                drop(permit);
            }
        }
    }
    Ok(made)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_processes_behind_failing_connections_never_exceed_the_quota() -> Outcome {
    let redis = RedisServer::start()?;
    let end = Instant::now() + TIME;
    let (mut misbehaving, mut callers) = (JoinSet::new(), JoinSet::new());
    let mut throttles = Vec::new();
    for process in 0..4 {
        let proxy = FlakyProxy::start(redis.addr())?;
        let throttle = Throttle::builder().store(RedisStore::open(&proxy.url())?).upstream(upstream()).build()?;
        misbehaving.spawn(misbehave(proxy, process, end));
        for caller in 0..12 {
            callers.spawn(calls(throttle.clone(), 100 * process + caller, end));
        }
        throttles.push(throttle);
    }
    let mut permits: Vec<i64> = callers.join_all().await.into_iter().collect::<Result<Vec<_>, _>>()?.concat();
    let _proxies = misbehaving.join_all().await;
    for throttle in throttles {
        throttle.close().await;
    }

    let Reply::Array(entries) = redis.command(&["LRANGE", LOG, "0", "-1"])? else {
        return Err("no list".into());
    };
    let stamps: Vec<i64> = entries.iter().filter_map(|entry| entry.text()?.parse().ok()).collect();
    assert_eq!(stamps.len(), entries.len());
    assert!(stamps.is_sorted());
    oracle::assert_never_more_than(QUOTA.into(), SPAN, &stamps);
    // Every call has a slot of its own, which had started when it went, as far as its process knows the time.
    permits.sort_unstable();
    for (earlier, &went) in permits.iter().enumerate() {
        assert!(
            stamps.get(earlier).is_some_and(|&stamp| stamp <= went + EARLY),
            "call {earlier} of {permits:?}: {stamps:?}"
        );
    }
    assert!(permits.len() >= 50, "only {} calls went", permits.len());
    Ok(())
}
