//! A request that belongs to no upstream is seen.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use outgate::{Call, Error, Limit, Throttle, ThrottleBuilder, Unmatched, Upstream};
use reqwest::{Request, Response};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, Next, Result};
use tracing::field::{Field, Visit};
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

/// The warnings of this thread, word for word.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    fn on_this_thread() -> (Self, (DefaultGuard, Dispatch)) {
        let warnings = Self::default();
        let guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(warnings.clone()));
        // A second subscriber: where there is but one, what another test's thread traces first is never asked of it.
        (warnings, (guard, Dispatch::new(tracing_subscriber::registry())))
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl<S: Subscriber> Layer<S> for Warnings {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        struct Words(String);
        impl Visit for Words {
            fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
                write!(self.0, "{field}={value:?} ").unwrap();
            }
        }
        if *event.metadata().level() <= Level::WARN {
            let mut words = Words(String::new());
            event.record(&mut words);
            self.0.lock().unwrap().push(words.0);
        }
    }
}

/// Answers in place of whoever a request is for.
struct Anybody;

#[async_trait]
impl Middleware for Anybody {
    async fn handle(&self, _: Request, _: &mut http::Extensions, _: Next<'_>) -> Result<Response> {
        Ok(http::Response::new("").into())
    }
}

fn client(builder: ThrottleBuilder) -> ClientWithMiddleware {
    let upstream = Upstream::new("up").host("api.example.com").limit(Limit::per_second(1_000));
    let throttle = builder.upstream(upstream).build().unwrap();
    ClientBuilder::new(reqwest::Client::new()).with(throttle.middleware()).with(Anybody).build()
}

#[tokio::test]
async fn each_host_of_no_upstream_is_warned_of_once_by_name_and_port_alone() {
    let (warnings, _guard) = Warnings::on_this_thread();
    let client = client(Throttle::builder());
    client.get("https://api.example.com/v1").send().await.unwrap();
    assert_eq!(warnings.take(), Vec::<String>::new());
    for round in 0..3 {
        for url in [
            "https://user:t0ken@api.exmaple.com/s3cret?s3cret#s3cret",
            "http://API.exmaple.com./",
            "https://api.exmaple.com:8443/s3cret",
            "https://api.exmaple.com:443/",
        ] {
            client.get(url).send().await.unwrap();
        }
        let found = warnings.take();
        assert_eq!(found.len(), if round == 0 { 2 } else { 0 }, "{found:?}");
        if round == 0 {
            assert!(found[0].contains("host=\"api.exmaple.com\""), "{found:?}");
            assert!(found[1].contains("host=\"api.exmaple.com:8443\""), "{found:?}");
            assert!(!found.concat().contains("t0ken") && !found.concat().contains("s3cret"), "{found:?}");
        }
    }
}

#[tokio::test]
async fn a_thousand_hosts_are_named_and_of_further_ones_one_warning_tells() {
    let (warnings, _guard) = Warnings::on_this_thread();
    let client = client(Throttle::builder().unmatched(Unmatched::Warn));
    let visit = async |hosts: std::ops::Range<u32>| {
        for host in hosts {
            client.get(format!("https://host-{host}.example.org/")).send().await.unwrap();
        }
        warnings.take()
    };
    let named = visit(0..1_000).await;
    assert_eq!(named.len(), 1_000);
    assert!(named[999].contains("host-999.example.org"), "{}", named[999]);
    assert_eq!(visit(0..1_000).await, Vec::<String>::new());
    let last = visit(1_000..3_000).await;
    assert!(last.len() == 1 && !last[0].contains("example.org"), "{last:?}");
    assert_eq!(visit(0..3_000).await, Vec::<String>::new());
}

#[tokio::test]
async fn who_wants_no_warning_gets_none() {
    let (warnings, _guard) = Warnings::on_this_thread();
    client(Throttle::builder().unmatched(Unmatched::Pass)).get("https://example.org/").send().await.unwrap();
    assert_eq!(warnings.take(), Vec::<String>::new());
}

#[tokio::test]
async fn a_request_of_no_upstream_is_refused_where_that_is_asked_for() {
    let (warnings, _guard) = Warnings::on_this_thread();
    let client = client(Throttle::builder().unmatched(Unmatched::Refuse));
    client.get("https://api.example.com/").send().await.unwrap();
    let error = client.get("https://user:t0ken@example.org:8443/s3cret?s3cret").send().await.unwrap_err();
    let Some(Error::Unmatched { host, .. }) = Error::find(&error) else { panic!("{error:?}") };
    assert_eq!(&**host, "example.org:8443");
    assert_eq!(Error::find(&error).and_then(Error::retry_after), None);
    for text in [format!("{error}"), format!("{error:?}")] {
        assert!(!text.contains("t0ken") && !text.contains("s3cret"), "{text}");
    }
    assert_eq!(warnings.take(), Vec::<String>::new());
}

#[tokio::test]
async fn a_request_that_names_its_upstream_is_not_unmatched() {
    let (warnings, _guard) = Warnings::on_this_thread();
    for unmatched in [Unmatched::Warn, Unmatched::Refuse] {
        let client = client(Throttle::builder().unmatched(unmatched));
        client.get("https://example.org/").with_extension(Call::new().upstream("up")).send().await.unwrap();
    }
    assert_eq!(warnings.take(), Vec::<String>::new());
}
