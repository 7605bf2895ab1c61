//! Each number is what happened.

use std::time::Duration;

use outgate::store::WithoutStore;
use outgate::testing::Fault;
use outgate::{Backoff, Call, Limit, Priority, Scope, Throttle, ThrottleBuilder, Upstream};
use reqwest_middleware::ClientBuilder;
use tokio::time::sleep;

use crate::support::{Board, Distant, client};

pub(crate) fn up() -> Upstream {
    Upstream::new("up").host("up.example").limit(Limit::per_second(2).guard(Duration::from_millis(100)))
}

pub(crate) fn on(store: &Distant, upstream: Upstream) -> ThrottleBuilder {
    Throttle::builder().store(store.clone()).upstream(upstream)
}

pub(crate) async fn millis(millis: u64) {
    sleep(Duration::from_millis(millis)).await;
}

#[tokio::test(start_paused = true)]
async fn each_call_has_one_outcome() {
    let store = Distant::default();
    let (throttle, board) = Board::of(on(&store, up().backoff(Backoff::new().jitter(0.0))));
    let client = client(&throttle);
    drop(throttle.acquire("up").await.unwrap());
    throttle.acquire("up").await.unwrap().hand_back();
    millis(500).await;
    client.get("http://up.example/200").send().await.unwrap();
    throttle.acquire("up").max_wait(Duration::from_millis(10)).await.unwrap_err();
    throttle.try_acquire("up").await.unwrap_err();
    throttle.acquire("up").cost(3).await.unwrap_err();
    let waits = throttle.acquire("up");
    tokio::time::timeout(Duration::from_millis(10), waits.into_future()).await.unwrap_err();
    millis(1_100).await;
    client.get("http://up.example/429/30").send().await.unwrap();
    millis(100).await;
    client
        .get("http://up.example/200")
        .with_extension(Call::new().max_wait(Duration::from_secs(1)))
        .send()
        .await
        .unwrap_err();
    store.silence(true);
    throttle.release("up").await.unwrap_err();
    store.silence(false);
    throttle.release("up").await.unwrap();
    store.silence(true);
    throttle.try_acquire("up").await.unwrap_err();
    store.silence(false);
    throttle.close().await;
    throttle.acquire("up").await.unwrap_err();
    let expected = [
        ("closed", 1),
        ("cost_exceeds_quota", 1),
        ("given_up", 1),
        ("handed_back", 1),
        ("refused", 1),
        ("sent", 2),
        ("store_unavailable", 1),
        ("throttled", 3),
    ];
    assert_eq!(board.outcomes(), expected.map(|(outcome, count)| (outcome.to_owned(), count)));
}

/// Scopes share the seats of their upstream: whoever waits for one has a place in the line for them as well, which is no call.
#[tokio::test(start_paused = true)]
async fn who_gives_up_waiting_for_a_seat_that_scopes_share_is_counted_once() {
    let shared = up().limit(Limit::per_second(9).each(Scope::header("x-merchant"))).limit(Limit::in_flight(1));
    let (throttle, board) = Board::of(on(&Distant::default(), shared));
    let asks = |merchant| throttle.acquire("up").scope_of("x-merchant", merchant);
    let first = asks("a").await.unwrap();
    tokio::time::timeout(Duration::from_millis(500), asks("b").into_future()).await.unwrap_err();
    let another = tokio::spawn(asks("b").priority(Priority::High).into_future());
    millis(1_100).await;
    drop(first);
    drop(another.await.unwrap().unwrap());
    assert_eq!(board.outcomes(), [("given_up".to_owned(), 1), ("sent".to_owned(), 2)]);
}

/// Whoever throttles by itself waits in one queue after another, and gives up only once.
#[tokio::test(start_paused = true)]
async fn who_waits_while_the_store_comes_back_has_one_outcome() {
    let store = Distant::default();
    let locally = up().without_store(WithoutStore::ThrottleLocally);
    let (throttle, board) = Board::of(on(&store, locally));
    for _ in 0..3 {
        drop(throttle.acquire("up").await.unwrap());
        millis(1_000).await;
    }
    store.silence(true);
    let gives_up = || tokio::time::timeout(Duration::from_millis(50), throttle.acquire("up").into_future());
    gives_up().await.unwrap_err();
    let calls = throttle.clone();
    let goes = tokio::spawn(async move {
        for _ in 0..9 {
            drop(calls.acquire("up").await.unwrap());
        }
    });
    millis(5_000).await;
    gives_up().await.unwrap_err();
    let waits: Vec<_> = (0..4).map(|_| tokio::spawn(throttle.acquire("up").into_future())).collect();
    millis(300).await;
    store.silence(false);
    goes.await.unwrap();
    for waits in waits {
        drop(waits.await.unwrap().unwrap());
    }
    assert_eq!(board.outcomes(), [("given_up".to_owned(), 2), ("sent".to_owned(), 16)]);
}

#[tokio::test(start_paused = true)]
async fn who_throttles_by_itself_is_seen_while_it_waits() {
    let store = Distant::default();
    let up =
        Upstream::new("up").limit(Limit::new(1, Duration::from_secs(2))).without_store(WithoutStore::ThrottleLocally);
    let (throttle, board) = Board::of(on(&store, up));
    for _ in 0..3 {
        drop(throttle.acquire("up").await.unwrap());
        millis(1_000).await;
    }
    store.silence(true);
    let waits: Vec<_> = (0..30).map(|_| tokio::spawn(throttle.acquire("up").into_future())).collect();
    millis(4_100).await;
    let oldest = board.gauge("outgate_oldest_wait_seconds", &[]);
    assert!(oldest >= 3.0, "before its queue opens: {oldest}");
    millis(60_000).await;
    let oldest = board.gauge("outgate_oldest_wait_seconds", &[]);
    assert!(oldest >= 63.0, "and in it: {oldest}");
    let seen = throttle.snapshot();
    let queue = &seen.upstreams[0].queues[0];
    let waiting = waits.iter().filter(|of| !of.is_finished()).count();
    assert_eq!((seen.upstreams[0].callers, queue.callers), (waiting, waiting));
    assert!(queue.callers > 0 && queue.waits_for == Some(outgate::snapshot::WaitsFor::Limit), "{queue:?}");
}

#[tokio::test(start_paused = true)]
async fn who_waits_shows_until_nobody_does_and_how_long_in_the_end() {
    let (throttle, board) = Board::of(on(&Distant::default(), up()));
    let calls: Vec<_> =
        (0..6).map(|_| throttle.acquire("up")).map(|call| tokio::spawn(async move { drop(call.await) })).collect();
    millis(2_050).await;
    assert_eq!(board.gauge("outgate_callers_waiting", &[]), 2.0);
    let oldest = board.gauge("outgate_oldest_wait_seconds", &[]);
    assert!((1.9..2.1).contains(&oldest), "{oldest}");
    for call in calls {
        call.await.unwrap();
    }
    millis(1_100).await;
    assert_eq!(board.gauge("outgate_callers_waiting", &[]), 0.0);
    assert_eq!(board.gauge("outgate_oldest_wait_seconds", &[]), 0.0);
    let waited = board.seen("outgate_wait_seconds", &[("upstream", "up")]);
    let seconds: Vec<_> = waited.iter().map(|waited| waited.round()).collect();
    assert_eq!(seconds, [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]);
    assert_eq!(board.seen("outgate_late_seconds", &[]).len(), 6);
    assert_eq!(board.outcomes(), [("sent".to_owned(), 6)]);
}

/// Their runtime ends while they wait.
#[test]
fn nobody_waits_where_only_shadows_do_and_pauses_show_all_the_same() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let (throttle, board) = Board::of(on(&Distant::default(), up().observe()));
    let refusal = [("cause", "refusal")];
    runtime.block_on(async {
        let client = client(&throttle);
        client.get("http://up.example/429/30").send().await.unwrap();
        for _ in 0..6 {
            client.get("http://up.example/200").send().await.unwrap();
        }
        millis(10_100).await;
        let left = board.gauge("outgate_pause_seconds", &refusal);
        assert!((19.0..21.0).contains(&left), "{left}");
        assert_eq!(throttle.usage("up").await.unwrap().observed.unwrap().undecided, 7);
    });
    assert_eq!(board.gauge("outgate_callers_waiting", &[]), 0.0);
    assert_eq!(board.gauge("outgate_oldest_wait_seconds", &[]), 0.0);
    drop(runtime);
    assert_eq!(board.gauge("outgate_callers_waiting", &[]), 0.0);
    assert_eq!(board.count("outgate_pauses_total", &refusal), 1);
    assert_eq!(board.outcomes(), [("refused".to_owned(), 1), ("sent".to_owned(), 6)]);
}

#[tokio::test(start_paused = true)]
async fn a_pause_is_counted_once_and_shows_its_cause_and_what_is_left() {
    let (throttle, board) = Board::of(on(&Distant::default(), up()));
    let client = client(&throttle);
    client.get("http://up.example/429/30").send().await.unwrap();
    millis(10_100).await;
    let refusal = [("cause", "refusal")];
    let left = board.gauge("outgate_pause_seconds", &refusal);
    assert!((19.0..21.0).contains(&left), "{left}");
    assert_eq!(board.gauge("outgate_pause_seconds", &[("cause", "ban")]), 0.0);
    millis(22_000).await;
    assert_eq!(board.gauge("outgate_pause_seconds", &refusal), 0.0);
    assert_eq!(board.count("outgate_pauses_total", &refusal), 1);
    assert_eq!(board.count("outgate_retries_total", &[]), 0);
}

#[test]
fn nothing_that_is_over_is_shown_where_the_runtime_is_polled_no_more() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let (throttle, board) = Board::of(on(&Distant::default(), up()));
    let waits = || runtime.block_on(throttle.acquire("up").into_future());
    runtime.block_on(client(&throttle).get("http://up.example/429/30").send()).unwrap();
    drop(waits().unwrap());
    let refusal = [("cause", "refusal")];
    assert_eq!(board.gauge("outgate_callers_waiting", &[]), 0.0);
    assert_eq!(board.gauge("outgate_oldest_wait_seconds", &[]), 0.0);
    assert_eq!(board.gauge("outgate_pause_seconds", &refusal), 0.0);
    runtime.block_on(client(&throttle).get("http://up.example/429/30").send()).unwrap();
    let gives_up =
        async { tokio::time::timeout(Duration::from_millis(10_500), throttle.acquire("up").into_future()).await };
    runtime.block_on(gives_up).unwrap_err();
    assert_eq!(board.gauge("outgate_oldest_wait_seconds", &[]), 0.0);
    let left = board.gauge("outgate_pause_seconds", &refusal);
    assert!((19.0..20.0).contains(&left), "{left}: as long as it lasts it shows");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_shown_of_an_upstream_that_is_gone() {
    let refusal = [("cause", "refusal")];
    for (is_removed, is_updated) in [(true, false), (true, true), (false, false)] {
        let (throttle, board) = Board::of(on(&Distant::default(), up()));
        if is_updated {
            board.over(|| throttle.update(up())).unwrap();
        }
        let client = client(&throttle);
        client.get("http://up.example/429/30").send().await.unwrap();
        let waits = tokio::spawn(throttle.acquire("up").into_future());
        millis(10_100).await;
        assert!(board.gauge("outgate_oldest_wait_seconds", &[]) > 0.0);
        if is_removed {
            throttle.remove("up").unwrap();
        } else {
            waits.abort();
            drop((throttle, client));
        }
        millis(1_100).await;
        assert_eq!(board.gauge("outgate_pause_seconds", &refusal), 0.0, "{is_removed} {is_updated}");
        assert_eq!(board.gauge("outgate_oldest_wait_seconds", &[]), 0.0);
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_while_limits_are_replaced_and_who_waits_for_a_host_has_one_outcome() {
    let (throttle, board) = Board::of(on(&Distant::default(), up()));
    let asks = || throttle.acquire("up").cost(2).into_future();
    drop(asks().await.unwrap());
    let waits = tokio::spawn(asks());
    millis(10).await;
    board.over(|| throttle.update(up().limit(Limit::per_minute(1)))).unwrap();
    waits.await.unwrap().unwrap_err();
    assert_eq!(board.outcomes(), [("cost_exceeds_quota".to_owned(), 1), ("sent".to_owned(), 1)]);

    let (throttle, board) = Board::of(on(&Distant::default(), up().limit(Limit::per_second(100))));
    let plain = reqwest::Client::builder().no_proxy().build().unwrap();
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let named = Call::new().upstream("up");
    let client = reqwest_middleware::ClientBuilder::new(plain).with(throttle.middleware()).build();
    let call = || client.get(format!("http://{nobody}/")).with_extension(named.clone()).send();
    for _ in 0..3 {
        call().await.unwrap_err();
    }
    tokio::time::timeout(Duration::from_millis(1), call()).await.unwrap_err();
    assert_eq!(board.outcomes(), [("given_up".to_owned(), 1), ("handed_back".to_owned(), 3)]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_sent_again_is_a_retry_and_each_time_a_call() {
    let (throttle, board) = Board::of(on(&Distant::default(), up().retry_refused(2)));
    client(&throttle).get("http://up.example/429/1").send().await.unwrap();
    assert_eq!(board.count("outgate_retries_total", &[]), 2);
    assert_eq!(board.outcomes(), [("refused".to_owned(), 3)]);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_host_that_cannot_be_connected_to_shows_how_long() {
    let upstream = Fault::RefuseConnection.start().unwrap();
    let (throttle, board) =
        Board::of(on(&Distant::default(), Upstream::new("up").host("127.0.0.1").limit(Limit::per_second(100))));
    let client = ClientBuilder::new(reqwest::Client::new()).with(throttle.middleware()).build();
    let get = || client.get(upstream.url()).with_extension(Call::new().max_wait(Duration::from_secs(3_600))).send();
    for _ in 0..3 {
        get().await.unwrap_err();
    }
    // One after another goes to see.
    let waits: Vec<_> = (0..10).map(|_| tokio::spawn(get())).collect();
    let oldest = || board.gauge("outgate_oldest_wait_seconds", &[]);
    millis(3_500).await;
    assert!((1.5..3.6).contains(&oldest()), "{} s", oldest());
    for waits in waits {
        waits.await.unwrap().unwrap_err();
    }
    millis(1_100).await;
    assert_eq!(oldest(), 0.0);
}

#[tokio::test(start_paused = true)]
async fn calls_whose_upstream_was_removed_are_counted() {
    let (throttle, board) = Board::of(on(&Distant::default(), up()));
    for _ in 0..2 {
        drop(throttle.acquire("up").await.unwrap());
    }
    let waits = tokio::spawn(throttle.acquire("up").into_future());
    millis(100).await;
    throttle.remove("up").unwrap();
    waits.await.unwrap().unwrap_err();
    assert_eq!(board.outcomes(), [("sent".to_owned(), 2), ("unknown_upstream".to_owned(), 1)]);
}

#[tokio::test(start_paused = true)]
async fn quota_shows_what_usage_told_of_limits_that_everybody_shares() {
    let each = Limit::per_second(1).each(Scope::header("x-merchant"));
    let (throttle, board) = Board::of(on(&Distant::default(), up().limit(each)));
    drop(throttle.acquire("up").scope("m-1").await.unwrap());
    throttle.usage("up").await.unwrap();
    let limits: Vec<_> = board.series().into_iter().filter(|(name, ..)| name == "outgate_quota_used").collect();
    assert_eq!(limits.len(), 1, "not of each merchant: {limits:?}");
    assert_eq!(board.gauge("outgate_quota_used", &[]), 1.0);
    assert_eq!(board.gauge("outgate_outside_use", &[]), 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_upstreams_share_is_told_from_one_of_its_own_of_the_same_words() {
    let files = || Upstream::new("files").limit(Limit::per_minute(50)).shares("account", [Limit::per_minute(50)]);
    let mail = Upstream::new("mail").shares("account", [Limit::per_minute(50)]);
    let (throttle, board) = Board::of(on(&Distant::default(), files()).upstream(mail));
    for name in ["files", "mail", "mail"] {
        drop(throttle.acquire(name).await.unwrap());
    }
    throttle.usage("files").await.unwrap();
    let used = |limit| board.gauge("outgate_quota_used", &[("upstream", "files"), ("limit", limit)]);
    assert_eq!((used("50/min"), used("account/50/min")), (1.0, 3.0));
}

#[tokio::test(start_paused = true)]
async fn no_quota_is_used_of_a_limit_that_is_gone() {
    let (minutely, hourly) = (Limit::per_minute(50), Limit::per_hour(500));
    let (throttle, board) = Board::of(on(&Distant::default(), up().limit(minutely.clone())));
    drop(throttle.acquire("up").await.unwrap());
    throttle.usage("up").await.unwrap();
    let used = || {
        let limits = ["2/s guard 100ms", "50/min", "500/h"].into_iter();
        let has =
            |limit: &str| board.series().iter().any(|(.., labels)| labels.get("limit").is_some_and(|of| of == limit));
        let used = |limit| board.gauge("outgate_quota_used", &[("limit", limit)]);
        limits.filter(|limit| has(limit)).map(used).collect::<Vec<_>>()
    };
    assert_eq!(used(), [1.0, 1.0]);
    let asks = throttle.clone();
    let told = tokio::spawn(async move { asks.usage("up").await });
    tokio::task::yield_now().await;
    board.over(|| throttle.update(up().limit(hourly))).unwrap();
    assert_eq!(used(), [1.0, 0.0, 0.0], "what is there still goes on");
    told.await.unwrap().unwrap();
    assert_eq!(used(), [1.0, 0.0, 0.0], "of what was asked before nothing is shown");
    throttle.usage("up").await.unwrap();
    assert_eq!(used(), [1.0, 0.0, 1.0]);
    throttle.remove("up").unwrap();
    assert_eq!(used(), [0.0; 3]);
}

#[tokio::test(start_paused = true)]
async fn messages_are_timed_by_kind_and_failures_counted() {
    let store = Distant::default();
    let (throttle, board) = Board::of(on(&store, up()));
    drop(throttle.acquire("up").await.unwrap());
    throttle.usage("up").await.unwrap();
    throttle.slow_down("up", 0.5, Duration::from_secs(1)).await.unwrap();
    let usage = board.seen("outgate_store_seconds", &[("message", "usage")]);
    assert_eq!((usage.len(), usage[0].to_bits()), (1, 0.001_f64.to_bits()));
    assert_eq!(board.seen("outgate_store_seconds", &[("message", "slow_down")]).len(), 1);
    assert!(!board.seen("outgate_store_seconds", &[("message", "ask")]).is_empty());
    store.silence(true);
    throttle.usage("up").await.unwrap_err();
    assert_eq!(board.count("outgate_store_failures_total", &[("failure", "unreachable")]), 1);
}

#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_scopes_make_no_series() {
    let up = up().scope_by(Scope::bearer_token()).name_scope("token-7", "release-bot");
    let (throttle, board) = Board::of(Throttle::builder().upstream(up));
    let before = board.series();
    for token in 0..100_000_u32 {
        drop(throttle.acquire("up").scope(token.to_be_bytes()).await.unwrap());
    }
    for token in 0..100 {
        let call =
            throttle.acquire("up").scope(format!("token-{token}")).priority(Priority::High).kind(token.to_string());
        drop(call.await.unwrap());
    }
    throttle.usage_in("up", "token-7").await.unwrap();
    assert_eq!(board.series(), before);
    assert_eq!(board.outcomes(), [("sent".to_owned(), 100_100)]);
}
