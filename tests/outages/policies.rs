//! What becomes of calls behind each fault of the connection, by policy: the table of the guide, and law 1 throughout.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use outgate::store::WithoutStore;
use outgate::testing::{FlakyProxy, Mode, RedisServer, Reply, RespClient, oracle};
use outgate::{Error, Limit, RedisStore, Throttle, Upstream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::faults_that_last::Failure;
use crate::scene::{Metronome, Outcome, PATIENCE, timed};

const QUOTA: u32 = 20;
const SPAN: i64 = 1_050_000;
/// A process knows the store's clock to an eighth of the guard.
const EARLY: i64 = 6_250;
const MAX_WAIT: Duration = Duration::from_secs(2);
/// For how long callers go on once the connection is good again.
const AFTER: Duration = Duration::from_millis(2_500);
const MS: Duration = Duration::from_millis(1);

const POLICIES: [WithoutStore; 4] =
    [WithoutStore::Wait, WithoutStore::Refuse, WithoutStore::ThrottleLocally, WithoutStore::SendUnthrottled];
/// So long it takes at most until nothing counts any more that was booked before the store was lost, and until calls go by the store again.
const RUNS_OUT: Duration = Duration::from_secs(10);

/// What the connection does, in words, and in the proxy's.
const FAULTS: [(&str, Mode); 11] = [
    ("works", Mode::Pass),
    ("delays replies by 30 ms", Mode::Delay(Duration::from_millis(30))),
    (
        "delays both ways, by 20 and 40 ms",
        Mode::DelayBothWays { request: Duration::from_millis(20), reply: Duration::from_millis(40) },
    ),
    (
        "delays each reply by another time, up to 40 ms",
        Mode::Jitter { from: Duration::ZERO, to: Duration::from_millis(40) },
    ),
    ("doubles replies", Mode::DoubleReplies),
    ("garbles replies", Mode::GarbleReplies),
    ("is cut before a reply, once", Mode::CutBeforeReply(1)),
    ("is cut before every reply", Mode::CutBeforeReply(usize::MAX)),
    ("is closed as soon as it is made", Mode::Refuse),
    ("loses replies", Mode::SwallowReplies),
    ("accepts everything, and passes nothing on", Mode::Blackhole),
];

fn throttle(proxy: &FlakyProxy, prefix: &str, policy: WithoutStore) -> Result<Throttle, Failure> {
    let guard = 50 * MS;
    let up = Upstream::new("up").limit(Limit::new(QUOTA, Duration::from_secs(1)).guard(guard));
    let up = if policy == WithoutStore::ThrottleLocally {
        up.max_wait(RUNS_OUT)
    } else {
        // So that the log keeps all that ever started.
        up.limit(Limit::new(100_000, Duration::from_secs(600)).guard(guard)).max_wait(MAX_WAIT)
    };
    let store = RedisStore::builder(&proxy.url()).prefix(prefix).open()?;
    Ok(Throttle::builder().store(store).without_store(policy).upstream(up).build()?)
}

fn micros_now() -> Result<i64, Failure> {
    Ok(i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros())?)
}

/// The same of processes that throttle by themselves meanwhile: that no window holds too much then is shown in virtual time.
async fn meet_locally(addr: SocketAddr, prefix: String, mode: Mode) -> Result<String, Failure> {
    let proxy = FlakyProxy::start(addr)?;
    let throttle = throttle(&proxy, &prefix, WithoutStore::ThrottleLocally)?;
    let mut went = Vec::new();
    // It is counted each time that it looks who is there.
    for _ in 0..2 {
        call(&throttle, &mut went).await?;
        throttle.processes("up").await?;
    }
    proxy.set(mode);
    let said = [call(&throttle, &mut went).await?.0, call(&throttle, &mut went).await?.0];
    proxy.set(Mode::Pass);
    let (end, before) = (Instant::now() + RUNS_OUT, went.len());
    while went.len() == before {
        call(&throttle, &mut went).await?;
        if Instant::now() > end {
            return Err(format!("behind {mode:?}: no call goes by the store's word again").into());
        }
        sleep(10 * MS).await;
    }
    throttle.close().await;
    match said {
        ["goes", "goes"] => Ok("goes".to_owned()),
        ["goes unthrottled", "goes unthrottled"] => Ok("goes by its part when a window has run out".to_owned()),
        said => Err(format!("behind {mode:?}: {said:?}").into()),
    }
}

/// What becomes of a call; and of the starts of those that went by the store's word.
async fn call(throttle: &Throttle, went: &mut Vec<i64>) -> Result<(&'static str, Duration), Failure> {
    let (outcome, took) = timed(throttle.acquire("up")).await;
    let what = match outcome {
        Ok(permit) if permit.went_without_store() => "goes unthrottled",
        Ok(_permit) => {
            went.push(micros_now()?);
            "goes"
        }
        Err(Error::StoreUnavailable { .. }) => "is refused",
        Err(error) => return Err(error.into()),
    };
    Ok((what, took))
}

/// What becomes of a call that meets a fault, and of the next.
async fn meet(addr: SocketAddr, prefix: String, policy: WithoutStore, mode: Mode) -> Result<String, Failure> {
    let metronome = Metronome::start();
    let proxy = FlakyProxy::start(addr)?;
    let throttle = throttle(&proxy, &prefix, policy)?;
    let mut went = Vec::new();
    if call(&throttle, &mut went).await?.0 != "goes" {
        return Err("no call goes although nothing is wrong".into());
    }
    proxy.set(mode);
    let [first, second] = [call(&throttle, &mut went).await?, call(&throttle, &mut went).await?];
    let margin = metronome.margin().await.saturating_sub(200 * MS);
    let when = |took: Duration| match took.saturating_sub(margin) {
        took if took < 500 * MS => "at once",
        took if took < 1_500 * MS => "after 1 s",
        _ => "when its longest wait ends",
    };
    let [first_when, then] = [first.1, second.1].map(when);
    let cell = match (first.0, second.0) {
        ("goes", "goes") => "goes".to_owned(),
        (first, second) if first != second => format!("{first} {first_when}, then {second} {then}"),
        (what, _) if first_when == then => format!("{what} {then}"),
        (what, _) => format!("{what} {first_when}, then {then}"),
    };

    proxy.set(Mode::Pass);
    let end = Instant::now() + AFTER;
    let mut callers = JoinSet::new();
    for _ in 0..3 {
        let throttle = throttle.clone();
        callers.spawn(async move {
            let mut went = Vec::new();
            while Instant::now() < end {
                if call(&throttle, &mut went).await?.0 != "goes" {
                    sleep(10 * MS).await;
                }
            }
            Ok::<_, Failure>(went)
        });
    }
    let before = went.len();
    for more in callers.join_all().await {
        went.extend(more?);
    }
    if went.len() == before {
        return Err(format!("{policy:?} behind {mode:?}: no call went in the {AFTER:?} after it").into());
    }
    throttle.close().await;
    holds_law_1(addr, &prefix, went)?;
    Ok(cell)
}

/// Every call that went by the store's word has a slot of its own, which had started; and no window holds too many.
fn holds_law_1(addr: SocketAddr, prefix: &str, mut went: Vec<i64>) -> Outcome {
    let key = format!("{prefix}:v1:{{up}}:log:calls");
    let mut client = RespClient::connect(addr, PATIENCE)?;
    let Reply::Array(entries) = client.command(&["LRANGE", &key, "0", "-1"])? else {
        return Err("no list".into());
    };
    let stamps: Vec<i64> = entries.iter().filter_map(|entry| entry.text()?.parse().ok()).collect();
    oracle::assert_never_more_than(QUOTA.into(), SPAN, &stamps);
    went.sort_unstable();
    for (earlier, &at) in went.iter().enumerate() {
        let has_slot = stamps.get(earlier).is_some_and(|&stamp| stamp <= at + EARLY);
        assert!(has_slot, "{prefix}: call {earlier} of {went:?}: {stamps:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_guide_says_what_becomes_of_calls_behind_each_fault_by_policy() -> Outcome {
    // Beside a single subscriber, of another test's thread, what threads without one trace first would never be traced at all.
    let _subscriber = tracing::subscriber::set_default(tracing_subscriber::registry());
    let redis = RedisServer::start()?;
    let mut rows = Vec::new();
    for (row, (_, mode)) in FAULTS.into_iter().enumerate() {
        let cells = POLICIES.map(|policy| {
            let (addr, prefix) = (redis.addr(), format!("of{row}{policy:?}"));
            tokio::spawn(async move {
                match policy {
                    WithoutStore::ThrottleLocally => meet_locally(addr, prefix, mode).await,
                    _ => meet(addr, prefix, policy, mode).await,
                }
            })
        });
        rows.push(cells);
    }
    let mut table =
        "| the connection | `Wait` | `Refuse` | `ThrottleLocally` | `SendUnthrottled` |\n|---|---|---|---|---|\n"
            .to_owned();
    for ((words, _), cells) in FAULTS.into_iter().zip(rows) {
        let mut line = format!("| {words} |");
        for cell in cells {
            line = format!("{line} {} |", cell.await??);
        }
        table = format!("{table}{line}\n");
    }
    let guide = include_str!("../../guide/without_store.md");
    assert!(guide.contains(&table), "the guide does not say what is so:\n{table}");
    Ok(())
}
