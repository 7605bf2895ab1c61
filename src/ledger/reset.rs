//! What counted is forgotten by hand: the upstream's own count is known to have begun anew, or what is entered here is wrong.
//!
//! `lua/reset.lua` says the same in Redis.

use std::sync::Arc;

use super::loss::Loss;
use super::{Ledger, MAX_MEMORY, ScopeId, SlidingLog, Stamp};

impl Ledger {
    /// Forgets what counts in these logs of a scope, what was learned of it, and who claims a place in them. Seats, pauses, and what was
    /// said by hand stay.
    ///
    /// Who remembers entries of before must not take them for lost: up to the newest of them nothing is missing.
    pub(super) fn reset(&mut self, now: Stamp, scope: Option<ScopeId>, units: &[Arc<str>]) {
        let scope = self.scope_mut(scope);
        let counts = scope
            .logs
            .iter()
            .map(SlidingLog::life)
            .filter(|life| !life.is_over(now))
            .map(|life| life.counts)
            .max()
            .unwrap_or(0);
        let newest = units.iter().filter_map(|unit| scope.logs.forget(unit)).max().unwrap_or(Stamp::NEVER);
        let newest = newest.min(now.plus(MAX_MEMORY));
        scope.constrain(|of, _| {
            // Of a loss that matters no more nobody is told again.
            let before = of.loss.filter(|loss| loss.lapse() > now);
            let loss = Loss::forgotten(before, now, newest, counts);
            *of = of.kept(now).but_for(units);
            (of.rate, of.loss) = (None, Some(loss));
        });
        if !scope.waiting().claims.is_empty() {
            let mut waiting = scope.waiting().clone();
            waiting.claims.clear();
            scope.set_waiting(waiting);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::ledger::{
        Ask, Body, Cold, Grant, Log, Message, MessageId, Pause, QuotaReport, Remembered, Reply, Report, Run, Slots,
        Term,
    };

    const SPAN: i64 = 1_000_000;
    const SCOPE: Option<ScopeId> = Some(ScopeId::from_bits(7));

    const fn at(millis: i64) -> Stamp {
        Stamp::from_micros(50_000_000 + millis * 1_000)
    }

    fn log(unit: &str) -> Log {
        Log::new(unit, [Term::new(2, SPAN).cold(SPAN)]).of(SCOPE)
    }

    fn apply(ledger: &mut Ledger, now: Stamp, number: u64, body: impl Into<Body>) -> Reply {
        ledger.apply(now, &Message::new("up", MessageId::new(number, "", number), body)).unwrap()
    }

    fn ask(ledger: &mut Ledger, now: Stamp, unit: &str, change: impl FnOnce(&mut Ask)) -> Grant {
        let mut ask = Ask { horizon: Duration::ZERO, ..Ask::new([log(unit)], vec![Run::new(1, [1])]) };
        change(&mut ask);
        apply(ledger, now, fastrand::u64(1..1 << 50), ask).grant().unwrap()
    }

    /// When a caller may start, without waiting.
    fn next(ledger: &mut Ledger, now: Stamp, unit: &str) -> Stamp {
        let run = Run::new(1, [1]).max_wait(Duration::ZERO);
        let ask = Ask { horizon: Duration::ZERO, ..Ask::new([log(unit)], vec![run]) };
        let grant = ledger.apply(now, &Message::new("up", MessageId::nobodys(), ask)).unwrap().grant().unwrap();
        grant.answers(1).next().map_or(grant.next, |answer| answer.start)
    }

    fn reset(ledger: &mut Ledger, now: Stamp, units: &[&str]) {
        let units = units.iter().map(|&unit| unit.into()).collect();
        apply(ledger, now, fastrand::u64(1..1 << 50), Body::Reset { scope: SCOPE, units });
    }

    #[test]
    fn what_counts_in_the_logs_that_are_named_is_forgotten_and_nothing_else() {
        let mut ledger = Ledger::new();
        for unit in ["calls", "points", "calls", "points"] {
            assert_eq!(ask(&mut ledger, at(0), unit, |_| ()).answered(1), 1);
        }
        apply(&mut ledger, at(0), 9, Body::Pause { scope: SCOPE, pause: Pause::new(Duration::from_millis(5)) });
        assert_eq!(next(&mut ledger, at(0), "calls"), at(1_000));
        reset(&mut ledger, at(1), &["calls", "tokens"]);
        assert_eq!(next(&mut ledger, at(1), "calls"), at(5), "a pause stays");
        assert_eq!(next(&mut ledger, at(1), "points"), at(1_000), "another log");
        for _ in 0..2 {
            assert_eq!(next(&mut ledger, at(6), "calls"), at(6));
        }
        assert_eq!(next(&mut ledger, at(7), "calls"), at(1_006), "as ever");
    }

    #[test]
    fn debts_cold_calls_and_what_others_use_are_forgotten() {
        let quota = QuotaReport::new(log("calls").terms[0], Duration::from_secs(1), 0, Duration::from_secs(60));
        let report = Report { quotas: vec![quota], ..Report::default() };
        let cold = Cold::new(at(-1_000), at(-1_000), [2]);
        for what in ["debts", "cold", "outside"] {
            let mut ledger = Ledger::new();
            let asking = |change: fn(&mut Ask, Cold)| {
                let cold = cold.clone();
                move |ask: &mut Ask| {
                    ask.runs.clear();
                    change(ask, cold);
                }
            };
            match what {
                "debts" => _ = ask(&mut ledger, at(0), "calls", asking(|ask, _| ask.debts = vec![900])),
                "cold" => _ = ask(&mut ledger, at(0), "calls", asking(|ask, cold| ask.cold = Some(cold))),
                _ => _ = apply(&mut ledger, at(0), 9, Body::Report { log: log("calls"), report: report.clone() }),
            }
            assert!(next(&mut ledger, at(1), "calls") > at(1), "{what}");
            reset(&mut ledger, at(2), &["calls"]);
            assert_eq!(next(&mut ledger, at(3), "calls"), at(3), "{what}");
        }
    }

    #[test]
    fn what_is_remembered_from_before_is_no_loss_and_what_is_missing_later_is() {
        let mut ledger = Ledger::new();
        let remember = |told, newest| move |ask: &mut Ask| ask.remembered = Remembered::new(0, told, [newest]);
        for start in [0, 0, 1_000] {
            let grant =
                ask(&mut ledger, at(start - start / 10), "calls", |ask| ask.horizon = Duration::from_millis(250));
            assert_eq!(grant.answers(1).next().map(|answer| answer.start), Some(at(start)), "the last is booked ahead");
        }
        reset(&mut ledger, at(910), &["calls"]);
        let grant = ask(&mut ledger, at(910), "calls", remember(at(900), at(1_000)));
        assert_eq!((grant.lost, grant.answered(1)), (false, 1));
        assert_eq!(next(&mut ledger, at(911), "calls"), at(911));
        let back = vec![Slots::new(1, at(1_000), [1])];
        ask(&mut ledger, at(912), "calls", |ask| (ask.runs, ask.back) = (Vec::new(), back));
        assert_eq!(next(&mut ledger, at(913), "calls"), at(1_910), "what is forgotten is nobody's to hand back");
        let grant = ask(&mut ledger, at(2_000), "calls", remember(at(1_950), at(1_950)));
        assert_eq!((grant.lost, grant.answered(1)), (true, 0));
    }

    #[test]
    fn of_a_loss_that_matters_no_more_nobody_is_told_again() {
        let (mut ledger, minute) = (Ledger::new(), [Log::new("calls", [Term::new(2, 60 * SPAN)]).of(SCOPE)]);
        let loss_told = |ledger: &mut Ledger, now| {
            let remembered = Remembered::new(5, now, [now]);
            ask(ledger, now, "calls", |ask| (ask.logs, ask.remembered) = (minute.clone().into(), remembered)).loss
        };
        assert!(loss_told(&mut ledger, at(0)).is_some());
        reset(&mut ledger, at(200_000), &["points"]);
        assert_eq!(loss_told(&mut ledger, at(200_000)), None);
    }

    #[test]
    fn nobody_waits_any_more_for_data_that_was_lost() {
        let mut ledger = Ledger::new();
        let remembers = |told| move |ask: &mut Ask| ask.remembered = Remembered::new(5, told, [at(-10)]);
        assert!(ask(&mut ledger, at(0), "calls", remembers(at(-10))).lost);
        reset(&mut ledger, at(1), &["calls"]);
        let grant = ask(&mut ledger, at(2), "calls", remembers(at(-20)));
        assert_eq!((grant.lost, grant.answered(1)), (false, 1));
    }
}
