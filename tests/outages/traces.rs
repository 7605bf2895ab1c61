//! That the store went down, and that it is up again, is traced once each.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

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
