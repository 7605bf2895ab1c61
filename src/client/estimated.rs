//! What calls of an upstream reserve of units of which nobody says how many a call will use.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::client::estimates::{Enough, Estimates, UNSETTLED};
use crate::config::call::Call;
use crate::config::limit::Limit;
use crate::config::upstream::Upstream;
use crate::counts::Counts;

/// The units of an upstream that are estimated, and what calls used of each in this process.
#[derive(Debug)]
pub(crate) struct Estimated {
    upstream: Arc<str>,
    units: Vec<(Arc<str>, Mutex<Estimates>)>,
    counts: Counts,
}

/// Some of the estimated units: a bit for each, by its place. An upstream has no more than 16.
pub(crate) type Places = u32;

/// What a call reserves by estimates: how much of which unit, by its place.
pub(crate) type Reserves = Vec<(usize, u64)>;

impl Estimated {
    /// None where an upstream estimates nothing.
    pub(crate) fn new(upstream: &Upstream, counts: Counts) -> Option<Arc<Self>> {
        let new = |(unit, largest): &(Arc<str>, u32)| {
            let enough = enough_for(upstream, unit);
            (Arc::clone(unit), Mutex::new(Estimates::new(u64::from(*largest), enough)))
        };
        let units: Vec<_> = upstream.estimates.iter().map(new).collect();
        (!units.is_empty()).then(|| Arc::new(Self { upstream: Arc::clone(&upstream.name), units, counts }))
    }

    /// Goes by the limits of an upstream that has taken over the same estimates.
    pub(crate) fn go_by(&self, upstream: &Upstream) {
        for (unit, of) in &self.units {
            lock(of).go_by(enough_for(upstream, unit));
        }
    }

    /// Has a call take an estimate of each unit that it says no cost of.
    pub(crate) fn fill(&self, call: &mut Call) -> Reserves {
        let (mut costs, mut reserves) = (Call::new(), Vec::new());
        for (place, (unit, of)) in self.units.iter().enumerate() {
            if call.units().all(|said| said != unit) {
                let reserve = lock(of).reserve(call.kind_or_none());
                costs = costs.cost_of(Arc::clone(unit), u32::try_from(reserve).unwrap_or(u32::MAX));
                reserves.push((place, reserve));
            }
        }
        call.or_costs_of(costs);
        reserves
    }

    /// A call gets the permit for which it reserves so much. Says of which units that is.
    pub(crate) fn reserved(&self, reserves: &[(usize, u64)]) -> Places {
        let mut places = 0;
        for &(place, units) in reserves {
            self.units.get(place).into_iter().for_each(|(unit, _)| self.counts.estimated(unit, units));
            places |= 1 << place;
        }
        places
    }

    /// The place of a unit, where it is estimated.
    pub(crate) fn place(&self, unit: &str) -> Option<usize> {
        self.units.iter().position(|(of, _)| **of == *unit)
    }

    /// A call of a kind used so much of the unit at a place.
    pub(crate) fn settled(&self, place: usize, kind: &str, used: u64) {
        if let Some((_, of)) = self.units.get(place) {
            lock(of).settled(kind, used);
        }
    }

    /// A call was settled that used nothing of the unit at a place.
    pub(crate) fn settled_at_nothing(&self, place: usize) {
        self.units.get(place).into_iter().for_each(|(_, of)| lock(of).settled_at_nothing());
    }

    /// A call is over that reserved estimates of some units, and nobody settled it. Where nobody ever does, says so once.
    pub(crate) fn unsettled(&self, places: Places) {
        let (upstream, calls) = (&*self.upstream, UNSETTLED);
        for (unit, _) in self.of(places).filter(|(_, of)| lock(of).unsettled()) {
            tracing::warn!(
                upstream,
                unit = &**unit,
                calls,
                "the largest estimate is reserved for every call, as none was ever settled: settle calls by `Permit::settle`, \
                 `Passage::settle` or `Upstream::settle_by`, or say what they cost; said once"
            );
        }
    }

    fn of(&self, places: Places) -> impl Iterator<Item = &(Arc<str>, Mutex<Estimates>)> {
        self.units.iter().enumerate().filter(move |(place, _)| places & (1 << place) != 0).map(|(_, of)| of)
    }
}

/// What is to be enough for calls of an upstream: of a unit that is counted when they end, for all of them together.
fn enough_for(upstream: &Upstream, unit: &str) -> Enough {
    let of_unit = || upstream.limits.iter().filter(|limit| limit.unit() == unit);
    let at_end = of_unit().any(Limit::is_counted_at_end);
    match (upstream.estimates_per_thousand, of_unit().map(Limit::quota).min()) {
        (Some(calls), _) => Enough::ForEach(calls),
        (None, Some(quota)) if at_end => Enough::ForAllIn(quota),
        (None, _) => Enough::ForEach(950),
    }
}

fn lock(estimates: &Mutex<Estimates>) -> MutexGuard<'_, Estimates> {
    estimates.lock().unwrap_or_else(PoisonError::into_inner)
}
