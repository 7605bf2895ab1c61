//! Redirects happen below every middleware: what comes back may be the answer to another call, or somebody else's.

use std::time::Duration;

use http::{Method, Request, Response};
use hyper::body::Bytes;
use outgate::testing::StrictUpstream;
use outgate::{Call, Limit, Throttle, ThrottleBuilder, Upstream};
use tokio::time::{sleep, timeout};

use crate::{client, used};

type Handler = fn(&Request<()>) -> http::response::Builder;

/// Answers every call as `handler` says.
fn answering(handler: Handler) -> StrictUpstream {
    let handler = move |request: &Request<()>| handler(request).body(Bytes::new()).unwrap();
    StrictUpstream::builder().handler(handler).start().unwrap()
}

/// Sends every call on to another server.
fn redirecting_to(location: String) -> StrictUpstream {
    let away = move |_: &Request<()>| {
        Response::builder().status(307).header("location", &location).body(Bytes::new()).unwrap()
    };
    StrictUpstream::builder().handler(away).start().unwrap()
}

/// Sends again up to three times, at once: a pause lasts a millisecond.
fn throttle(more: impl FnOnce(Upstream) -> Upstream) -> Throttle {
    let up = Upstream::new("up").host("127.0.0.1").limit(Limit::per_second(100));
    let up = up.retry_refused(3).max_pause(Duration::from_millis(1)).recovery(Duration::ZERO);
    Throttle::builder().upstream(more(up)).build().unwrap()
}

fn calls(upstream: &StrictUpstream) -> Vec<String> {
    upstream.arrivals().iter().map(|arrival| format!("{} {}", arrival.method, arrival.path)).collect()
}

#[tokio::test]
async fn a_payment_that_was_executed_and_redirected_is_not_sent_again_when_the_next_page_is_refused() {
    let upstream = answering(|request| match request.uri().path() {
        "/pay" => Response::builder().status(303).header("location", "/receipt"),
        _ => Response::builder().status(429).header("retry-after", "1"),
    });
    let client = client(&throttle(|up| up));
    let response = client.post(format!("{}/pay", upstream.url())).body("100").send().await.unwrap();
    assert_eq!(response.status(), 429);
    assert_eq!(calls(&upstream), ["POST /pay", "GET /receipt"]);
}

#[tokio::test]
async fn a_refused_call_of_a_url_with_a_fragment_and_a_password_is_sent_again() {
    let upstream = answering(|_| Response::builder().status(429).header("retry-after", "1"));
    let url = upstream.url().replace("://", "://user:word@");
    let client = client(&throttle(|up| up));
    assert_eq!(client.post(format!("{url}/pay?id=1#part")).send().await.unwrap().status(), 429);
    assert_eq!(calls(&upstream), ["POST /pay?id=1"; 4]);
}

#[tokio::test]
async fn a_refusal_by_another_server_pauses_nobody_and_is_not_sent_again() {
    let elsewhere = answering(|_| Response::builder().status(429).header("retry-after", "3600"));
    let upstream = redirecting_to(elsewhere.url());
    let throttle = throttle(|up| up.max_pause(Duration::from_secs(3_600)));
    assert_eq!(client(&throttle).post(upstream.url()).send().await.unwrap().status(), 429);
    assert_eq!((upstream.arrivals().len(), elsewhere.arrivals().len()), (1, 1));
    drop(throttle.try_acquire("up").await.expect("nobody said anything of this upstream"));
}

#[tokio::test]
async fn a_refusal_after_a_redirect_within_the_upstream_pauses_it() {
    let upstream = answering(|request| match request.uri().path() {
        "/old" => Response::builder().status(308).header("location", "/new"),
        _ => Response::builder().status(429).header("retry-after", "3600"),
    });
    let throttle = throttle(|up| up.max_pause(Duration::from_secs(3_600)));
    assert_eq!(client(&throttle).get(format!("{}/old", upstream.url())).send().await.unwrap().status(), 429);
    assert_eq!(calls(&upstream), ["GET /old", "GET /new"]);
    let retry_after = throttle.try_acquire("up").await.unwrap_err().retry_after().unwrap();
    assert!(retry_after > Duration::from_secs(3_590), "{retry_after:?}");
}

#[tokio::test]
async fn a_refusal_after_a_redirect_to_another_upstream_of_the_host_pauses_nobody() {
    let server = answering(|request| match request.uri().path() {
        "/pay" => Response::builder().status(303).header("location", "/status/7"),
        _ => Response::builder().status(429).header("retry-after", "3600"),
    });
    let up = |name: &str, path: &str| Upstream::new(name).host("127.0.0.1").path(path).limit(Limit::per_second(100));
    let throttle = Throttle::builder().upstream(up("status", "/status")).upstream(up("up", "/")).build().unwrap();
    assert_eq!(client(&throttle).post(format!("{}/pay", server.url())).send().await.unwrap().status(), 429);
    assert_eq!(calls(&server), ["POST /pay", "GET /status/7"]);
    for name in ["up", "status"] {
        drop(throttle.try_acquire(name).await.expect("a call of another upstream was refused, which it did not make"));
    }
}

#[tokio::test]
async fn a_refusal_after_a_redirect_pauses_the_upstream_that_was_called_unless_it_is_surely_another_s() {
    let server = answering(|request| match request.uri().path().split_once("/to") {
        Some((_, location)) => Response::builder().status(303).header("location", location),
        None => Response::builder().status(429).header("retry-after", "3600"),
    });
    let up = |name: &str| Upstream::new(name).host("127.0.0.1").limit(Limit::per_second(100));
    // The upstreams, who is called by name, the path that is called, and who pauses.
    let orders = || up("orders").path("/orders");
    let tenants = up("tenants").matching(|request| request.headers()["x-tenant"] == "7");
    let cases: [(Vec<Upstream>, Option<&str>, &str, &str); 6] = [
        (vec![orders(), up("items").path("/items")], Some("items"), "/orders/to/items/7", "items"),
        (
            vec![orders(), Upstream::new("named").limit(Limit::per_second(9))],
            Some("named"),
            "/orders/to/orders/7",
            "named",
        ),
        (vec![orders().method(Method::POST), up("api")], None, "/orders/to/archive/7", "api"),
        (vec![orders()], None, "/orders/to/nobodys", "orders"),
        (vec![tenants, up("archive").path("/archive"), up("api")], None, "/to/archive/7", "tenants"),
        (vec![up("reads").method(Method::GET), up("writes")], None, "/to/x", "reads"),
    ];
    for (upstreams, named, path, pauses) in cases {
        let throttle = upstreams.into_iter().fold(Throttle::builder(), ThrottleBuilder::upstream).build().unwrap();
        let mut request = client(&throttle).get(format!("{}{path}", server.url())).header("x-tenant", "7");
        if let Some(name) = named {
            request = request.with_extension(Call::new().upstream(name));
        }
        assert_eq!(request.send().await.unwrap().status(), 429, "{path}");
        assert!(throttle.try_acquire(pauses).await.is_err(), "{path}: {pauses} was refused");
    }
}

#[tokio::test]
async fn a_call_that_another_server_served_after_a_redirect_was_not_refused() {
    let elsewhere = answering(|_| Response::builder());
    let location = elsewhere.url();
    let handler = move |request: &Request<()>| {
        let response = Response::builder();
        let response = match request.uri().path() {
            "/refused" => response.status(429).header("retry-after", "3600"),
            "/unauthorized" => response.status(401),
            _ => response.status(302).header("location", &location),
        };
        response.body(Bytes::new()).unwrap()
    };
    let upstream = StrictUpstream::builder().handler(handler).start().unwrap();
    let throttle = {
        let up = Upstream::new("up").host("127.0.0.1").limit(Limit::per_second(100)).recovery(Duration::ZERO);
        let up = up.max_pause(Duration::from_millis(100)).break_after_unauthorized(2);
        Throttle::builder().upstream(up).build().unwrap()
    };
    let client = client(&throttle);
    let get =
        async |path: &str| client.get(format!("{}/{path}", upstream.url())).send().await.map(|r| r.status().as_u16());
    // Between two it was served: they are not in a row.
    for (path, status) in [("unauthorized", 401), ("file", 200), ("unauthorized", 401), ("file", 200)] {
        assert_eq!(get(path).await.unwrap(), status, "{path}");
    }
    // The one that looks after the longest pause was served, and so all others go on.
    assert_eq!(get("refused").await.unwrap(), 429);
    assert_eq!(get("file").await.unwrap(), 200);
    let is_over = async {
        while throttle.usage("up").await.unwrap().paused.is_some() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(5), is_over).await.expect("the pause is over, and not looked at for an hour");
}

#[tokio::test]
async fn what_another_server_says_of_its_quota_and_of_credentials_is_its_own_affair() {
    let elsewhere = answering(|_| {
        Response::builder().status(401).header("x-ratelimit-remaining", "0").header("x-ratelimit-reset", "60")
    });
    let upstream = redirecting_to(elsewhere.url());
    let throttle = throttle(|up| up.learn_from_responses().break_after_unauthorized(1));
    for _ in 0..2 {
        assert_eq!(client(&throttle).get(upstream.url()).send().await.unwrap().status(), 401);
    }
    assert_eq!(throttle.usage("up").await.unwrap().limits[0].outside_use, 0);
}

#[tokio::test]
async fn a_call_that_was_redirected_where_reqwest_does_not_go_keeps_its_slot() {
    for location in ["app://done", "mailto:clerk@shop.example"] {
        let upstream = redirecting_to(location.to_owned());
        let throttle = crate::throttle();
        assert!(client(&throttle).post(upstream.url()).send().await.unwrap_err().is_builder(), "{location}");
        assert_eq!((upstream.arrivals().len(), used(&throttle).await), (1, 1), "{location}");
    }
}
