//! What one sees while it crawls: a bar on a terminal, now and then a line anywhere else.

use std::cell::Cell;
use std::io::{self, IsTerminal as _};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// How often a line is written where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(2);

/// Shows how far a crawl is, on stderr.
pub(crate) enum Progress {
    Bar(ProgressBar),
    Lines { next: Cell<Duration> },
}

/// How far a crawl is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sight {
    pub(crate) pages: u32,
    /// Pages and calls for what may be one.
    pub(crate) known: u32,
    pub(crate) calls: u32,
    pub(crate) waiting: usize,
    pub(crate) elapsed: Duration,
}

impl Progress {
    pub(crate) fn new() -> Self {
        if io::stderr().is_terminal() { Self::Bar(bar()) } else { Self::Lines { next: Cell::new(LINE_EVERY) } }
    }

    pub(crate) fn show(&self, sight: &Sight) {
        match self {
            Self::Bar(bar) => {
                bar.set_length(sight.known.into());
                bar.set_position(sight.pages.into());
                bar.set_message(sight.text());
            }
            Self::Lines { next } if next.get() <= sight.elapsed => {
                next.set(sight.elapsed + LINE_EVERY);
                eprintln!("{} of {} pages, {}", sight.pages, sight.known, sight.text());
            }
            Self::Lines { .. } => {}
        }
    }

    /// Makes room for the table.
    pub(crate) fn finish(&self, sight: &Sight) {
        self.show(sight);
        if let Self::Bar(bar) = self {
            bar.abandon();
        }
    }
}

impl Sight {
    fn text(&self) -> String {
        let rate = f64::from(self.calls) / self.elapsed.as_secs_f64().max(0.001);
        format!("{rate:.1} calls/s, {} waiting", self.waiting)
    }
}

fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{elapsed:>4} [{wide_bar}] {human_pos} of {human_len} pages, {msg}");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(0).with_style(style.progress_chars("=> "))
}
