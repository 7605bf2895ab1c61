/// How an upstream counts the calls of one limit of `quota` units per `window`.
///
/// Refused calls never count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shape {
    /// A call counts for exactly one window after it came.
    SlidingLog,
    /// The clock is cut into windows, and the count starts again at each cut.
    FixedWindow {
        /// An instant at which a window begins, in µs of the upstream's clock; any other cut is
        /// whole windows away.
        phase: i64,
    },
    /// The first call opens a window; the first call after its end opens the next.
    FixedWindowFromFirstCall,
    /// A bucket of `quota` tokens, full at first, into which `quota` tokens per window flow evenly.
    ///
    /// A bucket of `b` tokens refilled at another rate is one of quota `b` whose window is the
    /// time it takes to fill.
    TokenBucket,
    /// What gateways keep for thousands of callers: two counts stand for all the calls of a window.
    ///
    /// The clock is cut into windows. The count of the last one is taken for calls that came evenly: a call is admitted if
    /// it fits beside the current count and the part of the last one that a window ending now covers. So it refuses what a
    /// sliding log admits where calls came late in a window.
    SlidingWindowCounter {
        /// An instant at which a window begins, in µs of the upstream's clock; any other cut is
        /// whole windows away.
        phase: i64,
    },
}
