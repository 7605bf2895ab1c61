//! Calendar windows of an upstream whose clock is not the store's, as the `Date` of its responses shows.

use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use async_trait::async_trait;
use fastrand::Rng;
use http::Extensions;
use outgate::ledger::Stamp;
use outgate::{Limit, MemoryStore, Reset, Throttle, Upstream};
use reqwest::{Request, Response};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, Next, Result};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::support::micros_since;

const SECOND: i64 = 1_000_000;
const HOUR: i64 = 3_600 * SECOND;
const QUOTA: usize = 60;
/// What the store's clock shows at the beginning: 100 s before an hour is full.
const EPOCH: i64 = 1_795_172_400 * SECOND - 100 * SECOND;

/// The date of a response, by the upstream's clock.
type Says = fn(i64) -> Option<String>;

/// An upstream that counts by the hours of its own clock, and says with each response, in whole seconds, what it shows.
struct Strict {
    begin: Instant,
    /// By how much its clock is ahead of the store's.
    ahead: i64,
    rng: Mutex<Rng>,
    /// The hour in which each call came.
    hours: Arc<Mutex<Vec<i64>>>,
    says: Says,
}

impl Strict {
    fn clock(&self) -> i64 {
        EPOCH + micros_since(self.begin) + self.ahead
    }

    async fn take_time(&self) {
        let delay = self.rng.lock().unwrap().u64(1..400);
        sleep(Duration::from_millis(delay)).await;
    }
}

#[async_trait]
impl Middleware for Strict {
    async fn handle(&self, _: Request, _: &mut Extensions, _: Next<'_>) -> Result<Response> {
        self.take_time().await;
        let clock = self.clock();
        self.hours.lock().unwrap().push(clock.div_euclid(HOUR));
        self.take_time().await;
        let mut response = http::Response::builder();
        if let Some(date) = (self.says)(clock) {
            response = response.header("date", date);
        }
        Ok(Response::from(response.body("").unwrap()))
    }
}

#[expect(clippy::unnecessary_wraps, reason = "as another says nothing")]
fn truly(clock: i64) -> Option<String> {
    let since = Duration::from_micros(clock.unsigned_abs());
    Some(httpdate::fmt_http_date(UNIX_EPOCH + since))
}

/// How many calls an upstream counts in each hour, of two processes that each is told the date of as said, and call just before an hour is
/// full and just after it.
async fn by_hour(ahead: i64, says: [Says; 2]) -> Vec<usize> {
    // Whole seconds show a clock that is 1 s off only to calls which come at the right moment: the library's own choices are those of one seed.
    fastrand::seed(1);
    let (store, begin) = (MemoryStore::beginning_at(Stamp::from_micros(EPOCH)), Instant::now());
    let hours = Arc::<Mutex<Vec<i64>>>::default();
    let clients = says.map(|says| {
        let (rng, hours) = (Mutex::new(Rng::with_seed(5)), Arc::clone(&hours));
        client(&store, Strict { begin, ahead, rng, hours, says })
    });
    let mut tasks = JoinSet::new();
    let mut call = |client: &ClientWithMiddleware, at: u64| {
        let client = client.clone();
        tasks.spawn(async move {
            sleep_until(begin + Duration::from_secs(at)).await;
            client.get("http://up.example/").send().await.unwrap();
        });
    };
    for hour in 0..3 {
        let full = 100 + 3_600 * hour;
        let before = [0, 60, 65].into_iter().map(|at| full - 100 + at).chain(full - 25..full);
        for at in before.chain((0..70).map(|at| full + at / 2)) {
            for client in &clients {
                call(client, at);
            }
        }
    }
    tokio::select! {
        () = async { while tasks.join_next().await.transpose().unwrap().is_some() {} } => {}
        () = sleep(Duration::from_secs(3 * 3_600)) => {}
    }
    let mut hours = hours.lock().unwrap().clone();
    hours.sort_unstable();
    hours.chunk_by(PartialEq::eq).map(<[i64]>::len).collect()
}

fn client(store: &MemoryStore, strict: Strict) -> ClientWithMiddleware {
    let quota = u32::try_from(QUOTA).unwrap();
    let up = Upstream::new("up").host("up.example").limit(Limit::per_hour(quota).resets(Reset::hourly()));
    let throttle = Throttle::builder().store(store.clone()).upstream(up).build().unwrap();
    ClientBuilder::new(reqwest::Client::new()).with(throttle.middleware()).with(strict).build()
}

#[tokio::test(start_paused = true)]
async fn an_upstream_whose_clock_is_20_s_off_counts_no_more_than_its_quota_in_any_hour() {
    for ahead in [-20 * SECOND, -SECOND, 0, SECOND, 20 * SECOND] {
        let hours = by_hour(ahead, [truly, truly]).await;
        assert!(hours.iter().all(|&calls| calls <= QUOTA), "{ahead} µs ahead: {hours:?}");
        assert!(hours[1..3].iter().all(|&calls| calls == QUOTA), "{ahead} µs ahead: {hours:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_one_process_is_shown_holds_for_all() {
    for ahead in [-20 * SECOND, 20 * SECOND] {
        let hours = by_hour(ahead, [truly, |_| None]).await;
        assert!(hours.iter().all(|&calls| calls <= QUOTA), "{ahead} µs ahead: {hours:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_date_that_makes_sense_the_guard_has_to_do() {
    for ahead in [-20 * SECOND, 20 * SECOND] {
        let hours = by_hour(ahead, [|_| None, |_| Some("this afternoon".to_owned())]).await;
        assert!(hours.iter().any(|&calls| calls > QUOTA), "{ahead} µs ahead, the other tests would not see: {hours:?}");
    }
}
