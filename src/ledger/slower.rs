//! That calls come slower since refusals, as a store tells it.

use std::time::Duration;

/// That calls come slower since an upstream refused some.
///
/// ```
/// use outgate::ledger::Slower;
/// use std::time::Duration;
///
/// // Six tenths are left of the quotas of windows of up to an hour, for about ten minutes.
/// let slower = Slower::new(600_000, 3_600_000_000, Duration::from_secs(600));
/// assert_eq!(slower.left.as_secs(), 600);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Slower {
    /// Millionths of the quotas that are left by now: a million, where calls only come one after another for a while.
    pub rate: u32,
    /// The longest span of the terms that the rate is for, in microseconds; zero where it is for none.
    pub span: i64,
    /// How long until the limits hold again as they were given, unless another call is refused.
    pub left: Duration,
}

impl Slower {
    /// So many millionths are left of the quotas of terms with this span, or a shorter one, for so long.
    #[must_use]
    pub const fn new(rate: u32, span: i64, left: Duration) -> Self {
        Self { rate, span, left }
    }

    /// Both: the lower rate, for as long as any lasts.
    pub(crate) fn and(self, other: Self) -> Self {
        let lower = if other.rate < self.rate { other } else { self };
        Self { left: self.left.max(other.left), ..lower }
    }
}
