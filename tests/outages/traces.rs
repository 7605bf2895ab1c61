//! That the store went down, and that it is up again, is traced once each.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use outgate::store::WithoutStore;
use outgate::{Permit, RedisStore, Throttle, Upstream};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

use crate::scene::{Outage, Outcome, Scene, chain, plenty, unavailable};

/// Everything that is traced on this thread, word for word.
#[derive(Clone, Default)]
pub(crate) struct Recorder(Arc<Mutex<Vec<(Level, String)>>>);

impl Recorder {
    pub(crate) fn on_this_thread() -> (Self, DefaultGuard) {
        let recorder = Self::default();
        let guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(recorder.clone()));
        (recorder, guard)
    }

    pub(crate) fn all(&self) -> Vec<(Level, String)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What concerns whoever runs the program.
    pub(crate) fn news(&self) -> Vec<String> {
        let news = self.all().into_iter().filter(|(level, _)| *level <= Level::INFO);
        news.map(|(level, text)| format!("{level} {}", text.lines().next().unwrap_or_default())).collect()
    }

    fn note(&self, level: Level, words: Words) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((level, words.0));
    }
}

#[derive(Default)]
struct Words(String);

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0.insert_str(0, &format!("{value:?}\n"));
        } else {
            // Writing to a String cannot fail.
            let _ = writeln!(self.0, "{field}={value:?}");
        }
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        let _ = writeln!(self.0, "{field}={}", chain(value));
    }
}

impl<S: Subscriber> Layer<S> for Recorder {
    fn on_new_span(&self, span: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        let mut words = Words::default();
        span.record(&mut words);
        self.note(*span.metadata().level(), words);
    }

    fn on_record(&self, _: &Id, values: &Record<'_>, _: Context<'_, S>) {
        let mut words = Words::default();
        values.record(&mut words);
        self.note(Level::TRACE, words);
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut words = Words::default();
        event.record(&mut words);
        self.note(*event.metadata().level(), words);
    }
}

/// Many callers of several lines meet a cause, and find it gone.
fn news_of(begin: impl FnOnce(&Scene) -> Outcome, end: impl FnOnce(&Scene) -> Outcome) -> Result<Vec<String>, String> {
    let news = || {
        let (recorder, _guard) = Recorder::on_this_thread();
        Builder::new_current_thread().enable_all().build()?.block_on(async {
            let scene = Scene::new()?;
            let throttle = scene.throttle(plenty())?;
            drop(throttle.acquire("up").await?);
            begin(&scene)?;
            let mut callers = JoinSet::new();
            for caller in 0..40 {
                let throttle = throttle.clone();
                callers.spawn(async move {
                    sleep(Duration::from_millis(10 * caller)).await;
                    let acquire = throttle.acquire("up").scope([(caller % 4) as u8]);
                    unavailable(acquire.max_wait(Duration::from_millis(1_200)).await)
                });
            }
            callers.join_all().await;
            end(&scene)?;
            for _ in 0..5 {
                drop(throttle.acquire("up").await?);
            }
            Outcome::Ok(())
        })?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(recorder.news())
    };
    news().map_err(|error| error.to_string())
}

#[test]
fn an_outage_is_traced_once_when_it_begins_and_once_when_it_ends() {
    thread::scope(|threads| {
        let outages = Outage::ALL.map(|outage| {
            let news = threads.spawn(move || news_of(|scene| Ok(outage.begin(scene)?), |scene| Ok(outage.end(scene)?)));
            (format!("{outage:?}"), news)
        });
        let refusals = [
            ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
            ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
            ("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0"),
        ]
        .map(|(cause, cure)| {
            let redis = |command: &'static str| {
                move |scene: &Scene| {
                    scene.redis(command)?;
                    Ok(())
                }
            };
            (cause.to_owned(), threads.spawn(move || news_of(redis(cause), redis(cure))))
        });
        for (what, news) in outages.into_iter().chain(refusals) {
            let news = news.join().unwrap_or_else(|_| Err("it panicked".to_owned()));
            assert_eq!(news, Ok(vec!["WARN store down".to_owned(), "INFO store up".to_owned()]), "{what}");
        }
    });
}

/// Many callers of several scopes meet an outage, by policy: what is traced, sorted.
fn news_by(policy: WithoutStore, outage: Outage) -> Result<Vec<String>, String> {
    let news = || {
        let (recorder, _guard) = Recorder::on_this_thread();
        Builder::new_current_thread().enable_all().build()?.block_on(async {
            let scene = Scene::new()?;
            let up = Upstream::new("up").limit(plenty()).without_store(policy);
            let throttle = Throttle::builder().store(RedisStore::open(&scene.proxy.url())?).upstream(up).build()?;
            drop(throttle.acquire("up").await?);
            outage.begin(&scene)?;
            for caller in 0..100_u64 {
                let outcome = throttle.acquire("up").scope([(caller % 4) as u8]).await;
                assert!(outcome.as_ref().map_or(true, Permit::went_without_store), "{outcome:?}");
                sleep(Duration::from_millis(10)).await;
            }
            outage.end(&scene)?;
            while throttle.acquire("up").await.map_or(true, |permit| permit.went_without_store()) {
                sleep(Duration::from_millis(10)).await;
            }
            for scope in 0..4 {
                while throttle.acquire("up").scope([scope]).await.map_or(true, |permit| permit.went_without_store()) {
                    sleep(Duration::from_millis(10)).await;
                }
            }
            Outcome::Ok(())
        })?;
        let mut news = recorder.news();
        news.sort();
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(news)
    };
    news().map_err(|error| error.to_string())
}

#[test]
fn that_calls_go_on_without_the_store_is_traced_once_for_an_upstream_not_for_each_call_or_scope() {
    let said = [
        (WithoutStore::Refuse, "WARN store lost: calls are refused"),
        (WithoutStore::SendUnthrottled, "WARN store lost: calls are sent unthrottled"),
    ];
    thread::scope(|threads| {
        let all = said.map(|(policy, said)| {
            [Outage::Refused, Outage::Blackholed]
                .map(|outage| (outage, said, threads.spawn(move || news_by(policy, outage))))
        });
        for (outage, said, news) in all.into_iter().flatten() {
            let expected = ["INFO store back: calls are throttled again", "INFO store up", "WARN store down", said];
            let news = news.join().unwrap_or_else(|_| Err("it panicked".to_owned()));
            assert_eq!(news, Ok(expected.map(str::to_owned).to_vec()), "{outage:?}");
        }
    });
}
