//! Which requests are throttled, and in which log.

use std::time::Duration;

use outgate::testing::{Shape, StrictUpstream};
use outgate::{Call, Error, Limit, Scope, Throttle, Upstream};

use crate::client;

fn open() -> StrictUpstream {
    StrictUpstream::builder().limit(1_000, Duration::from_secs(1), Shape::SlidingLog).start().unwrap()
}

#[tokio::test]
async fn a_request_of_no_upstream_passes_through_untouched() {
    let upstream = open();
    let elsewhere = Upstream::new("elsewhere").host("api.example.com").limit(Limit::per_hour(1));
    let throttle = Throttle::builder().upstream(elsewhere).build().unwrap();
    for _ in 0..5 {
        let response = client(&throttle).get(upstream.url()).send().await.unwrap();
        assert!(response.extensions().get::<outgate::Passage>().is_none());
    }
    assert_eq!(upstream.admitted(), 5);
}

#[tokio::test]
async fn a_request_belongs_to_the_first_upstream_that_matches() {
    let upstream = open();
    let throttle = Throttle::builder()
        .upstream(Upstream::new("search").host("127.0.0.1").path("/search").limit(Limit::per_hour(9)))
        .upstream(Upstream::new("writes").method(reqwest::Method::POST).limit(Limit::per_hour(9)))
        .upstream(Upstream::new("rest").matching(|_| true).limit(Limit::per_hour(9)))
        .build()
        .unwrap();
    let client = client(&throttle);
    let url = |path: &str| format!("{}{path}", upstream.url().trim_end_matches('/'));
    let requests = [
        (client.get(url("/search?q=1")), "search"),
        (client.post(url("/search/2")), "search"),
        (client.post(url("/other")), "writes"),
        (client.get(url("/other")), "rest"),
        (client.get(url("/search")).with_extension(Call::new().upstream("rest")), "rest"),
    ];
    for (request, expected) in requests {
        let response = request.send().await.unwrap();
        assert_eq!(&*response.extensions().get::<outgate::Passage>().unwrap().upstream, expected);
    }
}

#[tokio::test]
async fn each_token_has_a_log_of_its_own() {
    let upstream = open();
    let scoped = Upstream::new("api").host("127.0.0.1").scope_by(Scope::bearer_token()).limit(Limit::per_hour(1));
    let throttle = Throttle::builder().upstream(scoped.max_wait(Duration::ZERO)).build().unwrap();
    let client = client(&throttle);
    let call = |token: Option<&'static str>| {
        let request = client.get(upstream.url());
        token.map_or_else(|| client.get(upstream.url()), |token| request.bearer_auth(token))
    };
    for (token, passes) in [
        (Some("one"), true),
        (Some("two"), true),
        (Some("one"), false),
        (None, true),
        (None, false),
        (Some("two"), false),
    ] {
        assert_eq!(call(token).send().await.is_ok(), passes, "{token:?}");
    }
    let told = throttle.try_acquire("api").scope("one").await;
    assert!(matches!(told, Err(Error::Throttled { .. })), "a queue consumer shares the token's log");
    assert_eq!(throttle.usage_in("api", "one").await.unwrap().limits[0].used, 1);
    drop(throttle.try_acquire("api").scope("three").await.unwrap());
}

#[tokio::test]
async fn a_call_may_name_its_cost_wait_upstream_and_scope() {
    let upstream = open();
    let throttle = Throttle::builder().upstream(Upstream::new("named").limit(Limit::per_hour(10))).build().unwrap();
    let client = client(&throttle);
    let call = Call::new().upstream("named").scope("merchant 7").cost(10).max_wait(Duration::ZERO);
    client.get(upstream.url()).with_extension(call.clone()).send().await.unwrap();
    let refused = client.get(upstream.url()).with_extension(call.clone().cost(1)).send().await.unwrap_err();
    assert!(matches!(Error::find(&refused), Some(Error::Throttled { .. })));
    let never = client.get(upstream.url()).with_extension(call.clone().cost(11)).send().await.unwrap_err();
    assert!(matches!(Error::find(&never), Some(Error::CostExceedsQuota { cost: 11, most: 10, .. })));
    let nobody = client.get(upstream.url()).with_extension(call.upstream("nobody")).send().await.unwrap_err();
    assert!(matches!(Error::find(&nobody), Some(Error::UnknownUpstream { .. })));
}
