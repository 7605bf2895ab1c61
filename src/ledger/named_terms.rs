//! The terms of a log that processes name lately, where not all name the same, as while a release is rolled out: those of each hold
//! for all who ask.
//!
//! Mostly all name the same, and nothing is kept. Whoever has to wait, and finds more units in a log than its own terms ever allow,
//! names them here for a while. Whoever asks by others finds them then, obeys both, and names its own: so each goes on to name them as
//! long as others ask, and no longer. Who only observes names nothing.
//!
//! `lua/named_terms.lua` says the same in Redis.

use std::sync::Arc;

use super::in_force::InForce;
use super::rule::Entries as _;
use super::{Ask, Ledger, Log, MessageId, NOBODY, Shape, SlidingLog, Stamp, Term};

/// So many lists of terms are kept of a log.
const MOST: usize = 4;

/// What is named of the logs of a scope.
#[derive(Clone, Debug, Default)]
pub(super) struct NamedTerms(Vec<Named>);

/// The terms of a log, as some process names them.
#[derive(Clone, Debug)]
struct Named {
    log: Arc<str>,
    terms: Arc<[Term]>,
    /// When they count no more, unless they are named again.
    lapse: Stamp,
    /// The process that names them, where it is one alone.
    by: Option<u64>,
}

/// Who asks by which terms of a log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asking<'a> {
    pub(super) sender: u64,
    pub(super) log: &'a Log,
}

impl Asking<'_> {
    /// Whether they are other terms of the log than those of who asks.
    fn differs_from(&self, named: &Named) -> bool {
        let terms = &self.log.terms;
        terms.len() != named.terms.len()
            || terms.iter().zip(named.terms.iter()).any(|(one, other)| !is_same(*one, *other))
    }

    /// Whether it alone named them, before it was given others.
    fn has_withdrawn(&self, named: &Named) -> bool {
        named.log == self.log.unit && named.by == Some(self.sender) && self.differs_from(named)
    }
}

impl NamedTerms {
    pub(super) const fn none() -> Self {
        Self(Vec::new())
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether none counts any more.
    pub(super) fn are_spent(&self, now: Stamp) -> bool {
        self.0.iter().all(|named| named.lapse <= now)
    }

    /// Those that count at `since`.
    pub(super) fn at(&self, since: Stamp) -> Self {
        Self(self.0.iter().filter(|named| named.lapse > since).cloned().collect())
    }

    /// The terms that others name of a log, and who asks does not.
    fn beside(&self, now: Stamp, asking: Asking<'_>) -> Vec<Term> {
        let mut all: Vec<Term> = Vec::new();
        for term in self.of_others(now, asking).flat_map(|named| named.terms.iter()) {
            if !asking.log.terms.iter().chain(&all).any(|known| is_same(*known, *term)) {
                all.push(term.cold(0));
            }
        }
        all
    }

    /// The lists that count, and that differ from that of who asks.
    fn of_others<'a>(&'a self, now: Stamp, asking: Asking<'a>) -> impl Iterator<Item = &'a Named> {
        let counts = move |named: &&Named| named.lapse > now && named.log == asking.log.unit;
        self.0.iter().filter(counts).filter(move |named| asking.differs_from(named) && !asking.has_withdrawn(named))
    }

    /// Who asks names its terms for so many microseconds where a log is overfull by them, or others name others; and those no more
    /// that it named before. None where nothing changes.
    fn after(&self, now: Stamp, asking: Asking<'_>, is_overfull: bool, length: i64) -> Option<Self> {
        let Asking { sender, log } = asking;
        let (mut next, mut is_news) = (self.clone(), false);
        next.0.retain(|named| {
            let withdrawn = asking.has_withdrawn(named);
            is_news |= withdrawn && named.lapse > now;
            !withdrawn
        });
        if is_overfull || self.of_others(now, asking).next().is_some() {
            let is_own = |named: &Named| named.log == log.unit && !asking.differs_from(named);
            let lapse = now.plus(length);
            next.0.retain(|named| named.lapse > now || !is_own(named));
            if let Some(own) = next.0.iter_mut().find(|named| is_own(named)) {
                let by = own.by.filter(|by| *by == sender);
                // Seldom, as it is written each time.
                if by != own.by || 4 * (own.lapse.as_micros() - now.as_micros()) < 3 * length {
                    (own.lapse, own.by, is_news) = (lapse, by, true);
                    // What it said before names boundaries that are past one day.
                    own.terms = Arc::clone(&log.terms);
                }
            } else {
                let of_log = || (0..next.0.len()).filter(|&at| next.0[at].log == log.unit);
                if of_log().count() >= MOST
                    && let Some(first) = of_log().min_by_key(|&at| next.0[at].lapse)
                {
                    next.0.remove(first);
                }
                let (log, terms) = (Arc::clone(&log.unit), Arc::clone(&log.terms));
                next.0.push(Named { log, terms, lapse, by: Some(sender) });
                is_news = true;
            }
        }
        is_news.then_some(next)
    }
}

/// Whether two terms are one, but for boundaries, which move, and for cold calls.
fn is_same(one: Term, other: Term) -> bool {
    let is_alike = match (one.shape, other.shape) {
        (Shape::Window, Shape::Window) | (Shape::Calendar(_), Shape::Calendar(_)) => true,
        (Shape::Bucket(one), Shape::Bucket(other)) => one == other,
        _ => false,
    };
    is_alike && (one.quota, one.span) == (other.quota, other.span)
}

/// Whether more counts in a log than its terms ever let start: somebody asks by others, or calls used more than they were charged.
fn is_overfull(now: Stamp, log: &Log, in_force: &InForce<'_>, entries: &SlidingLog) -> bool {
    let Some(newest) = entries.nth_newest(1) else { return false };
    log.terms.iter().any(|term| {
        let before = || entries.nth_newest(term.quota as usize + 1);
        match in_force.term(log, *term).shape {
            Shape::Window => before().is_some_and(|before| before.plus(term.span) > newest.max(now)),
            Shape::Calendar(calendar) => before().is_some_and(|before| {
                before.plus(term.span) > now && calendar.counts_from(now).is_none_or(|since| before >= since)
            }),
            Shape::Bucket(_) => term.as_bucket().is_some_and(|bucket| entries.level(bucket).is_above(bucket, now)),
        }
    })
}

impl Ledger {
    /// The ask as if it named the terms of others as well, where these name any that it does not; and of those the strictest.
    pub(super) fn beside_others(&self, now: Stamp, sender: u64, ask: &Ask) -> Option<(Ask, (usize, Term))> {
        let (mut logs, mut strictest) = (Vec::new(), None::<(usize, Term)>);
        for (place, log) in ask.logs.iter().enumerate() {
            let named = self.scope(log.scope).map(|scope| &scope.constraints().named);
            let Some(named) = named.filter(|named| !named.is_empty() && !log.terms.is_empty()) else { continue };
            let more = named.beside(now, Asking { sender, log });
            for &term in &more {
                if strictest.is_none_or(|(_, known)| term.interval() > known.interval()) {
                    strictest = Some((place, term));
                }
            }
            if !more.is_empty() {
                logs.resize_with(ask.logs.len(), || None);
                logs[place] = Some(Log { terms: log.terms.iter().copied().chain(more).collect(), ..log.clone() });
            }
        }
        let wide = |(log, wide): (&Log, Option<Log>)| wide.unwrap_or_else(|| log.clone());
        let (place, term) = strictest?;
        let strictest = (place, Term::new(term.quota, term.span));
        Some((Ask { logs: ask.logs.iter().zip(logs).map(wide).collect(), ..ask.clone() }, strictest))
    }

    /// The strictest term that others name of a log.
    pub(super) fn named_beside(&self, now: Stamp, log: &Log) -> Option<Term> {
        let ask = Ask::new([log.clone()], Vec::new());
        self.beside_others(now, NOBODY, &ask).map(|(_, (_, term))| term)
    }

    /// In which logs of an ask more counts than its terms ever let start, of those that its callers are charged in.
    pub(super) fn overfull(&self, now: Stamp, id: &MessageId, ask: &Ask) -> Vec<bool> {
        if id.is_nobodys() {
            return Vec::new();
        }
        let is_charged = |place: usize| ask.runs.iter().any(|run| run.charges[place] > 0);
        let of_log = |(place, log): (usize, &Log)| {
            let entries = self.scope(log.scope).and_then(|scope| scope.logs.get(&log.unit));
            let holds_more = |entries| is_overfull(now, log, &self.in_force(now, log.scope), entries);
            is_charged(place) && entries.is_some_and(holds_more)
        };
        ask.logs.iter().enumerate().map(of_log).collect()
    }

    /// The sender of an ask names its terms of the logs that its callers are charged in, where it has to.
    pub(super) fn name_terms(&mut self, now: Stamp, id: &MessageId, ask: &Ask, overfull: &[bool], length: i64) {
        if id.is_nobodys() || ask.observes {
            return;
        }
        for (place, log) in ask.logs.iter().enumerate().filter(|(_, log)| !log.terms.is_empty()) {
            let is_overfull = overfull.get(place) == Some(&true);
            let named = self.scope(log.scope).map_or_else(NamedTerms::none, |of| of.constraints().named.clone());
            if (named.is_empty() && !is_overfull) || ask.runs.iter().all(|run| run.charges[place] == 0) {
                continue;
            }
            if let Some(next) = named.after(now, Asking { sender: id.sender, log }, is_overfull, length) {
                self.scope_mut(log.scope).constrain(|of, _| {
                    *of = of.kept(now);
                    of.named = next.at(now.plus(-super::LEAP));
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Boundary, Calendar, Message, Reply, Run};

    const SECOND: i64 = 1_000_000;
    const HOUR: i64 = 3_600 * SECOND;

    /// So many calls an hour of the clock, as a process names them then.
    fn log(quota: u32, now: i64) -> Log {
        let hour = now.div_euclid(HOUR);
        let begins = [-1, 0, 1, 2].map(|hours| Stamp::from_micros((hour + hours) * HOUR));
        let calendar = Calendar::new(SECOND, begins.map(|begins| Boundary::new(begins, begins)));
        Log::new("calls", [Term::calendar(quota, 2 * HOUR + 4 * SECOND, calendar)])
    }

    #[test]
    fn two_quotas_of_an_hour_of_the_clock_are_granted_hour_after_hour_as_long_as_both_are_named() {
        let (mut ledger, mut number) = (Ledger::new(), 0);
        let mut granted = |now: i64, sender: u64, quota: u32, callers: u32| {
            number += 1;
            let ask = Ask::new([log(quota, now)], vec![Run::new(callers, [1])]);
            let message = Message::new("up", MessageId::new(sender, "", number), ask);
            let grant = ledger.apply(Stamp::from_micros(now), &message).ok().and_then(Reply::grant).unwrap();
            grant
                .answers(callers)
                .filter(|answer| answer.verdict.is_granted())
                .map(|answer| answer.callers)
                .sum::<u32>()
        };
        let five_past_ten = 10 * HOUR + 300 * SECOND;
        assert_eq!(granted(five_past_ten, 2, 200, 150), 150, "nobody knows of the stricter yet");
        let mut of_hour = [0; 6];
        for now in (five_past_ten..16 * HOUR).step_by(20_000_000) {
            let hour = usize::try_from(now / HOUR - 10).unwrap();
            let of_strict = if hour < 4 { granted(now, 1, 100, 20) } else { 0 };
            of_hour[hour] += of_strict + granted(now, 2, 200, 20);
        }
        assert_eq!(of_hour, [0, 100, 100, 100, 200, 200], "until one alone is named");
    }
}
