use super::{Shape, meter::Meter};

/// The verdict of an upstream on its calls: every limit must admit a call, and a call that one
/// refuses counts nowhere.
///
/// Pure: instants are arguments, in µs of any one clock. An instant before the latest seen is
/// taken for that one.
///
/// # Default
///
/// No limits: everything is admitted.
///
/// ```
/// use outgate::testing::{Balance, Judge, Shape, Verdict};
///
/// let mut judge = Judge::new().limit(2, 1_000, Shape::SlidingLog);
/// assert!(judge.ask(0, 2).admitted); // it would be
/// let Verdict { admitted, retry_after, .. } = judge.admit(0, 1);
/// assert_eq!((admitted, retry_after), (true, None));
/// judge.count(100, 1);
/// assert_eq!(judge.admit(200, 1).retry_after, Some(800));
/// let Some(Balance { quota, left, .. }) = judge.balance(200) else { panic!("it has a limit") };
/// assert_eq!((quota, left), (2, 0));
/// judge.reset();
/// assert!(judge.admit(300, 2).admitted);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Judge {
    meters: Vec<Meter>,
    latest: Option<i64>,
}

/// What a [`Judge`] says about one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verdict {
    /// Whether the call may pass; it counts exactly then.
    pub admitted: bool,
    /// For a refused call: after how many µs the same call would be admitted if nobody called
    /// before. Exact. `None` when it was admitted, or costs more than a quota and never will be.
    pub retry_after: Option<i64>,
}

impl Verdict {
    /// What two limits say together.
    pub(super) fn and(self, other: Self) -> Self {
        let retry_after = match (self.admitted, other.admitted) {
            (true, _) => other.retry_after,
            (_, true) => self.retry_after,
            (false, false) => self.retry_after.zip(other.retry_after).map(|(one, other)| one.max(other)),
        };
        Self { admitted: self.admitted && other.admitted, retry_after }
    }
}

/// What is left of one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Balance {
    /// The limit's quota.
    pub quota: u64,
    /// Whole units that are left of it.
    pub left: u64,
    /// After how many µs all of them are there again if nobody calls.
    pub reset: i64,
}

impl Judge {
    /// A judge without limits.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a limit of `quota` units in any `window` µs, counted the way `shape` does. A window
    /// lasts at least 1 µs, and at most 73,000 years.
    #[must_use]
    pub fn limit(mut self, quota: u64, window: i64, shape: Shape) -> Self {
        self.meters.push(Meter::new(quota, window, shape));
        self
    }

    /// Judges a call of `cost` units at instant `now`. A call that costs nothing is always
    /// admitted.
    pub fn admit(&mut self, now: i64, cost: u64) -> Verdict {
        let verdict = self.ask(now, cost);
        if verdict.admitted {
            self.count(now, cost);
        }
        verdict
    }

    /// What [`admit`](Self::admit) would say; nothing counts.
    pub fn ask(&mut self, now: i64, cost: u64) -> Verdict {
        let now = self.advance(now);
        let waits: Option<Vec<i64>> = self.meters.iter().map(|meter| meter.wait(now, cost)).collect();
        match waits.map(|waits| waits.into_iter().max().unwrap_or(0)) {
            Some(0) => Verdict { admitted: true, retry_after: None },
            retry_after => Verdict { admitted: false, retry_after },
        }
    }

    /// What is left at instant `now` of the limit of which least is left; `None` without limits.
    pub fn balance(&mut self, now: i64) -> Option<Balance> {
        let now = self.advance(now);
        self.meters.iter().map(|meter| meter.balance(now)).min_by_key(|balance| balance.left)
    }

    /// Counts a call without asking whether it fits, as when a limit is lowered below what has
    /// already passed.
    pub fn count(&mut self, now: i64, cost: u64) {
        let now = self.advance(now);
        self.meters.iter_mut().for_each(|meter| meter.take(now, cost));
    }

    /// Forgets all calls, not the limits.
    pub fn reset(&mut self) {
        self.meters.iter_mut().for_each(Meter::reset);
        self.latest = None;
    }

    fn advance(&mut self, now: i64) -> i64 {
        let now = self.latest.map_or(now, |latest| latest.max(now));
        self.latest = Some(now);
        self.meters.iter_mut().for_each(|meter| meter.advance(now));
        now
    }
}
