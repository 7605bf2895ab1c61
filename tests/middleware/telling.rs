//! What the caller is told: what happened to its call, and why it was refused, through every wrapper.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use outgate::feedback::{Feedback, Quota};
use outgate::testing::{Fault, Shape, StrictUpstream};
use outgate::{Error, Limit, Passage, Throttle, Upstream};
use reqwest_middleware::ClientBuilder;
use reqwest_retry::RetryTransientMiddleware;
use reqwest_retry::policies::ExponentialBackoff;
use tracing::Dispatch;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::Registry;
use tracing_subscriber::fmt::format::FmtSpan;

use crate::{client, plain, throttle};

fn upstream() -> StrictUpstream {
    StrictUpstream::builder().limit(1_000, Duration::from_secs(1), Shape::SlidingLog).start().unwrap()
}

#[tokio::test]
async fn a_response_says_what_happened_on_its_way() {
    let upstream = upstream();
    let limit = Limit::new(1, Duration::from_millis(100)).guard(Duration::from_millis(50));
    let throttle = Throttle::builder().upstream(Upstream::new("up").host("127.0.0.1").limit(limit)).build().unwrap();
    let client = client(&throttle);
    let mut waited = Vec::new();
    for _ in 0..2 {
        let response = client.get(upstream.url()).send().await.unwrap();
        let passage: &Passage = response.extensions().get().unwrap();
        assert_eq!(&*passage.upstream, "up");
        waited.push(passage.waited);
    }
    assert!(waited[0] < waited[1] && waited[1] > Duration::from_millis(50), "{waited:?}");
}

#[tokio::test]
async fn with_retries_outside_every_attempt_asks_for_its_own_slot() {
    let (upstream, throttle) = (Fault::CloseAfterRequest.start().unwrap(), throttle());
    let retry = RetryTransientMiddleware::new_with_policy(
        ExponentialBackoff::builder()
            .retry_bounds(Duration::from_millis(1), Duration::from_millis(2))
            .build_with_max_retries(5),
    );
    let client = ClientBuilder::new(plain()).with(retry).with(throttle.middleware()).build();
    let error = client.get(upstream.url()).timeout(Duration::from_secs(1)).send().await.unwrap_err();
    // Two attempts an hour; the third is refused, found through both wrappers, and not tried again.
    match Error::find(&error) {
        Some(Error::Throttled { upstream, retry_after, .. }) => {
            assert_eq!(&**upstream, "loopback");
            assert!(*retry_after > Duration::from_secs(3_590), "{retry_after:?}");
        }
        other => panic!("{other:?} in {error:?}"),
    }
    assert_eq!(upstream.requests(), 2);
}

#[tokio::test]
async fn a_refusal_of_the_first_attempt_is_found_through_retries() {
    let retry = RetryTransientMiddleware::new_with_policy(ExponentialBackoff::builder().build_with_max_retries(5));
    let throttle = throttle();
    drop(throttle.acquire("loopback").cost(2).await.unwrap());
    let client = ClientBuilder::new(plain()).with(retry).with(throttle.middleware()).build();
    let error = client.get("http://127.0.0.1:1/").timeout(Duration::from_secs(1)).send().await.unwrap_err();
    let found = Error::find(&error).unwrap_or_else(|| panic!("{error:?}"));
    assert!(matches!(found, Error::Throttled { .. }) && found.retry_after() > Some(Duration::from_secs(3_590)));
    assert!(error.to_string().contains("the next slot for this call is"), "{error}");
}

#[tokio::test]
async fn an_error_that_is_not_ours_is_not_found() {
    let error = plain().get("ftp://127.0.0.1/").send().await.unwrap_err();
    assert!(Error::find(&error).is_none());
}

#[derive(Clone, Default)]
pub(crate) struct Written(Arc<Mutex<Vec<u8>>>);

impl Written {
    /// Everything that is traced on this thread.
    pub(crate) fn on_this_thread() -> (Self, (DefaultGuard, Dispatch)) {
        let written = Self::default();
        let writer = written.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_span_events(FmtSpan::FULL)
            .with_ansi(false)
            .with_writer(move || writer.clone());
        // A second subscriber: where there is but one, what another test's thread traces first is never asked of it.
        let second = Dispatch::new(Registry::default());
        (written, (tracing::subscriber::set_default(subscriber.finish()), second))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl std::io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn an_upstream_to_which_no_request_belongs_is_named() {
    let (written, _guard) = Written::on_this_thread();
    let at = |name: &str| Upstream::new(name).host("a.com").limit(Limit::per_second(1));
    let _sound = Throttle::builder().upstream(at("v1").path("/v1")).upstream(at("rest")).build().unwrap();
    assert_eq!(written.text(), "");
    let throttle = Throttle::builder().upstream(at("rest")).upstream(at("v1").path("/v1")).build().unwrap();
    assert!(
        written.text().contains("no request belongs to it")
            && written.text().contains(r#"upstream="v1" before="rest""#)
    );
    throttle.update(at("rest").path("/v2")).unwrap();
    throttle.add(at("v2").path("/v2/users")).unwrap();
    let text = written.text();
    assert_eq!(text.matches("no request belongs").count(), 2, "{text}");
    assert!(text.contains(r#"upstream="v2" before="rest""#), "{text}");
}

#[tokio::test]
async fn a_report_that_teaches_nothing_is_traced_once_with_why() {
    let (written, _guard) = Written::on_this_thread();
    let reporting = StrictUpstream::builder().handler(|_| {
        let mut response = http::Response::default();
        response.headers_mut().insert("x-ratelimit-remaining-tokens", 5.into());
        response
    });
    let (upstream, limit) = (reporting.start().unwrap(), Limit::per_hour(100));
    for learns in [false, true] {
        let up = Upstream::new("up").host("127.0.0.1").limit(limit.clone());
        let up = if learns { up.learn_from_responses() } else { up };
        let throttle = Throttle::builder().upstream(up).build().unwrap();
        for _ in 0..2 {
            client(&throttle).get(upstream.url()).send().await.unwrap();
            let quota = Quota::new().with_remaining(1).named("s3cret");
            for quota in [quota.clone().with_window(Duration::from_secs(60)), quota.with_limit(0)] {
                throttle.report("up", &Feedback::default().with_quota(quota)).await.unwrap();
            }
        }
        let traces = written.text();
        let told: Vec<_> = traces.lines().filter(|line| line.contains("nothing is learned")).collect();
        let expected = ["no limit counts its unit", "no limit of its unit has its window", "it allows nothing at all"];
        assert_eq!(told.len(), if learns { 3 } else { 0 }, "{traces}");
        for (line, expected) in told.iter().zip(expected) {
            assert!(line.contains(expected) && line.contains("INFO") && line.contains("up"), "{line}");
        }
        assert!(!learns || told[0].contains("x-ratelimit-remaining-tokens"), "{told:?}");
        assert!(!traces.contains("s3cret"), "{traces}");
    }
}

#[tokio::test]
async fn traces_name_the_upstream_and_never_a_secret() {
    let (written, _guard) = Written::on_this_thread();
    let upstream = upstream();
    let scoped = Upstream::new("api").host("127.0.0.1").scope_by(outgate::Scope::bearer_token());
    let throttle =
        Throttle::builder().upstream(scoped.limit(Limit::per_hour(1)).max_wait(Duration::ZERO)).build().unwrap();
    let client = client(&throttle);
    let call = || client.get(format!("{}?card=4242-s3cret", upstream.url())).bearer_auth("s3cret-token").send();
    call().await.unwrap();
    let refused = call().await.unwrap_err();
    throttle.acquire("api").scope("other-s3cret").await.unwrap().hand_back();
    tokio::task::yield_now().await;
    let traces = written.text();
    let ours: String = traces.lines().filter(|line| line.contains("outgate")).collect();
    for expected in ["acquire{upstream=\"api\" cost=1", "waited_us=", "refused", "handed back"] {
        assert!(ours.contains(expected), "{expected} in {traces}");
    }
    let told = format!("{ours} {refused} {refused:?} {throttle:?}");
    // Not the card's digits alone: the time of a trace may hold them.
    assert!(!told.contains("s3cret"), "{told}");
}
