//! Where others spend the same quota: what responses report is learned, so that they are not refused, nor are we.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, StatusCode};
use outgate::feedback::{Feedback, Quota};
use outgate::testing::{Judge, Shape};
use outgate::{Limit, Throttle, Upstream};
use reqwest::{Request, Response};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, Next};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, interval, sleep, timeout_at};

use crate::support::{Counting, micros_since};

const WINDOW: Duration = Duration::from_secs(60);

const SHAPES: [Shape; 4] =
    [Shape::SlidingLog, Shape::FixedWindow { phase: 0 }, Shape::FixedWindowFromFirstCall, Shape::TokenBucket];

/// An upstream on tokio's clock, with no network before it but a delay, which tells what is left.
#[derive(Clone)]
struct Virtual {
    judge: Arc<Mutex<Judge>>,
    begin: Instant,
    tells: bool,
    /// Milliseconds until a response comes, from the arrival.
    responds: Range<u64>,
    /// When our calls arrived, and whether they were admitted.
    arrivals: Arc<Mutex<Vec<(i64, bool)>>>,
}

impl Virtual {
    fn new(quota: u64, shape: Shape) -> Self {
        let judge = Judge::new().limit(quota, 60_000_000, shape);
        Self {
            judge: Arc::new(Mutex::new(judge)),
            begin: Instant::now(),
            tells: true,
            responds: 5..25,
            arrivals: Arc::default(),
        }
    }

    fn client(&self, throttle: &Throttle) -> ClientWithMiddleware {
        ClientBuilder::new(reqwest::Client::new()).with(throttle.middleware()).with(self.clone()).build()
    }

    /// Somebody else's call: it counts whether or not it is admitted.
    fn outside(&self) {
        self.judge.lock().unwrap().count(micros_since(self.begin), 1);
    }

    /// Our calls that were admitted since the last time, and when the others arrived.
    fn take_outcome(&self) -> (usize, Vec<i64>) {
        let arrivals = std::mem::take(&mut *self.arrivals.lock().unwrap());
        let refused = arrivals.iter().filter(|(_, admitted)| !admitted).map(|(at, _)| *at).collect::<Vec<_>>();
        (arrivals.len() - refused.len(), refused)
    }
}

#[async_trait]
impl Middleware for Virtual {
    async fn handle(&self, _: Request, _: &mut Extensions, _: Next<'_>) -> reqwest_middleware::Result<Response> {
        sleep(Duration::from_millis(fastrand::u64(5..25))).await;
        let response = {
            let now = micros_since(self.begin);
            let mut judge = self.judge.lock().unwrap();
            let verdict = judge.admit(now, 1);
            self.arrivals.lock().unwrap().push((now, verdict.admitted));
            let mut response = http::Response::builder().status(if verdict.admitted { 200 } else { 429 });
            let seconds = |micros: i64| micros.unsigned_abs().div_ceil(1_000_000);
            if let Some(wait) = verdict.retry_after {
                response = response.header("retry-after", seconds(wait));
            }
            if let Some(balance) = judge.balance(now).filter(|_| self.tells) {
                response = response.header("x-ratelimit-limit", balance.quota);
                response = response.header("x-ratelimit-remaining", balance.left);
                response = response.header("x-ratelimit-reset", seconds(balance.reset));
            }
            response.body("").unwrap()
        };
        sleep(Duration::from_millis(fastrand::u64(self.responds.clone()))).await;
        Ok(response.into())
    }
}

/// 600 calls in a minute, no more than ten at once.
fn upstream(up: Upstream) -> Upstream {
    up.matching(|_| true).limit(Limit::new(600, WINDOW).burst(10))
}

/// Tasks of several processes that call as soon as they may, until `end`.
fn saturate(clients: &[ClientWithMiddleware], end: Instant) -> JoinSet<()> {
    saturate_with(8, clients, end)
}

/// So many tasks of each process.
fn saturate_with(tasks_each: usize, clients: &[ClientWithMiddleware], end: Instant) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for client in clients {
        for _ in 0..tasks_each {
            let client = client.clone();
            tasks.spawn(async move { while timeout_at(end, client.get("http://up/").send()).await.is_ok() {} });
        }
    }
    tasks
}

/// Somebody else, who calls every so often and is always served.
fn others(server: &Virtual, every: Duration) -> JoinHandle<()> {
    let server = server.clone();
    tokio::spawn(async move {
        let mut ticks = interval(every);
        loop {
            ticks.tick().await;
            server.outside();
        }
    })
}

#[tokio::test(start_paused = true)]
async fn beside_others_who_spend_two_fifths_the_rest_is_used_without_refusals() {
    for shape in SHAPES {
        fastrand::seed(41);
        let (store, server) = (Counting::default(), Virtual::new(600, shape));
        let processes: Vec<_> = (0..4).map(|_| store.process(|up| upstream(up).learn_from_responses())).collect();
        let clients: Vec<_> = processes.iter().map(|process| server.client(process)).collect();
        let others = others(&server, WINDOW / 240);
        let mut refusals = 0;
        for minute in 1..=3 {
            saturate(&clients, server.begin + WINDOW * u32::try_from(minute).unwrap()).join_all().await;
            let (admitted, refused) = server.take_outcome();
            println!("{shape:?}, minute {minute}: {admitted} of 360, refused at {refused:?}");
            refusals += refused.len();
            assert!(refusals <= 2 * minute, "{shape:?}, minute {minute}: {refused:?}");
            // In the first minute more is left: others had not come yet.
            assert!(admitted * 10 >= 360 * 9, "{shape:?}, minute {minute}: {admitted} of 360");
        }
        others.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn what_others_use_is_seen_by_every_process_and_forgotten_at_the_reset() {
    let store = Counting::default();
    let (told, other) = (store.process(|up| upstream(up).learn_from_responses()), store.process(upstream));
    let quota = |remaining| Quota::new().with_limit(600).with_remaining(remaining);
    let report = async |quota| told.report("up", &Feedback::default().with_quota(quota)).await.unwrap();
    let usage = async || other.usage("up").await.unwrap().limits[0].clone();
    report(quota(600)).await;
    report(quota(9_999)).await;
    assert_eq!((usage().await.outside_use, usage().await.free), (0, 10), "more remaining is ignored");
    assert_eq!(usage().await.outside_use_for, None);
    report(quota(200).with_reset_after(Duration::from_millis(30_500))).await;
    assert_eq!((usage().await.outside_use, usage().await.outside_use_for), (400, Some(Duration::ZERO)));
    sleep(Duration::from_secs(5)).await;
    report(quota(300).with_reset_after(Duration::from_millis(25_500))).await;
    let since = Some(Duration::from_secs(5));
    assert_eq!((usage().await.outside_use, usage().await.outside_use_for), (300, since), "the newer report counts");
    sleep(Duration::from_millis(25_500)).await;
    let since = Some(Duration::from_millis(30_500));
    assert_eq!((usage().await.outside_use, usage().await.outside_use_for), (0, since), "the reset has passed");
    sleep(WINDOW + WINDOW / 20).await;
    assert_eq!(usage().await.outside_use_for, None, "nothing was told for a window and its guard");
    report(quota(0)).await;
    assert!(usage().await.next > Duration::from_secs(55), "nothing is left");
    sleep(Duration::from_secs(61)).await;
    assert_eq!((usage().await.outside_use, usage().await.next), (0, Duration::ZERO), "one wrong report costs a window");
}

#[tokio::test(start_paused = true)]
async fn where_much_is_left_nobody_waits_for_what_others_use() {
    let limit = Limit::per_hour(5_000);
    let throttle = Counting::default().process(|up| up.limit(limit).learn_from_responses());
    for _ in 0..100 {
        drop(throttle.acquire("up").await.unwrap());
    }
    sleep(Duration::from_secs(1)).await;
    let quota = |left| Quota::new().with_limit(5_000).with_remaining(left).with_reset_after(Duration::from_secs(3_000));
    throttle.report("up", &Feedback::default().with_quota(quota(4_889))).await.unwrap();
    assert_eq!(throttle.usage("up").await.unwrap().limits[0].outside_use, 11);
    let begin = Instant::now();
    for _ in 0..5 {
        drop(throttle.acquire("up").await.unwrap());
    }
    // Each asks a store a millisecond away.
    assert_eq!(begin.elapsed(), Duration::from_millis(5));
    throttle.report("up", &Feedback::default().with_quota(quota(400))).await.unwrap();
    let begin = Instant::now();
    for _ in 0..5 {
        drop(throttle.acquire("up").await.unwrap());
    }
    assert!(begin.elapsed() > Duration::from_secs(1), "little is left: {:?}", begin.elapsed());
}

/// What a response with these headers says.
fn said(status: u16, lines: &[(&'static str, &'static str)]) -> Feedback {
    let line = |&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value));
    let headers: HeaderMap = lines.iter().map(line).collect();
    Feedback::read(StatusCode::from_u16(status).unwrap(), &headers, SystemTime::now())
}

#[tokio::test(start_paused = true)]
async fn what_is_left_for_a_part_of_the_calls_is_no_matter_of_the_whole_quota() {
    type Lines = &'static [(&'static str, &'static str)];
    let github: (Limit, Lines) = (
        Limit::per_hour(5_000),
        &[
            ("x-ratelimit-limit", "30"),
            ("x-ratelimit-remaining", "25"),
            ("x-ratelimit-used", "5"),
            ("x-ratelimit-reset", "53"),
            ("x-ratelimit-resource", "search"),
        ],
    );
    let zendesk: (Limit, Lines) =
        (Limit::per_minute(400), &[("zendesk-ratelimit-incremental-exports", "total=10; remaining=0; resets=55")]);
    let discord: (Limit, Lines) = (
        Limit::per_second(50),
        &[
            ("x-ratelimit-limit", "5"),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset-after", "1.9"),
            ("x-ratelimit-bucket", "80c17d2f203122d936070c88c8d10f33"),
        ],
    );
    for (limit, lines) in [github, zendesk, discord] {
        let throttle = Counting::default().process(|up| up.limit(limit).learn_from_responses());
        throttle.report("up", &said(200, lines)).await.unwrap();
        let usage = throttle.usage("up").await.unwrap();
        assert_eq!((usage.limits[0].outside_use, usage.limits[0].next), (0, Duration::ZERO), "{lines:?}");
        assert_eq!(usage.learned_from, None, "{lines:?}");
    }
}

/// The whole quota may have any name, and be smaller than is configured, or tell no number.
#[tokio::test(start_paused = true)]
async fn a_quota_with_a_name_of_its_own_is_the_whole_one_unless_it_is_much_smaller() {
    type Lines = &'static [(&'static str, &'static str)];
    let cases: [(Limit, u16, Lines, u32); 5] = [
        (
            Limit::new(1_000, Duration::from_secs(300)),
            429,
            &[("ratelimit", r#""api";r=0;t=2"#), ("ratelimit-policy", r#""fixed window";"api";q=500;w=300"#)],
            1_000,
        ),
        (
            Limit::per_hour(7_200),
            429,
            &[
                ("ratelimit-limit", "120"),
                ("ratelimit-name", "throttle_authenticated_api"),
                ("ratelimit-observed", "7305"),
                ("ratelimit-remaining", "0"),
                ("retry-after", "1"),
            ],
            7_200,
        ),
        (
            Limit::per_hour(7_000),
            200,
            &[
                ("ratelimit-limit", "120"),
                ("ratelimit-name", "throttle_authenticated_api"),
                ("ratelimit-observed", "7100"),
                ("ratelimit-remaining", "100"),
            ],
            6_900,
        ),
        (
            Limit::per_hour(900),
            200,
            &[
                ("x-ratelimit-limit", r#"1000, 1000;w=3600;name="per-ip""#),
                ("x-ratelimit-remaining", "2"),
                ("x-ratelimit-reset", "1000"),
            ],
            898,
        ),
        (Limit::per_hour(1_200), 200, &[("x-ms-ratelimit-remaining-subscription-writes", "2")], 1_198),
    ];
    for (limit, status, lines, used) in cases {
        let throttle = Counting::default().process(|up| up.limit(limit).learn_from_responses());
        throttle.report("up", &said(status, lines)).await.unwrap();
        assert_eq!(throttle.usage("up").await.unwrap().limits[0].outside_use, used, "{lines:?}");
    }
}

/// GitHub has a quota for each of its resources, and some are as large as that of all others.
#[tokio::test(start_paused = true)]
async fn of_a_whole_host_the_quota_of_one_resource_is_that_of_a_part_however_large() {
    const HOST: &str = "api.github.com";
    type Whose = fn(Upstream) -> Upstream;
    let spent = |resource, limit| {
        [
            ("x-ratelimit-limit", limit),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-used", limit),
            ("x-ratelimit-reset", "3500"),
            ("x-ratelimit-resource", resource),
        ]
    };
    let host: Whose = |up| up.host(HOST);
    let cases: [(Whose, &str, &str, u32); 7] = [
        (host, "graphql", "5000", 0),
        (host, "code_scanning_upload", "5000", 0),
        (host, "actions_runner_registration", "10000", 0),
        (host, "core", "5000", 5_000),
        (|up| up.host(HOST).path("/graphql"), "graphql", "5000", 5_000),
        (|up| up.host(HOST).matching(|request| request.url().path() == "/graphql"), "graphql", "5000", 5_000),
        (|up| up, "graphql", "5000", 5_000),
    ];
    for (whose, resource, limit, outside) in cases {
        let hourly = |up: Upstream| whose(up).limit(Limit::per_hour(5_000)).learn_from_responses();
        let throttle = Counting::default().process(hourly);
        throttle.report("up", &said(200, &spent(resource, limit))).await.unwrap();
        let usage = throttle.usage("up").await.unwrap();
        assert_eq!(usage.limits[0].outside_use, outside, "{resource}");
        assert_eq!(usage.limits[0].next.is_zero(), outside == 0, "{resource}");
    }
}

/// Azure counts the calls of a minute in shorter windows, and Intercom in those of 10 s; neither says so.
#[tokio::test(start_paused = true)]
async fn what_is_left_of_a_shorter_window_is_no_matter_of_a_longer_limit() {
    type Lines = &'static [(&'static str, &'static str)];
    let cases: [(Limit, Lines, u32); 5] = [
        (Limit::per_minute(48), &[("x-ratelimit-limit-requests", "8"), ("x-ratelimit-remaining-requests", "0")], 0),
        (
            Limit::per_minute(1_000),
            &[("x-ratelimit-limit", "167"), ("x-ratelimit-remaining", "166"), ("x-ratelimit-reset", "10")],
            0,
        ),
        // A plan that was lowered.
        (
            Limit::per_minute(1_000),
            &[("x-ratelimit-limit", "167"), ("x-ratelimit-remaining", "166"), ("x-ratelimit-reset", "12")],
            834,
        ),
        (
            Limit::per_hour(5_000),
            &[("x-ratelimit-limit", "60"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "3000")],
            5_000,
        ),
        (Limit::per_minute(48), &[("x-ratelimit-limit", "24"), ("x-ratelimit-remaining", "23")], 25),
    ];
    for (limit, lines, outside) in cases {
        let throttle = Counting::default().process(|up| up.limit(limit).learn_from_responses());
        throttle.report("up", &said(200, lines)).await.unwrap();
        let usage = throttle.usage("up").await.unwrap();
        assert_eq!(usage.limits[0].outside_use, outside, "{lines:?}");
        assert_eq!(usage.limits[0].next.is_zero(), outside < 5_000, "{lines:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_a_part_of_the_calls_explains_is_no_evidence_of_the_whole_quota() {
    let spent = |limit| {
        [
            ("x-ratelimit-limit", limit),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "1"),
            ("x-ratelimit-resource", "search"),
        ]
    };
    for (learns, limit, is_evidence) in [(true, "30", false), (false, "30", false), (false, "2500", true)] {
        let learning = |up: Upstream| if learns { up.learn_from_responses() } else { up };
        let throttle = Counting::default().process(|up| learning(up.limit(Limit::per_hour(5_000))));
        for _ in 0..20 {
            drop(throttle.acquire("up").await.unwrap());
        }
        for _ in 0..20 {
            throttle.report("up", &said(429, &spent(limit))).await.unwrap();
            sleep(Duration::from_secs(5)).await;
        }
        let rate = throttle.usage("up").await.unwrap().rate;
        assert_eq!(rate < 1.0, is_evidence, "{learns}, {limit}: {rate}");
    }
}

/// As Zendesk's five a second, GitHub's secondary limits, or a limit on calls where the header tells of tokens.
#[tokio::test(start_paused = true)]
async fn a_refusal_while_its_quota_has_units_left_is_evidence_of_another_limit() {
    const ASKS: (&str, &str) = ("retry-after", "5");
    let left =
        |left| [ASKS, ("x-ratelimit-limit", "700"), ("x-ratelimit-remaining", left), ("x-ratelimit-reset", "50")];
    let tokens = |left| [ASKS, ("x-ratelimit-limit-tokens", "9000"), ("x-ratelimit-remaining-tokens", left)];
    let cases = [
        (left("650").to_vec(), true),
        // Less than a call takes.
        (left("175").to_vec(), true),
        (left("174").to_vec(), false),
        (left("0").to_vec(), false),
        (tokens("8000").to_vec(), true),
        // Of a call that took more than it was charged.
        (tokens("900").to_vec(), false),
        (tokens("0").to_vec(), false),
    ];
    for (lines, is_evidence) in cases {
        let limited = |up: Upstream| up.limit(Limit::per_minute(700)).limit(Limit::per_minute(9_000).of("tokens"));
        let throttle = Counting::default().process(|up| limited(up).learn_from_responses());
        let headers: HeaderMap = lines
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        for _ in 0..4 {
            let permit = throttle.acquire("up").cost(2).cost_of("tokens", 10).await.unwrap();
            throttle.answered(&permit, StatusCode::TOO_MANY_REQUESTS, &headers);
            sleep(Duration::from_secs(6)).await;
        }
        let rate = throttle.usage("up").await.unwrap().rate;
        assert_eq!(rate < 1.0, is_evidence, "{lines:?}: {rate}");
    }
}

/// It may be what failed for another reason and took the last unit.
#[tokio::test(start_paused = true)]
async fn what_is_a_refusal_only_by_a_spent_quota_is_no_evidence_of_the_limit() {
    const SPENT: (&str, &str) = ("x-ratelimit-remaining", "0");
    let asks: &[_] = &[("retry-after", "1")];
    let cases = [
        (400, &[SPENT][..], false),
        (403, &[SPENT], false),
        (503, &[SPENT], false),
        (429, &[SPENT], true),
        (403, asks, true),
    ];
    for (status, lines, is_evidence) in cases {
        let throttle = Counting::default().process(|up| up.limit(Limit::per_minute(100)));
        for _ in 0..2 {
            drop(throttle.acquire("up").await.unwrap());
            throttle.report("up", &said(status, lines)).await.unwrap();
            assert!(throttle.try_acquire("up").await.is_err(), "{status} {lines:?}");
            sleep(Duration::from_secs(5)).await;
        }
        let rate = throttle.usage("up").await.unwrap().rate;
        assert_eq!(rate < 1.0, is_evidence, "{status} {lines:?}: {rate}");
    }
}

#[tokio::test(start_paused = true)]
async fn of_several_that_one_response_tells_the_quota_itself_counts() {
    let throttle = Counting::default().process(|up| up.limit(Limit::per_minute(400)).learn_from_responses());
    let zendesk = said(
        200,
        &[
            ("ratelimit-limit", "400"),
            ("ratelimit-remaining", "5"),
            ("ratelimit-reset", "50"),
            ("zendesk-ratelimit-tickets-index", "total=20000; remaining=19999; resets=42"),
        ],
    );
    throttle.report("up", &zendesk).await.unwrap();
    assert_eq!(throttle.usage("up").await.unwrap().limits[0].outside_use, 395);
}

#[tokio::test(start_paused = true)]
async fn usage_names_the_header_that_told_what_is_left() {
    let server = Virtual::new(600, Shape::SlidingLog);
    let throttle = Counting::default().process(|up| upstream(up).learn_from_responses());
    let learned_from = async || throttle.usage("up").await.unwrap().learned_from;
    assert_eq!(learned_from().await, None);
    server.client(&throttle).get("http://up/").send().await.unwrap();
    assert_eq!(learned_from().await.unwrap(), "x-ratelimit-remaining");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_learned_unless_asked_for() {
    let store = Counting::default();
    let throttle = store.process(upstream);
    let spent = Feedback::default().with_quota(Quota::new().with_limit(600).with_remaining(0));
    throttle.report("up", &spent).await.unwrap();
    throttle.report("up", &Feedback::refused(Duration::from_secs(1))).await.unwrap();
    let usage = throttle.usage("up").await.unwrap().limits[0].clone();
    assert_eq!((usage.outside_use, store.reports()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn calls_in_flight_are_no_outside_use() {
    fastrand::seed(42);
    for shape in SHAPES {
        let (store, server) = (Counting::default(), Virtual::new(600, shape));
        let throttle = store.process(|up| upstream(up).learn_from_responses());
        let client = server.client(&throttle);
        saturate(&[client], server.begin + WINDOW).join_all().await;
        let (admitted, refused) = server.take_outcome();
        assert_eq!(refused, [0_i64; 0], "{shape:?}");
        assert!(admitted >= 560, "{shape:?}: {admitted} of 580");
        let usage = throttle.usage("up").await.unwrap().limits[0].clone();
        // Calls that overtake each other look like others for as many units.
        assert!(usage.outside_use <= 3, "{shape:?}: {}", usage.outside_use);
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_slow_response_reports_is_no_outside_use() {
    for responds in [2_500..3_500, 200..15_000, 30_000..31_000, 70_000..71_000] {
        let mut minutes = Vec::new();
        for seed in 40..44 {
            fastrand::seed(seed);
            let (store, server) = (Counting::default(), Virtual::new(600, Shape::SlidingLog));
            let server = Virtual { responds: responds.clone(), ..server };
            let throttle = store.process(|up| upstream(up).learn_from_responses());
            let client = server.client(&throttle);
            for minute in 1..=3 {
                saturate_with(1_000, std::slice::from_ref(&client), server.begin + WINDOW * minute).join_all().await;
                let (admitted, refused) = server.take_outcome();
                let usage = throttle.usage("up").await.unwrap().limits[0].clone();
                assert_eq!(refused, [0_i64; 0], "{responds:?}");
                assert!(usage.outside_use <= 40, "{responds:?}, minute {minute} of {seed}: {usage:?}");
                minutes.push(admitted);
            }
        }
        assert!(minutes.iter().sum::<usize>() >= 560 * minutes.len(), "{responds:?}: {minutes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_reports_a_spent_quota_leaves_the_guard_as_it_is() {
    let throttle = Counting::default().process(|up| upstream(up).learn_from_responses());
    let quota = Quota::new().with_limit(600).with_remaining(0).with_reset_after(Duration::from_millis(1_500));
    let refusal = Feedback::refused(Duration::from_secs(1)).with_quota(quota);
    throttle.report("up", &refusal).await.unwrap();
    assert_eq!(throttle.usage("up").await.unwrap().limits[0].outside_use, 600);
    sleep(Duration::from_secs(30)).await;
    drop(throttle.acquire("up").await.unwrap());
    let since = throttle.usage("up").await.unwrap().limits[0].clone();
    assert_eq!((since.outside_use, since.used), (0, 1));
    sleep(Duration::from_secs(61)).await;
    assert_eq!(throttle.usage("up").await.unwrap().limits[0].used, 0, "counted for a window and its guard");
}
