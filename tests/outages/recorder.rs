//! Everything that is traced, for tests.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

/// Everything that is traced on this thread, word for word.
#[derive(Clone, Default)]
pub(crate) struct Recorder(Arc<Mutex<Vec<(Level, String)>>>);

impl Recorder {
    pub(crate) fn on_this_thread() -> (Self, DefaultGuard) {
        // While there is one subscriber alone, tracing asks that of the thread which comes first to a line whether anybody cares; on
        // a thread of another test that is nobody, for good.
        static SECOND: OnceLock<Dispatch> = OnceLock::new();
        SECOND.get_or_init(|| Dispatch::new(tracing_subscriber::registry()));
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

/// Everything that an error says, by Display and by Debug.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{error} | {error:?}");
        next = error.source();
    }
    text
}
