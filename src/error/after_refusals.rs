//! That calls come slower since an upstream refused some.

use std::fmt;
use std::time::Duration;

use crate::config::limit::Limit;

/// That calls come slower for a while, since the upstream refused some; as it is shown: `after refusals 60 per 60s instead of 100, for
/// about 500s`.
///
/// ```
/// # async fn shown(throttle: outgate::Throttle) -> Result<(), outgate::Error> {
/// if let Some(slower) = throttle.usage("gateway").await?.after_refusals {
///     println!("{slower}: {} of the quota for {:?}", slower.rate, slower.left);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AfterRefusals {
    /// The limit that the refusals are taken to be about; those with shorter windows are lowered as well. `None` where no quota is lowered, and
    /// calls only come one after another for a while; where another process told of a limit that this one does not have, or where two different limits of one window may be meant.
    pub limit: Option<Limit>,
    /// The factor that is left of its quota by now, until it rises: 1.0 is all of it.
    pub rate: f64,
    /// How long until all is as it was, unless another call is refused.
    pub left: Duration,
}

impl AfterRefusals {
    pub(crate) const fn new(limit: Option<Limit>, rate: f64, left: Duration) -> Self {
        Self { limit, rate, left }
    }
}

impl fmt::Display for AfterRefusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = Duration::from_secs(self.left.as_secs() + u64::from(self.left.subsec_nanos() > 0));
        match &self.limit {
            _ if self.rate >= 1.0 => write!(f, "after refusals calls come one after another")?,
            None => write!(f, "after refusals {:.0} % of the quota", self.rate * 100.0)?,
            Some(limit) => {
                let (quota, window) = (limit.quota(), limit.window());
                let units = (f64::from(quota) * self.rate * 10.0).round() / 10.0;
                write!(f, "after refusals {units} per {window:?} instead of {quota}")?;
            }
        }
        write!(f, ", for about {left:?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_names_what_is_left_of_the_limit_and_for_how_long() {
        let cases = [
            (Some(Limit::per_minute(100)), 0.6, "after refusals 60 per 60s instead of 100, for about 500s"),
            (Some(Limit::per_second(1)), 0.5, "after refusals 0.5 per 1s instead of 1, for about 500s"),
            (Some(Limit::per_second(1)), 1.0, "after refusals calls come one after another, for about 500s"),
            (None, 0.6, "after refusals 60 % of the quota, for about 500s"),
        ];
        for (limit, rate, expected) in cases {
            assert_eq!(AfterRefusals::new(limit, rate, Duration::from_millis(499_001)).to_string(), expected);
        }
    }
}
