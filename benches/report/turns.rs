//! Work that is timed in turns, on as many threads as wanted.

use std::error::Error;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};

use crate::spread::Spread;

/// What becomes of a measurement.
pub(crate) type Result<T = ()> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Rounds of ours and theirs, one after the other. The first round warms up and is not counted.
pub(crate) fn in_turns(
    rounds: usize,
    mut ours: impl FnMut() -> Result<f64>,
    mut theirs: impl FnMut() -> Result<f64>,
) -> Result<Vec<(f64, f64)>> {
    ours()?;
    theirs()?;
    (0..rounds).map(|_| Ok((ours()?, theirs()?))).collect()
}

/// Rounds of several pieces of work, all of them in each round. The first round warms up and is not counted.
pub(crate) fn side_by_side<T: Copy>(
    rounds: usize,
    pieces: &[T],
    mut work: impl FnMut(T) -> Result<f64>,
) -> Result<Vec<Spread>> {
    let mut figures = vec![Vec::new(); pieces.len()];
    for round in 0..=rounds {
        for (&piece, figures) in pieces.iter().zip(&mut figures) {
            let figure = work(piece)?;
            figures.extend((round > 0).then_some(figure));
        }
    }
    Ok(figures.into_iter().map(Spread::of).collect())
}

/// How long all of some work takes that begins at once, each on a thread of its own.
pub(crate) fn together<W: FnOnce() -> Result + Send>(works: Vec<W>) -> Result<Duration> {
    let start = &Barrier::new(works.len());
    std::thread::scope(|scope| {
        let begin = |work: W| {
            scope.spawn(move || {
                start.wait();
                let begin = Instant::now();
                work().map(|()| (begin, Instant::now()))
            })
        };
        let threads: Vec<_> = works.into_iter().map(begin).collect();
        let mut span: Option<(Instant, Instant)> = None;
        for thread in threads {
            let (begin, end) = thread.join().map_err(|_| "a thread of the benchmark panicked")??;
            span = Some(span.map_or((begin, end), |(first, last)| (first.min(begin), last.max(end))));
        }
        Ok(span.map_or(Duration::ZERO, |(first, last)| last - first))
    })
}

/// A runtime of one thread.
pub(crate) fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// Nanoseconds that each of `times` took.
#[expect(clippy::cast_precision_loss, reason = "far below what a float can tell apart")]
pub(crate) fn nanos_each(elapsed: Duration, times: usize) -> f64 {
    elapsed.as_nanos() as f64 / times as f64
}

/// A figure as a cell of a table: its median, least and most.
pub(crate) fn cell(figure: Spread, digits: usize) -> String {
    let Spread { median, min, max } = figure;
    format!("{median:.digits$} ({min:.digits$} … {max:.digits$})")
}

/// All of `done` must have been `wanted`, or the measurement is of something else.
pub(crate) fn expect(done: usize, wanted: usize, what: &str) -> Result {
    if done == wanted { Ok(()) } else { Err(format!("{done} of {wanted} calls were {what}").into()) }
}
