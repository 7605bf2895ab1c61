//! What came of it.

use std::fmt;
use std::time::Duration;

use outgate::testing::Arrival;

use crate::run::{GUARD, QUOTA};

/// Part of the quota that the outages leave.
const WANTED: f64 = 0.8;
const WINDOW: i64 = 1_000_000;

pub(crate) struct Report {
    seed: u64,
    admitted: u32,
    /// Refused although no call was late.
    refused: usize,
    /// Refused in the window behind a call that was on its way for longer than the guard.
    refused_behind_late: usize,
    late: usize,
    longest: Duration,
    /// Calls that the outages leave, and calls that were late.
    left: f64,
    of_each_second: Vec<usize>,
}

impl Report {
    /// Of calls that say when they were let go on a clock that is so far ahead of the upstream's.
    pub(crate) fn new(seed: u64, calls: &[Arrival], offset: i64, lasting: Duration, outages: Duration) -> Self {
        let guard = i64::try_from(GUARD.as_micros()).unwrap_or(i64::MAX);
        let on_its_way = |call: &Arrival| {
            let let_go = call.caller.as_ref().and_then(|caller| caller.parse::<i64>().ok());
            let_go.map_or(0, |let_go| call.at + offset - let_go)
        };
        let late: Vec<i64> = calls.iter().filter(|call| on_its_way(call) > guard).map(|call| call.at).collect();
        let is_behind_late = |call: &&Arrival| late.iter().any(|&at| (at..=at + WINDOW).contains(&call.at));
        let refused = || calls.iter().filter(|call| !call.admitted);
        let refused_behind_late = refused().filter(is_behind_late).count();
        let longest = calls.iter().map(on_its_way).max().unwrap_or(0);
        let span = Duration::from_secs(1) + GUARD;
        // Where the machine stands still, as much is not used: a span from each call on that was late, but none twice.
        let until_next = late.windows(2).map(|pair| Duration::from_micros(pair[0].abs_diff(pair[1])).min(span));
        let lost = until_next.chain(late.last().map(|_| span)).sum::<Duration>();
        let first = calls.first().map_or(0, |call| call.at);
        let in_second = |second: u64| {
            let from = first + i64::try_from(second).unwrap_or(i64::MAX) * WINDOW;
            calls.iter().filter(|call| call.admitted && (from..from + WINDOW).contains(&call.at)).count()
        };
        Self {
            seed,
            admitted: u32::try_from(calls.iter().filter(|call| call.admitted).count()).unwrap_or(u32::MAX),
            refused: refused().count() - refused_behind_late,
            refused_behind_late,
            late: late.len(),
            longest: Duration::from_micros(u64::try_from(longest).unwrap_or(0)),
            left: f64::from(QUOTA) * lasting.saturating_sub(outages + lost).as_secs_f64() / span.as_secs_f64(),
            of_each_second: (0..lasting.as_secs()).map(in_second).collect(),
        }
    }

    fn share(&self) -> f64 {
        f64::from(self.admitted) / self.left.max(1.0)
    }

    /// Whether nobody was refused and enough of the quota was used.
    pub(crate) fn holds(&self) -> bool {
        self.refused == 0 && self.share() >= WANTED
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, admitted, refused, refused_behind_late, late, longest, left, of_each_second } = self;
        writeln!(f, "calls of each second: {of_each_second:?}")?;
        writeln!(f, "seed {seed}: {admitted} calls, {:.2} of the {left:.0} that outages leave", self.share())?;
        writeln!(f, "refused: {refused}, and {refused_behind_late} behind {late} calls that were late")?;
        write!(f, "longest on its way: {longest:.0?}; beyond the guard, {GUARD:?}, a call is late")
    }
}
