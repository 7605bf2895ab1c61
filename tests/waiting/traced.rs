//! What is traced: the warning that calls wait for long, what each call waited for, and the guide's list of events.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use outgate::{Limit, Throttle, Upstream};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

use crate::support::Counting;

/// Warnings, and what spans recorded, on this thread: `field=value`, one after another.
#[derive(Clone, Default)]
struct Traces(Arc<Mutex<Vec<String>>>);

#[derive(Default)]
struct Fields(Vec<String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.push(format!("{field}={value:?}"));
    }
}

impl Traces {
    fn on_this_thread() -> (Self, DefaultGuard) {
        // Beside a single subscriber, what another test's thread traces first is never asked of it.
        static SECOND: OnceLock<Dispatch> = OnceLock::new();
        SECOND.get_or_init(|| Dispatch::new(tracing_subscriber::registry()));
        let traces = Self::default();
        let guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(traces.clone()));
        (traces, guard)
    }

    fn note(&self, begin: &str, record: impl FnOnce(&mut Fields)) {
        let mut fields = Fields::default();
        record(&mut fields);
        self.0.lock().unwrap().push(format!("{begin} {}", fields.0.join(" ")));
    }

    /// Those that begin so, in parts.
    fn of(&self, begin: &str) -> Vec<String> {
        self.0.lock().unwrap().iter().filter(|line| line.starts_with(begin)).cloned().collect()
    }
}

impl<S: Subscriber> Layer<S> for Traces {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if *event.metadata().level() == Level::WARN {
            self.note("WARN", |fields| event.record(fields));
        }
    }

    fn on_new_span(&self, span: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        self.note("span", |fields| span.record(fields));
    }

    fn on_record(&self, _: &Id, values: &Record<'_>, _: Context<'_, S>) {
        self.note("record", |fields| values.record(fields));
    }
}

fn throttle(more: impl FnOnce(Upstream) -> Upstream) -> Throttle {
    let up = Upstream::new("up").warn_after(Duration::from_secs(10));
    Throttle::builder().store(Counting::default()).upstream(more(up)).build().unwrap()
}

fn callers(throttle: &Throttle, count: usize) -> JoinSet<()> {
    let mut callers = JoinSet::new();
    for _ in 0..count {
        let call = throttle.acquire("up");
        callers.spawn(async move { drop(call.await.unwrap()) });
    }
    callers
}

#[tokio::test(start_paused = true)]
async fn calls_that_wait_for_long_are_said_once_and_again_when_nobody_waited_in_between() {
    let (traces, _guard) = Traces::on_this_thread();
    let throttle = throttle(|up| up.limit(Limit::per_minute(1).guard(Duration::from_secs(1))));
    let mut waiting = callers(&throttle, 3);
    sleep(Duration::from_millis(9_900)).await;
    assert_eq!(traces.of("WARN"), [""; 0]);
    sleep(Duration::from_millis(200)).await;
    let [said] = &traces.of("WARN")[..] else { panic!("{:?}", traces.of("WARN")) };
    let parts = ["message=calls wait for long", "upstream=\"up\"", "callers=2", "waits_for=\"limit\"", "waited=10"];
    assert!(parts.iter().all(|part| said.contains(part)) && !said.contains("scope"), "{said}");
    while waiting.join_next().await.is_some() {}
    assert_eq!(traces.of("WARN").len(), 1, "once");
    sleep(Duration::from_secs(30)).await;
    let _waiting = callers(&throttle, 1);
    sleep(Duration::from_millis(10_100)).await;
    assert_eq!(traces.of("WARN").len(), 2, "and again");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_said_of_the_shadows_of_calls_that_went_on() {
    let (traces, _guard) = Traces::on_this_thread();
    let throttle = throttle(|up| up.limit(Limit::per_minute(1)).observe());
    callers(&throttle, 3).join_all().await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(traces.of("WARN"), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_span_says_how_many_were_ahead_and_what_the_call_waited_for() {
    let (traces, _guard) = Traces::on_this_thread();
    let throttle = throttle(|up| up.limit(Limit::per_second(2).guard(Duration::from_millis(100))));
    let mut waiting = callers(&throttle, 4);
    while waiting.join_next().await.is_some() {}
    assert_eq!(traces.of("span"), ["span upstream=\"up\" cost=1"; 4]);
    assert_eq!(traces.of("record ahead"), [0, 1, 2, 3].map(|ahead| format!("record ahead={ahead}")));
    let waited_for: Vec<_> =
        traces.of("record waits_for").iter().map(|line| line["record waits_for=".len()..].to_owned()).collect();
    assert_eq!(waited_for, ["\"store\"", "\"store\"", "\"limit\"", "\"limit\""]);
    assert_eq!(traces.of("WARN"), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_held_up_by_a_pause_or_a_seat_says_so() {
    let (traces, _guard) = Traces::on_this_thread();
    let throttle = throttle(|up| up.limit(Limit::in_flight(1)).limit(Limit::per_second(100)));
    let permit = throttle.acquire("up").await.unwrap();
    let mut waiting = callers(&throttle, 1);
    sleep(Duration::from_secs(1)).await;
    drop(permit);
    while waiting.join_next().await.is_some() {}
    let headers = [(http::header::RETRY_AFTER, http::HeaderValue::from_static("5"))].into_iter().collect();
    let refused = http::StatusCode::TOO_MANY_REQUESTS;
    let feedback = outgate::Feedback::read(refused, &headers, std::time::SystemTime::now());
    throttle.report("up", &feedback).await.unwrap();
    drop(throttle.acquire("up").await.unwrap());
    let waited_for = ["store", "seat", "pause"].map(|what| format!("record waits_for=\"{what}\""));
    assert_eq!(traces.of("record waits_for"), waited_for);
}

#[tokio::test(start_paused = true)]
async fn that_another_release_has_other_limits_is_said_once_in_each_process() {
    let (traces, _guard) = Traces::on_this_thread();
    let store = Counting::default();
    let [lax, strict] = [10, 2].map(|calls| store.limited(Limit::per_second(calls)));
    let mut waiting = callers(&lax, 40);
    let mut others = callers(&strict, 10);
    while waiting.join_next().await.is_some() || others.join_next().await.is_some() {}
    let mut said = traces.of("WARN");
    said.sort_unstable();
    let line = |units| {
        let message = "other processes give it other limits, and those of all hold; said once";
        format!("WARN message={message} upstream=\"up\" log=\"calls\" units={units} span=1.05s")
    };
    assert_eq!(said, [line(10), line(2)]);
}

/// Levels and messages of all events in the files of a folder.
fn traced(folder: &Path, found: &mut BTreeSet<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            traced(&path, found);
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for level in ["error", "warn", "info", "debug"] {
            for macro_call in text.split(&format!("tracing::{level}!(")).skip(1) {
                // The message is the last text of the call, and may go over several lines.
                let call = &macro_call[..end_of_call(macro_call)];
                let lines: Vec<_> = call.lines().map(str::trim_start).collect();
                let joined = lines.join("\n").replace("\\\n", "");
                let message = joined.rsplit('"').nth(1).unwrap().to_owned();
                found.insert((level.to_owned(), message));
            }
        }
    }
}

/// Where the brackets of a macro call close.
fn end_of_call(text: &str) -> usize {
    let (mut depth, mut in_text) = (1, false);
    for (at, c) in text.char_indices() {
        match c {
            '"' => in_text = !in_text,
            '(' if !in_text => depth += 1,
            ')' if !in_text => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    panic!("a call that does not end: {text}")
}

#[test]
fn the_guide_lists_every_event_with_its_level_and_no_other() {
    let (root, mut found) = (Path::new(env!("CARGO_MANIFEST_DIR")), BTreeSet::new());
    traced(&root.join("src"), &mut found);
    let guide = fs::read_to_string(root.join("guide/watching.md")).unwrap();
    let row = |line: &str| {
        let mut cells = line.trim_matches('|').split(" | ").map(str::trim);
        let (level, message) = (cells.next()?, cells.next()?.strip_prefix('"')?.strip_suffix('"')?);
        Some((level.to_owned(), message.to_owned()))
    };
    let listed: BTreeSet<_> = guide.lines().filter_map(row).collect();
    assert_eq!(found, listed);
}
