//! What refusals cost somebody who calls as soon as he may, by limits of 100 a window.

use std::time::Duration;

use crate::ledger::constraints::Constraints;
use crate::ledger::pause::Pausing;
use crate::ledger::{Evidence, Log, Pause, SlidingLog, Stamp, Term};

const SECOND: i64 = 1_000_000;
const QUOTA: u32 = 100;
/// No run has more calls.
const MOST: usize = 400;

struct Run {
    window: i64,
    log: Log,
    entries: SlidingLog,
    of: Constraints,
    now: i64,
}

impl Run {
    /// So many calls were served in the last half of a window.
    fn new(seconds: i64, served: i64) -> Self {
        let window = seconds * SECOND;
        let log = Log::new("calls", [Term::new(QUOTA, window)]);
        let (entries, of) = (SlidingLog::new(), Constraints::default());
        let mut run = Self { window, log, entries, of, now: 10 * window };
        for call in 0..served {
            run.start(run.now - window / 2 + call * window / 200);
        }
        run
    }

    fn start(&mut self, at: i64) {
        self.entries.append(Stamp::from_micros(at), 1, 4 * self.window);
    }

    /// A call that started then is refused now, and nothing says how long to wait.
    fn is_refused(&mut self, started: i64) {
        let window = Duration::from_micros(self.window.unsigned_abs());
        let evidence = Evidence::new(self.log.clone(), 1, vec![(self.log.terms[0], window)]);
        let mut pause = Pause::new(Duration::from_secs(1));
        pause.memory = Duration::from_secs(300);
        (pause.started, pause.evidence) = (Some(Stamp::from_micros(started)), Some(Box::new(evidence)));
        self.of.pause(Stamp::from_micros(self.now), &pause, Stamp::NEVER, Some(&self.entries));
    }

    fn are_refused_at_once(&mut self, calls: i64) {
        (0..calls).for_each(|_| self.start(self.now));
        let started = self.now;
        for _ in 0..calls {
            self.now += 1_000;
            self.is_refused(started);
        }
    }

    /// The starts of all calls within so many seconds, in microseconds from now.
    fn calls_within(&mut self, seconds: i64) -> Vec<i64> {
        let (nothing, begin) = (Constraints::default(), self.now);
        let mut starts = Vec::new();
        while starts.len() < MOST {
            let now = Stamp::from_micros(self.now);
            let start = self.of.in_force(now, &nothing, None).earliest(now, &self.log, 1, &self.entries).as_micros();
            // As a queue that rests: the rate may have risen meanwhile.
            let looked = start.min(self.now + SECOND.max(self.window / 1_000));
            if looked >= begin + seconds * SECOND {
                break;
            }
            self.now = looked;
            if start <= looked {
                self.start(start);
                starts.push(start - begin);
            }
        }
        starts
    }
}

/// The longest time between two calls, and the most calls within a second, of those that start within so many seconds.
fn silence_and_burst(starts: &[i64]) -> (i64, usize) {
    let silence = starts.windows(2).map(|two| two[1] - two[0]).max().unwrap_or(0);
    let burst = starts.iter().map(|from| starts.iter().filter(|at| (*from..from + SECOND).contains(at)).count());
    (silence / SECOND, burst.max().unwrap_or(0))
}

#[test]
fn a_call_that_was_under_way_already_is_no_other_event() {
    for window in [1, 60, 3_600, 86_400] {
        let mut run = Run::new(window, 60);
        let before = run.now;
        run.start(before);
        run.start(before);
        // The upstream told to wait for a second: that is over, and forgotten, when the other call is answered.
        let refuse = |run: &mut Run| {
            run.is_refused(before);
            run.of.pause = run.of.pause.map(|pause| Pausing { forgotten: pause.until, ..pause });
        };
        refuse(&mut run);
        let began = run.of.rate.map(|rate| rate.began());
        run.now += 2 * SECOND;
        refuse(&mut run);
        assert_eq!(run.of.rate.map(|rate| rate.began()), began, "of {window} s");
    }
}

#[test]
fn after_several_at_once_calls_come_slower_and_never_silence_and_then_a_burst() {
    for (window, served, longest) in [(1, 60, 1), (60, 60, 18), (3_600, 10, 60), (86_400, 10, 60)] {
        let mut run = Run::new(window, served);
        run.are_refused_at_once(8);
        let starts = run.calls_within(601);
        let (silence, burst) = silence_and_burst(&starts);
        assert!(silence <= longest, "of {window} s: {silence} s");
        if window > 60 {
            assert!(starts.iter().filter(|start| **start < 300 * SECOND).count() >= 5, "of {window} s: {starts:?}");
            assert!(burst <= 25, "of {window} s: {burst} within a second");
        }
    }
}
