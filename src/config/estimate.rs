//! What calls reserve that do not know what they will use.

use std::sync::Arc;

use crate::config::charges::Charges;
use crate::config::upstream::Upstream;
use crate::config::{call::Call, name::shown, priority::Priority};
use crate::error::ConfigError;

impl Upstream {
    /// Calls that say no cost of this unit, neither by their [`Call`] nor by [`cost_by`](Self::cost_by), reserve what calls of their
    /// [kind](Call::kind) [settled](crate::Permit::settle) at lately: so much that it was enough for 95 % of the newest 300. Until enough are
    /// settled, 40 of a kind, each reserves `largest`, and never more: the most that one call can use, of whatever
    /// [priority](Self::reserve). May be said of several units.
    ///
    /// Each process learns for itself, from the first settlement of each call; one at 0 teaches nothing, as the call failed. Where no
    /// call is ever settled, a warning says so once.
    ///
    /// # What it guarantees
    ///
    /// Nothing for true units: one call in twenty uses more than it reserved, and that is known only when it is settled. Then it is a debt
    /// that later calls wait for. Four processes share 200,000 tokens a minute; their calls are settled 0.1 to 20 s later:
    ///
    /// | what calls use of the largest | quota used: estimated | largest reserved | largest, never settled | overrun by estimates |
    /// |---|---|---|---|---|
    /// | 10 to 100 % | 0.90 | 0.89 | 0.55 | none |
    /// | 10 to 30 %, one in ten up to 100 % | 0.81 | 0.65 | 0.24 | none |
    /// | 10 to 30 %, and from one moment on 10 to 100 % | 0.92 | 0.75 | 0.37 | 10 to 16 % |
    ///
    /// What most calls in flight reserve beyond their use covers the few that use more. It does not when all calls of a kind suddenly use
    /// more than those before, nor for a lower percentile: at the median the second row overruns by 5 %, the third by 15 %. Give calls that
    /// differ, such as those of another model or prompt, another kind.
    ///
    /// Of a unit that is [counted at the end](crate::Limit::counted_at_end) a call counts for longer: by what it reserved while it is in
    /// flight, and by what it used for a window after that. Where calls take 10 s on average, exact estimates would leave 0.87 of the quota,
    /// the 95th percentile of the first row leaves 0.79 and the largest 0.78. So less is reserved by default: the mean, and as much more as
    /// makes it 95 % likely that all calls together which the quota has room for use no more. The first row so used 0.86, the second 0.84,
    /// without an overrun, and the third 0.87 with one of up to 7 %.
    ///
    /// Where no window may ever hold more, reserve the largest: say it by `cost_by` instead of this, and settle.
    ///
    /// ```
    /// use outgate::{Call, Limit, Upstream};
    ///
    /// let models = Upstream::new("models")
    ///     .host("models.example.com")
    ///     .limit(Limit::per_minute(500))
    ///     .limit(Limit::per_minute(200_000).of("tokens"))
    ///     .estimate("tokens", 8_000);
    /// let call = Call::new().kind("small-model");
    /// # let _ = (models, call);
    /// ```
    #[must_use]
    pub fn estimate(mut self, unit: impl Into<Arc<str>>, largest: u32) -> Self {
        let unit = unit.into();
        self.estimates.retain(|(of, _)| *of != unit);
        self.estimates.push((unit, largest));
        self
    }

    /// For how many of a thousand calls [estimates](Self::estimate) are to be enough, each by itself: 950 by default, the 95th percentile,
    /// but for units that are counted at the end. 1,000 is the most that any of the newest 300 used.
    ///
    /// The more, the more settlements it takes until there is an estimate: 200 for 990.
    ///
    /// ```
    /// # use outgate::{Limit, Upstream};
    /// let tokens = Limit::per_minute(200_000).of("tokens");
    /// let models = Upstream::new("models").limit(tokens).estimate("tokens", 8_000).estimates_per_thousand(990);
    /// # let _ = models;
    /// ```
    #[must_use]
    pub const fn estimates_per_thousand(mut self, calls: u16) -> Self {
        self.estimates_per_thousand = Some(calls);
        self
    }

    /// What is wrong with its estimates.
    pub(crate) fn check_estimates(&self, charges: &Charges) -> Result<(), ConfigError> {
        let wrong = |field, reason| Err(ConfigError::new(&self.name, field, reason));
        if self.estimates_per_thousand.is_some_and(|calls| !(1..=1_000).contains(&calls)) {
            return wrong("estimates_per_thousand", "is not between 1 and 1,000".to_owned());
        }
        if self.estimates_per_thousand.is_some() && self.estimates.is_empty() {
            return wrong("estimates_per_thousand", "nothing is estimated: say estimate as well".to_owned());
        }
        for (unit, largest) in &self.estimates {
            if !self.limits.iter().any(|limit| limit.unit() == &**unit) {
                return wrong("estimate", format!("no limit counts {}", shown(unit)));
            }
            if *largest == 0 {
                return wrong("estimate", format!("the largest of {} must be at least 1", shown(unit)));
            }
            // Calls of low priority are charged in every log that there is.
            let call = Call::new().cost_of(Arc::clone(unit), *largest).priority(Priority::Low);
            if let Err(error) = charges.of(self, &call) {
                return wrong("estimate", error.to_string());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limit, ThrottleBuilder};

    #[test]
    fn the_largest_is_one_that_calls_of_each_priority_can_reserve() {
        let built = |priority, largest| {
            let up = Upstream::new("models").limit(Limit::per_minute(10_000).of("tokens")).reserve(priority, 50);
            ThrottleBuilder::default().upstream(up.estimate("tokens", largest)).build()
        };
        for priority in [Priority::High, Priority::Normal] {
            let error = built(priority, 8_000).unwrap_err();
            assert_eq!((error.upstream(), error.field()), ("models", "estimate"));
            assert!(error.reason().contains("8000"), "{error}");
            built(priority, 5_000).unwrap();
        }
    }
}
