//! The common case, where the logs alone decide.

use std::time::Duration;

use super::scope::Scope;
use super::{Ledger, Log, Stamp};

/// A log that is to be trimmed: its place among others, and its largest quota.
#[derive(Debug)]
pub(super) struct Long {
    pub(super) place: usize,
    pub(super) quota: u32,
}

impl Ledger {
    /// The answer to one caller who does not wait, where it can be given at a glance, when the store's clock shows `clock`: its start, which
    /// is entered, or how long it is until there is one. The same that [`apply`](Self::apply) answers to an ask of nobody's, which need
    /// not be written for it.
    #[inline]
    pub(crate) fn at_once(&mut self, clock: Stamp, logs: &[Log], charges: &[u32]) -> Option<Result<Stamp, Duration>> {
        let now = self.time.at(clock);
        if let ([log], [units]) = (logs, charges) {
            return self.at_once_in(now, log, *units);
        }
        let start = self.start_where(|scope| scope.is_plain_now_or_never(now), now, logs, (charges, 1))?;
        if start > now {
            return Some(Err(start.since(now)));
        }
        let long = self.enter_now(now, logs, charges, 1);
        self.trim(now, logs, long);
        Some(Ok(now))
    }

    /// The same of one log, whose scope is looked up but once.
    #[inline]
    fn at_once_in(&mut self, now: Stamp, log: &Log, units: u32) -> Option<Result<Stamp, Duration>> {
        if !self.upstream.is_plain_now_or_never(now) || log.has_calendar() || units > log.largest_charge() {
            return None;
        }
        let scope = self.scope_mut(log.scope);
        if !scope.is_plain_now_or_never(now) {
            return None;
        }
        let start = if units > 0 { scope.earliest_beside_cold(now, log, units) } else { now };
        if start > now {
            return Some(Err(start.since(now)));
        }
        if scope.append(log, &[(now, units as usize)], log.retention(), &log.terms)
            && let Some(entries) = scope.logs.get_mut(&log.unit)
        {
            entries.trim(now, log.largest_quota());
        }
        Some(Ok(now))
    }

    /// When so many callers of these charges could all start, where nobody waits, and nothing is in force but cold calls beside one caller.
    pub(super) fn start_where_plain(&self, now: Stamp, logs: &[Log], charges: &[u32], callers: u32) -> Option<Stamp> {
        if callers == 1 {
            return self.start_where(|scope| scope.is_plain_but_for_cold(now), now, logs, (charges, 1));
        }
        self.start_where(|scope| scope.is_plain(now), now, logs, (charges, callers))
    }

    /// The same, where nothing but cold calls is in force in any scope that `is_plain`.
    fn start_where(
        &self,
        is_plain: impl Fn(&Scope) -> bool,
        now: Stamp,
        logs: &[Log],
        (charges, callers): (&[u32], u32),
    ) -> Option<Stamp> {
        if !is_plain(&self.upstream) || logs.iter().any(Log::has_calendar) {
            return None;
        }
        logs.iter().zip(charges).try_fold(now, |start, (log, &units)| {
            let (scope, units) = (self.scope(log.scope), units.saturating_mul(callers));
            if units > log.largest_charge() || scope.is_some_and(|scope| !is_plain(scope)) {
                return None;
            }
            let scope = scope.filter(|_| units > 0);
            Some(scope.map_or(start, |scope| scope.earliest_beside_cold(start, log, units)))
        })
    }

    /// Enters callers who all start now, where nothing is in force. Says which logs are to be trimmed.
    pub(super) fn enter_now(&mut self, now: Stamp, logs: &[Log], charges: &[u32], callers: u32) -> Vec<Long> {
        let mut long = Vec::new();
        for (place, (log, &units)) in logs.iter().zip(charges).enumerate() {
            let scope = self.scope_mut(log.scope);
            if scope.append(log, &[(now, units as usize * callers as usize)], log.retention(), &log.terms) {
                long.push(Long { place, quota: log.largest_quota() });
            }
        }
        long
    }

    /// Trims those of some logs that are long.
    pub(super) fn trim(&mut self, now: Stamp, logs: &[Log], long: Vec<Long>) {
        for Long { place, quota } in long {
            if let Some(entries) = self.log_mut(&logs[place]) {
                entries.trim(now, quota);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{
        Ask, Body, Bucket, Cold, Message, MessageId, Pause, QuotaReport, Report, Run, ScopeId, Term, micros,
    };

    #[test]
    fn beside_cold_calls_an_answer_is_that_of_an_ask_too() {
        let of = |bits| Some(ScopeId::from_bits(bits));
        let term = |quota, span| Term::new(quota, span).cold(span / 4);
        let bucket = Term::bucket(Bucket::new(150_000, 450_000)).cold(200);
        for logs in [
            vec![Log::new("calls", [term(4, 900)])],
            vec![Log::new("calls", [term(4, 900), term(2, 300)]).of(of(7))],
            vec![Log::new("calls", [term(4, 900), bucket])],
            vec![Log::new("calls", [term(4, 900)]), Log::new("calls", [term(3, 700)]).of(of(7))],
            // Of these only the first counts cold calls longer, and the other has no entries for a while.
            vec![Log::new("calls", [term(4, 900)]).of(of(7)), Log::new("tokens", [Term::new(5, 800)]).of(of(7))],
        ] {
            let (mut ledger, mut answered, mut beside_cold, mut times_held) = (Ledger::new(), [0; 2], 0, 0);
            for step in 0..300 {
                let now = Stamp::from_micros(1 + 90 * i64::from(step));
                let id = |stream| MessageId::new(1, stream, now.as_micros().unsigned_abs());
                // The first log takes 1 or 2, the second nothing at first, and then 0, 1 or 2.
                let charges: Vec<u32> = [1 + step % 2, if step < 100 { 0 } else { step % 3 }][..logs.len()].into();
                // With a word of debts it is not answered at a glance: by all that may be in force.
                let debts = vec![0; logs.len()];
                let ask = |runs, cold| Ask { cold, debts: debts.clone(), ..Ask::new(logs.clone(), runs) };
                let one = vec![Run::new(1, charges.clone()).max_wait(Duration::ZERO)];
                let mut other = ledger.clone();
                let told = other.apply(now, &Message::new("up", MessageId::nobodys(), ask(one, None))).unwrap();
                let told = told.grant().unwrap().answers(1).next().unwrap();
                let has_cold = |log: &Log| ledger.scope(log.scope).is_some_and(|of| of.constraints().has_cold(now));
                if logs.iter().any(has_cold) {
                    beside_cold += 1;
                    // Where more than that is in force, it is no answer for a glance.
                    let lasting = Duration::from_micros(200);
                    let left = QuotaReport::new(logs[0].terms[0], Duration::from_micros(900), 0, lasting);
                    let report = Report { quotas: vec![left], ..Report::default() };
                    let (scope, pause) = (logs[0].scope, Pause::new(lasting));
                    for body in [Body::Pause { scope, pause }, Body::Report { log: logs[0].clone(), report }] {
                        let mut held = ledger.clone();
                        let reply = held.apply(now, &Message::new("up", id("held"), body)).unwrap();
                        let is_held = reply.learned().is_none_or(|learned| learned.outside > 0);
                        assert_eq!(held.at_once(now, &logs, &charges).is_none(), is_held);
                        times_held += u32::from(is_held);
                    }
                }
                let at_once = ledger.at_once(now, &logs, &charges).unwrap();
                let start = at_once.unwrap_or_else(|wait| now.plus(micros(wait)));
                assert_eq!((told.verdict.is_granted(), told.start), (at_once.is_ok(), start));
                let kept = |ledger: &Ledger| format!("{:?}", ledger.usage(now, &logs));
                assert_eq!(kept(&ledger), kept(&other));
                answered[usize::from(at_once.is_ok())] += 1;
                if at_once.is_ok() && step % 3 == 0 {
                    let cold = Some(Cold::new(now, now, charges.clone()));
                    ledger.apply(now, &Message::new("up", id(""), ask(Vec::new(), cold))).unwrap();
                }
            }
            assert!(answered.iter().all(|times| *times > 20) && beside_cold > 20, "{answered:?}, {beside_cold}");
            assert!(times_held > beside_cold + 20, "by reports too: {times_held} of {beside_cold}");
        }
    }

    #[test]
    fn what_is_answered_at_once_is_what_an_ask_is_answered() {
        let of = |bits| Some(ScopeId::from_bits(bits));
        let bucket = Term::bucket(Bucket::new(200_000, 600_000));
        let logs = [
            Log::new("calls", [Term::new(4, 900)]),
            Log::new("calls", [Term::new(2, 500), bucket]).of(of(7)),
            Log::new("tokens", [Term::new(9, 700)]).of(of(7)),
        ];
        let (mut ledger, mut answered, mut are_ahead) = (Ledger::new(), [0; 3], 0);
        for now in (0..60).map(|step| Stamp::from_micros(1 + 130 * step)) {
            if now.as_micros() % 11 == 0 {
                let pause = Body::Pause { scope: of(7), pause: Pause::new(Duration::from_micros(300)) };
                ledger
                    .apply(now, &Message::new("up", MessageId::new(1, "", now.as_micros().unsigned_abs()), pause))
                    .unwrap();
            }
            if now.as_micros() % 7 == 0 {
                // Somebody is served who books ahead.
                let far =
                    Ask { ahead: Duration::from_micros(40), ..Ask::new(logs.clone(), vec![Run::new(1, [1, 0, 0])]) };
                let id = MessageId::new(2, "", now.as_micros().unsigned_abs());
                ledger.apply(now, &Message::new("up", id, far)).unwrap();
                are_ahead += u32::from(!ledger.upstream.is_plain(now) && ledger.upstream.is_plain_now_or_never(now));
            }
            let charges = [1, u32::from(now.as_micros() % 3 > 0), 2];
            let ask = Ask::new(logs.clone(), vec![Run::new(1, charges).max_wait(Duration::ZERO)]);
            let mut other = ledger.clone();
            let grant = other.apply(now, &Message::new("up", MessageId::nobodys(), ask)).unwrap().grant().unwrap();
            let told = grant.answers(1).next().unwrap();
            match ledger.at_once(now, &logs, &charges) {
                Some(Ok(start)) => assert_eq!((told.verdict.is_granted(), told.start), (true, start)),
                Some(Err(wait)) => assert_eq!((told.verdict.is_granted(), told.start.since(now)), (false, wait)),
                None => assert!(grant.paused.is_some(), "{grant:?}"),
            }
            let kept = |ledger: &Ledger| {
                ledger.usage(now, &logs).into_iter().map(|log| format!("{log:?}")).collect::<Vec<_>>()
            };
            assert_eq!(kept(&ledger), kept(&other));
            answered[usize::from(told.verdict.is_granted()) + usize::from(grant.paused.is_some()) * 2 % 3] += 1;
        }
        assert!(answered.iter().all(|times| *times > 3) && are_ahead > 0, "{answered:?}, {are_ahead}");
    }
}
