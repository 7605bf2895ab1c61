//! The one definition of "correct": in no half-open window of a limit's length did more than its
//! quota leave.

use std::fmt::Write as _;

/// The fullest window that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Worst {
    /// How many units lie in it.
    pub count: u64,
    /// Where it begins, always at a stamp; 0 when nothing was counted.
    pub at: i64,
}

/// The fullest of all half-open windows `[t, t + window)` over `stamps`, which may come in any
/// order.
///
/// Of several equally full windows it is the earliest. A window of no length holds nothing.
///
/// ```
/// use outgate::testing::oracle::{Worst, worst_window, worst_window_of_units};
///
/// let Worst { count, at, .. } = worst_window(&[0, 10, 1_000, 1_005, 1_009], 100);
/// assert_eq!((count, at), (3, 1_000));
/// assert_eq!(worst_window_of_units(&[(0, 7), (1_000, 2)], 100).count, 7);
/// ```
#[must_use]
pub fn worst_window(stamps: &[i64], window: i64) -> Worst {
    worst_window_of_units(&one_unit_each(stamps), window)
}

/// Like [`worst_window`], for `(stamp, units)`.
#[must_use]
pub fn worst_window_of_units(entries: &[(i64, u64)], window: i64) -> Worst {
    let mut entries = entries.to_vec();
    entries.sort_unstable();
    let mut worst = Worst { count: 0, at: 0 };
    let (mut oldest, mut count) = (0, 0);
    for (newest, &(stamp, units)) in entries.iter().enumerate() {
        count += units;
        // i128: the two ends of an i64 clock are further apart than an i64 can say.
        while oldest <= newest && i128::from(stamp) - i128::from(entries[oldest].0) >= i128::from(window) {
            count -= entries[oldest].1;
            oldest += 1;
        }
        if count > worst.count {
            worst = Worst { count, at: entries[oldest].0 };
        }
    }
    worst
}

/// The units of the half-open window that ends with `start`, which counts itself: what a call that starts then finds, and adds to.
///
/// A debt, which is known only after calls that it should have delayed, makes windows before it too full. Those that end with a call
/// which was granted later are held against it all the same.
///
/// ```
/// use outgate::testing::oracle::{assert_never_more_units_than, window_of};
///
/// let entries = [(0, 3), (60, 2), (120, 1)];
/// assert_eq!(window_of(&entries, 100, 120), 3); // the first is too old
/// assert_never_more_units_than(5, 100, &entries);
/// ```
#[must_use]
pub fn window_of(entries: &[(i64, u64)], window: i64, start: i64) -> u64 {
    let counts = |stamp: i64| stamp <= start && i128::from(start) - i128::from(stamp) < i128::from(window);
    entries.iter().filter(|(stamp, _)| counts(*stamp)).map(|(_, units)| units).sum()
}

/// Demands that no window held more than `quota` calls.
///
/// # Panics
///
/// When one did; the message shows the fullest window, call by call.
#[track_caller]
pub fn assert_never_more_than(quota: u64, window: i64, stamps: &[i64]) {
    assert_never_more_units_than(quota, window, &one_unit_each(stamps));
}

/// Like [`assert_never_more_than`], for `(stamp, units)`.
///
/// # Panics
///
/// When a window held more than `quota` units.
#[track_caller]
pub fn assert_never_more_units_than(quota: u64, window: i64, entries: &[(i64, u64)]) {
    let worst = worst_window_of_units(entries, window);
    assert!(worst.count <= quota, "{}", offence(quota, window, entries, worst));
}

/// Jain's fairness index of what each party got: 1 when all got the same, 1/n when one got
/// everything.
///
/// Nobody, or nobody getting anything, is fair.
///
/// ```
/// use outgate::testing::oracle::jain;
///
/// assert_eq!((jain(&[25.0, 25.0]), jain(&[50.0, 0.0])), (1.0, 0.5)); // equal shares; one of two has all
/// ```
#[must_use]
pub fn jain(shares: &[f64]) -> f64 {
    let parties: f64 = shares.iter().map(|_| 1.0).sum();
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    if squares > 0.0 { sum * sum / (parties * squares) } else { 1.0 }
}

fn one_unit_each(stamps: &[i64]) -> Vec<(i64, u64)> {
    stamps.iter().map(|&stamp| (stamp, 1)).collect()
}

fn offence(quota: u64, window: i64, entries: &[(i64, u64)], worst: Worst) -> String {
    const SHOWN: usize = 60;
    let Worst { count, at } = worst;
    let end = at.saturating_add(window);
    let mut inside: Vec<_> = entries.iter().filter(|(stamp, _)| (at..end).contains(stamp)).collect();
    inside.sort_unstable();
    let mut text = format!("{count} in a window of {window} µs, at most {quota} allowed: [{at}, {end}) holds");
    for (stamp, units) in inside.iter().take(SHOWN) {
        // Writing to a String cannot fail.
        let _ = write!(text, "\n  +{} µs", stamp - at);
        if *units != 1 {
            let _ = write!(text, ", {units} units");
        }
    }
    if inside.len() > SHOWN {
        let _ = write!(text, "\n  … and {} more", inside.len() - SHOWN);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_window_is_half_open_and_begins_at_a_stamp() {
        for (stamps, window, count, at) in [
            (&[][..], 10, 0, 0),
            (&[5], 10, 1, 5),
            (&[0, 10], 10, 1, 0),
            (&[0, 9], 10, 2, 0),
            (&[0, 9, 10, 18], 10, 3, 9),
            (&[18, 10, 0, 9], 10, 3, 9),
            (&[7, 7, 7], 1, 3, 7),
            (&[7, 7, 7], 0, 0, 0),
            (&[0, 1, 2], -1, 0, 0),
            (&[-3, -2, 4], 3, 2, -3),
            (&[i64::MIN, i64::MAX], i64::MAX, 1, i64::MIN),
            (&[0, 1, 20, 21], 10, 2, 0),
        ] {
            assert_eq!(worst_window(stamps, window), Worst { count, at }, "{stamps:?} / {window}");
        }
    }

    #[test]
    fn units_weigh() {
        for (entries, count, at) in [
            (&[(0, 3), (10, 4)][..], 4, 10),
            (&[(0, 3), (9, 4), (10, 1)], 7, 0),
            (&[(0, 1), (9, 4), (10, 2)], 6, 9),
            (&[(0, 0)], 0, 0),
        ] {
            assert_eq!(worst_window_of_units(entries, 10), Worst { count, at }, "{entries:?}");
        }
    }

    #[test]
    fn the_window_of_a_call_ends_with_it() {
        let entries = [(0, 3), (1, 1), (10, 4), (10, 1), (11, 9)];
        for (start, units) in [(-1, 0), (0, 3), (9, 4), (10, 6), (11, 14), (20, 9), (21, 0)] {
            assert_eq!(window_of(&entries, 10, start), units, "{start}");
        }
        assert_eq!(window_of(&[(i64::MIN, 1)], i64::MAX, i64::MAX), 0);
    }

    #[test]
    fn a_full_window_is_allowed() {
        assert_never_more_than(2, 10, &[0, 9, 10, 19]);
    }

    #[test]
    #[should_panic(expected = "3 in a window of 10 µs, at most 2 allowed: [9, 19) holds\n  +0 µs\n  +1 µs\n  +9 µs")]
    fn an_overfull_window_is_shown_call_by_call() {
        assert_never_more_than(2, 10, &[0, 18, 9, 10, 30]);
    }

    #[test]
    #[should_panic(expected = "[5, 15) holds\n  +0 µs, 3 units")]
    fn an_overfull_window_shows_units() {
        assert_never_more_units_than(2, 10, &[(5, 3)]);
    }

    #[test]
    fn jain_is_1_for_equals_and_1_in_n_for_one_winner() {
        for (shares, index) in [
            (&[][..], 1.0),
            (&[0.0, 0.0], 1.0),
            (&[3.0, 3.0, 3.0], 1.0),
            (&[8.0, 0.0, 0.0, 0.0], 0.25),
            (&[1.0, 3.0], 0.8),
        ] {
            assert!((jain(shares) - index).abs() < f64::EPSILON, "{shares:?}");
        }
    }
}
