//! Which queues have callers that wait for a scope: counted by periods, so that who crashed is forgotten.

use std::time::Duration;

use super::pause::float;
use super::{Log, MAX_SILENCE, Priority, Stamp, Term, micros};

/// Queues whose callers wait, by priority and each with its weight: those that asked in this period, and those of the one before that
/// have not come back yet.
///
/// A queue is told the end of the period that it was counted in, with a microsecond less or more for its priority, and says it with its
/// next ask; who says nothing for two periods is counted no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Contenders {
    ends: Stamp,
    weights: [u32; 3],
    ended: Stamp,
    before: [u32; 3],
    length: i64,
}

impl Contenders {
    /// Nobody waits, in a period that begins now.
    pub(super) fn none(now: Stamp, pace: Pace) -> Self {
        Self::after([0; 3], now, pace)
    }

    /// A period that begins now, after one in which queues of these weights were counted.
    fn after(before: [u32; 3], now: Stamp, pace: Pace) -> Self {
        let length = pace.period(before.iter().fold(0, |sum, weight| sum.saturating_add(*weight)));
        Self { ends: now.plus(length), weights: [0; 3], ended: Stamp::NEVER, before, length }
    }

    /// Who waits at `now`, in the next period where this one has ended.
    pub(super) fn at(self, now: Stamp, pace: Pace) -> Self {
        let began = self.ends.plus(-self.length);
        if began <= now && now < self.ends {
            return self;
        }
        // One that has not begun is of a leap of the clock that was taken back.
        let over = self.ends.plus(self.length) <= now || now < began;
        if over {
            return Self::none(now, pace);
        }
        Self { ended: self.ends, ..Self::after(self.weights, now, pace) }
    }

    /// The weights of a priority and of higher ones, but for one of so much that was told so.
    pub(super) fn others(self, counted: Stamp, weight: u32, priority: Priority) -> u32 {
        let rest = self.without(counted, weight);
        let all = rest.weights.iter().zip(rest.before).take(priority.place() + 1);
        all.fold(0, |sum, (now, before)| sum.saturating_add(*now).saturating_add(before))
    }

    /// Whether one is counted that was told so.
    pub(super) fn counts(self, counted: Stamp) -> bool {
        self.find(counted).is_some()
    }

    /// The place of the priority that one is counted by which was told so.
    pub(super) fn place(self, counted: Stamp) -> Option<usize> {
        self.find(counted).map(|(_, place)| place)
    }

    /// Whether it is counted in this period, and by which priority.
    fn find(self, counted: Stamp) -> Option<(bool, usize)> {
        let place = |ends: Stamp, weights: [u32; 3]| {
            let told = |priority: &&Priority| ends.plus(priority.below_normal()) == counted;
            Priority::ALL.iter().filter(told).map(|priority| priority.place()).find(|&place| weights[place] > 0)
        };
        if counted == Stamp::NEVER {
            return None;
        }
        let now = place(self.ends, self.weights).map(|place| (true, place));
        now.or_else(|| place(self.ended, self.before).map(|place| (false, place)))
    }

    fn without(mut self, counted: Stamp, weight: u32) -> Self {
        if let Some((is_now, place)) = self.find(counted) {
            let of = if is_now { &mut self.weights[place] } else { &mut self.before[place] };
            *of = of.saturating_sub(weight);
        }
        self
    }

    /// Counts one in this period by its priority, or no more, and says what it is told.
    pub(super) fn count(&mut self, counted: Stamp, weight: u32, waits: Option<Priority>) -> Stamp {
        let told = waits.map_or(Stamp::NEVER, |priority| self.ends.plus(priority.below_normal()));
        if told == counted && self.counts(counted) {
            return told;
        }
        *self = self.without(counted, weight);
        if let Some(priority) = waits {
            self.weights[priority.place()] = self.weights[priority.place()].saturating_add(weight);
        }
        told
    }

    /// Whether nobody waits.
    pub(super) fn is_nobody(self) -> bool {
        self.weights == [0; 3] && self.before == [0; 3]
    }

    /// When all of them are forgotten, unless they come back.
    pub(super) fn lapse(self) -> Stamp {
        self.ends.plus(if self.weights == [0; 3] { 0 } else { self.length })
    }
}

/// How fast what is granted comes back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// All of it within this.
    pub(super) span: i64,
    /// Where units come one by one, one in each of these; else zero.
    pub(super) interval: i64,
    /// How far ahead it is booked.
    pub(super) horizon: i64,
}

impl Pace {
    /// Of each log of a scope, and the terms that are left of its own.
    pub(super) fn of<'a>(logs: impl Iterator<Item = (&'a Log, &'a Vec<Term>)>, horizon: i64) -> Self {
        let (mut span, mut interval) = (0, 0);
        for (log, left) in logs {
            span = span.max(slowest(left));
            let one_by_one = log.terms.iter().zip(left).filter(|(term, _)| term.comes_one_by_one(horizon));
            interval = one_by_one.map(|(_, left)| left.interval()).fold(interval, i64::max);
        }
        Self { span, interval, horizon }
    }

    /// How long a period is while queues of so much weight wait: nobody is silent for as long, though it leaves a unit to each of them.
    pub(super) fn period(self, waiting: u32) -> i64 {
        let Self { span, interval, horizon } = self;
        let turns = interval.saturating_mul(waiting.into());
        span.max(turns).max(horizon.saturating_mul(8)).min(MAX_SILENCE).saturating_add(horizon.saturating_mul(2))
    }
}

/// How much longer than it was told whoever waits for a log is counted at least, of whose terms so much is `left`. Others may book less far ahead than
/// who asks, though mostly no less than by default.
pub(super) fn least_period(left: &[Term], horizon: Duration) -> i64 {
    let horizon = micros(horizon).min(250_000);
    Pace { span: slowest(left), interval: 0, horizon }.period(0)
}

/// The span of the term of the lowest rate, the shortest of such: what is granted comes back within it.
fn slowest(terms: &[Term]) -> i64 {
    let times = |quota: u32, span: i64| f64::from(quota) * float(span);
    let order = |one: &&Term, other: &&Term| {
        times(one.quota, other.span).total_cmp(&times(other.quota, one.span)).then(one.span.cmp(&other.span))
    };
    terms.iter().min_by(order).map_or(0, |term| term.span)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace = Pace { span: 80, interval: 0, horizon: 10 };

    const fn at(micros: i64) -> Stamp {
        Stamp::from_micros(micros)
    }

    /// Of one that has the weight 1, and of normal priority.
    fn others(contenders: Contenders, counted: Stamp) -> u32 {
        contenders.others(counted, 1, Priority::Normal)
    }

    fn count(contenders: &mut Contenders, counted: Stamp, waits: bool) -> Stamp {
        contenders.count(counted, 1, waits.then_some(Priority::Normal))
    }

    #[test]
    fn who_waits_is_counted_once_in_each_period() {
        let mut contenders = Contenders::none(at(0), PACE);
        let first = count(&mut contenders, Stamp::NEVER, true);
        let second = count(&mut contenders, Stamp::NEVER, true);
        assert_eq!(
            (first, second, others(contenders, Stamp::NEVER), others(contenders, first)),
            (at(100), at(100), 2, 1)
        );
        assert_eq!(count(&mut contenders, first, true), at(100), "it comes again");
        assert_eq!(others(contenders, Stamp::NEVER), 2);
        let mut contenders = contenders.at(at(120), PACE);
        assert_eq!(others(contenders, first), 1, "they have not come back yet, and are counted");
        assert_eq!(count(&mut contenders, first, true), at(220));
        let of = |counted| others(contenders, counted);
        assert_eq!((of(Stamp::NEVER), of(at(220)), of(at(100))), (2, 1, 1));
        assert_eq!(count(&mut contenders, at(220), false), Stamp::NEVER, "it waits no more");
        assert_eq!(others(contenders.at(at(219), PACE), Stamp::NEVER), 1);
        assert!(contenders.at(at(220), PACE).is_nobody(), "who has not come back for a period is forgotten");
    }

    #[test]
    fn who_waits_is_counted_by_priority_and_weight() {
        let mut contenders = Contenders::none(at(0), PACE);
        let mut of = |weight, priority| contenders.count(Stamp::NEVER, weight, Some(priority));
        let told = [of(4, Priority::High), of(2, Priority::Normal), of(1, Priority::Low)];
        assert_eq!(told, [at(99), at(100), at(101)]);
        let seen = |contenders: Contenders, told, weight| Priority::ALL.map(|of| contenders.others(told, weight, of));
        assert_eq!(seen(contenders, Stamp::NEVER, 1), [4, 6, 7]);
        assert_eq!(seen(contenders, told[1], 2), [4, 4, 5], "but for itself");
        assert_eq!(contenders.count(told[0], 4, Some(Priority::Low)), at(101), "its high callers are served");
        assert_eq!(seen(contenders, Stamp::NEVER, 1), [0, 2, 7]);
        let mut contenders = contenders.at(at(150), PACE);
        assert_eq!(contenders.count(at(101), 4, Some(Priority::High)), at(249));
        assert_eq!(seen(contenders, Stamp::NEVER, 1), [4, 6, 7]);
    }

    #[test]
    fn who_was_counted_while_the_clock_had_leapt_is_forgotten_when_it_is_set_back() {
        let mut contenders = Contenders::none(at(1_000_000), PACE);
        let counted = count(&mut contenders, Stamp::NEVER, true);
        assert_eq!(others(contenders.at(at(1_000_050), PACE), counted), 0);
        assert!(contenders.at(at(10), PACE).is_nobody(), "and not for as long as the leap was");
    }

    #[test]
    fn after_a_silence_nobody_is_counted() {
        let mut contenders = Contenders::none(at(0), PACE);
        let counted = count(&mut contenders, Stamp::NEVER, true);
        assert_eq!(contenders.lapse(), at(200));
        assert!(contenders.at(at(200), PACE).is_nobody());
        assert!(!contenders.at(at(200), PACE).counts(counted));
    }

    #[test]
    fn a_period_is_as_long_as_it_takes_everybody_who_waits_to_have_a_unit() {
        let period = |span, interval, waiting| Pace { span, interval, horizon: 250_000 }.period(waiting);
        assert_eq!([period(1_000_000, 10_000, 24), period(3_600_000_000, 1, 0)], [2_500_000, 30_500_000]);
        assert_eq!([period(250_000, 250_000, 24), period(250_000, 250_000, 1_000)], [6_500_000, 30_500_000]);
        let pace = Pace { span: 250_000, interval: 250_000, horizon: 250_000 };
        let mut contenders = Contenders::none(at(0), pace);
        (0..24).for_each(|_| _ = count(&mut contenders, Stamp::NEVER, true));
        assert_eq!(contenders.lapse(), at(5_000_000));
        assert_eq!(contenders.at(at(3_000_000), pace).lapse(), at(9_500_000));
    }
}
