//! By how much an upstream's clock is ahead of the store's, as the `Date` of its responses shows. Pure: time is an argument.
//!
//! A `Date` has whole seconds, and was written after its call was sent and before the response arrived: each bounds the difference from
//! both sides, and all together bound it to a second, or less.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::ledger::{Boundary, Calendar, Stamp};

const SECOND: i64 = 1_000_000;
/// Clocks drift by 1 µs in so many at most.
const DRIFT: i64 = 2_000;
/// No clock is believed to be wrong by more, in microseconds.
const MOST: i64 = 60 * SECOND;

/// What is known of one upstream's clock.
#[derive(Debug, Default)]
pub(crate) struct Skew(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    known: Option<Known>,
    /// Somebody was told that it is wrong by more than is believed.
    told: bool,
}

/// The upstream's clock less the store's lies between `lo` and `hi`, in microseconds.
#[derive(Clone, Copy, Debug)]
struct Known {
    lo: i64,
    hi: i64,
    /// By the last response.
    at: Stamp,
}

/// By how much boundaries come earlier and later than the store's clock says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reach {
    earlier: i64,
    later: i64,
}

impl Skew {
    /// A response showed so many seconds since 1970, whose call was sent at `sent` at the earliest, and which arrived at `arrived` at the
    /// latest. Says, once, where that is further away than is believed.
    pub(crate) fn shown(&self, seconds: i64, sent: Stamp, arrived: Stamp) -> bool {
        let shown = seconds.saturating_mul(SECOND);
        let lo = shown.saturating_sub(arrived.as_micros());
        let hi = shown.saturating_add(SECOND).saturating_sub(sent.as_micros());
        let mut state = self.lock();
        let drift = state.known.map_or(0, |known| (arrived.as_micros() - known.at.as_micros()).max(0) / DRIFT);
        let both = state.known.map(|known| (lo.max(known.lo - drift), hi.min(known.hi + drift)));
        // Where they contradict each other a clock was set, or another server answered.
        let (lo, hi) = both.filter(|(lo, hi)| lo <= hi).unwrap_or((lo, hi));
        state.known = Some(Known { lo: lo.max(i64::MIN / 4), hi: hi.min(i64::MAX / 4), at: arrived });
        let is_far = lo > MOST || hi < -MOST;
        is_far && !std::mem::replace(&mut state.told, true)
    }

    /// A calendar with the boundaries as wide as the clock that counts by them may be wrong.
    pub(crate) fn widened(&self, calendar: Calendar) -> Calendar {
        let Reach { earlier, later } = self.reach();
        let wide = |boundary: Boundary| Boundary::new(boundary.from.plus(-earlier), boundary.to.plus(later));
        Calendar { boundaries: calendar.boundaries.map(wide), ..calendar }
    }

    /// Nothing where the clocks may well agree.
    fn reach(&self) -> Reach {
        match self.lock().known {
            Some(Known { lo, hi, .. }) if lo > 0 => Reach { earlier: hi.min(MOST), later: 0 },
            Some(Known { lo, hi, .. }) if hi < 0 => Reach { earlier: 0, later: (-lo).min(MOST) },
            _ => Reach::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_795_170_949;

    /// What is known after responses that showed so many seconds from now, to calls that were sent and arrived at these milliseconds.
    fn reach(shown: &[(i64, i64, i64)]) -> (i64, i64) {
        let skew = Skew::default();
        for &(seconds, sent, arrived) in shown {
            let at = |millis: i64| Stamp::from_micros(NOW * SECOND + millis * 1_000);
            skew.shown(NOW + seconds, at(sent), at(arrived));
        }
        let Reach { earlier, later } = skew.reach();
        (earlier / 1_000, later / 1_000)
    }

    #[test]
    fn a_clock_that_may_be_right_moves_nothing() {
        assert_eq!(reach(&[]), (0, 0));
        assert_eq!(reach(&[(0, 0, 0), (0, 500, 500), (0, 999, 999), (1, 1_000, 1_000)]), (0, 0));
        assert_eq!(reach(&[(0, 0, 20_000), (20, 0, 20_000)]), (0, 0), "it was written at any time meanwhile");
    }

    #[test]
    fn a_clock_that_is_wrong_is_so_by_what_all_dates_allow() {
        assert_eq!(reach(&[(20, 400, 600)]), (20_600, 0), "19.4 to 20.6 s ahead");
        assert_eq!(reach(&[(20, 400, 600), (21, 900, 950)]), (20_600, 0));
        assert_eq!(reach(&[(20, 400, 600), (20, 900, 950)]), (20_100, 0), "the second is not over at 0.9");
        assert_eq!(reach(&[(-20, 400, 600)]), (0, 20_600), "19.4 to 20.6 s behind");
        assert_eq!(reach(&[(-20, 400, 600), (-19, 500, 500)]), (0, 19_500));
        assert_eq!(reach(&[(20, 0, 15_000)]), (21_000, 0), "5 at least, 21 at most");
    }

    #[test]
    fn a_clock_that_is_set_begins_anew() {
        assert_eq!(reach(&[(20, 0, 0), (-5, 100, 100)]), (0, 5_100));
        assert_eq!(reach(&[(20, 0, 0), (100, 100_000, 100_000)]), (0, 0));
        assert_eq!(reach(&[(20, 0, 0), (3_621, 3_600_000, 3_600_000)]), (22_000, 0), "drift included");
    }

    #[test]
    fn no_more_than_a_minute_is_believed_and_that_is_said_once() {
        assert_eq!(reach(&[(3_600, 0, 0)]), (60_000, 0));
        assert_eq!(reach(&[(-1_700_000_000, 0, 0)]), (0, 60_000));
        let (skew, now) = (Skew::default(), Stamp::from_micros(NOW * SECOND));
        let shown = [NOW + 59, NOW + 62, NOW + 62, 0, i64::MAX, i64::MIN];
        assert_eq!(shown.map(|seconds| skew.shown(seconds, now, now)), [false, true, false, false, false, false]);
    }
}
