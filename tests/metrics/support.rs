//! A recorder, a store that takes its time, and an upstream that answers as its calls ask.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use http::Extensions;
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use metrics_util::registry::{AtomicStorage, Registry};
use outgate::ledger::Message;
use outgate::store::{Applying, StoreError, StoreErrorKind};
use outgate::{MemoryStore, Store, Throttle, ThrottleBuilder};
use reqwest::{Request, Response, ResponseBuilderExt as _};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, Next, Result};
use tokio::time::sleep;

/// A store in memory, a millisecond away, which can be silenced.
#[derive(Clone, Debug, Default)]
pub(crate) struct Distant {
    store: MemoryStore,
    silent: Arc<AtomicBool>,
}

impl Distant {
    pub(crate) fn silence(&self, silent: bool) {
        self.silent.store(silent, Ordering::Relaxed);
    }
}

impl Store for Distant {
    fn apply<'a>(&'a self, message: &'a Message) -> Applying<'a> {
        Applying::pending(async move {
            sleep(Duration::from_millis(1)).await;
            if self.silent.load(Ordering::Relaxed) {
                return Err(StoreError::new(StoreErrorKind::Unreachable, "it is silent"));
            }
            self.store.apply(message).await
        })
    }
}

/// One metric, and what it shows: a count, a gauge, or how many values a histogram has seen and their sum.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Shown {
    Count(u64),
    Gauge(f64),
    Seen(Vec<f64>),
}

/// A metric's name, and its labels.
type Named = (String, BTreeMap<String, String>);

/// Where one throttle counts.
pub(crate) struct Board(Arc<Recording>);

struct Recording {
    registry: Registry<Key, AtomicStorage>,
    described: Mutex<BTreeSet<String>>,
}

impl Recording {
    fn describe(&self, name: &KeyName) {
        self.described.lock().unwrap().insert(name.as_str().to_owned());
    }
}

impl Recorder for Recording {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.describe(&name);
    }

    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.describe(&name);
    }

    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.describe(&name);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        self.registry.get_or_create_counter(key, |counter| Arc::clone(counter).into())
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        self.registry.get_or_create_gauge(key, |gauge| Arc::clone(gauge).into())
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        self.registry.get_or_create_histogram(key, |histogram| Arc::clone(histogram).into())
    }
}

impl Board {
    /// The throttle, and where it counts.
    pub(crate) fn of(builder: ThrottleBuilder) -> (Throttle, Self) {
        let recording = Arc::new(Recording { registry: Registry::atomic(), described: Mutex::default() });
        let throttle = metrics::with_local_recorder(&*recording, || builder.build().unwrap());
        (throttle, Self(recording))
    }

    /// What is done where it counts.
    pub(crate) fn over<T>(&self, done: impl FnOnce() -> T) -> T {
        metrics::with_local_recorder(&*self.0, done)
    }

    /// The names that are described.
    pub(crate) fn described(&self) -> BTreeSet<String> {
        self.0.described.lock().unwrap().clone()
    }

    fn read(&self) -> BTreeMap<Named, Shown> {
        let mut shown = BTreeMap::new();
        self.0.registry.visit_counters(|key, count| {
            shown.insert(named(key), Shown::Count(count.load(Ordering::Relaxed)));
        });
        self.0.registry.visit_gauges(|key, gauge| {
            shown.insert(named(key), Shown::Gauge(f64::from_bits(gauge.load(Ordering::Relaxed))));
        });
        self.0.registry.visit_histograms(|key, seen| {
            let mut seen = seen.data();
            seen.sort_by(f64::total_cmp);
            shown.insert(named(key), Shown::Seen(seen));
        });
        shown
    }

    /// Every metric with its kind and its labels.
    pub(crate) fn series(&self) -> Vec<(String, &'static str, BTreeMap<String, String>)> {
        let kind = |shown: &Shown| match shown {
            Shown::Count(_) => "counter",
            Shown::Gauge(_) => "gauge",
            Shown::Seen(_) => "histogram",
        };
        self.read().into_iter().map(|((name, labels), shown)| (name, kind(&shown), labels)).collect()
    }

    /// What the one of this name shows that has these labels among its own.
    fn find(&self, name: &str, labels: &[(&str, &str)]) -> Shown {
        let has = |of: &BTreeMap<String, String>| {
            labels.iter().all(|(key, value)| of.get(*key).is_some_and(|is| is == value))
        };
        let mut found = self.read().into_iter().filter(|((of, its), _)| of == name && has(its));
        let shown = found.next().unwrap_or_else(|| panic!("no {name} {labels:?}")).1;
        assert!(found.next().is_none(), "there is more than one {name} {labels:?}");
        shown
    }

    pub(crate) fn count(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        match self.find(name, labels) {
            Shown::Count(count) => count,
            other => panic!("{name}: {other:?}"),
        }
    }

    pub(crate) fn gauge(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        match self.find(name, labels) {
            Shown::Gauge(gauge) => gauge,
            other => panic!("{name}: {other:?}"),
        }
    }

    pub(crate) fn seen(&self, name: &str, labels: &[(&str, &str)]) -> Vec<f64> {
        match self.find(name, labels) {
            Shown::Seen(seen) => seen,
            other => panic!("{name}: {other:?}"),
        }
    }

    /// What has become of calls, without what became of none.
    pub(crate) fn outcomes(&self) -> Vec<(String, u64)> {
        let calls = self.read().into_iter().filter(|((name, _), _)| name == "outgate_calls_total");
        let outcome = |((_, labels), shown): (Named, Shown)| match shown {
            Shown::Count(count) if count > 0 => Some((labels["outcome"].clone(), count)),
            _ => None,
        };
        calls.filter_map(outcome).collect()
    }
}

fn named(key: &Key) -> Named {
    let label = |label: &metrics::Label| (label.key().to_owned(), label.value().to_owned());
    (key.name().to_owned(), key.labels().map(label).collect())
}

/// Answers in the upstream's place: a path `/429/30` is answered by that status and that `Retry-After`.
struct Upstream;

#[async_trait]
impl Middleware for Upstream {
    async fn handle(&self, request: Request, _: &mut Extensions, _: Next<'_>) -> Result<Response> {
        let mut parts = request.url().path().split('/').skip(1);
        let response = http::Response::builder().url(request.url().clone()).status(parts.next().unwrap());
        let response = parts.fold(response, |response, told| response.header("retry-after", told));
        Ok(response.body("").unwrap().into())
    }
}

/// A client of a throttle, whose upstream answers at once.
pub(crate) fn client(throttle: &Throttle) -> ClientWithMiddleware {
    ClientBuilder::new(reqwest::Client::new()).with(throttle.middleware()).with(Upstream).build()
}
