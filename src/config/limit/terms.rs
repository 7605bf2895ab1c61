//! The terms that a limit stands for, or what is wrong with it.

use std::time::Duration;

use super::{Limit, MAX_CALLS, MAX_GUARD, MAX_QUOTA, MAX_WINDOW, MIN_GUARDED_WINDOW, MIN_WINDOW};
use crate::config::charges::CALLS;
use crate::config::{bucket, name};
use crate::error::ConfigError;
use crate::ledger::{Stamp, Term, micros};

/// A call that probably opens a connection counts for a quarter of the window more, and no more than this; for nothing more in a window
/// above that: its guard is long enough, and nothing is remembered for so long.
const MOST_COLD: Duration = Duration::from_millis(250);
const LONGEST_COLD_WINDOW: Duration = Duration::from_secs(10);

impl Limit {
    /// The first of its terms: the quota in any window and guard.
    pub(crate) fn window_term(&self) -> Term {
        self.window_term_in_entries_of(1)
    }

    /// The same where an entry stands for so many units.
    pub(crate) fn window_term_in_entries_of(&self, units: u32) -> Term {
        if let Some((refill, per)) = self.refill {
            return bucket::term(self.quota, refill, per, self.guard_or_default(), units);
        }
        self.sliding_or_calendar().in_entries_of(units)
    }

    fn sliding_or_calendar(&self) -> Term {
        if let Some(reset) = self.resets {
            let guard = micros(self.guard_or_default());
            let span = micros(self.window).saturating_add(micros(reset.longer_by())).saturating_add(2 * guard);
            // By its span a term is known: two that reset at other times are not one.
            let span = span.saturating_add(reset.mark());
            return Term::calendar(self.quota, span, reset.calendar(Stamp::from_micros(0), guard));
        }
        let cold = if self.window > LONGEST_COLD_WINDOW { Duration::ZERO } else { (self.window / 4).min(MOST_COLD) };
        Term::new(self.quota, micros(self.window).saturating_add(micros(self.guard_or_default()))).cold(micros(cold))
    }

    /// The terms of the one rule that this limit stands for, or what is wrong with it.
    pub(crate) fn terms(&self, upstream: &str) -> Result<Vec<Term>, ConfigError> {
        let wrong = |field, reason: String| Err(ConfigError::new(upstream, field, reason));
        if self.seats.is_some() {
            return wrong("limit.lease", "only calls in flight have a lease".to_owned());
        }
        if let Some(fault) = self.unit.as_deref().and_then(name::unit_fault) {
            return wrong("limit.unit", fault);
        }
        let most = if self.unit() == CALLS { MAX_CALLS } else { MAX_QUOTA };
        if self.quota == 0 || self.quota > most {
            let field = if self.refill.is_some() { "limit.capacity" } else { "limit.quota" };
            return wrong(field, format!("{} is not between 1 and {most}", self.quota));
        }
        if let Some((refill, per)) = self.refill {
            bucket::check(upstream, refill, per, self.window, self.burst)?;
        }
        if let Some(reset) = self.resets {
            let is_other = self.window != reset.window() || self.refill.is_some();
            let other = is_other.then(|| format!("{:?} is not how often it resets: {:?}", self.window, reset.window()));
            if let Some(fault) = other.or_else(|| reset.fault()) {
                return wrong("limit.resets", fault);
            }
            let guard = self.guard_or_default();
            if guard.saturating_mul(2) >= self.window {
                let reason = format!(
                    "{guard:?} is half of {:?} or more: before and after a reset nobody uses what comes back by it",
                    self.window
                );
                return wrong("limit.guard", reason);
            }
        }
        if self.window < MIN_WINDOW || self.window > MAX_WINDOW {
            return wrong("limit.window", format!("{:?} is not between 1 ms and 366 days", self.window));
        }
        if self.guard.is_none() && self.window < MIN_GUARDED_WINDOW {
            let reason = format!(
                "a window of {:?} has no default guard, as 10 ms would be too much of it: give one by .guard()",
                self.window
            );
            return wrong("limit.guard", reason);
        }
        if self.guard_or_default() > MAX_GUARD {
            return wrong("limit.guard", format!("{:?} is longer than a day", self.guard_or_default()));
        }
        let window = self.window_term();
        let mut terms = vec![window];
        if let Some(burst) = self.burst {
            if burst == 0 || burst > self.quota {
                return wrong("limit.burst", format!("{burst} is not between 1 and the quota, {}", self.quota));
            }
            // Rounded up, so that the burst never refills faster than the limit allows.
            let span = if self.resets.is_none() { window.span } else { micros(self.window + self.guard_or_default()) };
            let span = (u128::from(span.unsigned_abs()) * u128::from(burst)).div_ceil(u128::from(self.quota));
            terms.push(Term::new(burst, i64::try_from(span).unwrap_or(i64::MAX / 4)));
        }
        Ok(terms)
    }
}
