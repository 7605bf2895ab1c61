//! Clients that are tower services: hyper's for real, and services of the tests' own in virtual time.

mod grpc;

use std::convert::Infallible;
use std::error::Error;
use std::future::{Future as _, Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::TokioExecutor;
use outgate::ledger::{Body, Message};
use outgate::store::Applying;
use outgate::testing::{RedisServer, Shape, StrictUpstream, oracle};
use outgate::tower::ThrottledBody;
use outgate::{Call, Limit, MemoryStore, Passage, Permit, RedisStore, Store, Throttle, Unmatched, Upstream};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tower::{Layer as _, ServiceExt as _, service_fn};

type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

const SECOND: Duration = Duration::from_secs(1);

fn get(url: &str) -> http::Result<Request<()>> {
    Request::get(url).body(())
}

fn throttle(limit: Limit) -> Result<Throttle, outgate::ConfigError> {
    Throttle::builder().upstream(Upstream::new("up").host("api.example.com").limit(limit)).build()
}

/// A service that serves everybody with a body.
async fn tells(_: Request<()>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from("a body")))
}

/// A service that serves everybody.
async fn serves(_: Request<()>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::default()))
}

#[tokio::test]
async fn four_throttles_of_hyper_clients_send_what_the_limit_allows_and_earn_no_429() -> Outcome {
    const WINDOW: Duration = Duration::from_millis(500);
    let redis = RedisServer::start()?;
    let upstream = StrictUpstream::builder().limit(20, WINDOW, Shape::SlidingLog).start()?;
    let limit = Limit::new(20, WINDOW).guard(Duration::from_millis(400));
    let mut callers = JoinSet::new();
    for _ in 0..4 {
        let throttle = Throttle::builder()
            .store(RedisStore::connect(&redis.url()).await?)
            .upstream(Upstream::new("strict").host("127.0.0.1").limit(limit.clone()))
            .build()?;
        let hyper = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
        let client = throttle.layer().layer(hyper);
        for _ in 0..15 {
            let (client, url) = (client.clone(), upstream.url());
            callers.spawn(async move {
                let response = client.oneshot(Request::get(url).body(Empty::new())?).await?;
                assert!(response.extensions().get::<Passage>().is_some());
                let status = response.status();
                response.into_body().collect().await?;
                Ok::<_, Box<dyn Error + Send + Sync>>(status)
            });
        }
    }
    while let Some(status) = callers.join_next().await {
        assert_eq!(status??, 200);
    }
    assert_eq!((upstream.admitted(), upstream.refused()), (60, 0));
    oracle::assert_never_more_than(20, 500_000, &upstream.stamps());
    Ok(())
}

#[tokio::test]
async fn a_call_that_could_not_connect_gives_its_slot_back_where_the_layer_can_tell() -> Outcome {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    for (tells, free) in [(true, true), (false, false)] {
        let throttle =
            Throttle::builder().upstream(Upstream::new("up").host("127.0.0.1").limit(Limit::per_hour(1))).build()?;
        let hyper = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
        let layer = throttle.layer();
        let layer = if tells {
            layer.never_sent(|error| error.downcast_ref().is_some_and(ClientError::is_connect))
        } else {
            layer
        };
        let request = Request::get(format!("http://{nobody}/")).body(Empty::new())?;
        let Err(error) = layer.layer(hyper).oneshot(request).await else { return Err("somebody listens".into()) };
        assert!(outgate::Error::find(&*error).is_none(), "{error}");
        assert_eq!(throttle.try_acquire("up").await.is_ok(), free, "it tells: {tells}");
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn calls_wait_for_their_slots_and_those_without_time_are_refused() -> Outcome {
    let client = throttle(Limit::new(1, 20 * SECOND).guard(SECOND))?.layer().layer(service_fn(serves));
    let begun = Instant::now();
    for nth in 0..3 {
        client.clone().oneshot(get("https://api.example.com/")?).await?;
        assert_eq!(begun.elapsed().as_secs(), 21 * nth);
    }
    let mut hurried = get("https://api.example.com/")?;
    hurried.extensions_mut().insert(Call::new().max_wait(SECOND / 2));
    let Err(error) = client.oneshot(hurried).await else { return Err("it went".into()) };
    assert!(matches!(outgate::Error::find(&*error), Some(outgate::Error::Throttled { .. })), "{error}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_host_is_the_named_upstreams_and_one_of_nobody_passes_or_is_refused() -> Outcome {
    let all = throttle(Limit::per_hour(1))?;
    let named = all.layer().upstream("up").layer(service_fn(serves));
    named.clone().oneshot(get("/package.Service/Method")?).await?;
    let second = timeout(60 * SECOND, named.oneshot(get("/package.Service/Method")?)).await;
    assert!(second.is_err(), "the second waits for an hour");
    // Of nobody.
    all.layer().layer(service_fn(serves)).oneshot(get("/elsewhere")?).await?;
    let strict = Throttle::builder().unmatched(Unmatched::Refuse).build()?;
    let outcome = strict.layer().layer(service_fn(serves)).oneshot(get("https://other.example/")?).await;
    let Err(error) = outcome else { return Err("it went".into()) };
    assert!(matches!(outgate::Error::find(&*error), Some(outgate::Error::Unmatched { .. })), "{error}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_request_for_a_tunnel_or_about_no_path_is_the_upstreams_of_its_host() -> Outcome {
    let connect = Request::connect("api.example.com:443").body(())?;
    let about_all = Request::options("*").header("host", "api.example.com:8443").body(())?;
    for request in [connect, about_all] {
        let throttle = throttle(Limit::per_hour(1))?;
        throttle.layer().layer(service_fn(serves)).oneshot(request).await?;
        assert_eq!(throttle.usage("up").await?.limits[0].used, 1);
    }
    Ok(())
}

/// Requests without a host say nothing of where they go: those of two upstreams probably go to two places.
#[tokio::test(start_paused = true)]
async fn an_upstream_that_cannot_be_connected_to_holds_up_no_other_whose_requests_have_no_host() -> Outcome {
    let throttle = ["a", "b"]
        .into_iter()
        .fold(Throttle::builder(), |all, name| all.upstream(Upstream::new(name).limit(Limit::per_second(9))))
        .build()?;
    let lost = service_fn(|_: Request<()>| async { Err::<Response<Full<Bytes>>, _>(std::io::Error::other("refused")) });
    let layer = throttle.layer().never_sent(|_| true);
    let of = |name: &str| layer.clone().upstream(name);
    for _ in 0..4 {
        assert!(of("a").layer(lost).oneshot(get("/package.Service/Method")?).await.is_err());
    }
    let mut hurried = get("/package.Service/Method")?;
    hurried.extensions_mut().insert(Call::new().max_wait(Duration::ZERO));
    let to_a = of("a").layer(lost).oneshot(hurried.clone()).await;
    let unreachable = to_a.err().and_then(|error| outgate::Error::find(&*error).cloned());
    // Nobody knows its host: it is called by its upstream.
    let is_named = |host: &str| host == "a";
    assert!(
        matches!(&unreachable, Some(outgate::Error::Unreachable { host, .. }) if is_named(host)),
        "{unreachable:?}"
    );
    of("b").layer(service_fn(serves)).oneshot(hurried).await?;
    Ok(())
}

#[test]
fn outside_of_a_runtime_a_call_that_has_to_wait_for_its_host_is_an_error() -> Outcome {
    let throttle = throttle(Limit::per_second(9))?;
    let lost = service_fn(|_: Request<()>| async { Err::<Response<Full<Bytes>>, _>(std::io::Error::other("refused")) });
    let client = throttle.layer().never_sent(|_| true).layer(lost);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    for _ in 0..3 {
        assert!(runtime.block_on(client.clone().oneshot(get("https://api.example.com/")?)).is_err());
    }
    let call = std::pin::pin!(client.oneshot(get("https://api.example.com/")?));
    let Poll::Ready(Err(error)) = call.poll(&mut Context::from_waker(Waker::noop())) else {
        return Err("it waits".into());
    };
    assert!(matches!(outgate::Error::find(&*error), Some(outgate::Error::OutsideRuntime)), "{error}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_seat_is_kept_until_the_body_has_ended_or_only_until_the_headers_came() -> Outcome {
    for (limit, free) in [(Limit::in_flight(1), false), (Limit::in_flight(1).until_headers(), true)] {
        let throttle = throttle(limit)?;
        let response = throttle.layer().layer(service_fn(tells)).oneshot(get("https://api.example.com/")?).await?;
        assert_eq!(throttle.try_acquire("up").await.is_ok(), free);
        drop(response);
        assert!(throttle.try_acquire("up").await.is_ok());
        let empty = throttle.layer().layer(service_fn(serves)).oneshot(get("https://api.example.com/")?).await?;
        assert!(throttle.try_acquire("up").await.is_ok(), "nothing comes behind an empty response");
        drop(empty);
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn each_attempt_of_a_retry_outside_asks_for_a_slot_of_its_own() -> Outcome {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let fails = service_fn(move |_: Request<()>| {
        let calls = Arc::clone(&counted);
        async move {
            calls.fetch_add(1, Ordering::Relaxed);
            Ok::<_, Infallible>(Response::builder().status(500).body(Full::<Bytes>::default()).unwrap_or_default())
        }
    });
    let client = throttle(Limit::new(2, SECOND).guard(SECOND))?.layer().layer(fails);
    let begun = Instant::now();
    for _ in 0..4 {
        client.clone().oneshot(get("https://api.example.com/")?).await?;
    }
    assert_eq!(calls.load(Ordering::Relaxed), 4);
    assert!(begun.elapsed() >= 2 * SECOND);
    Ok(())
}

#[tokio::test]
async fn a_request_without_a_host_is_nobodys_whatever_its_path_looks_like() -> Outcome {
    let throttle = throttle(Limit::per_hour(1))?;
    for path in ["/api.example.com/x", "//api.example.com/x", "/"] {
        let request = Request::get(path).header("host", "").body(())?;
        timeout(SECOND, throttle.layer().layer(service_fn(serves)).oneshot(request)).await??;
    }
    assert_eq!(throttle.usage("up").await?.limits[0].used, 0);
    // Of whom it is, is known without its host.
    let named = throttle.layer().upstream("up").layer(service_fn(serves));
    let served = timeout(SECOND, named.oneshot(get("http://web.1/x")?)).await?;
    assert_eq!(served?.status(), 200);
    assert_eq!(throttle.usage("up").await?.limits[0].used, 1);
    Ok(())
}
