//! Whom the last answer put off. What it says of the first of them is nothing to callers who take less of some log: they may go into what
//! that one leaves.

use std::time::Duration;

use tokio::time::Instant;

use super::engine::Engine;
use super::settings::Settings;
use super::waiters::Waiter;
use crate::config::costs::Costs;
use crate::ledger::{Grant, takes_as_much};

/// So many kinds of callers are told apart.
const MOST_KINDS: usize = 8;
/// For so long who takes less waits for the next ask: among many who ask together there are some of every size, and little is left unused.
const NOT_LONG: Duration = Duration::from_secs(1);

/// Callers that the store put off.
#[derive(Debug)]
pub(super) struct PutOff {
    /// The first of them.
    ticket: u64,
    /// How many times in a row.
    times: u32,
    /// What that one takes, and then what others do: each less of some log than all before.
    kinds: Vec<Costs>,
}

impl PutOff {
    /// The first was put off, and behind it whoever takes these.
    pub(super) fn new(ticket: u64, before: Option<&Self>, charges: impl Iterator<Item = Costs>) -> Self {
        let times = before.filter(|before| before.ticket == ticket).map_or(1, |before| before.times + 1);
        let mut put_off = Self { ticket, times, kinds: Vec::new() };
        for costs in charges {
            if put_off.kinds.len() < MOST_KINDS && put_off.all_take_more(&costs) {
                put_off.kinds.push(costs);
            }
        }
        put_off
    }

    /// How many times in a row this caller was put off as the first.
    pub(super) fn times(&self, ticket: Option<&u64>) -> u32 {
        if ticket == Some(&self.ticket) { self.times } else { 0 }
    }

    /// Whether each of them takes more of some log than a caller of these costs.
    fn all_take_more(&self, costs: &Costs) -> bool {
        self.kinds.iter().all(|kind| !takes_as_much(costs, kind))
    }

    /// The same of the first of them.
    pub(super) fn first_takes_more(&self, costs: &Costs) -> bool {
        self.kinds.first().is_some_and(|first| !takes_as_much(costs, first))
    }

    /// In which time the limits let go of what the smallest of the others take.
    fn others_within(&self, settings: &Settings) -> Option<Duration> {
        let time_of = |costs: &Costs| {
            let logs = settings.logs.iter().zip(costs.iter());
            logs.flat_map(|(log, &units)| log.terms.iter().map(move |term| term.time_of(units.into()))).max()
        };
        self.kinds.iter().skip(1).filter_map(time_of).min()
    }
}

impl Engine {
    /// Whether the last answer says nothing of a caller who comes, as all that were put off take more of some log, and the next ask is too late
    /// for it.
    pub(super) fn is_smaller_than_all(&self, waiter: &Waiter, now: Instant) -> bool {
        let is_late = |at: Instant| at > now + NOT_LONG || waiter.deadline(now).is_some_and(|by| by < at);
        let is_smaller = self.put_off.as_ref().is_some_and(|put_off| put_off.all_take_more(&waiter.costs));
        is_smaller && self.ask_at.is_some_and(is_late) && !self.is_paused(now)
    }

    /// Whether it does not say when a caller may go, as the first that was put off takes more of some log.
    pub(super) fn is_smaller_than_first(&self, waiter: &Waiter) -> bool {
        self.put_off.as_ref().is_some_and(|put_off| put_off.first_takes_more(&waiter.costs))
    }

    /// Where the first that was put off is gone, asks for the next that takes less.
    pub(super) fn look_for_smaller(&mut self, now: Instant) {
        let Some(put_off) = self.put_off.as_ref().filter(|put_off| self.waiters.find(put_off.ticket).is_none()) else {
            return;
        };
        let is_smaller = |next: &Waiter| put_off.first_takes_more(&next.costs);
        if !self.is_paused(now) && self.waiters.unslotted(now).next().is_some_and(is_smaller) {
            (self.ask_at, self.next_slot, self.put_off) = (self.rest_until.filter(|&until| until > now), None, None);
        }
    }

    /// A queue does not rest for much longer than the smaller of those take that were put off, beside others.
    pub(super) fn rest_beside_smaller(&self, rest: Duration, grant: &Grant) -> Duration {
        let within = self.put_off.as_ref().and_then(|put_off| put_off.others_within(&self.settings));
        let within = within.filter(|_| grant.paused.is_none());
        within.map_or(rest, |within| rest.min((within * (grant.contenders + 1)).max(NOT_LONG)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn of_those_put_off_the_kinds_are_known_that_take_less_of_some_log() {
        let costs = |units: [u32; 2]| Costs::of(&Arc::from(units));
        let charges = [[5, 5], [5, 6], [1, 9], [1, 9], [0, 4]].map(costs);
        let put_off = PutOff::new(7, None, charges.into_iter());
        assert_eq!(put_off.kinds, [[5, 5], [1, 9], [0, 4]].map(costs));
        let cases = [([5, 5], false, false), ([9, 4], true, false), ([0, 9], true, false), ([9, 3], true, true)];
        for (units, than_first, than_all) in cases {
            let smaller = (put_off.first_takes_more(&costs(units)), put_off.all_take_more(&costs(units)));
            assert_eq!(smaller, (than_first, than_all), "{units:?}");
        }
        let again = PutOff::new(7, Some(&put_off), [costs([5, 5])].into_iter());
        assert_eq!((again.times(Some(&7)), again.times(Some(&8)), again.times(None)), (2, 0, 0));
        assert_eq!(PutOff::new(8, Some(&again), std::iter::empty()).times(Some(&8)), 1);
    }
}
