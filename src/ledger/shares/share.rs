//! How much of a scope's logs a process may take, so that something is left for the others.

use super::Bounds;
use crate::ledger::view::View;
use crate::ledger::{Priority, Run};

/// How much callers of a priority may take of a scope's logs; what callers of a higher one took counts.
#[derive(Clone, Copy, Debug)]
pub(in crate::ledger) struct Share {
    scope: usize,
    priority: Priority,
    /// The log that it is counted in, by its place in the ask.
    log: usize,
    units: u64,
    spent: u64,
}

/// The weight of who asks, and of the others that wait.
#[derive(Clone, Copy, Debug)]
pub(in crate::ledger) struct Weights {
    pub(in crate::ledger) own: u32,
    pub(in crate::ledger) others: u32,
}

/// A part of a million, where it is no simple one.
const MILLION: u64 = 1_000_000;

impl Weights {
    /// The part of who asks, as a fraction: half of it by its weight among all, half as if it were as many processes as that says, and
    /// each took an equal part of what those before it left.
    ///
    /// By the former alone who weighs less gets too little, who finds free what others left, time and again: one beside a process of
    /// weight 4 a third less than its due. By the latter alone who weighs more does: a tenth less beside six of weight 1.
    fn part(self) -> (u64, u64) {
        let all = u64::from(self.own) + u64::from(self.others);
        if self.own == 1 {
            return (1, all);
        }
        let left = (0..self.own).fold(MILLION, |left, _| left * (all - 1) / all);
        (u64::midpoint(MILLION - left, MILLION * u64::from(self.own) / all), MILLION)
    }
}

/// The shares of a process, where it may not take all that there is.
#[derive(Clone, Debug, Default)]
pub(in crate::ledger) struct Shares(Vec<Share>);

impl Share {
    /// A share of what is free in the logs of a scope until the limit, for callers of a priority: by weight among those who wait and
    /// have it, or a higher one. `None` where all is theirs.
    ///
    /// Another unit may be taken as long as, if every process had as much for its weight, one more unit could start until then: together
    /// with all of them, or one after another at the rate of the limits. And no less than its part of a quarter of the quota, where nobody
    /// of a higher priority waits: else it asked for the last free units of a long window one by one.
    ///
    /// So many runs of the priority that take something of the scope are left out, as none of them can start until the limit.
    fn of(
        view: &View<'_>,
        (scope, priority): (usize, Priority),
        (runs, left_out): (&[Run], usize),
        bounds: &Bounds,
        (weights, is_highest): (Weights, bool),
    ) -> Option<Self> {
        let takes_some = |run: &&Run| run.priority == priority && view.measure(scope, run).is_some();
        let of_priority = || runs.iter().filter(takes_some).skip(left_out);
        let (first, last) = (of_priority().next()?, of_priority().last()?);
        let log = view.measure(scope, first)?;
        let (soonest, limit) = (bounds.soonest, bounds.limit(priority));
        let units_of = |run: &Run| u64::from(run.charges[log]);
        let (part, whole) = weights.part();
        let before = runs.iter().filter(|run| run.priority.place() <= priority.place());
        let wanted = before.map(|run| u64::from(run.callers) * units_of(run)).sum::<u64>();
        let may_take = |spent: u64| view.could_start(scope, first, log, spent * whole / part + 1, (soonest, limit));
        let spent_before_last = wanted.saturating_sub(units_of(last));
        if spent_before_last == 0 || may_take(spent_before_last) {
            return None;
        }
        let start = view.earliest_in(scope, soonest, &first.charges);
        if start > limit {
            // Who wants as much as one that cannot start waits as well.
            let mut smallest = view.size(&first.charges);
            let can_start = |run: &Run| {
                let size = view.size(&run.charges);
                let starts = size < smallest && view.earliest_in(scope, soonest, &run.charges) <= limit;
                smallest = smallest.min(size);
                starts
            };
            if let Some(further) = of_priority().position(can_start) {
                return Self::of(view, (scope, priority), (runs, left_out + further), bounds, (weights, is_highest));
            }
        }
        let at_rate = view.at_rate(scope, &first.charges, limit.since(start));
        let at_least = if is_highest { at_rate.max(view.in_a_quarter(scope, &first.charges)) } else { at_rate };
        let at_least = at_least.saturating_add(1).saturating_mul(units_of(first) * part).div_ceil(whole);
        let mut units = if start <= limit { at_least } else { 0 };
        let mut over = spent_before_last;
        while units < over {
            let spent = units + (over - units) / 2;
            if may_take(spent) { units = spent + 1 } else { over = spent }
        }
        Some(Self { scope, priority, log, units, spent: 0 })
    }

    const fn is_spent(&self) -> bool {
        self.spent >= self.units
    }
}

impl Shares {
    /// The shares of an ask; `others` says of each scope and priority what weight others have that wait.
    pub(in crate::ledger) fn of(
        view: &View<'_>,
        runs: &[Run],
        bounds: &Bounds,
        own: u32,
        others: impl Fn(usize, Priority) -> u32,
    ) -> Self {
        let each = (0..view.scopes()).flat_map(|scope| Priority::ALL.map(|priority| (scope, priority)));
        let share = |of: (usize, Priority)| {
            let weights = Weights { own, others: others(of.0, of.1) };
            let higher = of.1.place().checked_sub(1).map(|place| Priority::ALL[place]);
            let is_highest = higher.is_none_or(|higher| others(of.0, higher) == 0);
            if weights.others > 0 { Share::of(view, of, (runs, 0), bounds, (weights, is_highest)) } else { None }
        };
        Self(each.filter_map(share).collect())
    }

    /// Whether callers of a priority may not take all.
    pub(super) fn are_bounded(&self, priority: Priority) -> bool {
        self.of_priority(priority).next().is_some()
    }

    /// Whether a share is spent of which a caller would take some, in any scope.
    pub(super) fn are_spent(&self, view: &View<'_>, run: &Run) -> bool {
        self.of_priority(run.priority).any(|share| share.is_spent() && view.measure(share.scope, run).is_some())
    }

    /// The same in one scope.
    pub(super) fn is_spent(&self, view: &View<'_>, scope: usize, run: &Run) -> bool {
        let is_spent = |share: &Share| share.scope == scope && share.is_spent();
        self.of_priority(run.priority).any(is_spent) && view.measure(scope, run).is_some()
    }

    pub(super) fn spend(&mut self, callers: u32, charges: &[u32]) {
        for share in &mut self.0 {
            share.spent += u64::from(charges[share.log]) * u64::from(callers);
        }
    }

    fn of_priority(&self, priority: Priority) -> impl Iterator<Item = &Share> {
        self.0.iter().filter(move |share| share.priority == priority)
    }
}
