//! When callers may go, as far as the last answer tells; and when it is worth asking again.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::bounds::MOST_AHEAD;
use super::engine::Engine;
use super::events::{Effects, tell};
use super::log_time::Outlook;
use super::pacing::{LONGEST_TURN, LONGEST_TURN_OF_SEVERAL, Rest, late_at_most};
use super::put_off::PutOff;
use super::settings::Settings;
use super::turns::first_turn;
use super::waiters::{Units, Waiter};
use crate::config::costs::Costs;
use crate::error::{AfterRefusals, Error};
use crate::ledger::{Ask, Grant, PauseLeft, Slower, Term, micros};

/// For so many horizons callers may be away whose queue rests meanwhile, where it is not known whether they come back.
const BACK_SOON: u32 = 4;

impl Settings {
    /// The terms of the first log, whose units places in queue are counted in.
    fn terms(&self) -> impl Iterator<Item = &Term> {
        self.logs.iter().take(1).flat_map(|log| log.terms.iter())
    }

    /// How far ahead slots are booked: further where every answer takes long, else slots would run out meanwhile.
    pub(super) fn horizon(&self, outlook: &Outlook) -> Duration {
        self.horizon.max(outlook.round_trip.min(MOST_AHEAD) * 5 / 4)
    }

    /// How late a slot is expected to be used at most.
    pub(super) fn late_at_most(&self) -> Duration {
        late_at_most(self.stale_after)
    }

    /// Bounds of the store's clock no wider than this place slots well enough.
    pub(super) fn fine(&self) -> Duration {
        self.late_at_most() / 2
    }

    /// What decides how long a queue rests whose first caller may start `next` from now at the earliest, while the callers of so
    /// many other processes wait, each with its weight.
    fn rest(&self, next: Duration, contenders: u32, outlook: &Outlook) -> Rest {
        let interval_of = |term: &Term| term.time_of(1);
        let narrowest = self.narrowest();
        let interval = narrowest.map(interval_of).unwrap_or_default();
        // A share is counted at the rate of the slowest term. Where a narrow span lets go out more for a while, it is asked for more often.
        let is_faster = self.terms().any(|term| interval_of(term) > interval * 10 / 9);
        let span = narrowest
            .filter(|_| is_faster)
            .map_or(Duration::MAX, |term| Duration::from_micros(term.span.unsigned_abs()));
        // Of slots that are far apart none may pass while everybody rests.
        let is_sparse = narrowest.is_some_and(|term| self.has_sparse_slots(term));
        let turns = if is_sparse { 0 } else { contenders.saturating_add(self.weight) };
        let turn = interval.saturating_mul(turns) / self.weight;
        let answer = outlook.round_trip.max(outlook.ahead + outlook.round_trip / 2);
        Rest { next, own: Duration::ZERO, horizon: self.horizon(outlook), span, turn, answer }
    }

    /// The term that lets the fewest out at once; of several such the slowest, which hides the others.
    fn narrowest(&self) -> Option<&Term> {
        self.terms().min_by_key(|term| (term.quota, Reverse(term.span)))
    }

    /// The narrowest term, where its units come one by one to those who wait.
    fn paced(&self) -> Option<&Term> {
        self.narrowest().filter(|term| term.comes_one_by_one(micros(self.horizon)))
    }

    /// Whether its slots are so far apart, less than two in a horizon, that only the next can be booked.
    fn has_sparse_slots(&self, paced: &Term) -> bool {
        2 * paced.time_of(1) >= self.horizon
    }

    /// How far slots are apart of which only the next can be booked.
    fn interval_alone(&self) -> Option<Duration> {
        self.paced().filter(|paced| self.has_sparse_slots(paced)).map(|paced| paced.time_of(1))
    }

    /// Where slots come one by one: how long it takes until each of so many other processes that wait has had so many units, each with
    /// its weight, and this queue may have the next.
    ///
    /// Of many processes it takes longer than it is known that they wait. Where only the next slot can be booked, who came back too early would
    /// always get it before those who have had nothing yet: there nobody has a turn.
    fn turns(&self, units: u64, contenders: u32) -> Option<Duration> {
        let paced = self.paced().filter(|_| contenders > 0)?;
        let of_others = paced.time_of(units.saturating_mul(contenders.into())) / self.weight;
        let turns = of_others.saturating_add(paced.time_of(1));
        if self.has_sparse_slots(paced) {
            let longest = if units > 1 { LONGEST_TURN_OF_SEVERAL } else { LONGEST_TURN };
            return (turns <= longest).then_some(turns);
        }
        Some(turns.min(LONGEST_TURN_OF_SEVERAL))
    }
}

impl Engine {
    /// How long until this queue asks again for a caller that may start `next` from now at the earliest.
    pub(super) fn rest(&mut self, next: Duration, grant: &Grant, outlook: &Outlook, now: Instant) -> Duration {
        let first = self.waiters.unslotted(now).next();
        let (rank, deadline) =
            (first.map(|first| self.waiters.rank(first)), first.and_then(|first| first.deadline(now)));
        let waited = first.map(|first| now.saturating_duration_since(first.joined));
        let own = self.turns.next(rank.unwrap_or(self.rests_for), || {
            let interval = self.settings.interval_alone()?;
            let others = f64::from(grant.contenders) / f64::from(self.settings.weight);
            Some(now + next + first_turn(interval, waited?, others, &mut self.random))
        });
        // Who cannot wait for its turn does not rest for the others.
        let own = own.filter(|&at| grant.contenders > 0 && deadline.is_none_or(|deadline| deadline > at));
        let own = own.map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        self.rest_until_own(own, next, grant, outlook)
    }

    /// The same where it is its turn so long from now.
    fn rest_until_own(&mut self, own: Duration, next: Duration, grant: &Grant, outlook: &Outlook) -> Duration {
        let rest = self.settings.rest(next, grant.contenders, outlook);
        Rest { own, horizon: rest.horizon.min(grant.within), ..rest }.length(self.random.f64())
    }

    /// How much of a rest is left, where slots come one by one and others do not take what this queue leaves to them: it was granted some just
    /// now, the last to start then.
    pub(super) fn rest_of_what_is_left(
        &self,
        rest: Duration,
        last: Option<Instant>,
        outlook: &Outlook,
        now: Instant,
    ) -> Duration {
        let last = last.filter(|_| self.settings.paced().is_some() && self.settings.interval_alone().is_none());
        last.map_or(rest, |last| self.turns.rest(rest, last.saturating_duration_since(now + outlook.round_trip)))
    }

    /// Callers of the priority for which it rests were granted so many units, the last to start then, while those of other processes may wait that
    /// go no later. The first that waits may start `next`.
    pub(super) fn note_turn(
        &mut self,
        (units, last): (u64, Option<Instant>),
        next: Option<Instant>,
        (ask, grant): (&Ask, &Grant),
        outlook: &Outlook,
    ) {
        if self.settings.paced().is_none() {
            return;
        }
        let was_left = was_left(ask, grant).filter(|_| last.is_some());
        match (self.settings.interval_alone(), was_left) {
            (Some(interval), _) => {
                // Those who have it come before it starts.
                let after = self.settings.horizon(outlook).min(grant.within) / 2 + outlook.round_trip;
                let next = next.or_else(|| last.map(|last| last + interval)).filter(|_| grant.contenders > 0);
                self.turns.look(was_left == Some(true), next.map(|next| next + after));
            }
            (None, Some(was_left)) => self.turns.found(was_left),
            (None, None) => {}
        }
        if let Some(last) = last {
            let turns = self.settings.turns(units, grant.contenders).filter(|_| !self.finds_free(ask, grant));
            self.turns.note(self.rests_for, turns.map(|turns| last + turns));
        }
    }

    /// Whether units were free for it of which several may be free at once: then nobody need leave any to others.
    fn finds_free(&self, ask: &Ask, grant: &Grant) -> bool {
        let comes_at_once = self.settings.paced().is_some_and(|paced| paced.quota > 1 && !paced.is_bucket());
        comes_at_once && was_left(ask, grant) == Some(true)
    }

    /// How long until this queue asks again that has just got so many units, the last to start then, and has nobody who waits, while the
    /// callers of other processes do.
    pub(super) fn rest_after(
        &mut self,
        (units, last): (u64, Option<Instant>),
        (ask, grant): (&Ask, &Grant),
        outlook: &Outlook,
        now: Instant,
    ) -> Duration {
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        let rest = self.settings.rest(Duration::ZERO, grant.contenders, outlook).after(units, self.random.f64());
        let last = last.filter(|_| !self.finds_free(ask, grant));
        // Who comes back at once would have each slot before those who were put off ask for it.
        let Some(next) = last.and_then(|last| Some(last + self.settings.interval_alone()?)) else { return rest };
        let next = next.saturating_duration_since(now);
        self.near_at = Some(now + self.rest_until_own(Duration::ZERO, next, grant, outlook));
        rest.max(self.rest(next, grant, outlook, now))
    }

    /// Until when a queue is on record as waiting in which nobody is: whoever was just served is probably back before long. Who comes while it
    /// rests for the others' turns is not asked for, and would not be known to wait.
    pub(super) fn on_record_until(&self, now: Instant) -> Instant {
        let horizon = self.settings.horizon;
        let rests_until = self.rest_until.filter(|_| self.settings.interval_alone().is_some()).unwrap_or(now);
        let longest = match self.comes_back {
            Some(true) => rests_until,
            Some(false) => now,
            None => rests_until.min(now + BACK_SOON * horizon),
        };
        longest.max(now + horizon)
    }

    /// Refuses every caller for whom even the earliest possible slot is too late.
    pub(super) fn refuse_late(&mut self, now: Instant, effects: &mut Effects) {
        if !self.waiters.has_hurried() {
            return;
        }
        let (paused, slower) = (self.pause_left(now), self.after_refusals(now));
        let forecast = Forecast::new(&self.settings, self.next_slot, self.next_ask(), now);
        let (put_off, unjudged, mut asks_for_them) = (self.put_off.as_ref(), self.unjudged(now), false);
        let pause_ends = self.lasting_pause(now).map(|(until, _)| until);
        let mut beside = Beside::default();
        let late = self.waiters.drop_hopeless(now, |waiter, ahead| {
            let deadline = waiter.deadline(now);
            // Who goes before the first comes behind those alone who do so, too; and nobody goes before the next ask.
            let goes_beside = put_off.and_then(|put_off| put_off.goes_beside(waiter, &self.settings));
            let is_late = |at: Instant| deadline.is_some_and(|deadline| at > deadline);
            let goes_beside = goes_beside.map(|next| deadline.map_or(next, |_| forecast.beside(next, &beside, waiter)));
            let is_in_time = goes_beside.is_some_and(|at| !is_late(at));
            if is_in_time {
                beside.add(self.settings.size(&waiter.costs), &waiter.costs);
            }
            let deadline = deadline?;
            let asks_again = |put_off: &PutOff| put_off.asks_again_for(waiter, &self.settings, self.ask_at);
            if pause_ends.is_none_or(|at| at <= deadline) && (is_in_time || put_off.is_some_and(asks_again)) {
                return None;
            }
            let retry_after = forecast.too_late(deadline, ahead)?;
            let retry_after = goes_beside.map_or(retry_after, |at| retry_after.min(at.saturating_duration_since(now)));
            // Who came meanwhile.
            let is_unjudged = self.newcomers.include(waiter)
                && unjudged.is_some_and(|of| of.at <= deadline && self.settings.size(&waiter.costs) < of.below);
            asks_for_them |= is_unjudged;
            (!is_unjudged).then(|| throttled(&self.settings, retry_after, paused, slower.clone()))
        });
        if let Some(of) = unjudged.filter(|_| asks_for_them) {
            self.ask_at = self.ask_at.map(|ask_at| ask_at.min(of.at));
        }
        tell(effects, late);
    }

    /// Whether a caller behind `ahead` units may still be served by its deadline, or when it could be.
    pub(super) fn check_time(&self, deadline: Instant, ahead: &Units, now: Instant) -> Result<(), Error> {
        let forecast = Forecast::new(&self.settings, self.next_slot, self.next_ask(), now);
        forecast.too_late(deadline, ahead).map_or(Ok(()), |retry_after| Err(self.throttled(retry_after, now)))
    }

    /// Why a caller whose time is up has got nothing.
    pub(super) fn why_nothing(&self, ticket: u64, now: Instant) -> Error {
        let waiter = self.waiters.find(ticket);
        let ahead = waiter.map(|waiter| self.waiters.units_before(waiter.priority, ticket)).unwrap_or_default();
        // It may have asked only just now, when others had had their turn.
        let joined = waiter.map_or(now, |waiter| waiter.joined);
        // One that came when its time was up already has not waited for any.
        let has_waited = waiter.is_none_or(Waiter::had_time);
        let waits_for_answer = |since: Instant| has_waited && 2 * now.saturating_duration_since(since) >= now - joined;
        match &self.resend {
            Some(resend)
                if !resend.is_unheard(now)
                    && (resend.has_failed() || (self.next_slot.is_none() && waits_for_answer(resend.since))) =>
            {
                self.unavailable(&resend.error(), now)
            }
            _ => {
                let seat_at = self.seats.as_ref().and_then(|seats| seats.ask_at(now));
                let ask_at = self.ask_at.max(seat_at).max(self.silent_until);
                let forecast = Forecast::new(&self.settings, self.next_slot, ask_at, now);
                // As long again as the answer has taken, where nothing else is known.
                let took = self.resend.as_ref().filter(|_| self.next_slot.is_none());
                let least = took.map_or(Duration::ZERO, |resend| now.saturating_duration_since(resend.since));
                self.throttled(forecast.expected(&ahead).max(least), now)
            }
        }
    }

    pub(super) fn throttled(&self, retry_after: Duration, now: Instant) -> Error {
        throttled(&self.settings, retry_after, self.pause_left(now), self.after_refusals(now))
    }

    /// That calls come slower since refusals, as far as the last answer tells.
    fn after_refusals(&self, now: Instant) -> Option<Box<AfterRefusals>> {
        let (told, slower) = self.slower?;
        let left = slower.left.checked_sub(now.saturating_duration_since(told)).filter(|left| !left.is_zero())?;
        Some(Box::new(self.settings.spans.after_refusals(Slower { left, ..slower })))
    }
}

/// Whether the first that was granted a start could go at once: those who could have had its slot before had left it. None where nobody was.
fn was_left(ask: &Ask, grant: &Grant) -> Option<bool> {
    let first = grant.answers(ask.callers()).find(|answer| answer.verdict.is_granted())?;
    Some(first.start <= grant.now.plus(micros(ask.ahead)))
}

/// Nobody can go before the end of a pause.
fn throttled(
    settings: &Settings,
    retry_after: Duration,
    paused: Option<PauseLeft>,
    after_refusals: Option<Box<AfterRefusals>>,
) -> Error {
    let retry_after = retry_after.max(paused.map_or(Duration::ZERO, |pause| pause.left));
    Error::Throttled { upstream: Arc::clone(&settings.upstream), retry_after, paused, after_refusals }
}

/// So many sizes are told apart: what is of another counts for those alone who are larger.
const SIZES: usize = 32;

/// What those want who go before the first, by their size.
#[derive(Debug, Default)]
struct Beside(Vec<(f64, Units)>);

impl Beside {
    fn add(&mut self, size: f64, costs: &Costs) {
        let at = self.0.partition_point(|(other, _)| *other < size);
        if self.0.len() < SIZES && self.0.get(at).is_none_or(|(other, _)| *other > size) {
            self.0.insert(at, (size, Units::default()));
        }
        if let Some((_, units)) = self.0.get_mut(at) {
            units.add(costs);
        }
    }

    fn no_larger_than(&self, size: f64) -> Units {
        let smaller = self.0.iter().take_while(|(other, _)| *other <= size);
        smaller.fold(Units::default(), |sum, (_, units)| sum.and(units))
    }
}

/// When callers may go, as far as the last answer tells.
struct Forecast<'a> {
    settings: &'a Settings,
    next_slot: Option<Instant>,
    ask_at: Option<Instant>,
    now: Instant,
}

impl<'a> Forecast<'a> {
    const fn new(settings: &'a Settings, next_slot: Option<Instant>, ask_at: Option<Instant>, now: Instant) -> Self {
        Self { settings, next_slot, ask_at, now }
    }

    /// How long until a caller behind `ahead` units can be expected to go, where even its earliest start is after its deadline.
    fn too_late(&self, deadline: Instant, ahead: &Units) -> Option<Duration> {
        let earliest = (self.next_slot? + self.at_least(ahead)).max(self.ask_at.unwrap_or(self.now));
        (earliest > deadline).then(|| self.expected(ahead))
    }

    /// When a caller could go at the earliest that goes before the first, as others do, of whom the first could go `next`. Who is larger may be left
    /// behind, and who takes nothing of a log waits for nobody there.
    fn beside(&self, next: Instant, beside: &Beside, waiter: &Waiter) -> Instant {
        let ahead = beside.no_larger_than(self.settings.size(&waiter.costs));
        let logs = self
            .settings
            .logs
            .iter()
            .enumerate()
            .filter(|(at, _)| waiter.costs.get(*at).is_some_and(|&units| units > 0));
        let times = logs.flat_map(|(at, log)| log.terms.iter().map(move |term| (at, term)));
        let least = times.map(|(at, term)| term.time_of_at_least(ahead.of(at))).max().unwrap_or_default();
        (next + least).max(self.ask_at.unwrap_or(self.now))
    }

    /// How long until a caller behind `ahead` units can be expected to go: each has its own time, at the rate of the limits.
    fn expected(&self, ahead: &Units) -> Duration {
        let next = self.next_slot.unwrap_or(self.now).max(self.ask_at.unwrap_or(self.now));
        next.saturating_duration_since(self.now) + self.at_rate(ahead).max(self.at_least(ahead))
    }

    /// How long all logs need for so many units at least, from the next slot on.
    fn at_least(&self, ahead: &Units) -> Duration {
        let logs = self.settings.logs.iter().enumerate();
        let times = logs.flat_map(|(at, log)| log.terms.iter().map(move |term| term.time_of_at_least(ahead.of(at))));
        times.max().unwrap_or_default()
    }

    /// How long so many units take at the rate of each log of the first one's unit.
    fn at_rate(&self, ahead: &Units) -> Duration {
        let logs = &self.settings.logs;
        let of_unit = logs.iter().enumerate().filter(|(_, log)| log.unit == logs[0].unit);
        of_unit.map(|(at, log)| self.at_rate_of(&log.terms, ahead.of(at))).max().unwrap_or_default()
    }

    /// Which of a log's terms is used up is not known. The fastest counts, but none whose span is over before the next slot: nobody waits for that
    /// one. Of the others those of a minute or so count of whose quota the units ahead are half: one of hours mostly has room.
    fn at_rate_of(&self, terms: &[Term], ahead: u64) -> Duration {
        let wait = self.next_slot.map_or(Duration::ZERO, |next| next.saturating_duration_since(self.now));
        let may_be_used_up = |term: &&Term| Duration::from_micros(term.span.unsigned_abs()) >= wait;
        let time = |term: &Term| term.time_behind(ahead);
        let rolling = terms.iter().filter(|term| !term.is_calendar());
        let fastest = rolling.clone().filter(may_be_used_up).map(time).min().or_else(|| rolling.map(time).max());
        let is_short = |term: &Term| term.span <= 2 * 60 * 1_000_000;
        let is_nearly_full = |term: &&Term| term.is_calendar() || is_short(term) && u64::from(term.quota) <= 2 * ahead;
        let full = terms.iter().filter(is_nearly_full).map(time).max();
        fastest.max(full).unwrap_or_default()
    }
}
