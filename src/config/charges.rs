//! What calls of an upstream are charged: which logs, whose, and how many entries of each.

mod scopes;
mod sharers;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::scopes::Scopes;
use self::sharers::{Sharers, sharers_of};
use crate::config::call::Call;
use crate::config::costs::{Costs, MAX_LOGS};
use crate::config::limit::Limit;
use crate::config::name::shown;
use crate::config::priority::{Priority, Reserve};
use crate::config::request_head::RequestHead;
use crate::config::scope::Scope;
use crate::config::upstream::Upstream;
use crate::error::{ConfigError, Error};
use crate::ledger::{Log, ScopeId, SeatLimit, Term};
use crate::queue::calendars::{Calendars, Placed};
use crate::queue::settling::Counted;

/// A log of large units keeps at most so many entries: then one entry stands for several units.
const MAX_ENTRIES: u32 = 20_000;
/// What limits count that say nothing of it.
pub(crate) const CALLS: &str = "calls";

/// The logs of an upstream, and who shares each.
#[derive(Debug)]
pub(crate) struct Charges {
    /// None of any scope yet: those of one scope next to each other, the whole upstream's first.
    logs: Arc<[Log]>,
    /// Of each log: its scope, its unit, and how many units an entry stands for.
    places: Vec<Place>,
    scopes: Vec<Sharers>,
    /// The scope that few share: whom a refusal is taken to be about, and whose value is said without a name. That of the limits that
    /// name none, where it is not the whole upstream's; else the last that a limit of its own names, or one that it shares.
    narrowest: usize,
    /// Of each limit: its log, and the first of its terms there.
    limits: Vec<(usize, usize)>,
    /// How many calls may be in flight: by its place whose, how many, and which of the upstream's limits says so.
    seats: Vec<(usize, u32, usize)>,
    /// What a call is charged of which nothing is said, by its priority's place.
    ones: [Costs; 3],
    /// Of each limit of which something is kept, by its place: the log that counts those for whom nothing is, and the first of the
    /// rest's terms there.
    rests: Vec<(usize, usize, usize)>,
}

/// Where a log stands.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    /// By its place among the scopes.
    scope: usize,
    unit: Arc<str>,
    quantum: u32,
    /// It counts beside another log those calls alone for whom nothing is kept.
    of_rest: Option<Reserve>,
}

impl Charges {
    /// The logs of an upstream, or what is wrong with its limits.
    pub(crate) fn new(upstream: &Upstream) -> Result<Self, ConfigError> {
        let wrong = |field, reason: String| ConfigError::new(&upstream.name, field, reason);
        let scopes = sharers_of(upstream).map_err(|(field, reason)| wrong(field, reason))?;
        let scope_of = |limit: &Limit| {
            let sharers = Sharers::of(upstream, limit);
            scopes.iter().position(|known| known.is_same(&sharers)).unwrap_or(0)
        };
        let mut drafts: Vec<(Place, Vec<Term>)> = Vec::new();
        let mut limits = Vec::with_capacity(upstream.limits.len());
        for limit in &upstream.limits {
            let place =
                Place { scope: scope_of(limit), unit: limit.unit().into(), quantum: quantum_of(limit), of_rest: None };
            limits.push(draft(&mut drafts, place, limit, upstream, "limit.burst")?);
        }
        let mut rests = Vec::new();
        for (at, limit) in upstream.limits.iter().enumerate() {
            let rest = upstream.reserve.and_then(|reserve| Some((reserve, reserve.rest_of(limit)?)));
            if let Some((reserve, rest)) = rest {
                let place = Place { of_rest: Some(reserve), ..drafts[limits[at].0].0.clone() };
                let (log, term) = draft(&mut drafts, place, &rest, upstream, "reserve")?;
                rests.push((at, log, term));
            }
        }
        let mut seats: Vec<(usize, u32, usize)> = Vec::new();
        for (at, limit) in upstream.in_flight.iter().enumerate() {
            limit.check_seats(&upstream.name)?;
            let scope = scope_of(limit);
            if seats.iter().any(|(of, ..)| *of == scope) {
                let reason = "is said twice of one scope: the smaller number is the only one that matters";
                return Err(wrong("limit.in_flight", reason.to_owned()));
            }
            limit.check_seats_beside(&upstream.in_flight[0], &upstream.name)?;
            seats.push((scope, limit.quota(), at));
        }
        // What few share comes last.
        seats.sort_by_key(|&(scope, ..)| scope);
        // Where only calls in flight are counted, nothing limits a log; and yet its scope may be paused.
        for scope in 0..scopes.len() {
            if drafts.iter().all(|(place, _)| place.scope != scope) {
                drafts.push((Place { scope, unit: CALLS.into(), quantum: 1, of_rest: None }, Vec::new()));
            }
        }
        if drafts.len() > MAX_LOGS {
            let reason =
                format!("{} logs are more than {MAX_LOGS}: scopes, units, and quotas of different sizes", drafts.len());
            return Err(wrong("limit", reason));
        }
        // Those of one scope stand together.
        let mut order: Vec<usize> = (0..drafts.len()).collect();
        order.sort_by_key(|&at| drafts[at].0.scope);
        let place_of = |log: usize| order.iter().position(|&of| of == log).unwrap_or(0);
        let limits = limits.into_iter().map(|(log, term)| (place_of(log), term)).collect();
        let rests = rests.into_iter().map(|(at, log, term)| (at, place_of(log), term)).collect();
        let (mut places, mut logs) = (Vec::new(), Vec::new());
        for (place, terms) in order.iter().map(|&at| drafts[at].clone()) {
            logs.push(Log::new(place.log_name(), terms));
            places.push(place);
        }
        let by_default =
            scopes.iter().position(|sharers| !sharers.scope.is_upstream() && sharers.are_default(upstream));
        let last = |which: &dyn Fn(&Sharers) -> bool| scopes.iter().rposition(which);
        let narrowest = by_default
            .or_else(|| last(&|of| !of.is_common && !of.scope.is_upstream()))
            .or_else(|| last(&|of| !of.scope.is_upstream()))
            .or_else(|| last(&|of| !of.is_common))
            .unwrap_or(scopes.len() - 1);
        let one = |priority| Costs::of(&places.iter().map(|place| u32::from(place.counts(priority))).collect());
        let ones = [Priority::High, Priority::Normal, Priority::Low].map(one);
        Ok(Self { logs: logs.into(), places, scopes, narrowest, limits, seats, ones, rests })
    }

    /// Who shares the limits.
    pub(crate) fn sharers(&self) -> impl Iterator<Item = &Scope> {
        self.scopes.iter().map(|sharers| &sharers.scope)
    }

    /// The logs, none of any scope yet.
    pub(crate) const fn logs(&self) -> &Arc<[Log]> {
        &self.logs
    }

    /// What a call of a priority is charged of which nothing is said.
    pub(crate) const fn one(&self, priority: Priority) -> &Costs {
        &self.ones[priority.place()]
    }

    /// Whose logs a call is charged in: as it says, else as its request does.
    #[inline]
    pub(crate) fn scopes(&self, call: &Call, request: Option<&RequestHead<'_>>) -> Scopes {
        let is_only = self.scopes.len() == 1;
        let of = |at: usize| {
            let sharers = &self.scopes[at];
            // Everybody's, whatever a call says; but where nothing tells calls apart a value does.
            if sharers.scope.is_upstream() && (at != self.narrowest || sharers.salt.is_none() && !is_only) {
                return sharers.id(None);
            }
            let unnamed = call.scope.filter(|_| at == self.narrowest);
            let said = call.scope_named(sharers.scope.name()).or(unnamed);
            sharers.id(said.or_else(|| request.and_then(|request| sharers.scope.of(request))))
        };
        if is_only {
            return Scopes::only(of(0));
        }
        let all: Arc<[_]> = (0..self.scopes.len()).map(of).collect();
        Scopes { narrowest: all[self.narrowest], all: Some(all), untouched: 0 }
    }

    /// Whether all callers share a limit, by its place.
    #[cfg(feature = "metrics")]
    pub(crate) fn is_everybodys(&self, limit: usize) -> bool {
        self.limits.get(limit).is_some_and(|(log, _)| self.scopes[self.places[*log].scope].scope.is_upstream())
    }

    /// The logs of these scopes.
    pub(crate) fn logs_of(&self, scopes: &Scopes) -> Arc<[Log]> {
        if scopes.narrowest.is_none() && scopes.all.is_none() {
            return Arc::clone(&self.logs);
        }
        let of = |(log, place): (&Log, &Place)| log.clone().of(scopes.at(place.scope));
        self.logs.iter().zip(&self.places).map(of).collect()
    }

    /// The scopes that not all callers share, each with its place among the kinds of [`kinds`](Self::kinds).
    pub(crate) fn named_scopes(&self, scopes: &Scopes) -> impl Iterator<Item = (u32, ScopeId)> {
        let of = |(at, sharers): (usize, &Sharers)| {
            let scope = scopes.at(at).filter(|_| !sharers.scope.is_upstream())?;
            Some((u32::try_from(at).unwrap_or(u32::MAX), scope))
        };
        self.scopes.iter().enumerate().filter_map(of).collect::<Vec<_>>().into_iter()
    }

    /// Whether it is charged in any that not all callers share.
    pub(crate) fn has_scopes(&self) -> bool {
        self.scopes.iter().any(|sharers| !sharers.scope.is_upstream())
    }

    /// The kinds of scopes: what tells them apart, whether upstreams that share limits have it in common, and its salt.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = (&Scope, bool, Option<ScopeId>)> {
        self.scopes.iter().map(|sharers| (&sharers.scope, sharers.is_common, sharers.salt))
    }

    /// The scopes of whom no value is said: the whole upstream, what of its limits is its own where it shares others, and callers without a
    /// value.
    pub(crate) fn without_value(&self) -> Vec<Option<ScopeId>> {
        let mut all: Vec<_> = std::iter::once(None).chain(self.scopes.iter().map(|sharers| sharers.id(None))).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Of each log, the place of its kind of scope.
    pub(crate) fn kinds_of_logs(&self) -> impl Iterator<Item = usize> {
        self.places.iter().map(|place| place.scope)
    }

    /// The limits on calls in flight: the place of its kind of scope, how many, and which of the upstream's limits says so.
    pub(crate) fn seats(&self) -> &[(usize, u32, usize)] {
        &self.seats
    }

    /// Whether the scope that few share is surely shared by all calls of an account: it is a token's, or the only one and a header's. Others
    /// may tell routes apart.
    pub(crate) fn has_accounts(&self) -> bool {
        let scope = &self.scopes[self.narrowest].scope;
        scope.is_token() || (self.scopes.len() == 1 && scope.is_header())
    }

    /// Whether the scope that few share is a host's.
    pub(crate) fn has_hosts(&self) -> bool {
        self.scopes[self.narrowest].scope.is_host()
    }

    /// Of these scopes the one that few share, whoever a response is about.
    pub(crate) fn fewest(&self, scopes: &Scopes) -> Option<ScopeId> {
        scopes.at(self.narrowest)
    }

    /// The scope of all callers of the upstream.
    pub(crate) fn whole(&self, scopes: &Scopes) -> Option<ScopeId> {
        let own = self.scopes.iter().position(|sharers| sharers.scope.is_upstream() && !sharers.is_common);
        own.and_then(|at| scopes.at(at))
    }

    /// How many calls of these scopes may be in flight: of those that most share first.
    pub(crate) fn seats_of(&self, scopes: &Scopes) -> Arc<[SeatLimit]> {
        let of = |&(scope, calls, _): &(usize, u32, usize)| SeatLimit::new(scopes.at(scope), calls);
        self.seats.iter().map(of).collect()
    }

    /// The limits on calls in flight, in the same order.
    pub(crate) fn in_flight<'a>(&self, upstream: &'a Upstream) -> impl Iterator<Item = &'a Limit> {
        let limits: Vec<_> = self.seats.iter().filter_map(|&(_, _, at)| upstream.in_flight.get(at)).collect();
        limits.into_iter()
    }

    /// Whether callers of different queues need seats of the same limit: they are of different scopes, or may take of different units.
    pub(crate) fn is_any_seat_shared(&self) -> bool {
        let varies = |at: usize| !self.scopes[at].scope.is_upstream();
        let has_several_units = || self.places.iter().any(|place| place.unit != self.places[0].unit);
        let is_shared = |of: usize| has_several_units() || (0..self.scopes.len()).any(|at| at != of && varies(at));
        self.seats.iter().any(|&(of, ..)| is_shared(of))
    }

    /// What a call is charged, in entries of each log.
    #[inline]
    pub(crate) fn of(&self, upstream: &Upstream, call: &Call) -> Result<Costs, Error> {
        let name = || Arc::clone(&upstream.name);
        let is_scope = |name: &str| self.scopes.iter().any(|sharers| **sharers.scope.name() == *name);
        if let Some(scope) = call.scope_names().find(|name| !is_scope(name)) {
            let known = self.scopes.iter().map(|sharers| Arc::clone(sharers.scope.name())).collect();
            return Err(Error::UnknownScope { upstream: name(), scope: shown(scope), known });
        }
        if call.costs_one() {
            return Ok(self.one(call.priority).clone());
        }
        // A log without terms is there for its scope alone.
        let counted = || self.places.iter().zip(self.logs.iter()).filter(|(_, log)| !log.terms.is_empty());
        // Each call is one, also where none is counted; and where nothing is, it may cost anything.
        let is_any = |unit: &str| unit == CALLS && (call.cost_in(CALLS) <= 1 || counted().next().is_none());
        let is_known = |unit: &str| is_any(unit) || counted().any(|(place, _)| *place.unit == *unit);
        if let Some(unit) = call.units().find(|unit| !is_known(unit)) {
            let mut known: Vec<_> = counted().map(|(place, _)| Arc::clone(&place.unit)).collect();
            known.sort_unstable();
            known.dedup();
            return Err(Error::UnknownUnit { upstream: name(), unit: shown(unit), known: known.into() });
        }
        let in_entries = |(place, log): (&Place, &Log)| {
            let units = if place.counts(call.priority) { call.cost_in(&place.unit) } else { 0 };
            // Where nothing limits a log, it matters only that the call is its scope's.
            if log.terms.is_empty() { 1 } else { units.div_ceil(place.quantum) }
        };
        let charges: Arc<[u32]> = self.places.iter().zip(self.logs.iter()).map(in_entries).collect();
        let too_large = (0..charges.len()).find(|&at| charges[at] > self.logs[at].largest_charge());
        let wrong = too_large.or_else(|| charges.iter().all(|&units| units == 0).then_some(0));
        match wrong {
            None => Ok(Costs::of(&charges)),
            Some(at) => {
                let (place, limit) = (&self.places[at], self.strictest(upstream, at));
                let (unit, cost) = (Arc::clone(&place.unit), call.cost_in(&place.unit));
                let most = self.logs[at].largest_charge() * place.quantum;
                Err(Error::CostExceedsQuota { upstream: name(), unit, cost, most, limit: Box::new(limit) })
            }
        }
    }

    /// Of which logs a call takes nothing, as it takes nothing of their unit: a bit for each.
    #[inline]
    pub(crate) fn untouched_by(&self, costs: &Costs) -> u16 {
        if matches!(costs, Costs::OneEach(_)) {
            return 0;
        }
        let takes_none = |at: usize| costs.get(at) == Some(&0) && self.places[at].of_rest.is_none();
        (0..self.places.len()).filter(|&at| takes_none(at)).map(|at| 1 << at).sum()
    }

    /// The terms that are calendar windows.
    pub(crate) fn calendars(&self, upstream: &Upstream) -> Calendars {
        let rests = self.rests.iter().filter_map(|&(at, log, term)| Some((upstream.limits.get(at)?, log, term)));
        let all = upstream.limits.iter().zip(&self.limits).map(|(limit, &(log, term))| (limit, log, term)).chain(rests);
        let placed = |(limit, log, term): (&Limit, usize, usize)| {
            limit.resets_or_none().map(|reset| Placed { log, term, reset })
        };
        Calendars::new(all.filter_map(placed).collect())
    }

    /// What each log counts, and how.
    pub(crate) fn counted(&self, upstream: &Upstream) -> Vec<Counted> {
        let is_at_end =
            |unit: &str| upstream.limits.iter().any(|limit| limit.unit() == unit && limit.is_counted_at_end());
        let of = |(at, place): (usize, &Place)| {
            let unit = Arc::clone(&place.unit);
            let rest_of = self.rests.iter().find(|(_, log, _)| *log == at).map(|&(limit, ..)| self.limits[limit].0);
            let is_limited = !self.logs[at].terms.is_empty();
            Counted { at_end: is_at_end(&unit), quantum: place.quantum, unit, rest_of, is_limited }
        };
        self.places.iter().enumerate().map(of).collect()
    }

    /// The limit of a log that allows least at once.
    fn strictest(&self, upstream: &Upstream, log: usize) -> Limit {
        let of_rest = self.rests.iter().filter(|(_, of, _)| *of == log).map(|&(limit, ..)| limit);
        let of_log = (0..self.limits.len()).filter(|&limit| self.limits[limit].0 == log).chain(of_rest);
        let limit = of_log.min_by_key(|&limit| upstream.limits[limit].most_at_once()).unwrap_or(0);
        upstream.limits[limit].clone()
    }

    /// The log whose entries are evidence of what the upstream allows: of calls, in the scope that few share.
    pub(crate) fn evidence(&self) -> Option<usize> {
        self.calls_of(self.narrowest)
    }

    /// The log that counts the calls of the whole upstream.
    pub(crate) fn calls_of_all(&self) -> Option<usize> {
        self.calls_of(self.scopes.iter().position(|sharers| sharers.scope.is_upstream())?)
    }

    fn calls_of(&self, scope: usize) -> Option<usize> {
        let is_of_calls = |place: &Place| place.of_rest.is_none() && *place.unit == *CALLS;
        self.places.iter().position(|place| place.scope == scope && is_of_calls(place))
    }

    /// The limits of a log, as its terms have them, and how long each has counted: no longer than since its last reset, where `since_reset`
    /// knows that of a term.
    pub(crate) fn windows_of(
        &self,
        upstream: &Upstream,
        log: usize,
        since_reset: impl Fn(usize) -> Option<Duration>,
    ) -> Vec<(Term, Duration)> {
        let of_log = upstream.limits.iter().zip(&self.limits).filter(|(_, (of, _))| *of == log);
        let counts = |limit: &Limit, term| since_reset(term).map_or(limit.window(), |since| since.min(limit.window()));
        of_log.map(|(limit, &(log, term))| (self.logs[log].terms[term], counts(limit, term))).collect()
    }

    /// Of each limit, in the order of the upstream's: its log, the first of its terms there, and how many units an entry stands
    /// for.
    pub(crate) fn limits(&self) -> impl Iterator<Item = (usize, usize, u32)> {
        self.limits.iter().map(|&(log, term)| (log, term, self.places[log].quantum))
    }
}

impl Place {
    /// What the store calls the log: entries of different size never stand in one.
    fn log_name(&self) -> Arc<str> {
        let name =
            if self.quantum == 1 { Arc::clone(&self.unit) } else { format!("{}-{}", self.unit, self.quantum).into() };
        self.of_rest.map_or_else(|| Arc::clone(&name), |reserve| reserve.unit(&name).into())
    }

    /// Whether calls of this priority are charged there.
    fn counts(&self, priority: Priority) -> bool {
        self.of_rest.is_none_or(|reserve| reserve.is_charged(priority))
    }
}

/// Adds a limit's terms to those of its log: which log that is, and the first of the terms there.
fn draft(
    drafts: &mut Vec<(Place, Vec<Term>)>,
    place: Place,
    limit: &Limit,
    upstream: &Upstream,
    field: &'static str,
) -> Result<(usize, usize), ConfigError> {
    let quantum = place.quantum;
    let in_entries = |(place, term): (usize, Term)| {
        // Only the first counts what the upstream does: a burst keeps its pace.
        if place == 0 {
            limit.window_term_in_entries_of(quantum)
        } else {
            term.in_entries_of(quantum).at_the_pace_of(term, quantum)
        }
    };
    let terms = limit.terms(&upstream.name)?.into_iter().enumerate().map(in_entries).collect::<Vec<_>>();
    if terms.iter().any(|term| term.quota == 0) {
        let reason = format!(
            "is less than {quantum} {}, which one entry of so large a log stands for; no call may cost more than the burst",
            place.unit
        );
        return Err(ConfigError::new(&upstream.name, field, reason));
    }
    let at = drafts.iter().position(|(of, _)| *of == place).unwrap_or_else(|| {
        drafts.push((place, Vec::new()));
        drafts.len() - 1
    });
    let (_, all) = &mut drafts[at];
    let first = all.len();
    all.extend(terms);
    Ok((at, first))
}

/// How many units an entry stands for: a power of two, so that a log keeps between 10,000 and 20,000 entries in its window.
fn quantum_of(limit: &Limit) -> u32 {
    if limit.unit() == CALLS {
        return 1;
    }
    limit.quota().div_ceil(MAX_ENTRIES).next_power_of_two()
}

#[cfg(test)]
mod tests;
