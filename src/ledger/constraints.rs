//! What was imposed on a scope: by what its upstream answered, or by hand.

use std::sync::Arc;

use super::boundaries::Boundaries;
use super::cold::{Cold, ColdCalls};
use super::in_force::InForce;
use super::loss::Loss;
use super::named_terms::NamedTerms;
use super::outside_use::{OutsideUse, Saying, grid, lapse};
use super::pause::Pausing;
use super::rate::{FULL, Rate, Refusal};
use super::release::{Releases, Slow};
use super::{LEAP, Log, Pause, Paused, Report, ScopeId, SlidingLog, Stamp, Term, micros};

/// What began so much later than now was told while the clock had leapt ahead, which was taken back since: it means nothing.
const AHEAD: i64 = 60_000_000;

/// Where an upstream imposed nothing.
static NOTHING: Constraints = Constraints {
    pause: None,
    cold: ColdCalls::none(),
    outside: OutsideUse::none(),
    rate: None,
    slow: None,
    releases: Releases::none(),
    boundaries: Boundaries::none(),
    loss: None,
    named: NamedTerms::none(),
};

/// What was imposed on a scope.
#[derive(Clone, Debug, Default)]
pub(super) struct Constraints {
    pub(super) pause: Option<Pausing>,
    cold: ColdCalls,
    outside: OutsideUse,
    pub(super) rate: Option<Rate>,
    pub(super) slow: Option<Slow>,
    pub(super) releases: Releases,
    pub(super) boundaries: Boundaries,
    /// The last loss of data that was seen.
    pub(super) loss: Option<Loss>,
    pub(super) named: NamedTerms,
}

impl Constraints {
    pub(super) fn nothing() -> &'static Self {
        &NOTHING
    }

    pub(super) fn is_nothing(&self) -> bool {
        self.pause.is_none()
            && self.cold.is_empty()
            && self.outside.is_empty()
            && self.rate.is_none()
            && self.slow.is_none()
            && self.releases.is_nothing()
            && self.boundaries.is_empty()
            && self.loss.is_none()
            && self.named.is_empty()
    }

    /// What of it still matters, or will again where the clock has leapt ahead and is set back.
    pub(super) fn kept(&self, now: Stamp) -> Self {
        let since = now.plus(-LEAP);
        Self {
            pause: self.pause.filter(|pause| pause.forgotten > since),
            cold: self.cold.at(since),
            outside: self.outside.at(since),
            rate: self.rate.filter(|rate| rate.lapse() > since),
            slow: self.slow.filter(|slow| slow.until > since),
            releases: self.releases.at(since),
            boundaries: self.boundaries.at(since),
            loss: self.loss.filter(|loss| loss.lapse() > since),
            named: self.named.at(since),
        }
    }

    /// All of it but what counts beside these logs.
    pub(super) fn but_for(self, units: &[Arc<str>]) -> Self {
        Self { cold: self.cold.but_for(units), outside: self.outside.but_for(units), ..self }
    }

    /// Whether nothing of it matters any more.
    pub(super) fn is_spent(&self, now: Stamp) -> bool {
        let has_lost = self.loss.is_some_and(|loss| loss.lapse() > now);
        self.is_idle(now) && self.releases.at(now).is_nothing() && self.boundaries.are_past(now) && !has_lost
    }

    /// Whether no call is delayed by it: a release delays none.
    pub(super) fn is_idle(&self, now: Stamp) -> bool {
        !self.has_cold(now) && self.is_idle_but_for_cold(now)
    }

    /// Whether cold calls still count longer than others.
    pub(super) fn has_cold(&self, now: Stamp) -> bool {
        !self.cold.is_spent(now)
    }

    /// Whether no call is delayed by anything but cold calls.
    pub(super) fn is_idle_but_for_cold(&self, now: Stamp) -> bool {
        self.pausing(now).is_none()
            && self.outside.is_spent(now)
            && self.rate.is_none_or(|rate| rate.lapse() <= now)
            && self.slow.is_none_or(|slow| slow.until <= now)
            && !self.is_settling(now)
            && self.named.are_spent(now)
    }

    /// Whether nobody starts, as data was lost.
    pub(super) fn is_settling(&self, now: Stamp) -> bool {
        self.loss.is_some_and(|loss| loss.settles > now)
    }

    /// The calls that count for longer.
    pub(super) const fn cold(&self) -> &ColdCalls {
        &self.cold
    }

    /// What others use.
    pub(super) const fn outside(&self) -> &OutsideUse {
        &self.outside
    }

    /// The pause, while it means anything.
    pub(super) fn pausing(&self, now: Stamp) -> Option<Pausing> {
        self.pause.filter(|pause| pause.forgotten > now && pause.began <= now.plus(AHEAD))
    }

    /// The rate that refusals have left since then.
    pub(super) fn rate_since(&self, now: Stamp, since: Stamp) -> Option<Rate> {
        self.rate.filter(|rate| rate.began() >= since && rate.began() <= now.plus(AHEAD))
    }

    /// What is in force for a scope that this was imposed on, and `all` on its upstream.
    pub(super) fn in_force(&self, now: Stamp, all: &Self, scope: Option<ScopeId>) -> InForce<'_> {
        InForce::new(now, (self, scope), all)
    }

    /// Lets nobody send for a while, where the refusal is not from before a release, of the scope or of `all` of its upstream.
    /// With what was known so far of the row of refusals, says for how long the message matters.
    pub(super) fn pause(
        &mut self,
        now: Stamp,
        pause: &Pause,
        released: Stamp,
        entries: Option<&SlidingLog>,
    ) -> (Paused, i64) {
        if pause.started.is_some_and(|started| started < self.releases.newest().max(released)) {
            return (Paused::new(now, now, false), 0);
        }
        let before = self.pausing(now).filter(|pause| pause.began >= released);
        let is_same = Pausing::is_same(before, now, pause.started);
        let started = pause.started.unwrap_or(now);
        let learned = pause.evidence().and_then(|evidence| {
            let rate = self.rate_since(now, released);
            Rate::after(rate, now, Refusal { started, is_same, evidence }, entries)
        });
        let seen = before.zip(entries).zip(pause.log_of_calls());
        let ends_row = seen.is_some_and(|((before, entries), of)| of.ends_row(before, started, now, entries));
        let next = Pausing::after(before, now, pause, (learned.map_or(0, |(_, recovery)| recovery), ends_row));
        let mut kept = self.kept(now);
        if next.forgotten > now {
            kept.pause = Some(next);
        }
        if let Some((rate, _)) = learned {
            kept.rate = Some(rate.since(next.until));
        }
        *self = kept;
        let memory = learned.map_or(next.forgotten, |(rate, _)| next.forgotten.max(rate.since(next.until).lapse()));
        let left = learned.map_or(FULL, |(rate, _)| rate.lowered_to());
        let paused = Paused::new(now, next.until, !is_same).leaving(u32::try_from(left).unwrap_or(0));
        (paused, memory.as_micros() - now.as_micros())
    }

    /// Enters what others use of the same quota by what was reported of `log`. Says how much that is, and whether it is news.
    pub(super) fn learn(
        &mut self,
        now: Stamp,
        log: &Log,
        entries: Option<&SlidingLog>,
        report: &Report,
    ) -> (u32, bool) {
        let (mut next, mut entered, mut most) = (self.kept(now), false, 0);
        let counted = report.started.unwrap_or(now).plus(micros(report.late)).min(now);
        for of in report.quotas.iter().filter(|of| of.term.slides()) {
            let (Term { quota, span, .. }, window) = (of.term, micros(of.window));
            if counted.plus(window) <= now {
                continue; // Nothing that the upstream counted counts any more.
            }
            // After so long, entries of before may be forgotten and would look like outside use: all that came since count.
            let late = counted.plus(grid(span)) < now;
            let started = report.started.unwrap_or(now).min(now);
            let used = |entries: &SlidingLog| {
                if late { entries.used(now, span) } else { entries.used_between(started, counted, window) }
            };
            let used = u32::try_from(entries.map_or(0, used)).unwrap_or(u32::MAX);
            let units = quota.saturating_sub(used).saturating_sub(of.remaining);
            let saying = Saying {
                started,
                left: of.remaining,
                units,
                lapse: lapse(now, micros(of.reset), span),
                slides: micros(of.reset) >= window,
            };
            if saying.lapse > now {
                entered |= next.outside.enter(now, &log.unit, of.term, saying);
                most = most.max(units);
            }
        }
        if entered {
            *self = next;
        }
        (most, entered)
    }

    /// The call that was to look at the pause then did not.
    pub(super) fn not_looked(&mut self, now: Stamp, start: Stamp) {
        self.pause = self.pausing(now).map_or(self.pause, |pause| Some(pause.not_looked(now, start)));
    }

    /// Enters units of a log that cold calls took.
    pub(super) fn chill(&mut self, now: Stamp, log: &Log, cold: &Cold, units: u32) {
        let mut next = self.kept(now);
        next.cold.enter(now, log, cold, units);
        *self = next;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::ledger::{Cause, QuotaReport, Reason};

    #[test]
    fn what_lapsed_while_the_clock_had_leapt_ahead_matters_again_when_it_is_set_back() {
        let (at, log) = (Stamp::from_micros, Log::new("calls", [Term::new(10, 5_000_000)]));
        let report = |remaining| Report {
            quotas: vec![QuotaReport::new(log.terms[0], Duration::from_secs(5), remaining, Duration::from_secs(1))],
            ..Report::default()
        };
        let mut constraints = Constraints::default();
        constraints.pause(at(0), &Pause::new(Duration::from_secs(5)), Stamp::NEVER, None);
        constraints.learn(at(0), &log, None, &report(4));
        let (leapt, other) = (at(10_000_000), Log::new("points", log.terms.clone()));
        assert!(constraints.is_spent(leapt));
        assert_eq!(constraints.learn(leapt, &log, None, &report(10)), (0, false), "nobody else uses any then");
        constraints.learn(leapt, &other, None, &report(1));
        let nothing = Constraints::default();
        let in_force = constraints.in_force(at(0), &nothing, None);
        assert_eq!(in_force.paused(), Some((at(5_000_000), Reason::new(Cause::Refusal, 0))));
        assert_eq!(in_force.outside(&log, log.terms[0]), 6);
    }

    #[test]
    fn scopes_come_back_one_by_one_within_half_of_the_recovery() {
        let mut all = Constraints::default();
        let pause = Pause { recovery: Duration::from_micros(131_072), ..Pause::new(Duration::from_millis(1)) };
        all.pause(Stamp::from_micros(0), &pause, Stamp::NEVER, None);
        let nothing = Constraints::default();
        let until = |bits: u128| {
            let scope = ScopeId::from_bits(bits << 112);
            nothing.in_force(Stamp::from_micros(0), &all, Some(scope)).paused().map(|(until, _)| until.as_micros())
        };
        assert_eq!([until(0), until(1), until(65_535)], [Some(1_000), Some(1_001), Some(66_535)]);
        assert_eq!(nothing.in_force(Stamp::from_micros(0), &all, None).paused(), None, "it is the upstream's own");
    }
}
